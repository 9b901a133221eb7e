"""Independent checker: every rule of a problem against a schedule.

Nothing here shares code with what makes schedules: the problem is read as plain data, and each
rule is stated again. A fault in the graph, the timing or the memory curves can therefore not
hide itself. A `Schedule` without violations can be run as it stands, also by its orders alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from schedopt.exact import text
from schedopt.op import Op, Resource
from schedopt.problem import Problem
from schedopt.rules import Rules
from schedopt.schedule import Schedule, TimedOp

RULES = {
    "missing": "each op of each stage and microbatch is there",
    "repeated": "no op is there twice",
    "unknown": "no op is there that the problem does not have",
    "device": "an op runs on its own resource, as on the compute stream of its device",
    "duration": "an op ends its duration after its start",
    "start": "no op starts before time 0",
    "order": "the ops of a resource are listed in the order of their times",
    "overlap": "a resource runs one op at a time",
    "precedence": "an op starts after what it needs has ended, plus the lag",
    "deadlock": "the orders, without the times, do not wait for each other in a circle",
    "memory": "static memory and what the ops hold stay within the capacity of the device",
}
"""The rules, and what each says, in the order in which violations are reported."""


@dataclass(frozen=True)
class Violation:
    """One place where a schedule breaks a rule.

    Attributes
    ----------
    rule
        A key of `RULES`.
    device
        Device on which it happens.
    op
        The op that breaks the rule; None if no op does (static memory above the capacity).
    time
        Start of the op in the unit of the problem; None if it is missing.
    message
        What is wrong, with the values.
    """

    rule: str
    device: int
    op: Op | None
    time: Fraction | None
    message: str

    def __str__(self) -> str:
        op = "" if self.op is None else f", {self.op}"
        time = "" if self.time is None else f" at {text(self.time)}"
        return f"{self.rule}: device {self.device}{op}{time}: {self.message}"


def check(schedule: Schedule) -> tuple[Violation, ...]:
    """Find every violation of the rules of the problem.

    An op that is there twice counts where it is first; the other places are reported.

    Returns
    -------
    tuple of Violation
        Empty if the schedule is valid; else by rule, device, time and op.
    """
    facts = _Facts(schedule)
    found = [
        violation
        for rule in (_once, _each_op, _sequences, _precedences, _deadlocks, _memory)
        for violation in rule(facts)
    ]
    ranks = {rule: rank for rank, rule in enumerate(RULES)}
    unplaced = Fraction(-1)

    def place(violation: Violation) -> tuple[int, int, Fraction, str, str]:
        time = unplaced if violation.time is None else violation.time
        rank = ranks[violation.rule]
        return rank, violation.device, time, str(violation.op or ""), violation.message

    return tuple(sorted(found, key=place))


class _Facts:
    """What the problem demands, in the steps of the schedule, and what the schedule has."""

    def __init__(self, schedule: Schedule) -> None:
        self.problem: Problem = schedule.problem
        self.step = schedule.resolution
        self.timeline = schedule.timeline
        listed_ops = (timed.op for timed_ops in self.timeline.values() for timed in timed_ops)
        self.rules = Rules(self.problem, {op[1:] for op in listed_ops if op.kind == "R"})
        self.first: dict[Op, TimedOp] = {}
        """Known ops, each at its first place."""
        self.listed: dict[Resource, list[TimedOp]] = {}
        """The same, as they are listed on each resource."""
        self.repeated: list[tuple[Resource, TimedOp]] = []
        self.unknown: list[tuple[Resource, TimedOp]] = []
        for resource, timed_ops in sorted(self.timeline.items()):
            listed = self.listed.setdefault(resource, [])
            for timed in timed_ops:
                if not self.rules.knows(timed.op):
                    self.unknown.append((resource, timed))
                elif timed.op in self.first:
                    self.repeated.append((resource, timed))
                else:
                    self.first[timed.op] = timed
                    listed.append(timed)
        self.needs = {op: self.rules.needs(op) for op in self.first}

    def violation(self, rule: str, device: int, timed: TimedOp, message: str) -> Violation:
        return Violation(rule, device, timed.op, timed.start * self.step, message)

    def shown(self, time: int | Fraction) -> str:
        """A time given in steps, as text in the unit of the problem."""
        return text(time * self.step)


def _once(facts: _Facts) -> Iterator[Violation]:
    for op in facts.rules.ops():
        if op not in facts.first:
            device = facts.rules.home(op).device
            yield Violation("missing", device, op, None, "is not in the schedule")
    for resource, timed in facts.repeated:
        start = facts.shown(facts.first[timed.op].start)
        message = f"is there again; it was placed at {start} before"
        yield facts.violation("repeated", resource.device, timed, message)
    for resource, timed in facts.unknown:
        message = "is no op of the problem"
        yield facts.violation("unknown", resource.device, timed, message)


def _each_op(facts: _Facts) -> Iterator[Violation]:
    """Device, duration and start of every op, one by one."""
    rules = facts.rules
    for resource, timed_ops in facts.timeline.items():
        for timed in timed_ops:
            op, start, end = timed
            if start < 0:
                message = f"starts at {facts.shown(start)}, before 0"
                yield facts.violation("start", resource.device, timed, message)
            if not rules.knows(op):
                continue
            home, length = rules.home(op), rules.length(op) / facts.step
            if resource != home:
                message = f"runs on {resource}, belongs on {home}"
                yield facts.violation("device", resource.device, timed, message)
            if end - start != length:
                message = f"takes {facts.shown(end - start)}, its duration is {facts.shown(length)}"
                yield facts.violation("duration", resource.device, timed, message)


def _sequences(facts: _Facts) -> Iterator[Violation]:
    """Order and overlap of the ops of each resource.

    An op of length 0 may stand between two others, but not inside one.
    """
    for resource, timed_ops in facts.timeline.items():
        for before, after in pairwise(timed_ops):
            if (after.start, after.end) < (before.start, before.end):
                message = f"is listed after {before.op}, which starts at "
                message += f"{facts.shown(before.start)} and ends at {facts.shown(before.end)}"
                yield facts.violation("order", resource.device, after, message)
        running: TimedOp | None = None
        for timed in sorted(timed_ops, key=lambda timed: (timed.start, timed.end)):
            if running is not None and timed.start < running.end:
                message = f"starts before {running.op} ends at {facts.shown(running.end)}"
                yield facts.violation("overlap", resource.device, timed, message)
            if running is None or timed.end > running.end:
                running = timed


def _precedences(facts: _Facts) -> Iterator[Violation]:
    for op, needed in facts.needs.items():
        timed = facts.first[op]
        for other, lag in needed:
            source = facts.first.get(other)
            if source is None or timed.start >= source.end + math.ceil(lag / facts.step):
                continue
            message = f"starts before {source.op} ends at {facts.shown(source.end)}"
            message += f" plus lag {text(lag)}" if lag else ""
            device = facts.rules.home(op).device
            yield facts.violation("precedence", device, timed, message)


def _deadlocks(facts: _Facts) -> Iterator[Violation]:
    """Circles of ops that wait for each other when only the orders are kept.

    Ops that can run are taken off until none is left that can; then some of the rest wait in a
    circle. It is reported and taken off too, so that circles apart from it are found as well.
    """
    waits = {
        op: [source for source, _ in needed if source in facts.first]
        for op, needed in facts.needs.items()
    }
    for timed_ops in facts.listed.values():
        for before, after in pairwise(timed_ops):
            waits[after.op].append(before.op)
    followers: dict[Op, list[Op]] = {op: [] for op in waits}
    for op, sources in waits.items():
        for source in sources:
            followers[source].append(op)
    missing = Counter({op: len(sources) for op, sources in waits.items()})
    left = set(waits)
    ready = [op for op, sources in waits.items() if not sources]
    candidates = iter(sorted(waits, key=lambda op: op[1:] + op[:1]))
    while left:
        while ready:
            op = ready.pop()
            left.discard(op)
            for follower in followers[op]:
                missing[follower] -= 1
                if not missing[follower] and follower in left:
                    ready.append(follower)
        blocked = next((op for op in candidates if op in left), None)
        if blocked is None:
            return
        circle = _circle(blocked, waits, left)
        shown = " -> ".join(map(str, [*circle, circle[0]]))
        timed = facts.first[circle[0]]
        device = facts.rules.home(circle[0]).device
        yield facts.violation("deadlock", device, timed, f"waits for itself: {shown}")
        ready.extend(circle)
        left.difference_update(circle)


def _circle(start: Op, waits: dict[Op, list[Op]], left: set[Op]) -> list[Op]:
    """A circle that `start` waits for, each op before the one that waits for it."""
    path: list[Op] = []
    position: dict[Op, int] = {}
    op = start
    while op not in position:
        position[op] = len(path)
        path.append(op)
        op = next(source for source in waits[op] if source in left)
    circle = path[position[op] :][::-1]
    least = circle.index(min(circle, key=lambda op: op[1:] + op[:1]))
    return circle[least:] + circle[:least]


def _memory(facts: _Facts) -> Iterator[Violation]:
    """Memory of each device, replayed in the listed order and by the times.

    The two are the same unless order or overlap is violated, which must not hide that memory
    does not fit.
    """
    on_device: dict[int, list[TimedOp]] = {device: [] for device in range(facts.problem.devices)}
    for timed in facts.first.values():
        on_device[facts.problem.device_of[timed.op.stage]].append(timed)
    for device, timed_ops in on_device.items():
        capacity, static = facts.problem.capacity[device], facts.problem.static[device]
        if capacity is None:
            continue
        if static > capacity:
            message = f"static memory is {text(static)}, the capacity {text(capacity)}"
            yield Violation("memory", device, None, Fraction(0), message)
        listed = [(timed, is_start) for timed in timed_ops for is_start in (True, False)]
        by_time = _by_time(timed_ops)
        over = dict(_over(facts, static, capacity, listed))
        if by_time != listed:
            over |= dict(_over(facts, static, capacity, by_time))
        for timed, amount in over.items():
            message = f"needs {text(amount)}, the capacity is {text(capacity)}"
            yield facts.violation("memory", device, timed, message)


def _by_time(timed_ops: list[TimedOp]) -> list[tuple[TimedOp, bool]]:
    """Starts (True) and ends of ops by time, at one time in the order of the ops.

    An op that follows another without a pause starts after its end; one of length 0 ends after
    its own start.
    """
    events = [
        (time, position, timed, is_start)
        for position, timed in enumerate(sorted(timed_ops, key=lambda timed: timed[1:]))
        for time, is_start in ((timed.start, True), (timed.end, False))
    ]
    events.sort(key=lambda event: event[:2])
    return [event[2:] for event in events]


def _over(
    facts: _Facts,
    static: Fraction,
    capacity: Fraction,
    events: Iterable[tuple[TimedOp, bool]],
) -> Iterator[tuple[TimedOp, Fraction]]:
    """Ops that take memory at their start so that it exceeds the capacity, with the amount."""
    level = static
    for timed, is_start in events:
        taken, given_back = facts.rules.held(timed.op)
        change = taken if is_start else -given_back
        if not change:
            continue
        level += change
        if is_start and level > capacity:
            yield timed, level
