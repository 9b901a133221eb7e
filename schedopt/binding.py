"""Why each op of a schedule does not start earlier, and the chain of ops that makes its length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

from schedopt.graph import FIFO, attribute
from schedopt.op import COMPUTE, MemoryUse, Op
from schedopt.schedule import Schedule

Reason = Literal["start", "device", "memory", "link", "data", "transfer"]

REASONS: dict[Reason, str] = {
    "start": "nothing is before it",
    "device": "its device runs the op before it",
    "memory": "its device runs the op before it, and without that there is no room for it",
    "link": "its link or network is busy with the op before it",
    "data": "an op on the same device, or one without lag, gives what it needs",
    "transfer": "what it needs is on its way from another device",
}
"""What can hold an op, and its meaning."""


class Binding(NamedTuple):
    """What an op waits for longest.

    Attributes
    ----------
    reason
        A key of `REASONS`.
    op
        The op that is waited for; None for "start".
    slack
        Time by which the op starts later than that, in the unit of the problem: 0 if it holds
        the op; otherwise nothing does, and the op could start earlier by this much.
    """

    reason: Reason
    op: Op | None
    slack: Fraction


def binding(schedule: Schedule) -> dict[Op, Binding]:
    """What holds each op of a valid schedule, the order of each device given.

    An op starts after time 0, the op before it on its device, and what it needs plus the lag.
    The latest of these binds; of several at one time the device, then data, then a transfer.
    The op before it is called "memory" where the two can not change places: there would be no
    room.

    Parameters
    ----------
    schedule
        Without violations (`schedopt.check`).
    """
    graph = schedule.graph
    scale = graph.graph["resolution"] / schedule.resolution
    ends = {timed.op: timed.end for ops in schedule.timeline.values() for timed in ops}
    uses = attribute(graph, "memory")
    found: dict[Op, Binding] = {}
    resource_of = attribute(graph, "resource")
    for resource, timed_ops in schedule.timeline.items():
        crowded = _can_not_be_exchanged(
            [timed.op for timed in timed_ops],
            uses,
            graph.graph["capacity"],
            dict(graph.graph["static"]),
        )
        previous: Op | None = None
        for timed in timed_ops:
            holds: list[tuple[Fraction | int, Reason, Op | None]] = []
            if previous is not None:
                reason: Reason = "memory" if timed.op in crowded else "device"
                if resource.kind != COMPUTE:
                    reason = "link"
                holds.append((ends[previous], reason, previous))
            arcs = [a for a in graph.in_edges(timed.op, data=True) if a[2]["reason"] != FIFO]
            for source, _, arc in sorted(arcs, key=lambda arc: (arc[2]["lag"] > 0, arc[0])):
                sent = resource_of[source].kind != COMPUTE
                kind: Reason = "transfer" if arc["lag"] or sent else "data"
                holds.append((ends[source] + arc["lag"] * scale, kind, source))
            holds.append((0, "start", None))
            time, reason, op = max(holds, key=lambda hold: hold[0])  # of equal ones the first
            found[timed.op] = Binding(reason, op, (timed.start - time) * schedule.resolution)
            previous = timed.op
    return found


class Link(NamedTuple):
    """An op on the critical path and what holds it: the link before, unless it is the first."""

    op: Op
    binding: Binding


def critical_path(
    schedule: Schedule, bindings: Mapping[Op, Binding] | None = None
) -> tuple[Link, ...]:
    """The chain of ops, each held by the one before, that ends with the schedule.

    The durations of its ops, the lags of its transfers and the slack of its links sum to the
    makespan. Of several such chains it is one that changes devices late, seen from the end.

    Parameters
    ----------
    schedule
        Without violations.
    bindings
        From `binding`, if they are known.
    """
    bindings = binding(schedule) if bindings is None else bindings
    last = [ops[-1] for ops in schedule.timeline.values() if ops]
    op: Op | None = max(last, key=lambda timed: timed.end).op
    path = []
    while op is not None:
        path.append(Link(op, bindings[op]))
        op = bindings[op].op
    return tuple(reversed(path))


def _can_not_be_exchanged(
    ops: Sequence[Op],
    uses: Mapping[Op, tuple[MemoryUse, ...]],
    capacity: Mapping[int, int | None],
    level: dict[int, int],
) -> set[Op]:
    """Ops that do not fit in the place of the op before them on the same resource."""
    found = set()
    before_previous: dict[int, int] = {}
    for op in ops:
        for use in uses[op]:
            limit, there = capacity[use.device], before_previous.get(use.device)
            taken = use.acquired + use.transient
            if limit is not None and there is not None and there + taken > limit:
                found.add(op)
        before_previous = dict(level)
        for device, change in _changes(uses[op]):
            level[device] += change
    return found


def _changes(uses: tuple[MemoryUse, ...]) -> Iterator[tuple[int, int]]:
    for use in uses:
        yield use.device, use.acquired - use.released
