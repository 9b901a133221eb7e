from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from schedopt import classic
from schedopt.cache.entry import Entry, checksum, decode, encode, fault_of
from schedopt.check import check
from schedopt.op import Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule, TimedOp
from tests.schedules import schedule_of

PROBLEM = Problem.uniform(devices=2, microbatches=2, F=1.5, B=1, W=1, lag=0.1, capacity=2)
PERIOD = PROBLEM.replace(objective="period")
ENTRY = Entry(classic.zb_h1(PROBLEM), Fraction(5), "the work", "ZB-H1")
CONTENT = encode(ENTRY, "key")


def forged(change: Callable[[dict[str, Any]], Any], content: bytes = CONTENT) -> bytes:
    """A changed file with the right checksum."""
    data = json.loads(content)
    del data["sha256"]
    change(data)
    return json.dumps(data | {"sha256": checksum(data)}).encode()


def shifted(schedule: Schedule, seconds: Fraction, *, device: int) -> Schedule:
    """All ops of a device later."""
    count = seconds / schedule.resolution
    timeline = {
        resource: tuple(
            TimedOp(op, int(start + count), int(end + count))
            if resource.device == device
            else TimedOp(op, start, end)
            for op, start, end in timed_ops
        )
        for resource, timed_ops in schedule.timeline.items()
    }
    return replace(schedule, timeline=timeline)


def test_what_was_written_is_read_back() -> None:
    read = decode(CONTENT, "key", PROBLEM)
    assert read.schedule.timeline == ENTRY.schedule.timeline
    assert read.schedule.resolution == Fraction(1, 10)
    assert read.schedule.problem is PROBLEM
    assert read.schedule.name == "solved"
    assert read.objective == ENTRY.objective == Fraction(87, 10)
    assert (read.bound, read.bound_source, read.objective_source) == (5, "the work", "ZB-H1")


def test_an_entry_is_optimal_when_bound_and_objective_meet() -> None:
    assert ENTRY.status == "feasible"
    assert replace(ENTRY, bound=ENTRY.objective).status == "optimal"


def test_times_between_the_steps_of_the_problem_are_kept() -> None:
    finer = classic.zb_h1(PROBLEM)
    timeline = {
        resource: tuple(TimedOp(op, 3 * start, 3 * end) for op, start, end in timed_ops)
        for resource, timed_ops in finer.timeline.items()
    }
    finer = replace(finer, timeline=timeline, resolution=Fraction(1, 30))
    finer = shifted(finer, Fraction(1, 30), device=0)
    finer = shifted(finer, Fraction(1, 30), device=1)
    read = decode(encode(replace(ENTRY, schedule=finer), "key"), "key", PROBLEM)
    assert read.schedule.timeline == finer.timeline
    assert read.objective == Fraction(87, 10) + Fraction(1, 30)


def test_the_schedule_of_a_period_keeps_its_times() -> None:
    later = shifted(classic.zb_h1(PERIOD), Fraction(3), device=0)
    later = shifted(later, Fraction(3), device=1)
    read = decode(encode(replace(ENTRY, schedule=later), "key"), "key", PERIOD)
    assert read.schedule.timeline == later.timeline
    assert read.objective == later.period


def test_a_file_under_another_key_is_refused() -> None:
    with pytest.raises(ValueError, match="another problem or another version"):
        decode(CONTENT, "other", PROBLEM)


def test_a_schedule_that_the_problem_does_not_allow_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^memory: device 0, 0F1 at 1.5: "):
        decode(CONTENT, "key", PROBLEM.with_capacity([1, 2]))


def test_a_changed_number_breaks_the_checksum() -> None:
    with pytest.raises(ValueError, match="damaged"):
        decode(CONTENT.replace(b'"bound": 5', b'"bound": 6'), "key", PROBLEM)


def test_an_objective_that_is_not_that_of_the_schedule_is_refused() -> None:
    def better(data: dict[str, Any]) -> None:
        data["objective"] = 9

    with pytest.raises(ValueError, match="objective of its schedule is not 9"):
        decode(forged(better), "key", PROBLEM)


@pytest.mark.parametrize("bound", [9.7, 1e99, -1, "-1/3"])
def test_a_bound_that_can_not_be_true_is_left_out(bound: Any) -> None:
    read = decode(forged(lambda data: data.update(bound=bound)), "key", PROBLEM)
    assert (read.bound, read.bound_source) == (0, "nothing")
    assert read.objective == ENTRY.objective


def test_equal_microbatches_have_to_keep_their_order() -> None:
    turned = schedule_of(PROBLEM, "0F1 0F0 0B1 0W1 0B0 0W0", "1F1 1B1 1F0 1B0 1W1 1W0")
    assert check(turned) == ()
    assert fault_of(turned) == "0F0 comes after the same op of a later, equal microbatch"
    with pytest.raises(ValueError, match="0F0 comes after"):
        decode(encode(replace(ENTRY, schedule=turned), "key"), "key", PROBLEM)


def test_unequal_microbatches_may_overtake_each_other() -> None:
    unequal = PROBLEM.replace(microbatch_factors=[1, 0.5])
    turned = schedule_of(unequal, "0F1 0F0 0B1 0W1 0B0 0W0", "1F1 1B1 1F0 1B0 1W1 1W0")
    assert fault_of(turned) == ""


