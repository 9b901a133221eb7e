"""Memory that differs by stage, moves the other way, or is a limit in name only."""

from __future__ import annotations

from typing import Any

import pytest

from schedopt import Problem, ProblemError, check
from schedopt.analysis import compare
from schedopt.classic import one_f_one_b
from schedopt.memory import peak_memory
from tests.cases.solving import (
    checked,
    fused_pipeline,
    optimal_schedule,
    optimum,
    pipeline,
    why_infeasible,
)


@pytest.mark.parametrize(("capacity", "makespan"), [(1, 72), (2, 41), (3, 31), (4, 27), (8, 27)])
def test_M01_less_memory_than_1f1b_takes_is_slower_and_not_infeasible(
    capacity: int, makespan: int
) -> None:
    """Stage 0 of 1F1B holds p microbatches; a template that needs them proves nothing."""
    assert optimum(pipeline(4, 8, capacity=capacity)) == makespan


def test_M01_equal_stages_of_1f1b_have_unequal_peaks() -> None:
    """Equal stages, and still the first device is fullest: stage s keeps p - s microbatches."""
    schedule = one_f_one_b(fused_pipeline(4, 8, 1, 2, capacity=4))
    assert peak_memory(schedule) == (4, 3, 2, 1)
    assert check(schedule) == ()


def unequal_memory(capacity: Any) -> Problem:
    memory = {"F": [4, 2, 2, 3], "B": [-2, -1, -1, -1], "W": [-2, -1, -1, -2]}
    return pipeline(4, 6, 2, 2, 2, capacity=capacity, memory=memory)


@pytest.mark.parametrize(("capacity", "makespan"), [([12, 8, 8, 6], 48), (6, 98)])
def test_M04_memory_and_capacity_count_stage_by_stage(capacity: Any, makespan: int) -> None:
    """A planner with one memory value ran out of it on some stages and wasted it on others."""
    assert optimum(unequal_memory(capacity)) == makespan


def test_M04_a_stage_that_does_not_hold_one_microbatch_is_named() -> None:
    """Stage 0 needs 4 for a single microbatch."""
    assert why_infeasible(unequal_memory([3, 8, 8, 6])) == [
        "device 0 needs 4 activations (0 static + 4 for one microbatch), its capacity is 3"
    ]


def memory_rises_in_b(capacity: int) -> Problem:
    return pipeline(3, 3, capacity=capacity, memory={"F": 2, "B": 1, "W": -3})


@pytest.mark.parametrize(("capacity", "makespan"), [(3, 21), (5, 14), (7, 12), (9, 11)])
def test_M06_b_may_acquire_memory(capacity: int, makespan: int) -> None:
    """Measured: B took memory that only W gave back, where a planner assumed the reverse."""
    assert optimum(memory_rises_in_b(capacity)) == makespan


def test_M06_what_b_acquires_counts_for_one_microbatch() -> None:
    """Every stage needs 3 during B."""
    assert why_infeasible(memory_rises_in_b(2)) == [
        f"device {device} needs 3 activations (0 static + 3 for one microbatch), its capacity is 2"
        for device in range(3)
    ]


def test_M06_memory_that_does_not_sum_to_zero_is_refused() -> None:
    """What one microbatch acquires it releases; 2 + 1 - 2 would fill the device for ever."""
    with pytest.raises(ProblemError, match="sums to 1, not 0"):
        pipeline(3, 3, memory={"F": 2, "B": 1, "W": -2})


def heaviest_last(capacity: int) -> Problem:
    layers = [1, 2, 2, 3]
    memory = {"F": layers, "B": 0, "W": [-count for count in layers]}
    return pipeline(4, 4, layers, layers, layers, capacity=capacity, memory=memory)


@pytest.mark.parametrize(("capacity", "makespan"), [(3, 65), (4, 44), (6, 41)])
def test_M09_the_heaviest_stage_decides(capacity: int, makespan: int) -> None:
    """8 layers as 1, 2, 2, 3: an estimate for the mean stage called too much possible."""
    assert optimum(heaviest_last(capacity)) == makespan


def test_M09_the_mean_of_the_stages_is_no_test() -> None:
    """The mean stage needs 2 and would pass."""
    assert why_infeasible(heaviest_last(2)) == [
        "device 3 needs 3 activations (0 static + 3 for one microbatch), its capacity is 2"
    ]


def heavy_ends(static: int) -> Problem:
    return pipeline(4, 8, capacity=6, memory={"static": [static, 0, 0, static]})


@pytest.mark.parametrize(("static", "makespan"), [(2, 27), (3, 31), (4, 41)])
def test_M10_static_memory_at_the_ends_is_taken_from_the_activations(
    static: int, makespan: int
) -> None:
    """Embedding and head fill the first and the last device while the middle has room."""
    assert optimum(heavy_ends(static)) == makespan


def test_M10_static_memory_counts_in_the_test_for_one_microbatch() -> None:
    """6 of 6 are static: no room for one activation."""
    assert why_infeasible(heavy_ends(6)) == [
        f"device {device} needs 7 activations (6 static + 1 for one microbatch), its capacity is 6"
        for device in (0, 3)
    ]


@pytest.mark.parametrize("kind", ["F", "BW"])
def test_M12_memory_within_an_op_is_a_part_of_its_own(kind: str) -> None:
    """Weights, three microbatches in flight and what an op needs while it runs: 5 + 3 x 2 + 3."""

    def one_f_one_b_with(capacity: int) -> Any:
        memory = {"F": 2, "transient": {kind: 3}, "static": 5, "capacity": capacity}
        problem = fused_pipeline(3, 3, 1, 2)
        return one_f_one_b(problem.replace(memory=memory))

    assert peak_memory(one_f_one_b_with(14))[0] == 14
    assert check(one_f_one_b_with(14)) == ()
    violations = check(one_f_one_b_with(13))
    assert {(violation.rule, violation.device) for violation in violations} == {("memory", 0)}


def test_M13_capacity_is_a_hard_limit() -> None:
    """A compiler let the limit break ties only, and deferred W to four times the memory."""
    schedule = optimal_schedule(pipeline(2, 8, capacity=2))
    assert schedule.makespan == 25
    assert peak_memory(schedule) == (2, 2)


@pytest.mark.parametrize("capacity", [1, 2, 3, 5])
def test_M13_capacity_is_a_hard_limit_when_time_is_short_too(capacity: int) -> None:
    """Nothing is returned that does not fit."""
    solution = checked(pipeline(6, 24, 2, 3, 1, lag=1, capacity=capacity), time_limit=0.001)
    assert solution.schedule is not None
    assert max(peak_memory(solution.schedule)) <= capacity


def test_M13_a_classic_schedule_that_is_said_to_fit_does() -> None:
    """The comparison and the checker count memory on their own and agree."""
    fits = {}
    for row in compare(pipeline(4, 8, capacity=4)):
        assert row.schedule is not None
        assert row.summary is not None
        rules = {violation.rule for violation in check(row.schedule)}
        assert rules <= {"memory"}
        assert row.summary.fits == (not rules)
        fits[row.name, row.placement] = row.summary.fits
    assert fits["1F1B", "linear"]
    assert fits["ZB-H1", "linear"]
    assert not fits["GPipe", "linear"]
    assert not fits["ZB-H2", "linear"]
