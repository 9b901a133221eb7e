from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedopt.errors import ScheduleError
from schedopt.graph import build_graph
from schedopt.op import KINDS, Op, Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule, TimedOp
from tests.problems import problems, random_orders

PROBLEM = Problem(
    devices=2,
    microbatches=1,
    durations={"F": [0.5, 1], "B": 1, "W": [1, 2]},
    lag={"forward": 1, "backward": 0.25},
    time_unit="ms",
)
ORDERS = {
    Resource("compute", 0): [Op("F", 0, 0), Op("B", 0, 0), Op("W", 0, 0)],
    Resource("compute", 1): [Op("F", 1, 0), Op("B", 1, 0), Op("W", 1, 0)],
}


def timed(orders: Any = ORDERS, problem: Problem = PROBLEM, **options: Any) -> Schedule:
    return Schedule.from_order(build_graph(problem), orders, **options)


# ---------------------------------------------------------------------- times and values


def test_from_order_starts_every_op_as_early_as_possible() -> None:
    schedule = timed(name="by hand", info={"status": "feasible"})
    assert schedule.resolution == Fraction(1, 4)
    assert schedule.timeline == {
        Resource("compute", 0): (
            TimedOp(Op("F", 0, 0), 0, 2),
            TimedOp(Op("B", 0, 0), 15, 19),
            TimedOp(Op("W", 0, 0), 19, 23),
        ),
        Resource("compute", 1): (
            TimedOp(Op("F", 1, 0), 6, 10),
            TimedOp(Op("B", 1, 0), 10, 14),
            TimedOp(Op("W", 1, 0), 14, 22),
        ),
    }
    assert (schedule.name, schedule.info) == ("by hand", {"status": "feasible"})


def test_makespan_period_and_objective_are_in_the_unit_of_the_problem() -> None:
    schedule = timed()
    assert schedule.makespan == Fraction(23, 4)
    assert schedule.period == Fraction(23, 4)
    assert schedule.objective == schedule.makespan
    by_period = replace(schedule, problem=PROBLEM.replace(objective="period"))
    assert by_period.objective == by_period.period


def test_makespan_is_counted_from_zero_and_period_from_the_first_start() -> None:
    schedule = timed()
    later = {
        resource: tuple(TimedOp(op, start + 8, end + 8) for op, start, end in timed_ops)
        for resource, timed_ops in schedule.timeline.items()
    }
    shifted = replace(schedule, timeline=later)
    assert shifted.makespan == schedule.makespan + 2
    assert shifted.period == schedule.period


def test_a_schedule_without_ops_takes_no_time() -> None:
    empty = Schedule(PROBLEM, {}, Fraction(1))
    assert (empty.makespan, empty.period) == (0, 0)
    assert empty.by_device == {0: (), 1: ()}


def test_a_device_computes_only_what_is_on_its_compute_stream() -> None:
    schedule = timed()
    link = {Resource("link to 1", 0): (TimedOp(Op("SF", 0, 0), 2, 6),)}
    both = replace(schedule, timeline={**schedule.timeline, **link})
    assert both.by_device == schedule.by_device


def test_orders_are_those_it_was_made_from() -> None:
    assert timed().orders == {resource: tuple(ops) for resource, ops in ORDERS.items()}


def test_a_schedule_can_not_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        timed().name = "other"  # type: ignore[misc]


# ---------------------------------------------------------------------- orders that do not fit


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({0: "0F0 0B0"}, ["compute 0 = 0W0: is there 0 times"]),
        ({0: "0F0 0B0 0W0 0W0"}, ["compute 0 = 0W0: is there 2 times"]),
        ({0: "0F0 0B0 0W0 0F1"}, ["compute 0 = 0F1: is no op of this problem"]),
        ({0: "0F0 0BW0 0W0 0B0"}, ["compute 0 = 0BW0: is no op of this problem"]),
        (
            {0: "0F0 0B0", 1: "1F0 1B0 1W0 0W0"},
            ["compute 1 = 0W0: belongs on compute 0"],
        ),
        (
            {0: "", 1: "1F0 1B0 1W0"},
            [f"compute 0 = {label}: is there 0 times" for label in ("0F0", "0B0", "0W0")],
        ),
    ],
)
def test_every_op_that_is_missing_doubled_unknown_or_misplaced_is_named(
    changes: dict[int, str], expected: list[str]
) -> None:
    orders = ORDERS | {
        Resource("compute", device): [Op.parse(label) for label in labels.split()]
        for device, labels in changes.items()
    }
    with pytest.raises(ScheduleError) as caught:
        timed(orders)
    assert [str(fault) for fault in caught.value.faults] == expected


