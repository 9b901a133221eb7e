"""What a solver must not do: lose what it knows, call it infeasible, or round in silence."""

from __future__ import annotations

from typing import Any

import pytest

from schedopt import ProblemError, check, solve
from schedopt.classic import one_f_one_b
from schedopt.solvers.order_model import OrderModel, Outcome
from tests.cases.solving import checked, optimum, pipeline, proven, why_infeasible


def test_R01_a_time_limit_that_ends_at_once_still_gives_the_known_schedule() -> None:
    """A solver lost a complete hint when time ran out before its search."""
    solution = checked(pipeline(8, 32, capacity=8), time_limit=0.01)
    assert solution.objective is not None
    assert 96 <= solution.bound <= solution.objective <= 103


@pytest.mark.parametrize("capacity", [2, 3])
def test_R03_what_fits_one_microbatch_is_never_infeasible(
    capacity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions of a solver called feasible models infeasible: its word does not decide that."""
    false = Outcome("infeasible", None, None, 0, 0.0, 0.0, 0)
    monkeypatch.setattr(OrderModel, "solve", lambda *_, **__: false)
    solution = solve(pipeline(4, 8, capacity=capacity), workers=1, deterministic_limit=1)
    assert solution.status == "feasible"
    assert "infeasible" in solution.faults[0]
    assert solution.schedule is not None
    assert check(solution.schedule) == ()


def test_R03_one_microbatch_at_a_time_takes_72() -> None:
    """Memory for one microbatch is enough, and half of it is not."""
    assert optimum(pipeline(4, 8, capacity=1)) == 72
    assert why_infeasible(pipeline(4, 8, capacity=[1, 0.5, 1, 1])) == [
        "device 1 needs 1 activations (0 static + 1 for one microbatch), its capacity is 0.5"
    ]


@pytest.mark.parametrize(("capacity", "makespan"), [(4, 27), (3, 31)])
def test_R05_five_runs_give_one_makespan(capacity: int, makespan: int) -> None:
    """Parallel search gave another schedule in every run; the objective must not differ."""
    runs = {optimum(pipeline(4, 8, capacity=capacity)) for _ in range(5)}
    assert runs == {makespan}


def test_R05_one_worker_with_a_seed_writes_the_same_file() -> None:
    """Byte for byte, so that ranks and runs can be compared by their files."""

    def written() -> str:
        problem = pipeline(4, 8, capacity=3)
        solution = proven(problem, workers=1, seed=3, deterministic_limit=2)
        assert solution.schedule is not None
        return solution.schedule.to_json()

    assert written() == written()


def test_R07_decimals_are_counted_exactly() -> None:
    """1.5 is three halves: 16 is 32 steps of 0.5."""
    problem = pipeline(3, 3, 1.5, 1.5, 1.0)
    solution = proven(problem)
    assert solution.objective == 16
    assert solution.resolution_note == "exact"
    assert problem.time_resolution == 0.5


def test_R07_nanoseconds_of_a_large_pipeline_are_accepted_and_exact() -> None:
    """24,576 ops with times of ten digits: sums stay whole numbers."""
    problem = pipeline(32, 256, 18_522_000, 18_086_000, 9_337_000, time_unit="ns")
    assert one_f_one_b(problem).makespan == (256 + 31) * (18_522_000 + 18_086_000 + 9_337_000)


def test_R07_nanoseconds_are_solved_like_microseconds() -> None:
    """The same problem in another unit."""
    microseconds = optimum(pipeline(8, 24, 18522, 18086, 9337, lag=601, capacity=8))
    nanoseconds = optimum(
        pipeline(8, 24, 18_522_000, 18_086_000, 9_337_000, lag=601_000, capacity=8)
    )
    assert nanoseconds == 1000 * microseconds == 1_310_405_000


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        (float("inf"), "must be a finite number"),
        (float("nan"), "must be a finite number"),
        ("inf", "must be a number, written without quotes"),
        ("nan", "must be a number, written without quotes"),
        ("1e15", "must be a number, written without quotes"),
    ],
)
def test_R07_what_is_no_finite_number_is_refused_with_its_field(value: Any, valid: str) -> None:
    """Infinity made a solver fail with an error of types."""
    with pytest.raises(ProblemError) as error:
        pipeline(3, 3, value)
    assert [(fault.field, fault.valid) for fault in error.value.faults] == [("durations.F", valid)]


def test_R07_a_range_of_fifteen_digits_is_searched_in_steps_and_timed_exactly() -> None:
    """1e15 next to 1 is more than the search counts in; it says so, and no number is rounded."""
    solution = checked(pipeline(3, 3, [1e15, 1, 1], 1, 1), time_limit=1)
    assert solution.objective == 3 * 10**15 + 6
    assert solution.resolution_note.startswith("searched in steps of ")
    assert solution.objective - solution.bound < 10**6
    assert optimum(pipeline(3, 3, 1e15, 1e15, 1e15)) == 11 * 10**15


def test_R09_a_search_without_time_is_feasible_with_a_gap_and_not_unknown() -> None:
    """A solver that stops without an answer was read as infeasible."""
    solution = checked(pipeline(8, 32, capacity=4), time_limit=0.01)
    assert solution.status == "feasible"
    assert solution.gap is not None
    assert 0 < solution.gap < 1


def test_R09_the_four_answers_are_told_apart() -> None:
    """Optimal, feasible (above), infeasible with its reason, and invalid input."""
    problem = pipeline(2, 2, capacity=1)
    assert proven(problem).status == "optimal"
    assert len(why_infeasible(problem.with_capacity(0))) == 2
    with pytest.raises(ProblemError):
        problem.with_capacity(-1)


@pytest.mark.parametrize(("microbatches", "makespan"), [(4, 23), (8, 43), (12, 61), (16, 79)])
def test_R11_half_the_memory_of_a_long_pipeline_is_solved(microbatches: int, makespan: int) -> None:
    """A plain model found nothing in 100 s; memory decides most of the order."""
    assert optimum(pipeline(8, microbatches, capacity=4)) == makespan


def test_R11_many_microbatches_are_close_at_once() -> None:
    """Two repeats of the optimum for 16 take 158; memory held over time proves 136."""
    solution = checked(pipeline(8, 32, capacity=4), time_limit=1)
    assert solution.objective is not None
    assert 136 <= solution.bound <= solution.objective <= 158


@pytest.mark.slow
def test_R11_many_microbatches_follow_the_pattern() -> None:
    """25 + 18 (m / 4 - 1)."""
    assert optimum(pipeline(8, 32, capacity=4)) == 151
