from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedopt.check import RULES, Violation, check
from schedopt.errors import DeadlockError
from schedopt.graph import build_graph
from schedopt.op import Op, Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule, TimedOp
from tests.brute_force import broken_rules
from tests.problems import best_schedule, problems, random_orders

SPLIT = Problem(
    name="split",
    devices=3,
    microbatches=3,
    durations={"F": [2, 3, 2], "B": [3, 2, 2], "W": [1, 2, 3]},
    lag={"forward": 1, "backward": [2, 1]},
    memory={"F": 2, "B": 1, "W": -3, "static": 1, "capacity": [6, 6, 4]},
)
MIXED_V = Problem(
    name="mixed-v",
    devices=2,
    placement="v",
    microbatches=2,
    durations={
        "F": [1.5, 1, 1, 2],
        "B": [1, None, 1, None],
        "W": [1, None, 1, None],
        "BW": [None, 2.5, None, 3],
    },
    lag=0.5,
    memory={
        "F": [1, 2, 1, 1],
        "transient": {"F": 0.5, "BW": 1},
        "static": 2,
        "capacity": [6, 8],
    },
)
UNEQUAL = Problem(
    name="unequal-interleaved-skip",
    devices=2,
    placement="interleaved",
    microbatches=3,
    microbatch_factors=[1, 0.5, 2],
    durations={"F": 2, "B": 2, "W": 2},
    lag=[[0, 1], [2, 0]],
    edges=[{"from": 0, "to": 2, "lag": 3}, {"from": 1, "to": 3}],
    memory={"B": -0.5, "capacity": 5},
)
SCHEDULES = {problem.name: best_schedule(problem) for problem in (SPLIT, MIXED_V, UNEQUAL)}
every_schedule = pytest.mark.parametrize("name", SCHEDULES)

Place = tuple[str, int, str, Fraction | None]


def places(violations: Iterable[Violation]) -> list[Place]:
    return [(v.rule, v.device, str(v.op), v.time) for v in violations]


def changed(schedule: Schedule, resource: Resource, timed_ops: Iterable[TimedOp]) -> Schedule:
    return replace(schedule, timeline={**schedule.timeline, resource: tuple(timed_ops)})


def compute(device: int) -> Resource:
    return Resource("compute", device)


def one_device(
    *ops: tuple[str, int, int], capacity: float | None = None, **fields: object
) -> Schedule:
    """Two microbatches of one stage on one device: F, B and W take 1 each; (op, start, end)."""
    problem = Problem(
        **{
            "devices": 1,
            "microbatches": 2,
            "durations": {"F": 1, "B": 1, "W": 1},
            "memory": {"capacity": capacity},
            **fields,
        }
    )
    timed_ops = tuple(TimedOp(Op.parse(label), start, end) for label, start, end in ops)
    return Schedule(problem, {compute(0): timed_ops}, Fraction(1))


VALID = (
    ("0F0", 0, 1),
    ("0B0", 1, 2),
    ("0W0", 2, 3),
    ("0F1", 3, 4),
    ("0B1", 4, 5),
    ("0W1", 5, 6),
)


# ---------------------------------------------------------------------- valid schedules


@every_schedule
def test_a_valid_schedule_has_no_violation(name: str) -> None:
    assert check(SCHEDULES[name]) == ()


@every_schedule
def test_pauses_and_a_finer_resolution_are_allowed(name: str) -> None:
    schedule = SCHEDULES[name]
    later = {
        resource: tuple(TimedOp(op, 7 * start + 5, 7 * end + 5) for op, start, end in timed_ops)
        for resource, timed_ops in schedule.timeline.items()
    }
    assert check(replace(schedule, timeline=later, resolution=schedule.resolution / 7)) == ()


def test_memory_released_at_a_time_can_be_used_again_at_that_time() -> None:
    assert check(one_device(*VALID, capacity=1)) == ()


def test_an_op_of_length_zero_may_stand_between_two_others() -> None:
    durations = {"F": 0, "B": 1, "W": 0}
    ops = (("0F0", 0, 0), ("0B0", 0, 1), ("0W0", 1, 1), ("0F1", 1, 1), ("0B1", 1, 2))
    schedule = one_device(*ops, ("0W1", 2, 2), durations=durations, capacity=1)
    assert check(schedule) == ()


