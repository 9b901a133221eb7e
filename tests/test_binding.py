from __future__ import annotations

from fractions import Fraction

from hypothesis import given

from schedopt import Problem, Schedule, classic
from schedopt.binding import REASONS, Binding, binding, critical_path
from schedopt.graph import FIFO, build_graph
from schedopt.op import Op
from schedopt.schedule import TimedOp
from tests.schedules import schedule_of, two_by_two
from tests.test_idle import schedules


def held(schedule: Schedule) -> dict[str, tuple[str, str]]:
    return {str(op): (why.reason, str(why.op)) for op, why in binding(schedule).items()}


def test_each_op_of_a_small_schedule_is_held_by_what_one_sees() -> None:
    assert held(two_by_two()) == {
        "0F0": ("start", "None"),
        "0F1": ("device", "0F0"),
        "0B0": ("data", "1B0"),
        "0W0": ("device", "0B0"),
        "0B1": ("device", "0W0"),
        "0W1": ("device", "0B1"),
        "1F0": ("data", "0F0"),
        "1B0": ("device", "1F0"),
        "1F1": ("device", "1B0"),
        "1B1": ("device", "1F1"),
        "1W0": ("device", "1B1"),
        "1W1": ("device", "1W0"),
    }


def test_a_lag_makes_a_transfer_of_it() -> None:
    assert held(two_by_two(lag=1))["1F0"] == ("transfer", "0F0")


def test_an_op_that_would_not_fit_one_place_earlier_waits_for_memory() -> None:
    problem = Problem.uniform(devices=1, microbatches=3, capacity=2)
    reasons = held(schedule_of(problem, "0F0 0F1 0B0 0W0 0F2 0B1 0W1 0B2 0W2"))
    assert reasons["0F2"] == ("memory", "0W0")
    assert reasons["0F1"] == ("device", "0F0")
    roomy = held(schedule_of(problem.with_capacity(3), "0F0 0F1 0B0 0W0 0F2 0B1 0W1 0B2 0W2"))
    assert roomy["0F2"] == ("device", "0W0")


def test_what_could_start_earlier_has_slack() -> None:
    schedule = two_by_two()
    (resource, ops), *rest = schedule.timeline.items()
    last = ops[-1]
    moved = (*ops[:-1], TimedOp(last.op, last.start + 3, last.end + 3))
    late = Schedule(schedule.problem, {resource: moved, **dict(rest)}, schedule.resolution)
    assert binding(late)[last.op] == Binding("device", Op("B", 0, 1), Fraction(3))
    assert binding(schedule)[last.op].slack == 0


@given(schedules())
def test_nothing_that_an_op_waits_for_ends_after_its_binding(schedule: Schedule) -> None:
    graph = build_graph(schedule.problem)
    unit, step = schedule.resolution, graph.graph["resolution"]
    start = {t.op: t.start * unit for ops in schedule.timeline.values() for t in ops}
    end = {t.op: t.end * unit for ops in schedule.timeline.values() for t in ops}
    found = binding(schedule)
    assert found.keys() == set(graph)
    for op, why in found.items():
        assert why.reason in REASONS
        assert why.slack >= 0
        for source, _, arc in graph.in_edges(op, data=True):
            if arc["reason"] != FIFO:
                assert end[source] + arc["lag"] * step <= start[op] - why.slack
        if why.op is None:
            assert start[op] == why.slack
        else:
            lag = graph.edges[why.op, op]["lag"] if why.reason == "transfer" else 0
            assert end[why.op] + lag * step + why.slack == start[op]


@given(schedules())
def test_the_critical_path_is_as_long_as_the_schedule(schedule: Schedule) -> None:
    graph = build_graph(schedule.problem)
    step = graph.graph["resolution"]
    path = critical_path(schedule)
    length = sum((link.binding.slack for link in path), Fraction(0))
    for before, link in zip((None, *path), path, strict=False):
        length += graph.nodes[link.op]["duration"] * step
        assert link.binding.op == (None if before is None else before.op)
        if link.binding.reason == "transfer" and before is not None:
            length += graph.edges[before.op, link.op]["lag"] * step
    assert length == schedule.makespan


def test_the_critical_path_of_1f1b_fills_works_on_the_last_device_and_drains() -> None:
    schedule = classic.one_f_one_b(Problem.uniform(devices=3, microbatches=4))
    stages = [link.op.stage for link in critical_path(schedule)]
    assert stages == [0, 1, *[2] * 8, 1, 0]
