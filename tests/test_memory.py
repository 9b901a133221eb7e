from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedopt.check import check
from schedopt.graph import build_graph
from schedopt.memory import memory_curves, peak_memory
from schedopt.op import Op, Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from tests.problems import problems, random_orders


def schedule_of(orders: dict[int, str], **fields: Any) -> Schedule:
    problem = Problem(**{"devices": len(orders), "durations": {"F": 1, "B": 1, "W": 1}, **fields})
    parsed = {
        Resource("compute", device): [Op.parse(label) for label in labels.split()]
        for device, labels in orders.items()
    }
    return Schedule.from_order(build_graph(problem), parsed)


ONE_BY_ONE = "0F0 0B0 0W0 0F1 0B1 0W1"
TOGETHER = "0F0 0F1 0B0 0W0 0B1 0W1"


def test_the_curve_has_a_point_for_each_time_at_which_memory_changes() -> None:
    schedule = schedule_of(
        {0: TOGETHER}, microbatches=2, memory={"F": 2, "B": 1, "static": 0.5, "capacity": 9}
    )
    (curve,) = memory_curves(schedule)
    half = Fraction(1, 2)
    assert curve.points == (
        (0, 2 + half),
        (1, 4 + half),
        (2, 5 + half),
        (3, 5 + half),
        (4, 3 + half),
        (5, 3 + half),
        (6, half),
    )
    assert (curve.device, curve.peak, curve.peak_time) == (0, 5 + half, 2)


def test_the_peak_of_a_span_counts_what_is_held_in_it() -> None:
    schedule = schedule_of({0: TOGETHER}, microbatches=2, memory={"F": 2, "B": 1})
    (curve,) = memory_curves(schedule)
    # 2 from 0, 4 from 1, 5 from 2 to 4, 3 from 4 to 6
    for start, end, peak in ((0, 1, 2), (0, 7, 5), (1, 2, 4), (4, 6, 3), (6, 7, 0)):
        assert curve.peak_in(Fraction(start), Fraction(end)) == peak


def test_what_is_released_at_a_time_is_free_for_what_is_acquired_then() -> None:
    schedule = schedule_of({0: ONE_BY_ONE}, microbatches=2)
    assert peak_memory(schedule) == (1,)
    # the level between the end of one op and the start of the next is no point of its own
    assert memory_curves(schedule)[0].points == (
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 1),
        (5, 1),
        (6, 0),
    )


@pytest.mark.parametrize(
    ("memory", "peak", "time"),
    [
        ({"F": 2}, 4, 1),
        ({"F": 2, "B": -1}, 4, 1),
        ({"F": 2, "B": 1}, 5, 2),
        ({"F": 2, "transient": {"F": 3}}, 7, 1),
        ({"F": 2, "transient": {"B": 3}}, 7, 2),
        ({"F": 2, "transient": {"W": 3}}, 7, 3),
        ({"F": 2, "B": -2, "transient": {"W": 3}}, 5, 3),
        ({"F": 2, "static": 10}, 14, 1),
        ({"F": 0, "static": 10}, 10, 0),
        ({"F": 0}, 0, 0),
    ],
)
def test_the_peak_counts_positive_backward_transient_and_static_memory(
    memory: dict[str, Any], peak: int, time: int
) -> None:
    (curve,) = memory_curves(schedule_of({0: TOGETHER}, microbatches=2, memory=memory))
    assert (curve.peak, curve.peak_time) == (peak, time)


def test_a_longer_microbatch_needs_more() -> None:
    fields = {"microbatches": 2, "microbatch_factors": [1, 2.5]}
    assert peak_memory(schedule_of({0: ONE_BY_ONE}, **fields)) == (Fraction(5, 2),)
    assert peak_memory(schedule_of({0: TOGETHER}, **fields)) == (Fraction(7, 2),)


def test_one_f_one_b_needs_as_many_activations_as_there_are_devices_behind() -> None:
    orders = {
        0: "0F0 0F1 0F2 0BW0 0BW1 0BW2",
        1: "1F0 1F1 1BW0 1F2 1BW1 1BW2",
        2: "2F0 2BW0 2F1 2BW1 2F2 2BW2",
    }
    schedule = schedule_of(orders, microbatches=3, durations={"F": 1, "BW": 2})
    assert peak_memory(schedule) == (3, 2, 1)


def test_ops_of_length_zero_count_in_their_order() -> None:
    durations = {"F": 0, "B": 0, "W": 0}
    assert peak_memory(schedule_of({0: ONE_BY_ONE}, microbatches=2, durations=durations)) == (1,)
    assert peak_memory(schedule_of({0: TOGETHER}, microbatches=2, durations=durations)) == (2,)


def test_what_one_resource_releases_is_free_at_that_time_for_another_of_the_device() -> None:
    schedule = schedule_of({0: ONE_BY_ONE}, microbatches=2)
    (resource, timed_ops) = next(iter(schedule.timeline.items()))
    release = timed_ops[2]
    assert str(release.op) == "0W0"
    apart = {resource: timed_ops[:2] + timed_ops[3:], Resource("other", 0): (release,)}
    for timeline in (apart, dict(reversed(apart.items()))):
        (curve,) = memory_curves(Schedule(schedule.problem, timeline, schedule.resolution))
        assert curve.peak == 1


def test_stages_on_one_device_share_its_memory() -> None:
    orders = {0: "0F0 1F0 1B0 1W0 0B0 0W0", 1: ""}
    schedule = schedule_of(
        orders, microbatches=1, placement=[0, 0], memory={"F": [1, 2], "static": [0, 7]}
    )
    assert peak_memory(schedule) == (3, 7)
    assert memory_curves(schedule)[1].points == ((0, 7),)


@given(problems(), st.data())
def test_the_peak_is_the_least_capacity_that_the_checker_accepts(
    problem: Problem, data: st.DataObject
) -> None:
    free = problem.with_capacity(None)
    orders = random_orders(free, lambda low, high: data.draw(st.integers(low, high)))
    assert orders is not None
    schedule = Schedule.from_order(build_graph(free), orders)
    peaks = [float(peak) for peak in peak_memory(schedule)]
    fits = Schedule(free.with_capacity(peaks), schedule.timeline, schedule.resolution)
    assert check(fits) == ()
    for device, peak in enumerate(peaks):
        if peak > 0:
            short = [*peaks[:device], peak - 2**-10, *peaks[device + 1 :]]
            wrong = Schedule(free.with_capacity(short), schedule.timeline, schedule.resolution)
            assert {(v.rule, v.device) for v in check(wrong)} == {("memory", device)}
