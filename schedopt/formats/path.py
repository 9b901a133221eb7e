"""The critical path of a schedule in words: what is alike is folded into one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import groupby
from typing import NamedTuple

from schedopt.binding import Link
from schedopt.exact import text
from schedopt.op import COMPUTE, KINDS
from schedopt.schedule import Schedule

LONGEST_PATTERN = 40
"""Most visits of devices that are looked at as one repeated pattern."""


class Visit(NamedTuple):
    """A part of the path on one device, link or network, from `start` to `end`.

    `wait` is the time between the end of the op that held its first op, and its start.
    """

    place: str
    start: Fraction
    end: Fraction
    wait: Fraction
    links: tuple[Link, ...]

    @property
    def pattern(self) -> tuple[str, str, Fraction]:
        """What is alike in visits that are folded."""
        return self.place, _kinds(self.links), self.wait


def visits(schedule: Schedule, path: Sequence[Link]) -> list[Visit]:
    """The parts of a critical path, one for each stay on a device."""
    unit = schedule.resolution
    times = {t.op: t for ops in schedule.timeline.values() for t in ops}
    place_of = {
        t.op: str(resource.device) if resource.kind == COMPUTE else str(resource)
        for resource, ops in schedule.timeline.items()
        for t in ops
    }
    result: list[Visit] = []
    for place, group in groupby(path, key=lambda link: place_of[link.op]):
        links = tuple(group)
        start = times[links[0].op].start * unit
        came = links[0].binding.op
        left = Fraction(0) if came is None else times[came].end * unit
        result.append(Visit(place, start, times[links[-1].op].end * unit, start - left, links))
    return result


def path_rows(schedule: Schedule, path: Sequence[Link]) -> list[tuple[str, str, str, str]]:
    """The critical path as rows: time, device, ops, what comes before.

    Parts that repeat are one row for each visit of the first repetition, and a line that says how
    often and until when.
    """
    parts = visits(schedule, path)
    patterns = [visit.pattern for visit in parts]
    rows: list[tuple[str, str, str, str]] = []
    position = 0
    while position < len(parts):
        length, count = _repetition(patterns, position)
        for visit in parts[position : position + length]:
            rows.append(_row(visit))
        if count > 1:
            last = parts[position + length * count - 1]
            times = "once more" if count == 2 else f"{count - 1} times more"
            what = "the line above" if length == 1 else f"the {length} lines above"
            rows.append((f"to {text(last.end, 3)}", "", f"{what}, {times}", ""))
        position += length * count
    return rows


def path_sum(schedule: Schedule, path: Sequence[Link]) -> str:
    """What the length of the path is made of."""
    unit = schedule.resolution
    times = {t.op: t for ops in schedule.timeline.values() for t in ops}
    work = sum((times[link.op].end - times[link.op].start) * unit for link in path)
    late = sum((link.binding.slack for link in path), Fraction(0))
    lags = schedule.makespan - work - late
    transfers = sum(link.binding.reason == "transfer" for link in path)
    parts = [f"{text(work, 3)} in {len(path)} ops"]
    if transfers:
        parts.append(f"{text(lags, 3)} in {transfers} transfers")
    if late:
        parts.append(f"{text(late, 3)} of starting late")
    return f"{text(schedule.makespan, 3)} {schedule.problem.time_unit} = " + " + ".join(parts)


def _row(visit: Visit) -> tuple[str, str, str, str]:
    first, last = visit.links[0], visit.links[-1]
    ops = str(first.op)
    if len(visit.links) > 1:
        ops += f" to {last.op}: {_kinds(visit.links)}"
    reason = ""
    if first.binding.op is not None:
        reason = f"after {first.binding.op}"
        if visit.wait:
            word = "transfer" if first.binding.reason == "transfer" else "late"
            reason += f", {word} {text(visit.wait, 3)}"
    return f"{text(visit.start, 3)} to {text(visit.end, 3)}", visit.place, ops, reason


def _kinds(links: Sequence[Link]) -> str:
    counts = Counter(link.op.kind for link in links)
    return ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])


def _repetition(patterns: Sequence[object], position: int) -> tuple[int, int]:
    """Length and count of the repeated part at a position that folds most visits."""
    best = (1, 1)
    for length in range(1, min(LONGEST_PATTERN, (len(patterns) - position) // 2) + 1):
        pattern, count, next_one = patterns[position : position + length], 1, position + length
        while patterns[next_one : next_one + length] == pattern:
            count += 1
            next_one += length
        if length * (count - 1) > best[0] * (best[1] - 1):
            best = (length, count)
    return best
