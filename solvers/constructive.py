"""Stages that construct schedules: the portfolio, patience, and steady states."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from schedopt.exact import text
from schedopt.solvers.ordered import OrderedInstance
from schedopt.solvers.patience import PatienceSearch
from schedopt.solvers.periodic import PeriodicModel, shortest_periods, unrolled
from schedopt.solvers.portfolio import PATIENT_RULE, Candidate, justified, priorities
from schedopt.solvers.state import State
from schedopt.solvers.stretch import shortest_repeat


def portfolio(state: State, members: Sequence[Candidate]) -> str:
    """Schedules to start from, and the best of them turned backwards and forwards in time."""
    detail = build(state, members)
    if state.known.best is None or state.known.closed or state.instance.has_choices:
        return detail  # a list schedule needs to know how long an op takes
    if state.time_left:
        for found in justified(state.instance, state.passages, state.known.starts()):
            if not state.time_left:
                break
            orders = state.instance.orders(found.sequences)
            if not state.known.accept(orders, f"{state.known.best_source}, justified"):
                break
    return detail


def build(state: State, members: Sequence[Candidate]) -> str:
    """Build schedules to start from."""
    count = 0
    for candidate in members:
        if state.known.closed:
            break
        if state.known.best is not None and not candidate.classic and not state.time_left:
            continue
        orders = candidate.build()
        if orders is not None:
            count += 1
            state.known.accept(orders, candidate.name, must_fit=not candidate.classic)
    return f"{count} candidates; best: {state.known.best_source}"


def patience(state: State, seconds: float, effort: float | None) -> str:
    """List schedules with other patience and other targets for each resource."""
    if state.known.best is None:
        return "no start"
    search = patience_search(state, best=state.known.best_in_steps())
    run_for(state, search, seconds, effort, on_better=lambda found: state.accept(found, "patience"))
    return f"{search.schedules} list schedules"


def patience_search(state: State, *, best: int) -> PatienceSearch:
    """The search of patience, for schedules that are better than a value in steps."""
    return PatienceSearch(
        state.instance,
        state.passages,
        priorities(state.instance)[PATIENT_RULE],
        bound=state.known.bound_in_steps(),
        best=best,
        seed=state.seed,
    )


def run_for(
    state: State,
    search: PatienceSearch,
    seconds: float,
    effort: float | None,
    *,
    on_better: Callable[[OrderedInstance], object],
) -> None:
    """Run a search of patience for some time, or for some deterministic time."""
    until = state.elapsed + seconds
    search.run(
        until=lambda: (
            state.elapsed >= until or (effort is not None and search.deterministic_time >= effort)
        ),
        on_better=on_better,
    )


def periodic(state: State, seconds: float, effort: float | None) -> str:
    """Steady states with shorter and shorter periods, unrolled."""
    instance = state.instance
    if state.known.best is None or not PeriodicModel.applies(instance):
        return "does not apply: microbatches or resources differ"
    model = PeriodicModel(instance)
    repeat = shortest_repeat(OrderedInstance(instance, state.known.sequences()))
    if repeat is not None and repeat.growth <= model.least:
        return "the best schedule already repeats with the shortest period there can be"
    found = shortest_periods(
        model,
        longest=state.known.best_in_steps() // state.problem.microbatches,
        workers=state.workers,
        seed=state.seed,
        seconds=seconds,
        deterministic_limit=effort,
    )
    detail = "no steady state found"
    for steady in found:
        period = text(steady.period * instance.step)
        detail = f"period {period} {state.problem.time_unit} per microbatch"
        state.known.accept(instance.orders(unrolled(instance, steady)), f"steady state, {detail}")
    return detail