def test_a_resource_without_ops_is_not_stored_and_not_read() -> None:
    timeline = {**ENTRY.schedule.timeline, Resource("link", 9): ()}
    more = replace(ENTRY.schedule, timeline=timeline)
    assert encode(replace(ENTRY, schedule=more), "key") == CONTENT
    row = {"resource": "link", "device": 9, "ops": "", "starts": []}
    with pytest.raises(ValueError, match="row of link 9"):
        decode(forged(lambda data: data["timeline"].append(row)), "key", PROBLEM)


REFUSED = (ValueError, RecursionError, MemoryError)


def assert_nothing_false(content: bytes, problem: Problem = PROBLEM) -> None:
    """The content is refused, or all it says is true."""
    read, reason = None, ""
    try:
        read = decode(content, "key", problem)
    except ValidationError:
        pass  # its text shows what was given, and is not shown to users
    except REFUSED as error:
        reason = str(error)
    if read is None:
        assert reason.isprintable()
        return
    assert read.schedule.problem is problem
    assert fault_of(read.schedule) == ""
    assert 0 <= read.bound <= read.objective
    assert read.objective == read.schedule.objective
    assert set(read.schedule.timeline) == {Resource("compute", 0), Resource("compute", 1)}
    for source in (read.bound_source, read.objective_source):
        assert source.isprintable()
        assert len(source) <= 1000


@given(content=st.binary(max_size=200))
def test_any_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(REFUSED):
        decode(content, "key", PROBLEM)


@given(length=st.integers(0, len(CONTENT) - 1))
def test_a_truncated_file_is_refused(length: int) -> None:
    with pytest.raises(REFUSED):
        decode(CONTENT[:length], "key", PROBLEM)


@settings(max_examples=300)
@given(place=st.integers(0, len(CONTENT) - 1), patch=st.binary(max_size=3))
def test_a_damaged_file_is_refused_unless_it_says_the_same(place: int, patch: bytes) -> None:
    content = CONTENT[:place] + patch + CONTENT[place + len(patch) :]
    if json_of(content) == json.loads(CONTENT):
        assert decode(content, "key", PROBLEM).bound == 5
        return
    with pytest.raises(REFUSED):
        decode(content, "key", PROBLEM)


def json_of(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None


NUMBERS = [-1, 0, 1, 7, 0.1, 1e-300, 1e300, 10**18, 10**400, -(10**400), -(10**400) - 1]
RATIOS = ["1/3", "-1/3", "1/20", "1/30", "1/0", "1/" + "9" * 1000]
TEXTS = ["", "0", "0F0", "9F9", "٣F٠", "0F" + "9" * 5000, "0F0 0F1 0B0 0W0 0B1 0W1", "compute"]
LINES = ["\x1b[2J", "\ud800", "x" * 1001]
LISTS = [[], [[]], ["0F0"], [0] * 6, [10**299] * 6, [0, 15, 30, 41, 51, 61], [0, 15, 42, 52, 67]]
OTHERS = [None, True, {}, float("nan"), float("inf")]
VALUES = [*NUMBERS, *RATIOS, *TEXTS, *LINES, *LISTS, *OTHERS]
PLACES: list[tuple[str | int, ...]] = [
    ("format",),
    ("key",),
    ("objective",),
    ("objective_source",),
    ("bound",),
    ("bound_source",),
    ("resolution",),
    ("timeline",),
    ("new",),
    ("timeline", 0),
    *[
        ("timeline", row, name)
        for row in (0, 1)
        for name in ("resource", "device", "ops", "starts")
    ],
    *[("timeline", row, "starts", op) for row in (0, 1) for op in range(6)],
]


Change = tuple[tuple[str | int, ...], Any]


def changed(problem: Problem, *changes: Change) -> bytes | None:
    """A file with other values in some places; None if a change has removed a place."""

    def change(data: dict[str, Any]) -> None:
        for (*parents, last), value in changes:
            part: Any = data
            for name in parents:
                part = part[name]
            part[last] = value

    content = encode(replace(ENTRY, schedule=classic.zb_h1(problem)), "key")
    try:
        return forged(change, content)
    except (LookupError, TypeError):
        return None


every_objective = pytest.mark.parametrize("problem", [PROBLEM, PERIOD], ids=["makespan", "period"])


@every_objective
def test_no_forged_value_is_taken_for_true(problem: Problem) -> None:
    for place in PLACES:
        for value in VALUES:
            content = changed(problem, (place, value))
            assert content is not None
            assert_nothing_false(content, problem)


@settings(max_examples=300)
@given(
    changes=st.lists(
        st.tuples(st.sampled_from(PLACES), st.sampled_from(VALUES)), min_size=2, max_size=4
    )
)
@every_objective
def test_forged_values_together_are_not_taken_for_true(
    problem: Problem, changes: list[Change]
) -> None:
    content = changed(problem, *changes)
    if content is not None:
        assert_nothing_false(content, problem)


@pytest.mark.parametrize("opening", [b"[", b'{"timeline":', b'{"a":[{"a":['])
def test_deep_nesting_is_refused(opening: bytes) -> None:
    with pytest.raises(REFUSED):
        decode(opening * 100_000, "key", PROBLEM)