def test_a_device_without_stages_may_have_an_empty_list_or_none() -> None:
    problem = Problem(devices=2, placement=[1], microbatches=1, durations={"F": 1, "BW": 2})
    timed_ops = (TimedOp(Op("F", 0, 0), 0, 1), TimedOp(Op("BW", 0, 0), 1, 3))
    without = Schedule(problem, {compute(1): timed_ops}, Fraction(1))
    assert check(without) == ()
    assert check(changed(without, compute(0), ())) == ()


# ---------------------------------------------------------------------- one rule at a time


@every_schedule
def test_a_missing_op_is_reported_with_the_device_it_belongs_on(name: str) -> None:
    schedule = SCHEDULES[name]
    for resource, timed_ops in schedule.timeline.items():
        for position, timed in enumerate(timed_ops):
            rest = timed_ops[:position] + timed_ops[position + 1 :]
            found = check(changed(schedule, resource, rest))
            assert places(found)[0] == ("missing", resource.device, str(timed.op), None)
            # what is not there releases no memory either; nothing else may be reported
            assert {violation.rule for violation in found[1:]} <= {"memory"}
            if timed is timed_ops[-1]:
                assert len(found) == 1


def test_all_ops_of_an_empty_schedule_are_missing() -> None:
    found = check(Schedule(SPLIT, {}, Fraction(1)))
    assert len(found) == 27
    assert {violation.rule for violation in found} == {"missing"}


@every_schedule
def test_a_repeated_op_is_reported_where_it_is_again(name: str) -> None:
    schedule = SCHEDULES[name]
    for resource, timed_ops in schedule.timeline.items():
        for timed in timed_ops:
            begin = timed_ops[-1].end
            again = TimedOp(timed.op, begin, begin + timed.end - timed.start)
            found = check(changed(schedule, resource, (*timed_ops, again)))
            time = begin * schedule.resolution
            assert places(found) == [("repeated", resource.device, str(timed.op), time)]


def test_the_very_same_entry_twice_is_repeated_and_overlaps() -> None:
    found = check(one_device(*VALID, VALID[-1]))
    assert places(found) == [("repeated", 0, "0W1", 5), ("overlap", 0, "0W1", 5)]


@pytest.mark.parametrize("label", ["3F0", "0F3", "0BW0"])
def test_an_op_that_the_problem_does_not_have_is_unknown(label: str) -> None:
    schedule = SCHEDULES["split"]
    timed_ops = schedule.timeline[compute(1)]
    begin = timed_ops[-1].end
    extra = TimedOp(Op.parse(label), begin, begin + 4)
    found = check(changed(schedule, compute(1), (*timed_ops, extra)))
    assert places(found) == [("unknown", 1, label, begin)]


@pytest.mark.parametrize("op", [Op("F", -1, 0), Op("F", 0, -1), Op("R", 0, 0)])
def test_negative_indices_and_other_kinds_are_unknown(op: Op) -> None:
    schedule = SCHEDULES["split"]
    timed_ops = schedule.timeline[compute(1)]
    begin = timed_ops[-1].end
    found = check(changed(schedule, compute(1), (*timed_ops, TimedOp(op, begin, begin))))
    assert places(found) == [("unknown", 1, str(op), begin)]


@pytest.mark.parametrize("target", [compute(0), compute(5), Resource("link", 2)])
def test_an_op_on_another_resource_than_its_own_is_reported(target: Resource) -> None:
    schedule = SCHEDULES["split"]
    *rest, last = schedule.timeline[compute(2)]
    moved = changed(schedule, compute(2), rest)
    there = moved.timeline.get(target, ())
    begin = max([last.start, *(timed.end for timed in there)])
    timed = TimedOp(last.op, begin, begin + 3)
    found = check(changed(moved, target, (*there, timed)))
    assert places(found) == [("device", target.device, str(last.op), begin)]
    assert found[0].message == f"runs on {target}, belongs on compute 2"


