"""Numbers of microbatches, stages and layers that templates refuse or get wrong."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from schedopt import Problem, ProblemError
from schedopt.analysis import summary
from schedopt.partition import parse_partition
from tests.cases.solving import optimal_schedule, optimum, pipeline


def layers(*counts: int, capacity: int | None = None) -> Problem:
    """As many devices, microbatches and stages, each with F, B and W equal to its layers."""
    work = list(counts)
    return pipeline(len(work), len(work), work, work, work, capacity=capacity)


def test_A01_one_microbatch_on_eight_stages_is_valid() -> None:
    """Long sequences leave room for one microbatch: 8 F, 8 B and one W on the longest path."""
    assert optimum(pipeline(8, 1, capacity=1)) == 17


@pytest.mark.parametrize(("capacity", "makespan"), [(3, 13), (2, 18), (1, 27)])
def test_A01_three_microbatches_on_four_stages_are_valid(capacity: int, makespan: int) -> None:
    """The same with three microbatches, as memory gets less."""
    assert optimum(pipeline(4, 3, capacity=capacity)) == makespan


def test_A02_two_microbatches_on_four_stages_are_valid() -> None:
    """A template asked for at least p - 1 microbatches; there is no such rule."""
    assert optimum(pipeline(4, 2, 1, 2, 1)) == 16


@pytest.mark.parametrize("count", [0, -1, 1.5, "2"])
def test_A02_a_wrong_number_of_microbatches_is_named_as_in_the_file(count: Any) -> None:
    """What is refused is refused by the name the user wrote, with the value given."""
    with pytest.raises(ProblemError) as error:
        pipeline(4, count)
    (fault,) = error.value.faults
    assert (fault.field, fault.value) == ("microbatches", repr(count))
    assert fault.valid in ("must be at least 1", "must be a whole number")


def test_A03_one_microbatch_on_two_stages_needs_five_steps() -> None:
    """GPipe with a single microbatch hung; F, F, B, B and W follow each other."""
    assert optimum(pipeline(2, 1)) == 5


@pytest.mark.parametrize(("microbatches", "makespan"), [(3, 23), (10, 63)])
def test_A05_microbatches_need_not_be_a_multiple_of_the_devices(
    microbatches: int, makespan: int
) -> None:
    """Interleaved templates need m to divide by p or by rounds; the problem does not."""
    problem = pipeline(4, microbatches, placement=[0, 1, 2, 3, 0, 1, 2, 3])
    assert problem.placement_name == "interleaved"
    assert optimum(problem) == makespan


def test_A07_fewer_microbatches_than_devices_are_warned_of_with_the_idle_share() -> None:
    """Two devices that never work at the same time were accepted in silence."""
    schedule = optimal_schedule(pipeline(2, 1))
    facts = summary(schedule)
    assert facts.makespan_bubble == Fraction(2, 5)
    assert [device.idle / facts.makespan for device in facts.devices] == [Fraction(2, 5)] * 2
    (warning,) = schedule.problem.warnings
    assert warning.startswith("microbatches = 1 is less than the 2 devices in use")


@pytest.mark.parametrize(
    ("partition", "makespan"), [("7,8,8,7", 113), ("8,8,7,7", 116), ("7,7,7,9", 129)]
)
def test_A09_uneven_partitions_are_ranked(partition: str, makespan: int) -> None:
    """30 layers do not divide by 4 stages: any split is accepted, and the optimum ranks them."""
    assert optimum(layers(*parse_partition(partition, layers=30))) == makespan


def test_A11_a_stage_without_work_is_valid() -> None:
    """A layout may leave a stage empty; its ops take no time."""
    assert optimum(layers(2, 0, 2)) == 20


@pytest.mark.parametrize(
    ("forward", "field", "value"),
    [
        ([2, -1, 2], "durations.F[1]", "-1"),
        ([2, 2, float("nan")], "durations.F[2]", "nan"),
        ([None, 2, 2], "durations.F[0]", "None"),
        ([2, 2], "durations.F", "[2, 2]"),
    ],
)
def test_A11_a_wrong_duration_is_named_with_its_stage(
    forward: list[Any], field: str, value: str
) -> None:
    """Layers counted for embedding and head made a stage of -1 layers."""
    with pytest.raises(ProblemError) as error:
        pipeline(3, 3, forward)
    assert [(fault.field, fault.value) for fault in error.value.faults] == [(field, value)]


@pytest.mark.parametrize(("counts", "makespan"), [((12, 8, 8, 8), 156), ((8, 8, 8, 8), 120)])
def test_A14_layers_moved_off_the_stage_of_the_vision_tower_shorten_the_step(
    counts: tuple[int, ...], makespan: int
) -> None:
    """Equal numbers of layers are not equal work if one stage has a vision tower as well."""
    schedule = optimal_schedule(layers(*counts, capacity=4))
    assert schedule.makespan == makespan
    busiest = [device.device for device in summary(schedule).busiest]
    assert busiest == ([0] if counts[0] == 12 else [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("partition", "makespan"),
    [("2,2,2,3,3", 54), ("3,3,2,2,2", 51), ("2,2,3,3,2", 52), ("2,3,2,3,2", 52)],
)
def test_A16_layers_left_over_are_worst_near_the_loss(partition: str, makespan: int) -> None:
    """12 layers on 5 stages: where the two larger stages stand decides the optimum."""
    counts = parse_partition(partition, layers=12)
    assert optimum(layers(*counts, capacity=5)) == makespan
