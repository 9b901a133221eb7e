"""Problems of a whole step: recomputation, links, the end of the step, branches."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings

from schedopt import Problem, check, solve
from schedopt.bundled import load_bundled
from schedopt.choices import closed, opened
from schedopt.core import core_of, decided_graph, is_core
from schedopt.graph import build_graph
from schedopt.solvers.bounds import closed_form_bound
from schedopt.solvers.instance import build_instance
from schedopt.solvers.ordered import OrderedInstance
from schedopt.solvers.proving import order_model
from schedopt.solvers.resident import Budget
from schedopt.solvers.state import State
from schedopt.variants import recut, with_recompute_mode
from tests.whole_step import least_objective, whole_steps

EFFORT = 5.0


def require_optimum(problem: Problem) -> None:
    solution = solve(problem, workers=1, deterministic_limit=EFFORT)
    expected = least_objective(problem)
    assert solution.faults == ()
    assert solution.objective == expected
    if solution.schedule is None:
        assert solution.status == "infeasible"
        return
    assert solution.status == "optimal"
    assert check(solution.schedule) == ()


@given(problem=whole_steps())
@settings(max_examples=60, deadline=None)
def test_the_makespan_is_that_of_brute_force_over_all_orders_and_choices(problem: Problem) -> None:
    require_optimum(problem)


@given(problem=whole_steps(most=1, objective="period"))
@settings(max_examples=25, deadline=None)
def test_the_period_is_that_of_brute_force_over_all_orders_and_choices(problem: Problem) -> None:
    require_optimum(problem)


def tight(**fields: Any) -> Problem:
    return Problem.uniform(
        devices=4, microbatches=4, capacity=2, recompute={"mode": "decide", "kept": 0.25}, **fields
    )


def test_open_choices_are_a_place_in_an_order() -> None:
    problem = tight()
    graph = decided_graph(problem, (0, 2))
    schedule = solve(with_recompute_mode(problem, ["always", "never"] * 2), workers=1).schedule
    assert schedule is not None
    orders = opened(schedule.orders, problem)
    assert {op for ops in orders.values() for op in ops} == set(
        build_graph(problem, choices_open=True)
    )
    assert closed(orders, problem) == schedule.orders
    instance = build_instance(build_graph(problem, choices_open=True))
    ordered = OrderedInstance(instance, instance.sequences(orders))
    decided = build_instance(graph)
    assert ordered.value == OrderedInstance(decided, decided.sequences(schedule.orders)).value


def test_deciding_is_never_worse_than_always_and_never() -> None:
    problem = tight()
    values = {
        mode: solve(
            with_recompute_mode(problem, mode), workers=1, deterministic_limit=2.0
        ).objective
        for mode in ("always", "never", "decide")
    }
    assert all(value is not None for value in values.values())
    assert values["decide"] <= min(values["always"], values["never"])  # type: ignore[operator,type-var]


def test_a_problem_that_fits_only_with_recomputation_gets_a_schedule() -> None:
    problem = tight().with_capacity(1)
    solution = solve(with_recompute_mode(problem, "never"), workers=1)
    assert solution.status == "optimal"
    small = problem.replace(memory={"F": 4, "capacity": 5}, recompute={"mode": "decide", "kept": 1})
    found = solve(small, workers=1, deterministic_limit=1.0)
    assert found.schedule is not None
    assert check(found.schedule) == ()


def test_the_core_has_nothing_but_forward_and_backward() -> None:
    problem = tight(
        links={"size": 2, "bandwidth": 4, "latency": 1, "occupy": True},
        end_of_step={"reduction": 1, "optimizer": 1},
    )
    core = core_of(problem, (0,))
    assert is_core(core)
    assert not is_core(problem)
    assert core.lag_between(0, 1) == core.lag_between(1, 0) == 1.5
    assert core.stage_data[0].durations == {"F": 1, "B": 2, "W": 1}
    assert core.stage_data[0].memory == {"F": 0.25, "B": 0.75, "W": -1}
    assert core.stage_data[1].durations == {"F": 1, "B": 1, "W": 1}


@pytest.mark.parametrize("decided", [False, True])
def test_the_same_seed_gives_the_same_schedule(decided: bool) -> None:
    problem = tight() if decided else with_recompute_mode(tight(), "always")
    one, two = (solve(problem, workers=1, seed=3, deterministic_limit=0.5) for _ in range(2))
    assert one.schedule is not None
    assert two.schedule is not None
    assert one.schedule.timeline == two.schedule.timeline


def test_a_steady_state_without_a_barrier_repeats_with_the_period() -> None:
    """Three steps one period apart, each by the same schedule, keep every rule between them."""
    problem = Problem.uniform(
        devices=3,
        microbatches=4,
        F=2,
        B=2,
        W=2,
        objective="period",
        links={"size": 1, "bandwidth": 1},
        end_of_step={"reduction": 3, "optimizer": 1, "tied": [{"stages": [0, 2], "duration": 2}]},
    )
    schedule = solve(problem, workers=1, deterministic_limit=2.0).schedule
    assert schedule is not None
    period = schedule.period / schedule.resolution
    for timed_ops in schedule.timeline.values():
        busy = sorted(
            (timed.start + step * period, timed.end + step * period)
            for timed in timed_ops
            for step in range(3)
        )
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(busy))
    for device, timed_ops in schedule.by_device.items():
        optimizer = next(t for t in timed_ops if t.op.kind == "OPT")
        network = [
            t
            for r, ts in schedule.timeline.items()
            for t in ts
            if r.kind == "network" and r.device == device
        ]
        first = min(t.start for t in timed_ops) + period
        assert max([optimizer.end, *(t.end for t in network)]) <= first
    assert math.isclose(float(period), round(period))


def test_deciding_beats_both_on_the_bundled_problem() -> None:
    problem = load_bundled("recompute-p4-m8")
    never, always = (
        solve(with_recompute_mode(problem, mode), workers=1, deterministic_limit=1.0)
        for mode in ("never", "always")
    )
    assert (never.status, never.objective) == ("optimal", 82)
    assert (always.status, always.objective) == ("optimal", 74)
    decided = solve(problem, workers=1, deterministic_limit=1.0)
    assert decided.objective is not None
    assert decided.objective < 74


@pytest.mark.slow
def test_the_best_choices_of_the_bundled_problem_are_proven() -> None:
    solution = solve(load_bundled("recompute-p4-m8"), time_limit=120)
    assert (solution.status, solution.objective) == ("optimal", 66)


def test_interleaving_wins_on_fast_links_and_loses_on_slow_ones() -> None:
    """Proven at once: the better side is below the bound of the other."""

    def quickly(problem: Problem) -> tuple[Any, Any]:
        solution = solve(problem, workers=1, deterministic_limit=0.01)
        return solution.objective, solution.bound

    fast, slow = (load_bundled(f"links-p4-m24-{speed}") for speed in ("fast", "slow"))
    (_, linear), (interleaved, _) = quickly(fast), quickly(recut(fast, "interleaved", 2))
    assert interleaved == 297 < linear == 303
    linear, _ = quickly(slow)
    cut = build_instance(build_graph(recut(slow, "interleaved", 2)))
    assert linear < 470 < 590 < closed_form_bound(cut).value * cut.step


def test_what_assumes_an_order_proves_nothing() -> None:
    """The model that keeps microbatches in order is solved, and no bound comes from it."""
    problem = load_bundled("recompute-p4-m8")
    state = State(
        problem,
        time_limit=math.inf,
        workers=1,
        seed=0,
        deterministic_limit=5.0,
        index_order=False,
        budget=Budget(None, workers=1),
    )
    assert state.assumes_an_order
    start = solve(with_recompute_mode(problem, "always"), workers=1).schedule
    assert start is not None
    state.known.accept(start.orders, "start")
    assert "optimal" in order_model(state, math.inf, 5.0)
    assert state.order_proven
    assert state.known.bound == 0
    assert state.known.best is not None
    assert state.known.best.objective == 66
