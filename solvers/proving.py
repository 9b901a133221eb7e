"""Stages that prove: closed forms, relaxations, and the complete order model."""

from __future__ import annotations

from collections.abc import Collection

from schedopt.graph import build_graph
from schedopt.solvers.bounds import closed_form_bound, one_machine
from schedopt.solvers.instance import Instance, build_instance
from schedopt.solvers.order_model import OrderModel, Outcome
from schedopt.solvers.relaxation import growing, relaxed
from schedopt.solvers.resident import size_text
from schedopt.solvers.state import State

MAX_BOOLEANS = 150_000
"""Order Booleans above which the complete model is not built."""
SHARE_OF_RELAXATION = 0.2
"""Share of the time for relaxations that one of them may take."""


def closed_forms(state: State) -> str:
    """The best bound in closed form."""
    instance = state.instance
    if state.assumes_an_order or not instance.exact:
        instance = build_instance(build_graph(state.problem, choices_open=True), max_horizon=None)
    bound = closed_form_bound(instance)
    state.known.raise_bound(bound.value * instance.step, bound.source)
    return bound.source


def relaxations(state: State, seconds: float, effort: float | None) -> str:
    """Bounds from some devices alone, more of them while that improves the bound."""
    until, before, count, spent = state.elapsed + seconds, state.known.bound, 0, 0.0
    subsets = growing(sorted({resource.device for resource in state.instance.resources}))
    kept = next(subsets, None)
    while kept is not None and not state.known.closed and state.elapsed < until:
        if effort is not None and spent >= effort:
            break
        outcome = _relaxation(
            state,
            kept,
            min(until, state.elapsed + seconds * SHARE_OF_RELAXATION),
            None if effort is None else effort * SHARE_OF_RELAXATION,
        )
        count += 1
        spent += outcome.deterministic_time if outcome else 0.0
        try:
            kept = subsets.send(outcome.bound if outcome else 0)
        except StopIteration:
            kept = None
    return f"{count} relaxations, " + (
        f"bound from {state.known.bound_source}"
        if state.known.bound > before
        else "no better bound"
    )


def _relaxation(
    state: State, kept: Collection[int], until: float, effort: float | None
) -> Outcome | None:
    """Raise the bound by what the order model proves with these devices alone."""
    instance = relaxed(state.instance, kept)
    model = _model(state, instance, until)
    threads = state.budget.threads(model.size)
    if model.size > MAX_BOOLEANS or not threads or state.elapsed >= until:
        return None
    model.build()
    outcome = model.solve(
        time_limit=until - state.elapsed,
        workers=threads,
        seed=state.seed,
        deterministic_limit=effort,
    )
    names = " and ".join(map(str, sorted(kept)))
    source = f"device{'s' if len(kept) > 1 else ''} {names} alone"
    if outcome.status in ("infeasible", "invalid"):
        state.known.faults.append(f"CP-SAT calls the relaxation to {source} {outcome.status}")
        return None
    if not state.assumes_an_order:
        state.known.raise_bound(outcome.bound * instance.step, source)
    return outcome


def _model(state: State, instance: Instance, until: float) -> OrderModel:
    """Order model of the instance or a relaxation of it, within what is known."""
    return OrderModel(
        instance,
        horizon=state.known.best_in_steps(),
        bound=state.known.bound_in_steps(),
        deadline=state.began + until,
    )


def order_model(state: State, seconds: float, effort: float | None) -> str:
    """The complete order model, with the best schedule as hint and horizon."""
    return _order_model(state, state.instance, seconds, effort, assumes=state.assumes_an_order)


def any_order(state: State, seconds: float, effort: float | None) -> str:
    """The same without an assumed order of microbatches."""
    instance = build_instance(build_graph(state.problem, choices_open=True))
    return _order_model(state, instance, seconds, effort, assumes=False)


def _order_model(
    state: State, instance: Instance, seconds: float, effort: float | None, *, assumes: bool
) -> str:
    if state.known.best is None:
        return "no start"
    until = state.elapsed + seconds
    model = _model(state, instance, until)
    if not assumes and not model.precedence.contradiction:
        bound = max(one_machine(instance, model.precedence.frames))
        source = f"{bound.source}, with what memory and the best schedule decide"
        state.known.raise_bound(bound.value * instance.step, source)
    if model.size > MAX_BOOLEANS:
        return f"not built: {model.size} order Booleans, at most {MAX_BOOLEANS}"
    threads = state.budget.threads(model.size)
    if not threads:
        limit = size_text(state.budget.limit or 0)
        return f"not built: {model.size} order Booleans do not fit into {limit}"
    if state.elapsed >= until:
        return f"not built: no time left for {model.size} order Booleans"
    model.build()
    model.hint(state.known.starts(instance), state.known.sequences(instance))
    outcome = model.solve(
        time_limit=until - state.elapsed,
        workers=threads,
        seed=state.seed,
        deterministic_limit=effort,
        on_solution=lambda value: state.known.tell("order model", objective=value * instance.step),
        on_bound=None
        if assumes
        else lambda bound: state.known.tell("order model", bound=bound * instance.step),
    )
    _take(state, instance, outcome, assumes=assumes)
    return (
        f"{outcome.status}, {outcome.booleans} order Booleans, "
        f"deterministic time {outcome.deterministic_time:.2f}"
        + state.budget.note(threads, "threads")
    )


def _take(state: State, instance: Instance, outcome: Outcome, *, assumes: bool) -> None:
    """Take over what the order model found, unless it contradicts what is known."""
    if outcome.status in ("infeasible", "invalid"):
        state.known.faults.append(
            f"CP-SAT calls the order model {outcome.status}, but a valid schedule is known; "
            "its answer is not used"
        )
        return
    if outcome.sequences is not None:
        orders = instance.orders(outcome.sequences)
        other = instance is not state.instance
        state.known.accept(orders, "order model", any_order=other)
    if not assumes:
        state.known.raise_bound(outcome.bound * instance.step, "order model")
    elif outcome.status == "optimal" and instance.exact:
        state.order_proven = True