@every_schedule
@pytest.mark.parametrize("more", [-1, 1])
def test_an_op_that_takes_another_time_than_its_duration_is_reported(name: str, more: int) -> None:
    schedule = SCHEDULES[name]
    for resource, timed_ops in schedule.timeline.items():
        *rest, last = timed_ops
        if last.op.kind != "W" and last.op.stage != 0:
            continue  # something waits for its end
        wrong = last._replace(end=last.end + more)
        found = check(changed(schedule, resource, (*rest, wrong)))
        time = last.start * schedule.resolution
        assert places(found) == [("duration", resource.device, str(last.op), time)]


def test_the_duration_is_that_of_the_microbatch() -> None:
    schedule = SCHEDULES[UNEQUAL.name]
    found = check(replace(schedule, problem=UNEQUAL.replace(microbatch_factors=[1, 0.5, 1.5])))
    assert sorted(places(found)) == sorted(
        ("duration", resource.device, str(timed.op), timed.start * schedule.resolution)
        for resource, timed_ops in schedule.timeline.items()
        for timed in timed_ops
        if timed.op.microbatch == 2
    )


def test_a_duration_between_two_steps_never_fits() -> None:
    durations = {"F": 1.5, "B": 1, "W": 1}
    found = check(one_device(*VALID, durations=durations))
    assert places(found) == [("duration", 0, "0F0", 0), ("duration", 0, "0F1", 3)]
    assert found[0].message == "takes 1, its duration is 1.5"


@every_schedule
def test_ops_before_time_zero_are_reported(name: str) -> None:
    schedule = SCHEDULES[name]
    early = {
        resource: tuple(TimedOp(op, start - 1, end - 1) for op, start, end in timed_ops)
        for resource, timed_ops in schedule.timeline.items()
    }
    found = check(replace(schedule, timeline=early))
    first = schedule.timeline[compute(0)][0]
    assert places(found) == [("start", 0, str(first.op), -schedule.resolution)]


def test_a_list_that_is_not_in_the_order_of_its_times_is_reported() -> None:
    ops = (("0F1", 1, 2), ("0F0", 0, 1), ("0B0", 2, 3), ("0B1", 3, 4))
    found = check(one_device(*ops, ("0W0", 4, 5), ("0W1", 5, 6)))
    assert places(found) == [("order", 0, "0F0", 0)]
    assert found[0].message == "is listed after 0F1, which starts at 1 and ends at 2"


def test_an_op_of_length_zero_listed_after_what_starts_with_it_is_out_of_order() -> None:
    durations = {"F": 0, "B": 1, "W": 1}
    ops = (("0F0", 0, 0), ("0B0", 0, 1), ("0F1", 0, 0), ("0B1", 1, 2))
    found = check(one_device(*ops, ("0W0", 2, 3), ("0W1", 3, 4), durations=durations))
    assert places(found) == [("order", 0, "0F1", 0)]


def test_two_ops_at_one_time_overlap() -> None:
    ops = (("0F0", 0, 1), ("0F1", 0, 1), ("0B0", 1, 2), ("0B1", 2, 3))
    found = check(one_device(*ops, ("0W0", 3, 4), ("0W1", 4, 5)))
    assert places(found) == [("overlap", 0, "0F1", 0)]
    assert found[0].message == "starts before 0F0 ends at 1"


def test_every_op_within_a_long_one_overlaps_it() -> None:
    durations = {"F": [4], "B": 1, "W": 1}
    ops = (("0F0", 0, 4), ("0F1", 3, 7), ("0B0", 4, 5), ("0W0", 5, 6), ("0B1", 7, 8))
    found = check(one_device(*ops, ("0W1", 8, 9), durations=durations))
    assert places(found) == [
        ("overlap", 0, "0F1", 3),
        ("overlap", 0, "0B0", 4),
        ("overlap", 0, "0W0", 5),
    ]


def test_an_op_of_length_zero_inside_another_overlaps() -> None:
    durations = {"F": 2, "B": 1, "W": 0}
    ops = (("0F0", 0, 2), ("0B0", 2, 3), ("0F1", 3, 5), ("0W0", 4, 4), ("0B1", 5, 6))
    found = check(one_device(*ops, ("0W1", 6, 6), durations=durations))
    assert places(found) == [("overlap", 0, "0W0", 4)]


