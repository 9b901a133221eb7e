"""Squeezing: a periodic pattern of ops becomes orders without its idle time.

A pattern that repeats a block of ops for each microbatch leaves devices idle while it starts and
ends. Squeezing builds the orders op by op in time: a device that is free takes the first op of
its pattern that is ready, or a later one that is ready and does no harm. As in "Pipeline
Parallelism with Controllable Memory" (Qi et al., 2024), an op is moved only where memory stays
within the limit; here this is decided on the orders and not on a grid of time slots, so it holds
for any durations, lags and amounts of memory:

- an op that acquires memory may pass earlier ones only if the rest of the device's pattern still
  stays within the limit afterwards;
- what is left of the pattern is therefore a valid end at any moment, and there is no deadlock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import networkx as nx

from schedopt.graph import FIFO
from schedopt.op import Op, Resource

FILL, STEADY, DRAIN = range(3)
EVERYWHERE = frozenset({FILL, STEADY, DRAIN})

NOMINAL = {"F": 1, "B": 1, "W": 1, "BW": 2}
"""Durations for which the published patterns are made; transfers take no time."""


class PatternOp(NamedTuple):
    """An op in a pattern, and whether it belongs to the start, the middle or the end of it."""

    op: Op
    phase: int


class Squeezing(NamedTuple):
    """How orders are made of a pattern.

    Attributes
    ----------
    nominal
        Use `NOMINAL` durations and no lags instead of the real ones.
    free
        Phases in which F, B and BW may pass each other.
    lazy
        Phases in which W is kept for gaps between other ops, or until memory needs it. Elsewhere
        it keeps its place in the pattern.
    balanced
        A W that is longer than a gap goes into it if the device would otherwise be the one that
        has been idle the longest; if not balanced, if more than half of it fits.
    reserving
        An op that acquires memory passes earlier ones only if there is room for all of those
        that acquire memory, too, before anything is released.
    """

    nominal: bool
    free: frozenset[int] = EVERYWHERE
    lazy: frozenset[int] = EVERYWHERE
    balanced: bool = False
    reserving: bool = False


def squeeze(
    graph: nx.DiGraph[Op],
    pattern: Mapping[Resource, Sequence[PatternOp]],
    limit: Mapping[int, int],
    how: Squeezing,
) -> dict[Resource, list[Op]]:
    """Orders of a pattern that has been squeezed.

    Parameters
    ----------
    graph
        From `schedopt.graph.build_graph`.
    pattern
        Every op of the graph once, on its resource, in an order without deadlock. Ops of one
        stage and kind keep the order they have here.
    limit
        Memory of each device in steps of the graph, static memory not counted. Where the pattern
        itself needs more, that is the limit.
    how
        The rules.
    """
    state = _State(graph, how)
    for resource, ops in pattern.items():
        uses = [_use(graph, item.op) for item in ops]
        most = max(limit[resource.device], peak_of_pattern(graph, ops))
        state.devices[resource] = _Device(ops, uses, most, how.reserving)
    return state.run()


def peak_of_pattern(graph: nx.DiGraph[Op], ops: Iterable[PatternOp]) -> int:
    """Peak memory of the ops of one device in their order, in steps, without static memory."""
    level = peak = 0
    for item in ops:
        use = _use(graph, item.op)
        peak = max(peak, level + use.during)
        level += use.change
    return peak


class _Use(NamedTuple):
    """Memory of one op: while it runs, and the change it leaves."""

    during: int
    change: int


def _use(graph: nx.DiGraph[Op], op: Op) -> _Use:
    memory = graph.nodes[op]["memory"]
    acquired = sum(use.acquired for use in memory)
    transient = sum(use.transient for use in memory)
    return _Use(acquired + transient, acquired - sum(use.released for use in memory))


@dataclass
class _Device:
    """What one device has done and has left of its pattern."""

    pattern: Sequence[PatternOp]
    uses: list[_Use]
    limit: int
    reserving: bool
    position: dict[Op, int] = field(default_factory=dict)
    streams: dict[tuple[str, int], list[Op]] = field(default_factory=dict)
    done: list[bool] = field(default_factory=list)
    first: int = 0
    level: int = 0
    free_at: int = 0
    busy: int = 0
    order: list[Op] = field(default_factory=list)

    def __post_init__(self) -> None:
        for position, item in enumerate(self.pattern):
            self.position[item.op] = position
            self.streams.setdefault(item.op[:2], []).append(item.op)
        for stream in self.streams.values():
            stream.reverse()
        self.done = [False] * len(self.pattern)

    @property
    def idle(self) -> int:
        """Idle time from 0 to the end of the last op."""
        return self.free_at - self.busy

    def fits(self, position: int) -> bool:
        """Whether the op can come next and the rest of the pattern after it."""
        if position == self.first:
            return True
        use = self.uses[position]
        if self.level + use.during > self.limit:
            return False
        if use.change <= 0:
            return True
        level = self.level + use.change
        for earlier in range(self.first, position):
            if not self.done[earlier]:
                if level + self.uses[earlier].during > self.limit:
                    return False
                change = self.uses[earlier].change
                level += max(change, 0) if self.reserving else change
        return True

    def take(self, position: int, start: int, end: int) -> None:
        op = self.pattern[position].op
        self.order.append(op)
        self.streams[op[:2]].pop()
        self.done[position] = True
        while self.first < len(self.done) and self.done[self.first]:
            self.first += 1
        self.level += self.uses[position].change
        self.busy += end - start
        self.free_at = end


class _State:
    """All devices at one time, and when they have to look for their next op."""

    def __init__(self, graph: nx.DiGraph[Op], how: Squeezing) -> None:
        self.graph = graph
        self.how = how
        self.devices: dict[Resource, _Device] = {}
        self.waiting = dict.fromkeys(graph, 0)  # predecessors that have not been started
        for targets in graph.adj.values():
            for op, edge in targets.items():
                self.waiting[op] += edge["reason"] != FIFO
        self.ready_at = dict.fromkeys(graph, 0)  # so far, for the predecessors started
        self.events: list[tuple[int, Resource]] = []

    def duration(self, op: Op) -> int:
        if self.how.nominal:
            return NOMINAL[op.kind]
        length: int = self.graph.nodes[op]["duration"]
        return length

    def run(self) -> dict[Resource, list[Op]]:
        self.events = [(0, resource) for resource in self.devices]
        heapq.heapify(self.events)
        while self.events:
            now, resource = heapq.heappop(self.events)
            device = self.devices[resource]
            if device.free_at <= now:
                position = self.choose(device, now, resource)
                if position is not None:
                    self.start(device, position, now, resource)
        return {resource: device.order for resource, device in self.devices.items()}

    def is_lazy(self, item: PatternOp) -> bool:
        return item.op.kind == "W" and item.phase in self.how.lazy

    def choose(self, device: _Device, now: int, resource: Resource) -> int | None:
        """Position of the op to start now; otherwise wakes the device again when one is ready."""
        main, lazy = self.candidates(device)
        ready = [self.ready_at[device.pattern[position].op] for position in main]
        for index, position in enumerate(main):
            end = now + self.duration(device.pattern[position].op)
            harmless = not any(now < at < end for at in ready[:index])
            if ready[index] <= now and harmless and device.fits(position):
                return position
        coming = min((at for at in ready if at > now), default=None)
        for position in lazy:
            op = device.pattern[position].op
            if self.ready_at[op] <= now and device.fits(position):
                gap = None if coming is None else coming - now
                if gap is None or self.worth(device, gap, self.duration(op), now):
                    return position
        later = [self.ready_at[device.pattern[position].op] for position in lazy]
        wake = min((at for at in (*ready, *later) if at > now), default=None)
        if wake is not None:
            heapq.heappush(self.events, (wake, resource))
        return None

    def candidates(self, device: _Device) -> tuple[list[int], list[int]]:
        """Ops that the rules allow next and of which the start is known: main ones, lazy ones."""
        front = device.first
        while front < len(device.done) and (
            device.done[front] or self.is_lazy(device.pattern[front])
        ):
            front += 1
        main: list[int] = []
        lazy: list[int] = []
        for stream in device.streams.values():
            if not stream or self.waiting[stream[-1]]:
                continue
            position = device.position[stream[-1]]
            item = device.pattern[position]
            if self.is_lazy(item):
                lazy.append(position)
            elif position == front or (
                item.phase == device.pattern[front].phase and item.phase in self.how.free
            ):
                main.append(position)
        return sorted(main), sorted(lazy)

    def worth(self, device: _Device, gap: int, duration: int, now: int) -> bool:
        """Whether a W goes into a gap."""
        if gap >= duration:
            return True
        if self.how.balanced:
            most = max(other.idle for other in self.devices.values())
            return now + gap - device.busy > most
        return 2 * gap > duration

    def start(self, device: _Device, position: int, now: int, resource: Resource) -> None:
        op = device.pattern[position].op
        end = now + self.duration(op)
        device.take(position, now, end)
        heapq.heappush(self.events, (end, resource))
        for target, edge in self.graph.adj[op].items():
            if edge["reason"] == FIFO:
                continue
            self.waiting[target] -= 1
            lag = 0 if self.how.nominal else edge["lag"]
            self.ready_at[target] = max(self.ready_at[target], end + lag)
            if not self.waiting[target]:
                other: Resource = self.graph.nodes[target]["resource"]
                heapq.heappush(self.events, (self.ready_at[target], other))
