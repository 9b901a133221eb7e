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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx

from schedopt.graph import FIFO
from schedopt.op import MemoryUse, Op, Resource

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
    ways: Iterable[Squeezing],
) -> Iterator[dict[Resource, list[Op]]]:
    """Orders of a pattern that has been squeezed, for each way to do it.

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
    ways
        The rules.
    """
    numbered = _Numbered(graph, pattern)
    limits = {
        resource: max(limit[resource.device], numbered.peak(resource)) for resource in pattern
    }
    for how in ways:
        orders = _Run(numbered, limits, how).orders()
        yield {
            resource: [numbered.ops[a] for a in order]
            for resource, order in zip(pattern, orders, strict=True)
        }


def peak_of_pattern(graph: nx.DiGraph[Op], ops: Iterable[PatternOp]) -> int:
    """Peak memory of the ops of one device in their order, in steps, without static memory."""
    level = peak = 0
    for item in ops:
        use = _use(graph.nodes[item.op]["memory"])
        peak = max(peak, level + use.during)
        level += use.change
    return peak


class _Use(NamedTuple):
    """Memory of one op: while it runs, and the change it leaves."""

    during: int
    change: int


def _use(memory: tuple[MemoryUse, ...]) -> _Use:
    acquired = sum(use.acquired for use in memory)
    transient = sum(use.transient for use in memory)
    return _Use(acquired + transient, acquired - sum(use.released for use in memory))


class _Numbered:
    """The ops of a pattern as numbers 0..n-1: one resource after the other, in pattern order.

    Everything is looked up for each op at each step, so it is in lists.
    """

    def __init__(
        self, graph: nx.DiGraph[Op], pattern: Mapping[Resource, Sequence[PatternOp]]
    ) -> None:
        items = [item for part in pattern.values() for item in part]
        nodes = [graph.nodes[item.op] for item in items]
        self.ops = [item.op for item in items]
        self.phase = [item.phase for item in items]
        self.duration: list[int] = [node["duration"] for node in nodes]
        known = {memory: _use(memory) for memory in {node["memory"] for node in nodes}}
        self.during = [known[node["memory"]].during for node in nodes]
        self.change = [known[node["memory"]].change for node in nodes]
        self.resource: list[int] = []
        self.range_of: dict[Resource, range] = {}
        for index, (resource, part) in enumerate(pattern.items()):
            self.range_of[resource] = range(len(self.resource), len(self.resource) + len(part))
            self.resource += [index] * len(part)
        number = {op: a for a, op in enumerate(self.ops)}
        self.successors: list[list[tuple[int, int]]] = []
        self.predecessors = [0] * len(items)
        for op in self.ops:
            after = [
                (number[target], edge["lag"])
                for target, edge in graph.adj[op].items()
                if edge["reason"] != FIFO
            ]
            self.successors.append(after)
            for b, _ in after:
                self.predecessors[b] += 1

    def peak(self, resource: Resource) -> int:
        """Peak memory of a resource in the order of the pattern."""
        level = peak = 0
        for a in self.range_of[resource]:
            peak = max(peak, level + self.during[a])
            level += self.change[a]
        return peak

    def streams(self, resource: Resource) -> list[list[int]]:
        """Ops of a resource by kind and stage, the first of each at its end."""
        streams: dict[tuple[str, int], list[int]] = {}
        for a in reversed(self.range_of[resource]):
            streams.setdefault(self.ops[a][:2], []).append(a)
        return list(streams.values())


@dataclass(slots=True)
class _Device:
    """What one device has done and has left of its pattern.

    `first` is the first op of the pattern that is not done; `front` the first of those that are
    not lazy.
    """

    streams: list[list[int]]
    order: list[int]
    limit: int
    end: int
    first: int
    front: int
    level: int = 0
    free_at: int = 0
    busy: int = 0