CHAIN = {
    "devices": 3,
    "microbatches": 1,
    "durations": {"F": 2, "B": [2, None, 2], "W": [2, None, 0], "BW": [None, 3, None]},
}
"""Without lags 0F0 1F0 2F0 2B0 1BW0 0B0 follow each other without a pause."""


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"lag": [3, 0]}, {"1F0": "0F0 ends at 2 plus lag 3", "0B0": "1BW0 ends at 11 plus lag 3"}),
        ({"lag": [0, 1]}, {"2F0": "1F0 ends at 4 plus lag 1", "1BW0": "2B0 ends at 8 plus lag 1"}),
        ({"lag": {"forward": [0, 0.5], "backward": 0}}, {"2F0": "1F0 ends at 4 plus lag 0.5"}),
        ({"lag": {"forward": 0, "backward": [0, 3]}}, {"1BW0": "2B0 ends at 8 plus lag 3"}),
        ({"lag": {"forward": 0, "backward": [3, 0]}}, {"0B0": "1BW0 ends at 11 plus lag 3"}),
        ({"lag": [[0, 3, 0], [0, 0, 0], [0, 0, 0]]}, {"1F0": "0F0 ends at 2 plus lag 3"}),
        ({"lag": [[0, 0, 0], [3, 0, 0], [0, 0, 0]]}, {"0B0": "1BW0 ends at 11 plus lag 3"}),
        (
            {"edges": [{"from": 0, "to": 2, "lag": 4}]},
            {"2F0": "0F0 ends at 2 plus lag 4", "0B0": "2B0 ends at 8 plus lag 4"},
        ),
        (
            {"edges": [{"from": 0, "to": 1, "lag": 1}]},
            {"1F0": "0F0 ends at 2 plus lag 1", "0B0": "1BW0 ends at 11 plus lag 1"},
        ),
        (
            {"edges": [{"from": 0, "to": 1, "lag": lag} for lag in (2, 3, 1)]},
            {"1F0": "0F0 ends at 2 plus lag 3", "0B0": "1BW0 ends at 11 plus lag 3"},
        ),
    ],
)
def test_each_precedence_counts_with_its_own_lag(
    fields: dict[str, object], expected: dict[str, str]
) -> None:
    without_lag = best_schedule(Problem(**CHAIN))
    problem = Problem(**{**CHAIN, **fields})
    found = check(replace(without_lag, problem=problem))
    starts = {str(t.op): t.start for ops in without_lag.timeline.values() for t in ops}
    assert {str(v.op): v.message for v in found} == {
        op: f"starts before {what}" for op, what in expected.items()
    }
    for violation in found:
        assert violation.rule == "precedence"
        assert violation.time == starts[str(violation.op)]
        assert violation.device == problem.device_of[violation.op.stage]


@pytest.mark.parametrize(
    ("ops", "early", "circle"),
    [
        ([("0B0", 0, 1), ("0F0", 1, 2), ("0W0", 2, 3)], ("0B0", 0), "0B0 -> 0F0 -> 0B0"),
        ([("0F0", 0, 1), ("0W0", 1, 2), ("0B0", 2, 3)], ("0W0", 1), "0B0 -> 0W0 -> 0B0"),
    ],
)
def test_ops_of_a_stage_in_a_wrong_order_break_precedence_and_wait_in_a_circle(
    ops: list[tuple[str, int, int]], early: tuple[str, int], circle: str
) -> None:
    precedence, deadlock = check(one_device(*ops, microbatches=1))
    assert places([precedence]) == [("precedence", 0, *early)]
    assert (deadlock.rule, deadlock.device, str(deadlock.op)) == ("deadlock", 0, "0B0")
    assert deadlock.message == f"waits for itself: {circle}"


# ---------------------------------------------------------------------- orders without times


