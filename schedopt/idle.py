"""Where the time goes: the idle time of each device, split by cause so that it sums exactly.

Idle is what a device does not work of the makespan M. The causes are what a step would be shorter
by if they were taken away one after the other, the orders of the ops given:

    M      the schedule as it is
      late         M - M_E         ops start later than what they wait for
    M_E    each op as early as its order, its data and the lags allow
      transfer     M_E - M_0       lags, links and networks that no work hides
    M_0    the same without these
      memory       min(M_0 - L, N) an op had what it needs and its device was idle, without room
      order        idle time of the busiest device between fill and drain, for no such reason
      fill, drain  idle time of the busiest device before its first backward and after its last F
    W_max  work of the busiest device
      imbalance    W_max - work    waiting for the busiest device
    work   of the device

L is the time that no schedule of this placement can be below, even without lags and with any
memory: the largest of head + work + tail of a device, where the head is the least time before the
device can start, the tail the least time after its last op. N is the longest time that a device
is idle (in M_0) while an op of it has what it needs and could run there, but for memory: from
there to its own start the device would hold more than its capacity. So memory is blamed only
where room was missing, and never for more than room could give back.

Fill, order and drain are read in M_0 on the device itself if no device has more work, and on the
first of the busiest ones otherwise. Memory is taken out of the idle time between them first, then
out of drain and of fill. Causes are counted once: what a slow device makes others wait is
imbalance, wherever it lies in the step.

Beside the causes a bound splits idle time in another way: bound - work is unavoidable (at least
0), M - bound is what a better schedule could at most save on each device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any, NamedTuple

import networkx as nx

from schedopt.choices import Orders
from schedopt.exact import to_json
from schedopt.graph import FIFO, attribute
from schedopt.op import COMPUTE, Op, Resource
from schedopt.schedule import Schedule
from schedopt.timing import earliest_starts

__all__ = ["CAUSES", "DeviceIdle", "causes", "causes_of_orders"]

CAUSES = {
    "fill": "waiting for the first microbatches to come, and to come back",
    "drain": "waiting for the last microbatches to come back",
    "imbalance": "having less work than the busiest device",
    "transfer": "transfers and reductions that no work hides",
    "memory": "an op had what it needs, but no room",
    "order": "the order of the ops, for no reason above",
    "late": "ops that start later than what they wait for",
}
"""The causes of idle time, and what each means."""


@dataclass(frozen=True)
class DeviceIdle:
    """Idle time of one device; all times exact, in the unit of the problem.

    Attributes
    ----------
    device
        Its number.
    work
        Time in which it runs ops.
    causes
        Idle time by cause, with every key of `CAUSES`: they sum to `idle`.
    no_room
        Time in which it is idle, without lags, although an op has what it needs, for memory.
    unavoidable
        The part of the idle time that no schedule avoids, by the bound that was given, if any.
    """

    device: int
    work: Fraction
    causes: Mapping[str, Fraction]
    no_room: Fraction
    unavoidable: Fraction | None = None

    @property
    def idle(self) -> Fraction:
        """Makespan - work."""
        return sum(self.causes.values(), Fraction(0))

    @property
    def avoidable(self) -> Fraction | None:
        """What a better schedule could at most save."""
        return None if self.unavoidable is None else self.idle - self.unavoidable

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        unavoidable, avoidable = self.unavoidable, self.avoidable
        return {
            "device": self.device,
            "work": to_json(self.work),
            "idle": to_json(self.idle),
            "causes": {cause: to_json(time) for cause, time in self.causes.items()},
            "no_room": to_json(self.no_room),
            "unavoidable": None if unavoidable is None else to_json(unavoidable),
            "avoidable": None if avoidable is None else to_json(avoidable),
        }


def causes(schedule: Schedule, bound: Fraction | None = None) -> tuple[DeviceIdle, ...]:
    """Idle time of each device by cause; see the head of the module for what they are.

    Parameters
    ----------
    schedule
        Without violations (`schedopt.check`).
    bound
        A proven lower bound of the makespan or the period, in the unit of the problem.

    Raises
    ------
    ValueError
        If the bound is above the makespan, or ops start before what they wait for.

    Examples
    --------
    >>> from schedopt import Problem, classic
    >>> problem = Problem.uniform(devices=4, microbatches=8)
    >>> first = causes(classic.one_f_one_b(problem))[0]
    >>> {cause: int(time) for cause, time in first.causes.items() if time}
    {'fill': 6, 'drain': 3}
    """
    if bound is not None and bound > schedule.makespan:
        raise ValueError(f"the bound {bound} is above the makespan, {schedule.makespan}")
    return causes_of_orders(
        schedule.graph, schedule.orders, makespan=schedule.makespan, bound=bound
    )


def causes_of_orders(
    graph: nx.DiGraph[Op],
    orders: Orders,
    *,
    makespan: Fraction,
    bound: Fraction | None = None,
) -> tuple[DeviceIdle, ...]:
    """The same for the orders of a graph, whose durations and lags may have been measured.

    Parameters
    ----------
    graph
        As `schedopt.graph.build_graph` makes it.
    orders
        Every op of the graph once, on its own resource.
    makespan
        How long the step takes, in the unit of the problem.
    bound
        As for `causes`.

    Raises
    ------
    DeadlockError
        If the orders wait for each other in a circle.
    ValueError
        If the makespan is less than the orders allow.
    """
    unit: Fraction = graph.graph["resolution"]
    facts = _Facts(graph, orders)
    duration = attribute(graph, "duration")
    starts = earliest_starts(graph, orders)
    early = max((start + duration[op] for op, start in starts.items()), default=0) * unit
    if makespan < early:
        raise ValueError(f"a makespan of {makespan} is less than the orders need, {early}")
    without_lags = facts.length(facts.starts) * unit
    no_room = [unit * time for time in facts.no_room()]
    memory = min(without_lags - facts.least() * unit, max(no_room))
    most = max(facts.work.values())
    busiest = min(device for device, work in facts.work.items() if work == most)
    result = []
    for device, work in sorted(facts.work.items()):
        phases = facts.phases(device if work == most else busiest)
        fill, between, drain = (unit * time for time in phases)
        order, left = _take(memory, between)
        drain, left = _take(left, drain)
        fill -= left
        result.append(
            DeviceIdle(
                device,
                work * unit,
                {
                    "fill": fill,
                    "drain": drain,
                    "imbalance": (most - work) * unit,
                    "transfer": early - without_lags,
                    "memory": memory,
                    "order": order,
                    "late": makespan - early,
                },
                no_room[device],
                None if bound is None else max(bound - work * unit, Fraction(0)),
            )
        )
    return tuple(result)


def _take(amount: Fraction, time: Fraction) -> tuple[Fraction, Fraction]:
    """What is left of a time after taking an amount out of it, and what is left of the amount."""
    taken = min(amount, time)
    return time - taken, amount - taken


class _Gap(NamedTuple):
    """Idle time before the op at `position` in the order of a resource; at its end after all."""

    start: int
    end: int
    position: int


class _Level(NamedTuple):
    """Memory of a device before an op, what it takes at its start, and what it changes in all."""

    before: int
    taken: int
    change: int


class _Facts:
    """The orders of a graph without lags; times in steps of its resolution."""

    def __init__(self, graph: nx.DiGraph[Op], orders: Orders) -> None:
        self.graph = _without_lags(graph)
        self.orders = {resource: tuple(ops) for resource, ops in orders.items()}
        self.duration: dict[Op, int] = attribute(self.graph, "duration")
        self.uses = attribute(graph, "memory")
        compute = {r: ops for r, ops in self.orders.items() if r.kind == COMPUTE}
        self.starts = earliest_starts(self.graph, compute)
        self.work = dict.fromkeys(range(graph.graph["problem"].devices), 0)
        for resource, ops in self.orders.items():
            if resource.kind == COMPUTE:
                self.work[resource.device] += sum(self.duration[op] for op in ops)

    def end(self, op: Op) -> int:
        return self.starts[op] + self.duration[op]

    def length(self, starts: Mapping[Op, int]) -> int:
        """Makespan of start times."""
        return max((start + self.duration[op] for op, start in starts.items()), default=0)

    def least(self) -> int:
        """Largest head + work + tail of a device: L."""
        topological = list(nx.topological_sort(self.graph))
        head = dict.fromkeys(topological, 0)
        tail = dict.fromkeys(topological, 0)
        for op in topological:
            for target in self.graph.successors(op):
                head[target] = max(head[target], head[op] + self.duration[op])
        for op in reversed(topological):
            for target in self.graph.successors(op):
                tail[op] = max(tail[op], tail[target] + self.duration[target])
        return max(
            min(head[op] for op in ops) + self.work[resource.device] + min(tail[op] for op in ops)
            for resource, ops in self.orders.items()
            if ops and resource.kind == COMPUTE
        )

    def phases(self, device: int) -> tuple[int, int, int]:
        """Idle time before the first backward, after the last F, and between these."""
        ops = self.orders.get(Resource(COMPUTE, device))
        if not ops:
            return 0, 0, 0  # no device has work
        forward_only = not any(op.kind in ("B", "BW") for op in ops)
        first = ("F",) if forward_only else ("B", "BW")
        begin = min(self.starts[op] for op in ops if op.kind in first)
        end = max(self.end(op) for op in ops if op.kind == "F")
        fill = between = drain = 0
        for gap in self._gaps(ops):
            if gap.end <= begin:
                fill += gap.end - gap.start
            elif gap.start >= end:
                drain += gap.end - gap.start
            else:
                between += gap.end - gap.start
        return fill, between, drain

    def no_room(self) -> list[int]:
        """Idle time of each device while an op could run there, but for memory."""
        return [
            self._no_room(device, self.orders.get(Resource(COMPUTE, device), ()))
            for device in self.work
        ]

    def _gaps(self, ops: Sequence[Op]) -> list[_Gap]:
        starts = [*(self.starts[op] for op in ops), self.length(self.starts)]
        ends = [0, *(self.end(op) for op in ops)]
        spans = zip(ends, starts, strict=True)
        return [_Gap(a, b, position) for position, (a, b) in enumerate(spans) if a < b]

    def _no_room(self, device: int, ops: Sequence[Op]) -> int:
        capacity = self.graph.graph["capacity"][device]
        if capacity is None:
            return 0
        levels = self._levels(device, ops)
        ready = [
            max((self.end(source) for source in self.graph.predecessors(op)), default=0)
            for op in ops
        ]
        earliest_ready = [*accumulate(reversed(ready), min)][::-1]
        total = 0
        for gap in self._gaps(ops):
            since, peak = gap.end, 0
            for later in range(gap.position, len(ops)):
                if earliest_ready[later] >= since:
                    break  # nothing from here on was ready before
                op = levels[later]
                # brought forward, it holds its memory from the gap to its own place
                moved = max(levels[gap.position].before + op.taken, peak + op.change)
                if ready[later] < since and op.taken and moved > capacity:
                    since = max(ready[later], gap.start)
                    if since == gap.start:
                        break
                peak = max(peak, op.before + op.taken)
            total += gap.end - since
        return total

    def _levels(self, device: int, ops: Sequence[Op]) -> list[_Level]:
        level = self.graph.graph["static"][device]
        levels = []
        for op in ops:
            taken = sum(use.acquired + use.transient for use in self.uses[op])
            change = sum(use.acquired - use.released for use in self.uses[op])
            levels.append(_Level(level, taken, change))
            level += change
        return levels


def _without_lags(graph: nx.DiGraph[Op]) -> nx.DiGraph[Op]:
    """The rules of a graph without transfers, and without the order of equal microbatches.

    Every lag is 0, and ops of links and networks take no time.
    """
    result: nx.DiGraph[Op] = nx.DiGraph(**graph.graph)
    result.add_nodes_from(
        (op, data if data["resource"].kind == COMPUTE else {**data, "duration": 0})
        for op, data in graph.nodes(data=True)
    )
    result.add_edges_from(
        (source, target, {**arc, "lag": 0})
        for source, target, arc in graph.edges(data=True)
        if arc["reason"] != FIFO
    )
    return result