class _Run:
    """All devices at one time, and when they have to look for their next op."""

    def __init__(self, numbered: _Numbered, limits: Mapping[Resource, int], how: Squeezing) -> None:
        self.numbered = numbered
        self.how = how
        self.devices = [
            _Device(numbered.streams(resource), [], limits[resource], r.stop, r.start, r.start)
            for resource, r in numbered.range_of.items()
        ]
        ops, phase = numbered.ops, numbered.phase
        self.duration = [NOMINAL[op.kind] for op in ops] if how.nominal else numbered.duration
        self.lazy = [op.kind == "W" and at in how.lazy for op, at in zip(ops, phase, strict=True)]
        self.done = [False] * len(ops)
        self.waiting = list(numbered.predecessors)  # predecessors that have not been started
        self.ready_at = [0] * len(ops)  # so far, for the predecessors started
        self.events = [(0, index) for index in range(len(self.devices))]

    def orders(self) -> list[list[int]]:
        while self.events:
            now, index = heapq.heappop(self.events)
            device = self.devices[index]
            if device.free_at <= now:
                a = self.choose(device, now, index)
                if a is not None:
                    self.start(device, a, now, index)
        return [device.order for device in self.devices]

    def choose(self, device: _Device, now: int, index: int) -> int | None:
        """Op to start now; otherwise wakes the device again when one is ready."""
        ready_at, duration = self.ready_at, self.duration
        main, lazy = self.candidates(device)
        earlier: list[int] = []
        for a in main:
            at, end = ready_at[a], now + duration[a]
            if (
                at <= now
                and not any(now < other < end for other in earlier)
                and self.fits(device, a)
            ):
                return a
            earlier.append(at)
        coming = min((at for at in earlier if at > now), default=None)
        for a in lazy:
            if ready_at[a] <= now and self.fits(device, a):
                gap = None if coming is None else coming - now
                if gap is None or self.worth(device, gap, duration[a], now):
                    return a
        earlier += [ready_at[a] for a in lazy]
        wake = min((at for at in earlier if at > now), default=None)
        if wake is not None:
            heapq.heappush(self.events, (wake, index))
        return None

    def candidates(self, device: _Device) -> tuple[list[int], list[int]]:
        """Ops that the rules allow next and of which the start is known: main ones, lazy ones."""
        done, is_lazy, phase = self.done, self.lazy, self.numbered.phase
        while device.front < device.end and (done[device.front] or is_lazy[device.front]):
            device.front += 1
        front = device.front
        main: list[int] = []
        lazy: list[int] = []
        for stream in device.streams:
            if not stream or self.waiting[stream[-1]]:
                continue
            a = stream[-1]
            if is_lazy[a]:
                lazy.append(a)
            elif a == front or (phase[a] == phase[front] and phase[a] in self.how.free):
                main.append(a)
        return sorted(main), sorted(lazy)

    def fits(self, device: _Device, a: int) -> bool:
        """Whether the op can come next and the rest of the pattern after it."""
        if a == device.first:
            return True
        during, change, limit = self.numbered.during, self.numbered.change, device.limit
        if device.level + during[a] > limit:
            return False
        if change[a] <= 0:
            return True
        level = device.level + change[a]
        for earlier in range(device.first, a):
            if not self.done[earlier]:
                if level + during[earlier] > limit:
                    return False
                if change[earlier] > 0 or not self.how.reserving:
                    level += change[earlier]
        return True

    def worth(self, device: _Device, gap: int, duration: int, now: int) -> bool:
        """Whether a W goes into a gap."""
        if gap >= duration:
            return True
        if self.how.balanced:
            most = max(other.free_at - other.busy for other in self.devices)  # idle so far
            return now + gap - device.busy > most
        return 2 * gap > duration

    def start(self, device: _Device, a: int, now: int, index: int) -> None:
        numbered, done = self.numbered, self.done
        end = now + self.duration[a]
        device.order.append(a)
        for stream in device.streams:
            if stream and stream[-1] == a:
                stream.pop()
        done[a] = True
        while device.first < device.end and done[device.first]:
            device.first += 1
        device.level += numbered.change[a]
        device.busy += end - now
        device.free_at = end
        heapq.heappush(self.events, (end, index))
        for b, lag in numbered.successors[a]:
            self.waiting[b] -= 1
            self.ready_at[b] = max(self.ready_at[b], end if self.how.nominal else end + lag)
            if not self.waiting[b]:
                heapq.heappush(self.events, (self.ready_at[b], numbered.resource[b]))