# ---------------------------------------------------------------------- files


def test_a_file_has_everything_that_is_needed_to_use_it_alone() -> None:
    data = timed(name="by hand", info={"bound": 5}).to_dict()
    assert data == {
        "format": "schedopt.schedule/1",
        "versions": {"schedopt": version("schedopt")},
        "name": "by hand",
        "problem": PROBLEM.to_dict(),
        "placement": [0, 1],
        "kinds": KINDS,
        "time_unit": "ms",
        "makespan": 5.75,
        "period": 5.75,
        "timeline": [
            {
                "resource": "compute",
                "device": 0,
                "ops": [
                    {"kind": "F", "stage": 0, "microbatch": 0, "start": 0, "end": 0.5},
                    {"kind": "B", "stage": 0, "microbatch": 0, "start": 3.75, "end": 4.75},
                    {"kind": "W", "stage": 0, "microbatch": 0, "start": 4.75, "end": 5.75},
                ],
            },
            {
                "resource": "compute",
                "device": 1,
                "ops": [
                    {"kind": "F", "stage": 1, "microbatch": 0, "start": 1.5, "end": 2.5},
                    {"kind": "B", "stage": 1, "microbatch": 0, "start": 2.5, "end": 3.5},
                    {"kind": "W", "stage": 1, "microbatch": 0, "start": 3.5, "end": 5.5},
                ],
            },
        ],
        "info": {"bound": 5},
    }


def test_the_text_is_the_json_of_the_dictionary_with_one_line_per_op() -> None:
    schedule = timed(name="two\nlines")
    text = schedule.to_json()
    assert json.loads(text) == json.loads(json.dumps(schedule.to_dict()))
    assert sum('"microbatch"' in line for line in text.splitlines()) == 6
    empty = Schedule(PROBLEM, {Resource("compute", 0): ()}, Fraction(1))
    assert json.loads(empty.to_json()) == json.loads(json.dumps(empty.to_dict()))


def test_a_schedule_without_resources_is_written_and_read() -> None:
    empty = Schedule(PROBLEM, {}, PROBLEM.time_resolution)
    assert Schedule.from_dict(json.loads(empty.to_json())) == empty


@given(problems(), st.data())
def test_writing_and_reading_a_schedule_gives_an_equal_one(
    problem: Problem, data: st.DataObject
) -> None:
    orders = random_orders(problem, lambda low, high: data.draw(st.integers(low, high)))
    if orders is None:
        return
    schedule = timed(orders, problem, name="random", info={"seed": 1, "versions": {"a": "1"}})
    again = Schedule.from_dict(json.loads(schedule.to_json()))
    assert again == schedule
    assert (again.makespan, again.period) == (schedule.makespan, schedule.period)


def test_thirds_of_a_step_are_read_back_exactly(tmp_path: Path) -> None:
    schedule = timed()
    finer = Schedule(
        PROBLEM,
        {
            resource: tuple(TimedOp(op, 3 * start + 1, 3 * end + 1) for op, start, end in timed_ops)
            for resource, timed_ops in schedule.timeline.items()
        },
        schedule.resolution / 3,
    )
    finer.save(tmp_path / "schedule.json")
    again = Schedule.load(tmp_path / "schedule.json")
    assert again == finer
    assert again.makespan == Fraction(23, 4) + Fraction(1, 12)


