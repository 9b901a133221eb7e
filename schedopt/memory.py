"""Memory of each device over time, and its peak."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from schedopt.graph import attribute
from schedopt.op import MemoryUse, Op
from schedopt.schedule import Schedule, TimedOp


class MemoryCurve(NamedTuple):
    """Memory of one device.

    `points` are (time, amount) from the start on: the amount holds from that time to the
    next. Both in the units of the problem. `peak` includes static memory.
    """

    device: int
    points: tuple[tuple[Fraction, Fraction], ...]
    peak: Fraction
    peak_time: Fraction

    def peak_in(self, start: Fraction, end: Fraction) -> Fraction:
        """Largest amount from `start` until before `end`, in the units of the problem."""
        untils = [*(time for time, _ in self.points[1:]), None]
        amounts = [
            amount
            for (time, amount), until in zip(self.points, untils, strict=True)
            if time < end and (until is None or until > start)
        ]
        if start <= self.peak_time < end:
            amounts.append(self.peak)  # also if it lasts for no time
        return max(amounts)


class _Event(NamedTuple):
    time: int
    acquires: bool  # at one time what is released comes before what is acquired
    device: int
    change: int


def _events(
    timed_ops: tuple[TimedOp, ...], uses: dict[Op, tuple[MemoryUse, ...]]
) -> Iterator[_Event]:
    for timed in timed_ops:
        for use in uses.get(timed.op, ()):
            taken = use.acquired + use.transient
            yield _Event(timed.start, True, use.device, taken)
            yield _Event(timed.end, False, use.device, -use.transient - use.released)


def memory_curves(schedule: Schedule) -> tuple[MemoryCurve, ...]:
    """Memory curve of every device of a schedule.

    Within a resource the order of its ops counts, between resources the time; memory released
    at t can be acquired again at t.
    """
    graph = schedule.graph
    uses = attribute(graph, "memory")
    time_step, memory_step = schedule.resolution, graph.graph["memory_resolution"]
    level = dict(graph.graph["static"])
    peak = dict.fromkeys(level, (-1, 0))
    points = {device: [(0, amount)] for device, amount in level.items()}
    streams = [_events(timed_ops, uses) for timed_ops in schedule.timeline.values()]
    for event in heapq.merge(*streams, key=lambda event: event[:2]):
        level[event.device] += event.change
        curve = points[event.device]
        if level[event.device] > peak[event.device][0]:
            peak[event.device] = level[event.device], event.time
        if curve[-1][0] == event.time:
            curve.pop()
        curve.append((event.time, level[event.device]))
    result = []
    for device, curve in points.items():
        top, when = max(peak[device], (graph.graph["static"][device], 0), key=lambda p: p[0])
        shown = tuple((t * time_step, amount * memory_step) for t, amount in curve)
        result.append(MemoryCurve(device, shown, top * memory_step, when * time_step))
    return tuple(result)


def peak_memory(schedule: Schedule) -> tuple[Fraction, ...]:
    """Peak memory of each device in the unit of the problem, static memory included."""
    return tuple(curve.peak for curve in memory_curves(schedule))
