from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from schedopt import Problem, Schedule, classic, solve
from schedopt.analysis import summary
from schedopt.graph import build_graph
from schedopt.idle import CAUSES, DeviceIdle, causes
from schedopt.op import Op
from schedopt.schedule import TimedOp
from schedopt.timing import earliest_starts
from tests.problems import random_orders, random_problem
from tests.schedules import schedule_of, two_by_two


def found(devices: Sequence[DeviceIdle]) -> list[dict[str, Fraction]]:
    """What is not 0, by device."""
    return [{cause: time for cause, time in d.causes.items() if time} for d in devices]


def equal_stages(**fields: Any) -> Problem:
    return Problem.uniform(**{"devices": 4, "microbatches": 8, **fields})


def slow_stage(stage: int, **fields: Any) -> Problem:
    durations = [14 if s == stage else 10 for s in range(4)]
    return equal_stages(F=durations, B=durations, W=durations, **fields)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Valid schedules of random problems in which ops may start later than they could."""

    def pick(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    problem = random_problem(pick)
    orders = random_orders(problem, pick)
    assume(orders is not None)
    assert orders is not None
    graph = build_graph(problem)
    delay = {op: pick(0, 3) if pick(0, 3) == 0 else 0 for op in graph}
    for op in graph:
        graph.nodes[op]["duration"] += delay[op]
    starts = earliest_starts(graph, orders)
    timeline = {
        resource: tuple(
            TimedOp(op, starts[op] + delay[op], starts[op] + graph.nodes[op]["duration"])
            for op in ops
        )
        for resource, ops in orders.items()
    }
    return Schedule(problem, timeline, graph.graph["resolution"])


@given(schedules())
def test_the_causes_of_any_schedule_sum_to_its_idle_time(schedule: Schedule) -> None:
    devices = causes(schedule)
    facts = summary(schedule)
    assert [d.device for d in devices] == list(range(schedule.problem.devices))
    assert [(d.work, d.idle) for d in devices] == [(d.work, d.idle) for d in facts.devices]
    for device in devices:
        assert device.causes.keys() == CAUSES.keys()
        assert sum(device.causes.values()) == schedule.makespan - device.work
        assert min(device.causes.values()) >= 0


@given(schedules())
def test_late_and_transfer_are_what_timing_the_orders_anew_saves(schedule: Schedule) -> None:
    problem = schedule.problem
    edges = [{"from": e.from_stage, "to": e.to_stage, "lag": 0} for e in problem.edges]
    without_lags = problem.replace(lag=0, edges=edges)
    early, direct = (
        Schedule.from_order(build_graph(changed), schedule.orders).makespan
        for changed in (problem, without_lags)
    )
    for device in causes(schedule):
        assert device.causes["late"] == schedule.makespan - early
        assert device.causes["transfer"] == early - direct


@given(schedules())
def test_imbalance_is_missing_work_and_memory_needs_a_capacity(schedule: Schedule) -> None:
    devices = causes(schedule)
    most = max(device.work for device in devices)
    unlimited = causes(
        Schedule(
            schedule.problem.with_capacity(None),
            schedule.timeline,
            schedule.resolution,
        )
    )
    for device, free in zip(devices, unlimited, strict=True):
        assert device.causes["imbalance"] == most - device.work
        assert device.causes["memory"] <= max(other.no_room for other in devices)
        assert free.causes["memory"] == free.no_room == 0


@given(schedules(), st.fractions(0, 1))
def test_a_bound_splits_idle_time_into_avoidable_and_not(
    schedule: Schedule, share: Fraction
) -> None:
    bound = share * schedule.makespan
    for device in causes(schedule, bound):
        assert device.unavoidable == max(bound - device.work, 0)
        assert device.avoidable is not None
        assert device.unavoidable + device.avoidable == device.idle
        assert device.avoidable >= 0


@pytest.mark.parametrize("capacity", [None, 4])
def test_idle_time_of_1f1b_with_equal_stages_is_fill_and_drain(capacity: int | None) -> None:
    schedule = classic.one_f_one_b(equal_stages(capacity=capacity))
    assert found(causes(schedule)) == [
        {"fill": 6, "drain": 3},
        {"fill": 5, "drain": 4},
        {"fill": 4, "drain": 5},
        {"fill": 3, "drain": 6},
    ]


@pytest.mark.parametrize("stage", range(4))
def test_the_rest_with_a_slow_stage_is_imbalance(stage: int) -> None:
    devices = causes(classic.one_f_one_b(slow_stage(stage)))
    for device in devices:
        used = {cause for cause, time in device.causes.items() if time}
        assert used - {"imbalance"} == {"fill", "drain"}
        assert device.causes["imbalance"] == (0 if device.device == stage else 8 * 3 * 4)


def test_the_rest_with_a_slow_link_is_transfer() -> None:
    fast, slow = (
        causes(classic.one_f_one_b(equal_stages(F=4, B=4, W=4, lag=lag, capacity=4)))
        for lag in (0, 1)
    )
    assert found(slow) == [{**of_fast, "transfer": 148 - 132} for of_fast in found(fast)]


@pytest.mark.parametrize(("capacity", "memory"), [(1, 42), (2, 13), (3, 4), (4, 0)])
def test_tight_memory_appears_and_goes_away_with_room(capacity: int, memory: int) -> None:
    problem = equal_stages(capacity=capacity)
    solution = solve(problem, workers=1, deterministic_limit=2)
    assert solution.status == "optimal"
    assert solution.schedule is not None
    devices = causes(solution.schedule, solution.bound)
    assert {device.causes["memory"] for device in devices} == {memory}
    assert {device.avoidable for device in devices} == {0}


def test_the_device_without_room_is_known() -> None:
    """Device 0 has room for one microbatch: it waits 2 for each, the last time for no room.

    Memory is taken out of the 4 between, then out of the 2 of the drain.
    """
    problem = Problem.uniform(devices=2, microbatches=4, capacity=[1, 2])
    schedule = schedule_of(
        problem,
        "0F0 0B0 0W0 0F1 0B1 0W1 0F2 0B2 0W2 0F3 0B3 0W3",
        "1F0 1B0 1W0 1F1 1B1 1W1 1F2 1B2 1W2 1F3 1B3 1W3",
    )
    assert [device.no_room for device in causes(schedule)] == [6, 0]
    assert found(causes(schedule))[0] == {"memory": 6, "fill": 2}


def test_waiting_that_another_order_avoids_is_order() -> None:
    """Device 0 has F2 to do while it waits for B0 in the middle of the step."""
    problem = Problem.uniform(devices=2, microbatches=3)
    schedule = schedule_of(
        problem,
        "0F0 0B0 0W0 0F1 0B1 0W1 0F2 0B2 0W2",
        "1F0 1B0 1W0 1F1 1B1 1W1 1F2 1B2 1W2",
    )
    assert found(causes(schedule))[0] == {"fill": 2, "order": 2, "drain": 2}


def test_ops_that_start_later_than_they_could_are_late() -> None:
    schedule = two_by_two()
    shifted = {
        resource: tuple(TimedOp(op, start + 5, end + 5) for op, start, end in ops)
        for resource, ops in schedule.timeline.items()
    }
    late = causes(Schedule(schedule.problem, shifted, schedule.resolution))
    early = causes(schedule)
    assert found(late) == [{**of_early, "late": 5} for of_early in found(early)]


def test_a_device_without_a_stage_has_no_work_at_all() -> None:
    problem = Problem(
        devices=3, microbatches=4, placement=[0, 1], durations={"F": 1, "B": 1, "W": 1}
    )
    schedule = classic.zb_h1(problem.replace(devices=2))
    unused = causes(Schedule(problem, schedule.timeline, schedule.resolution))[2]
    assert (unused.work, unused.causes["imbalance"]) == (0, 4 * 3)
    assert unused.idle == schedule.makespan


def test_a_bound_above_the_makespan_is_refused() -> None:
    with pytest.raises(ValueError, match="the bound 8 is above the makespan, 7"):
        causes(two_by_two(), Fraction(8))


def test_a_schedule_that_breaks_precedences_is_refused() -> None:
    schedule = two_by_two()
    squeezed = {
        resource: tuple(TimedOp(op, i, i + 1) for i, (op, _, _) in enumerate(ops))
        for resource, ops in schedule.timeline.items()
    }
    with pytest.raises(ValueError, match="a makespan of 6 is less than the orders need, 7"):
        causes(Schedule(schedule.problem, squeezed, schedule.resolution))


def test_json_has_every_cause_as_an_exact_number() -> None:
    third = {"F": 1 / 4, "B": 0.5, "W": 1}
    schedule = schedule_of(two_by_two(**third).problem, *ROWS)
    data = causes(schedule, Fraction(4))[1].to_dict()
    assert data["causes"].keys() == CAUSES.keys()
    assert data["idle"] == sum(data["causes"].values())
    assert (data["device"], data["work"], data["unavoidable"]) == (1, 3.5, 0.5)
    assert data["avoidable"] == data["idle"] - 0.5
    assert causes(schedule)[0].to_dict()["avoidable"] is None


ROWS = ("0F0 0F1 0B0 0W0 0B1 0W1", "1F0 1B0 1F1 1B1 1W0 1W1")


def test_every_kind_of_placement_counts_its_devices() -> None:
    """Two stages on a device: the work is that of both, and the fill ends with its first B."""
    problem = Problem.uniform(devices=2, microbatches=4, placement="v")
    schedule = classic.zb_v(problem)
    first = {timed.op for timed in schedule.by_device[0]}
    assert {op.stage for op in first} == {0, 3}
    assert Op("F", 3, 0) in first
    devices = causes(schedule)
    assert [device.work for device in devices] == [4 * 3 * 2] * 2
    assert sum(devices[0].causes.values()) == schedule.makespan - 24
