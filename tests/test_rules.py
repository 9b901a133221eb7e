"""The checker on ops of a whole step: what is wrong with them is found."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schedopt import Problem, Schedule, check
from schedopt.classic import gpipe
from schedopt.op import Op, Resource
from schedopt.schedule import TimedOp
from tests.whole_step import whole_steps

WHOLE: dict[str, Any] = {
    "devices": 2,
    "microbatches": 2,
    "F": 2,
    "B": 2,
    "W": 2,
    "recompute": {"mode": "always", "kept": 0.25},
    "links": {"size": 2, "bandwidth": 2, "latency": 1},
    "end_of_step": {
        "reduction": 3,
        "optimizer": 2,
        "tied": [{"stages": [0, 1], "duration": 1}],
    },
}


def schedule_of(**fields: Any) -> Schedule:
    return gpipe(Problem.uniform(**{**WHOLE, **fields}))


def changed(schedule: Schedule, op: Op, **times: int) -> Schedule:
    """The schedule with other times of one op."""

    def other(timed: TimedOp) -> TimedOp:
        return timed._replace(**times) if timed.op == op else timed

    timeline = {r: tuple(map(other, ops)) for r, ops in schedule.timeline.items()}
    return replace(schedule, timeline=timeline)


def rules_broken(schedule: Schedule) -> set[str]:
    return {violation.rule for violation in check(schedule)}


@given(problem=whole_steps(), place=st.integers(0, 10**6))
@settings(max_examples=80, deadline=None)
def test_nothing_can_start_earlier_than_the_earliest(problem: Problem, place: int) -> None:
    schedule = gpipe(problem.with_capacity(None))
    assert check(schedule) == ()
    every = [timed for ops in schedule.timeline.values() for timed in ops if timed.start > 0]
    assume(every)
    op, start, end = every[place % len(every)]
    assert check(changed(schedule, op, start=start - 1, end=end - 1))


@given(problem=whole_steps(), place=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_every_op_has_to_be_there(problem: Problem, place: int) -> None:
    schedule = gpipe(problem.with_capacity(None))
    every = [timed.op for ops in schedule.timeline.values() for timed in ops]
    lost = every[place % len(every)]
    timeline = {r: tuple(t for t in ops if t.op != lost) for r, ops in schedule.timeline.items()}
    assert "missing" in rules_broken(replace(schedule, timeline=timeline))


@pytest.mark.parametrize("label", ["0R1", "0SF0", "0SB1", "1RED0", "0TIE0", "1OPT0"])
def test_an_op_of_another_length_is_named(label: str) -> None:
    schedule = schedule_of()
    op = Op.parse(label)
    (timed,) = (t for ops in schedule.timeline.values() for t in ops if t.op == op)
    (violation, *_) = check(changed(schedule, op, end=timed.end + 1))
    assert (violation.rule, violation.op) == ("duration", op)


def test_a_transfer_on_another_link_is_named() -> None:
    schedule = schedule_of()
    timeline = dict(schedule.timeline)
    here, there = Resource("link to 1", 0), Resource("link to 0", 1)
    timeline[here], timeline[there] = timeline[there], timeline[here]
    messages = [str(v) for v in check(replace(schedule, timeline=timeline)) if v.rule == "device"]
    assert messages
    assert all("runs on link 0 to 1, belongs on link 1 to 0" in m for m in messages[:2])


def test_r_is_no_op_where_nothing_is_recomputed() -> None:
    schedule = schedule_of()
    problem = schedule.problem.replace(recompute={"mode": ["always", "never"], "kept": 0.25})
    unknown = [str(v.op) for v in check(replace(schedule, problem=problem)) if v.rule == "unknown"]
    assert unknown == ["1R0", "1R1"]


def test_memory_counts_what_is_kept_until_r_and_the_rest_from_then() -> None:
    again = schedule_of(capacity=1.25)
    assert check(again) == ()
    assert rules_broken(replace(again, problem=again.problem.with_capacity(1.2))) == {"memory"}
    more = again.problem.replace(recompute={"mode": "always", "kept": 0.5})
    assert rules_broken(replace(again, problem=more)) == {"memory"}


def test_an_optimizer_waits_for_reductions_and_tied_parameters() -> None:
    schedule = schedule_of()
    (optimizer,) = (t for t in schedule.by_device[1] if t.op.kind == "OPT")
    early = changed(schedule, optimizer.op, start=optimizer.start - 1, end=optimizer.end - 1)
    (violation,) = check(early)
    assert violation.rule == "precedence"
    assert "starts before 0TIE0 ends at" in violation.message
    assert violation.time == (optimizer.start - 1) * Fraction(schedule.resolution)