def instant(orders: dict[int, list[str]], **fields: object) -> Schedule:
    """All ops take no time and start at 0: only the orders are left."""
    problem = Problem(
        **{
            "devices": len(orders),
            "microbatches": 2,
            "durations": {"F": 0, "BW": 0},
            **fields,
        }
    )
    timeline = {
        compute(device): tuple(TimedOp(Op.parse(label), 0, 0) for label in labels)
        for device, labels in orders.items()
    }
    return Schedule(problem, timeline, Fraction(1))


def test_ops_without_length_may_all_be_at_one_time_in_an_order_that_can_run() -> None:
    orders = {0: ["0F0", "0F1", "0BW0", "0BW1"], 1: ["1F0", "1BW0", "1F1", "1BW1"]}
    assert check(instant(orders)) == ()


def test_orders_that_wait_for_each_other_in_a_circle_are_a_deadlock_even_if_the_times_fit() -> None:
    orders = {0: ["0F0", "0BW0", "0F1", "0BW1"], 1: ["1F0", "1F1", "1BW0", "1BW1"]}
    found = check(instant(orders))
    assert places(found) == [("deadlock", 0, "0BW0", 0)]
    assert found[0].message == "waits for itself: 0BW0 -> 0F1 -> 1F1 -> 1BW0 -> 0BW0"


def test_circles_apart_from_each_other_are_all_reported() -> None:
    orders = {0: ["0BW0", "0F0", "0BW1", "0F1"]}
    found = check(instant(orders))
    assert [violation.message for violation in found] == [
        "waits for itself: 0BW0 -> 0F0 -> 0BW0",
        "waits for itself: 0BW1 -> 0F1 -> 0BW1",
    ]


def test_what_only_waits_behind_a_circle_is_not_part_of_it() -> None:
    orders = {0: ["0F0", "0F1", "0BW0", "0BW1"], 1: ["1BW0", "1F0", "1F1", "1BW1"]}
    found = check(instant(orders))
    assert [violation.message for violation in found] == ["waits for itself: 1BW0 -> 1F0 -> 1BW0"]
    assert places(found) == [("deadlock", 1, "1BW0", 0)]


# ---------------------------------------------------------------------- memory


def test_each_op_that_takes_memory_beyond_the_capacity_is_reported() -> None:
    ops = (("0F0", 0, 1), ("0F1", 1, 2), ("0B0", 2, 3), ("0W0", 3, 4), ("0B1", 4, 5))
    found = check(one_device(*ops, ("0W1", 5, 6), capacity=1.5))
    assert places(found) == [("memory", 0, "0F1", 1)]
    assert found[0].message == "needs 2, the capacity is 1.5"
    assert check(one_device(*ops, ("0W1", 5, 6), capacity=2)) == ()


@pytest.mark.parametrize(
    ("memory", "op", "needed"),
    [
        ({"F": 2, "B": 1}, "0B0", 3),
        ({"F": 2, "transient": {"F": 0.5}}, "0F0", 2.5),
        ({"F": 1, "transient": {"B": 2}}, "0B0", 3),
        ({"F": 1, "B": -1, "transient": {"W": 2}}, "0W0", 2),
        ({"F": 1, "static": 0.25}, "0F0", 1.25),
        ({"F": 1, "B": 1, "transient": {"B": 0.5}, "static": 1}, "0B0", 3.5),
    ],
)
def test_positive_backward_transient_and_static_memory_count(
    memory: dict[str, object], op: str, needed: float
) -> None:
    fits = one_device(*VALID[:3], microbatches=1, memory={**memory, "capacity": needed})
    assert check(fits) == ()
    short = fits.problem.with_capacity(needed - 0.125)
    violation = check(replace(fits, problem=short))[0]
    start = next(start for label, start, _ in VALID if label == op)
    assert places([violation]) == [("memory", 0, op, start)]
    assert violation.message == f"needs {needed:g}, the capacity is {needed - 0.125:g}"