def test_large_indices_survive(tmp_path: Path) -> None:
    problem = Problem.uniform(devices=12, microbatches=24)
    orders = {
        Resource("compute", device): [
            Op(kind, device, i) for kind in ("F", "B", "W") for i in range(24)
        ]
        for device in range(12)
    }
    schedule = timed(orders, problem)
    schedule.save(tmp_path / "schedule.json")
    again = Schedule.load(tmp_path / "schedule.json")
    assert again == schedule
    assert {Op("F", 11, 3), Op("F", 1, 13), Op("W", 10, 10), Op("B", 1, 0)} <= {
        op for ops in again.orders.values() for op in ops
    }


def faults_of(change: Any) -> list[str]:
    data = json.loads(timed().to_json())
    change(data)
    with pytest.raises(ScheduleError) as caught:
        Schedule.from_dict(data, "a.json")
    assert str(caught.value).startswith("a.json: schedule is not valid, ")
    return [str(fault) for fault in caught.value.faults]


def test_faults_of_a_file_name_their_place() -> None:
    assert faults_of(lambda data: data.pop("timeline")) == ["timeline: required"]
    assert faults_of(lambda data: data.update(extra=1))[0].startswith("extra = 1: unknown field")
    assert faults_of(lambda data: data["timeline"][1]["ops"][0].update(start="soon")) == [
        "timeline[1].ops[0].start = 'soon': must be a number, or a ratio such as \"1/3\""
    ]
    assert faults_of(
        lambda data: data["timeline"][0]["ops"][2].update(stage=-1, microbatch=0.5)
    ) == [
        "timeline[0].ops[2].stage = -1: must be at least 0",
        "timeline[0].ops[2].microbatch = 0.5: must be a whole number",
    ]
    assert len(faults_of(lambda data: data["timeline"][0]["ops"][0].update(kind="X"))) == 1
    assert len(faults_of(lambda data: data.update(format="schedopt.problem/1"))) == 1


def test_faults_of_the_problem_inside_are_named_with_their_place() -> None:
    assert faults_of(lambda data: data["problem"].update(devices=0)) == [
        "problem.devices = 0: must be at least 1"
    ]


def test_a_placement_that_is_not_that_of_the_problem_is_a_fault() -> None:
    assert faults_of(lambda data: data.update(placement=[1, 0])) == [
        "placement = [1, 0]: must be that of the problem, [0, 1]"
    ]


def test_a_resource_with_two_lists_is_a_fault() -> None:
    def twice(data: Any) -> None:
        data["timeline"].append({"resource": "compute", "device": 0, "ops": []})

    assert faults_of(twice) == [
        "timeline[2] = compute 0: is there twice; all ops of a resource are in one list"
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"makespan": 5}, "makespan = 5: must be 5.75, the end of its last op, or left out"),
        (
            {"period": "1/3"},
            "period = 1/3: must be 5.75, the largest span of a device in it, or left out",
        ),
        (
            {"info": {"objective": 5.5}},
            "info.objective = 5.5: must be 5.75, its makespan, or left out",
        ),
        (
            {"info": {"bound": 4.6, "gap": 0}},
            "info.gap = 0: must be 0.2, (objective - bound) / objective, or left out",
        ),
    ],
    ids=str,
)
def test_a_stated_figure_that_its_times_contradict_is_a_fault(
    change: dict[str, Any], expected: str
) -> None:
    assert faults_of(lambda data: data.update(change)) == [expected]


def test_the_objective_of_a_file_is_the_one_its_problem_names() -> None:
    problem = PROBLEM.replace(objective="period")
    schedule = timed(problem=problem, info={"objective": 5, "bound": 5})
    with pytest.raises(ScheduleError, match=r"must be 5\.75, its period, or left out"):
        Schedule.from_dict(schedule.to_dict())


def test_figures_that_are_right_or_left_out_are_no_faults() -> None:
    facts = {"objective": 5.75, "bound": 4.6, "gap": 0.2, "status": "feasible"}
    data = timed(info=facts).to_dict()
    assert Schedule.from_dict(data).info == facts
    for name in ("makespan", "period", "info"):
        del data[name]
    assert Schedule.from_dict(data).makespan == Fraction(23, 4)


@pytest.mark.parametrize("data", [None, 3, [], "text", {}])
def test_other_data_than_a_schedule_is_a_fault(data: Any) -> None:
    with pytest.raises(ScheduleError):
        Schedule.from_dict(data)
