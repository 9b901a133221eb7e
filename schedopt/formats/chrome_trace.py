"""A schedule as a Chrome trace: for Perfetto (ui.perfetto.dev) and chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import count

from schedopt.formats.palette import KIND_NAMES_OF_CHROME
from schedopt.formats.rows import rows_of
from schedopt.memory import memory_curves
from schedopt.op import KINDS, Op
from schedopt.schedule import Schedule, TimedOp
from schedopt.trace_events import Event, counter, flow, process, span, thread
from schedopt.units import SECONDS

_INSIDE = Fraction(1, 100)
"""An arrow begins and ends this part of an op within it: on its edge it could be another's."""


def write_chrome_trace(schedules: Sequence[Schedule]) -> str:
    """JSON of a trace with a process for each schedule and a row for each device in it.

    Ops have their kind as category, and stage, microbatch and meaning as arguments. Arrows are
    what goes from device to device; each device has a counter of its memory. Times are those of
    the problem; if its unit is none of time, one unit is drawn as 1 us, as the heading says.
    """
    arrows = count(1)
    events = [e for k, schedule in enumerate(schedules) for e in _events(k, schedule, arrows)]
    head = '{"displayTimeUnit": "ms", "traceEvents": [\n'
    return head + ",\n".join(map(json.dumps, events)) + "\n]}\n"


def _events(number: int, schedule: Schedule, arrows: Iterator[int]) -> Iterator[Event]:
    problem = schedule.problem
    seconds = SECONDS.get(problem.time_unit)
    unit_us = Fraction(1) if seconds is None else seconds * 10**6
    scale = "" if seconds is not None else f" (1 of {problem.time_unit} drawn as 1 us)"
    yield from process(number, (schedule.name or problem.name or "schedule") + scale)
    step = schedule.resolution * unit_us
    timed_of: dict[Op, tuple[int, TimedOp]] = {}
    rows = rows_of(schedule, range(problem.devices))
    rows.sort(key=lambda row: problem.devices if row.device is None else row.device)
    for place, row in enumerate(rows):  # devices first: a row of a device has its number
        yield from thread(number, place, row.name)
        for timed in row.timed_ops:
            timed_of[timed.op] = place, timed
            yield _span(number, place, timed, step)
    for begin, end, reason in _transfers(schedule, timed_of, step):
        yield from flow(number, next(arrows), reason, "transfer", begin=begin, end=end)
    for curve in memory_curves(schedule):
        name = f"memory of device {curve.device}"
        for time, amount in curve.points:
            values = {problem.memory_unit: float(amount)}
            yield counter(number, name, float(time * unit_us), values)


def _span(number: int, row: int, timed: TimedOp, step: Fraction) -> Event:
    kind, stage, microbatch = timed.op
    start, end = float(timed.start * step), float(timed.end * step)
    arguments = {"meaning": KINDS[kind], "stage": stage, "microbatch": microbatch}
    more = {"args": arguments, "cname": KIND_NAMES_OF_CHROME[kind]}
    return span(number, row, str(timed.op), kind, start=start, end=end, **more)


def _transfers(
    schedule: Schedule, timed_of: Mapping[Op, tuple[int, TimedOp]], step: Fraction
) -> Iterator[tuple[tuple[int, float], tuple[int, float], str]]:
    """What goes from one row to another: row and time of both ends, and what it is."""
    for (source, target), edge in schedule.graph.edges.items():
        (origin, sent), (goal, used) = timed_of[source], timed_of[target]
        if edge["reason"] in ("activation", "gradient") and origin != goal:
            begin = sent.end - (sent.end - sent.start) * _INSIDE
            end = used.start + (used.end - used.start) * _INSIDE
            yield (origin, float(begin * step)), (goal, float(end * step)), edge["reason"]