def test_memory_of_a_microbatch_is_multiplied_by_its_factor() -> None:
    durations = {"F": 0, "B": 0, "W": 0}
    orders = ("0F0", "0B0", "0W0", "0F1", "0B1", "0W1")
    found = check(
        one_device(
            *((label, 0, 0) for label in orders),
            durations=durations,
            microbatch_factors=[0.5, 3],
            memory={"F": 1, "transient": {"F": 0.5}, "capacity": 4},
        )
    )
    assert [v.message for v in found] == ["needs 4.5, the capacity is 4"]
    assert places(found) == [("memory", 0, "0F1", 0)]


def test_memory_of_ops_without_length_follows_their_order() -> None:
    orders = {0: ["0F0", "0BW0", "0F1", "0BW1"]}
    assert check(instant(orders, memory={"capacity": 1})) == ()
    orders = {0: ["0F0", "0F1", "0BW0", "0BW1"]}
    found = check(instant(orders, memory={"capacity": 1}))
    assert places(found) == [("memory", 0, "0F1", 0)]


def test_static_memory_above_the_capacity_is_reported_without_an_op() -> None:
    problem = Problem(
        devices=2,
        placement=[0],
        microbatches=1,
        durations={"F": 1, "BW": 1},
        memory={"static": [0, 3], "capacity": 2},
    )
    timed_ops = (TimedOp(Op("F", 0, 0), 0, 1), TimedOp(Op("BW", 0, 0), 1, 2))
    (violation,) = check(Schedule(problem, {compute(0): timed_ops}, Fraction(1)))
    assert (violation.rule, violation.device, violation.op, violation.time) == (
        "memory",
        1,
        None,
        0,
    )
    assert str(violation) == "memory: device 1 at 0: static memory is 3, the capacity 2"


@every_schedule
def test_a_capacity_just_below_the_peak_is_reported_at_each_place_of_the_peak(name: str) -> None:
    schedule = SCHEDULES[name]
    problem = schedule.problem
    for device in range(problem.devices):
        levels = {}
        level = problem.static[device]
        for timed in schedule.timeline[compute(device)]:
            data, factor = problem.stage_data[timed.op.stage], problem.factors[timed.op.microbatch]
            change = data.memory[timed.op.kind] * factor
            taken = max(change, 0) + data.transient[timed.op.kind] * factor
            if taken:
                levels[timed] = level + taken
            level += change
        peak = max(levels.values())
        capacity = [None] * problem.devices
        capacity[device] = float(peak)
        assert check(replace(schedule, problem=problem.with_capacity(capacity))) == ()
        capacity[device] = float(peak - Fraction(1, 1024))
        found = check(replace(schedule, problem=problem.with_capacity(capacity)))
        assert places(found) == [
            ("memory", device, str(timed.op), timed.start * schedule.resolution)
            for timed, level in levels.items()
            if level == peak
        ]


def test_overlapping_ops_need_their_memory_together() -> None:
    # in the listed order one microbatch is gone before the next comes, at these times it is not
    ops = [TimedOp(Op.parse(label), start, end) for label, start, end in VALID]
    ops[3] = ops[3]._replace(start=1, end=2)
    schedule = one_device(capacity=1)
    found = check(changed(schedule, compute(0), ops))
    assert ("memory", 0, "0F1", 1) in places(found)
    assert {v.rule for v in found} == {"memory", "order", "overlap"}


def test_memory_is_released_at_the_end_of_an_op_also_where_another_overlaps_it() -> None:
    # listed, 0F1 comes after the release of 0W0; by the times 0W0 still runs
    ops = (("0F0", 0, 0), ("0B0", 0, 1), ("0W0", 1, 4), ("0F1", 3, 3), ("0B1", 4, 5))
    found = check(
        one_device(
            *ops,
            ("0W1", 5, 8),
            durations={"F": 0, "B": 1, "W": 3},
            memory={"transient": {"F": 1}, "capacity": 2},
        )
    )
    assert places(found) == [("overlap", 0, "0F1", 3), ("memory", 0, "0F1", 3)]
    assert found[1].message == "needs 3, the capacity is 2"


# ---------------------------------------------------------------------- several at once


