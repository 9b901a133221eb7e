"""Pictures of a schedule for the terminal: a Gantt chart and the memory of each device."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from rich.text import Text

from schedopt.exact import resolution, steps, text
from schedopt.formats.palette import (
    IDLE_COLOUR,
    KIND_LETTERS,
    MEMORY_COLOUR,
    OVER_CAPACITY_COLOUR,
    shade,
)
from schedopt.formats.rows import rows_of
from schedopt.formats.view import View
from schedopt.memory import MemoryCurve, memory_curves
from schedopt.op import KINDS
from schedopt.problem import Problem
from schedopt.schedule import Schedule, TimedOp

SMALLEST_WIDTH = 40

_LEFT = len("device ")
_RIGHT = len(" 100.0 %")


class _Glyphs(NamedTuple):
    idle: str
    fill: str
    axis: str
    tick: str
    levels: str


_UNICODE = _Glyphs(idle="·", fill="─", axis="─", tick="┬", levels=" ▁▂▃▄▅▆▇")
_ASCII = _Glyphs(idle=".", fill="-", axis="-", tick="+", levels=" .:-=+*#")


def gantt(
    schedule: Schedule,
    *,
    width: int = 100,
    colour: bool = True,
    ascii_only: bool = False,
    view: View | None = None,
) -> Text:
    """Gantt chart with one row per device, and its share of idle time in the span that is shown.

    Networks and links that are busy have rows of their own (`schedopt.formats.rows`).

    Each column of characters is a slice of time. It shows the op that fills more than half of it;
    or idle time, if that fills more than half; or else one of the kinds of op in it, such that
    from column to column each kind gets its share. A schedule of any size so keeps its shape.

    Parameters
    ----------
    schedule
        Any schedule, also one that breaks rules.
    width
        Characters per line, at least `SMALLEST_WIDTH`.
    colour
        Ops as coloured boxes with the number of their microbatch; otherwise as letters.
    ascii_only
        Use no character outside ASCII.
    view
        What to show of it, all of it when omitted.
    """
    view = view or View.of(schedule)
    scale = _Scale.of(schedule, width, view)
    glyphs = _ASCII if ascii_only else _UNICODE
    problem = schedule.problem
    chunks = max(map(len, problem.stages_on))
    result = Text(no_wrap=True)
    _append_axis(result, scale, glyphs, right="idle")
    for row in rows_of(schedule, view.devices):
        result.append(f"{row.label:>{_LEFT - 1}} ")
        for cell, run in itertools.groupby(_cells(row.timed_ops, problem, scale)):
            columns = len(list(run))
            if cell is None:
                result.append((" " if colour else glyphs.idle) * columns)
            elif colour:
                result.append(_box(cell, columns), _style(cell, chunks))
            else:
                result.append(_letters(cell, columns, glyphs.fill))
        busy = sum(end - start for start, end in map(scale.span, row.timed_ops))
        result.append(f"{_percent(1 - Fraction(busy, scale.total)):>{_RIGHT}}\n")
    kinds = {timed.op.kind for ops in schedule.timeline.values() for timed in ops}
    entries = [_legend_entry(kind, colour=colour) for kind in KINDS if kind in kinds]
    if not colour:
        entries.append(Text(f"{glyphs.idle} idle"))
    if chunks > 1:
        look = "darker" if colour else "small letter"
        entries.append(Text(f"{look}: later stage of the device"))
    entries += [Text("number: microbatch"), Text(f"time in {scale.unit}")]
    entries.append(Text(f"one column = {text(scale.per_column, 3)}"))
    if part := view.part_of(schedule):
        entries.append(Text(f"idle: of {part}"))
    _append_legend(result, entries, scale)
    return result


def memory_chart(
    schedule: Schedule,
    *,
    width: int = 100,
    colour: bool = True,
    ascii_only: bool = False,
    view: View | None = None,
) -> Text:
    """Memory of each device over time, on the axis of `gantt`, and its peak in what is shown.

    The height of a column is the largest amount in its slice of time, as a share of the device's
    capacity, or of the largest peak where a device has none. What is over the capacity is marked.

    Parameters
    ----------
    schedule, width, colour, ascii_only, view
        As for `gantt`.
    """
    view = view or View.of(schedule)
    scale = _Scale.of(schedule, width, view)
    glyphs = _ASCII if ascii_only else _UNICODE
    problem = schedule.problem
    curves = memory_curves(schedule)
    largest = max(curve.peak for curve in curves)  # of all devices, so that views compare
    too_much = "█" if colour and not ascii_only else "!"
    result = Text(no_wrap=True)
    _append_axis(result, scale, glyphs, right="peak")
    for device in view.devices:
        curve, capacity = curves[device], problem.capacity[device]
        full = largest if capacity is None else capacity
        result.append(f"{device:>{_LEFT - 1}} ")
        amounts = _amounts(curve, scale)
        for over, run in itertools.groupby(amounts, key=lambda amount: amount > full):
            line = "".join(too_much if over else _level(a, full, glyphs) for a in run)
            result.append(line, OVER_CAPACITY_COLOUR if over else MEMORY_COLOUR)
        top = curve.peak_in(view.start, view.end)
        peak = text(top, 1) if capacity is None else _percent_of(top, capacity)
        over = capacity is not None and top > capacity
        result.append(f"{peak:>{_RIGHT}}\n", OVER_CAPACITY_COLOUR if over else "")
    entries = [Text("height: memory in use")]
    if any(capacity is None for capacity in problem.capacity):
        entries.append(Text(f"peak in {problem.memory_unit}"))
    if any(capacity is not None for capacity in problem.capacity):
        entries.append(Text("peak in % of the capacity"))
        entries.append(Text.assemble((too_much, OVER_CAPACITY_COLOUR), " over the capacity"))
    if part := view.part_of(schedule):
        entries.append(Text(f"peak: of {part}"))
    _append_legend(result, entries, scale)
    return result


# ---------------------------------------------------------------------- time axis


class _Scale(NamedTuple):
    """How a view maps to columns.

    The view is `start` to `end`, in parts of a step such that both are whole: `parts` of them make
    a step of the schedule. Times become places, of which a column spans `length` and the view
    `columns` times as much: so every op has whole places whatever the number of columns.
    """

    start: int
    end: int
    parts: int
    columns: int
    resolution: Fraction
    unit: str

    @classmethod
    def of(cls, schedule: Schedule, width: int, view: View) -> _Scale:
        available = max(width, SMALLEST_WIDTH) - _LEFT - _RIGHT
        step = schedule.resolution
        part = resolution([view.start / step, view.end / step])
        start, end = steps(view.start / step, part), steps(view.end / step, part)
        scale = cls(start, end, part.denominator, available, step, schedule.problem.time_unit)
        # if every op can have a whole number of columns, equal ops get equal boxes
        rows = rows_of(schedule, view.devices)
        places = (place for row in rows for timed in row.timed_ops for place in scale.span(timed))
        units = scale.total // math.gcd(scale.total, *places)
        return scale._replace(
            columns=available // units * units if units <= available else available
        )

    @property
    def length(self) -> int:
        """Places of one column."""
        return self.end - self.start

    @property
    def total(self) -> int:
        """Places of the whole view."""
        return self.length * self.columns

    @property
    def per_column(self) -> Fraction:
        """Time of one column, in the unit of the problem."""
        return self.length * self.resolution / self.parts / self.columns

    def place(self, time: int) -> int:
        """Place of a time in steps of the schedule, kept within the view."""
        return (min(max(time * self.parts, self.start), self.end) - self.start) * self.columns

    def span(self, timed: TimedOp) -> tuple[int, int]:
        """Places where an op starts and ends; equal if it is outside of the view."""
        return self.place(timed.start), self.place(timed.end)

    def ticks(self) -> Iterator[tuple[int, str]]:
        """(column, label) of round times, far enough apart for their labels."""
        start, end = (time * self.resolution / self.parts for time in (self.start, self.end))
        gap = max(10, len(text(end)) + 3)
        step = _round_up(self.per_column * min(gap, self.columns))
        for count in range(math.ceil(start / step), int(end / step) + 1):
            column = int((count * step - start) / self.per_column)
            label = text(count * step)
            if column + len(label) <= self.columns:
                yield column, label


def _round_up(number: Fraction) -> Fraction:
    """Smallest of 1, 2, 5 times a power of ten that is not below a positive number."""
    power = Fraction(10) ** math.floor(math.log10(number))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= number)


def _append_axis(result: Text, scale: _Scale, glyphs: _Glyphs, *, right: str) -> None:
    labels, line = [" "] * scale.columns, [glyphs.axis] * scale.columns
    for column, label in scale.ticks():
        labels[column : column + len(label)] = label
        line[column] = glyphs.tick
    result.append(f"{'':{_LEFT}}{''.join(labels).rstrip()}\n")
    result.append(f"{'device':<{_LEFT}}")
    result.append("".join(line), IDLE_COLOUR)
    result.append(f"{right:>{_RIGHT}}\n")


# ---------------------------------------------------------------------- cells of the Gantt chart


class _Cell(NamedTuple):
    """What one column shows: an op, or only its kind (microbatch None) where there are many.

    `wide` is an op with room for the longest label: only such ops get one, so that a row does
    not have a label here and there.
    """

    kind: str
    chunk: int
    microbatch: int | None
    wide: bool = False


def _cells(timed_ops: Sequence[TimedOp], problem: Problem, scale: _Scale) -> Iterator[_Cell | None]:
    """What each column shows, None for idle time (see `gantt`)."""
    length = scale.length
    label_columns = 1 + len(str(problem.microbatches - 1))
    chunk_of = {s: k for stages in problem.stages_on for k, s in enumerate(stages)}
    inside: list[list[tuple[int, _Cell]]] = [[] for _ in range(scale.columns)]
    for timed in timed_ops:
        op, (start, end) = timed.op, scale.span(timed)
        wide = end - start >= label_columns * length
        cell = _Cell(op.kind, chunk_of.get(op.stage, 0), op.microbatch, wide)
        for column in range(start // length, -(-end // length)):
            share = min(end, (column + 1) * length) - max(start, column * length)
            inside[column].append((share, cell))
    credit: Counter[_Cell] = Counter()
    for shares in inside:
        busy = sum(share for share, _ in shares)
        if 2 * busy < length:
            yield None
            continue
        largest, cell = max(shares)
        if 2 * largest > length:
            yield cell
        else:
            kinds = Counter[_Cell]()
            for share, member in shares:
                kinds[_Cell(member.kind, member.chunk, None)] += share
            credit.update(kinds)
            chosen = max(kinds, key=credit.__getitem__)
            credit[chosen] -= busy
            yield chosen


def _box(cell: _Cell, columns: int) -> str:
    label = str(cell.microbatch) if cell.wide else ""
    return (label if len(label) <= columns else "").center(columns)


def _style(cell: _Cell, chunks: int) -> str:
    odd = cell.microbatch is not None and cell.microbatch % 2 == 1
    look = shade(cell.kind, chunk=cell.chunk, chunks=chunks, odd=odd)
    return f"{look.text} on {look.background}"


def _letters(cell: _Cell, columns: int, fill: str) -> str:
    letter = KIND_LETTERS.get(cell.kind, "?")
    letter = letter.lower() if cell.chunk else letter
    if cell.microbatch is None:
        return letter * columns
    label = f"{letter}{cell.microbatch}" if cell.wide else letter
    return (label if len(label) <= columns else letter).ljust(columns, fill)


# ---------------------------------------------------------------------- memory


def _amounts(curve: MemoryCurve, scale: _Scale) -> list[Fraction]:
    """Largest amount in each column."""
    result = [Fraction(0)] * scale.columns
    places = [scale.place(int(time / scale.resolution)) for time, _ in curve.points]
    ends = [*places[1:], scale.total]
    for (_, amount), start, end in zip(curve.points, places, ends, strict=True):
        for column in range(start // scale.length, -(-end // scale.length)):
            result[column] = max(result[column], amount)
    return result


def _level(amount: Fraction, full: Fraction, glyphs: _Glyphs) -> str:
    highest = len(glyphs.levels) - 1
    return glyphs.levels[math.ceil(highest * amount / full) if full else 0]


# ---------------------------------------------------------------------- legend


def _legend_entry(kind: str, *, colour: bool) -> Text:
    if not colour:
        return Text(f"{KIND_LETTERS[kind]} {KINDS[kind]}")
    return Text.assemble((f" {kind} ", _style(_Cell(kind, 0, None), 1)), f" {KINDS[kind]}")


def _append_legend(result: Text, entries: Sequence[Text], scale: _Scale) -> None:
    line = Text()
    for entry in entries:
        if line and len(line) + len(entry) + 3 > scale.columns + _RIGHT:
            result.append(" " * _LEFT).append_text(line).append("\n")
            line = Text()
        line.append("   " if line else "").append_text(entry)
    result.append(" " * _LEFT).append_text(line).append("\n")


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.1f} %"


def _percent_of(part: Fraction, whole: Fraction) -> str:
    return _percent(part / whole) if whole else text(part, 1)