def test_all_violations_are_reported_in_the_order_of_the_rules() -> None:
    ops = (
        ("0F0", -1, 0),
        ("0B0", 0, 2),
        ("0F1", 1, 2),
        ("0F1", 2, 3),
        ("7F0", 2, 3),
        ("0W0", 2, 3),
        ("0B1", 1, 2),
    )
    found = check(one_device(*ops, capacity=1))
    assert places(found) == [
        ("missing", 0, "0W1", None),
        ("repeated", 0, "0F1", 2),
        ("unknown", 0, "7F0", 2),
        ("duration", 0, "0B0", 0),
        ("start", 0, "0F0", -1),
        ("order", 0, "0B1", 1),
        ("overlap", 0, "0B1", 1),
        ("overlap", 0, "0F1", 1),
        ("overlap", 0, "0W0", 2),
        ("overlap", 0, "7F0", 2),
        ("precedence", 0, "0B1", 1),
        ("memory", 0, "0F1", 1),
    ]
    assert [rule for rule in RULES if rule in {v.rule for v in found}] == list(
        dict.fromkeys(v.rule for v in found)
    )


def test_the_report_does_not_depend_on_the_order_of_the_resources() -> None:
    schedule = SCHEDULES["split"]
    shifted = {
        resource: tuple(TimedOp(op, start - 2, end) for op, start, end in timed_ops)
        for resource, timed_ops in schedule.timeline.items()
    }
    one = check(replace(schedule, timeline=shifted))
    other = check(replace(schedule, timeline=dict(reversed(shifted.items()))))
    assert len(one) > 20
    assert one == other


def test_a_violation_is_one_line_with_rule_device_op_and_time() -> None:
    violation = Violation("overlap", 2, Op("F", 11, 3), Fraction(25, 2), "starts too early")
    assert str(violation) == "overlap: device 2, 11F3 at 12.5: starts too early"
    missing = Violation("missing", 0, Op("W", 1, 0), None, "is not in the schedule")
    assert str(missing) == "missing: device 0, 1W0: is not in the schedule"


# ---------------------------------------------------------------------- against the definition


@given(problems(), st.data())
def test_random_valid_orders_have_no_violation(problem: Problem, data: st.DataObject) -> None:
    orders = random_orders(problem, lambda low, high: data.draw(st.integers(low, high)))
    if orders is None:
        return
    for objective in ("makespan", "period"):
        graph = build_graph(problem.replace(objective=objective))
        assert check(Schedule.from_order(graph, orders)) == ()


@settings(max_examples=300)
@given(problems(), st.data())
def test_after_a_swap_of_two_ops_check_agrees_with_the_definition(
    problem: Problem, data: st.DataObject
) -> None:
    def pick(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    orders = random_orders(problem, pick)
    if orders is None:
        return
    graph = build_graph(problem)
    valid = Schedule.from_order(graph, orders)
    resource = data.draw(st.sampled_from(sorted(orders)))
    ops = orders[resource]
    one = pick(0, len(ops) - 1)
    other = pick(0, len(ops) - 1) if pick(0, 2) == 0 else max(one - 1, 0)
    ops[one], ops[other] = ops[other], ops[one]
    expected = broken_rules(problem, {r.device: tuple(order) for r, order in orders.items()})
    try:
        schedule = Schedule.from_order(graph, orders)
    except DeadlockError:
        assert "deadlock" in expected
        timed = {t.op: t for timed_ops in valid.timeline.values() for t in timed_ops}
        wrong = [timed[op] for op in ops]  # listed anew, with the times of before
        found = {violation.rule for violation in check(changed(valid, resource, wrong))}
        assert "deadlock" in found
        assert found <= {"deadlock", "order", "memory"}
        assert ("memory" in found) == ("memory" in expected)
    else:
        assert {violation.rule for violation in check(schedule)} == expected


@given(problems(), st.data())
def test_for_orders_made_without_a_capacity_check_agrees_with_the_definition(
    problem: Problem, data: st.DataObject
) -> None:
    free = problem.with_capacity(None)
    orders = random_orders(free, lambda low, high: data.draw(st.integers(low, high)))
    assert orders is not None
    schedule = Schedule.from_order(build_graph(problem), orders)
    expected = broken_rules(problem, {r.device: order for r, order in orders.items()})
    assert {v.rule for v in check(schedule) if v.op is not None} == expected
