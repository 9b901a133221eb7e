"""Events of the Trace Event Format, which Perfetto and chrome://tracing show.

Times are in us, as the format has them, rounded to ns. A process is a group of rows, a thread a
row.
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

Event = dict[str, Any]


def process(process: int, name: str) -> Iterator[Event]:
    """The heading of a group of rows; groups stand in the order of their numbers."""
    yield from _heading("process", process, 0, process, name)


def thread(process: int, row: int, name: str) -> Iterator[Event]:
    """The heading of a row; rows stand in the order of their numbers."""
    yield from _heading("thread", process, row, row, name)


def span(
    process: int, row: int, name: str, category: str, *, start: float, end: float, **more: Any
) -> Event:
    """Something that lasts; `more` are further fields."""
    begin, over = round(1000 * start), round(1000 * end)
    times = {"ts": _us(begin), "dur": _us(over - begin)}
    return {"ph": "X", "name": name, "cat": category, **_place(process, row), **times, **more}


def flow(
    process: int,
    number: int,
    name: str,
    category: str,
    *,
    begin: tuple[int, float],
    end: tuple[int, float],
) -> Iterator[Event]:
    """An arrow from one row to another; begin and end are row and time, within a span each.

    No other arrow of the trace has its number.
    """
    same = {"name": name, "cat": category, "id": number}
    yield {"ph": "s", **same, **_place(process, begin[0]), "ts": _us(round(1000 * begin[1]))}
    yield {"ph": "f", "bp": "e", **same, **_place(process, end[0]), "ts": _us(round(1000 * end[1]))}


def counter(process: int, name: str, time: float, values: Mapping[str, float]) -> Event:
    """A value from a time on, until the next."""
    when = _us(round(1000 * time))
    return {"ph": "C", "name": name, **_place(process, 0), "ts": when, "args": dict(values)}


def _heading(kind: str, process: int, row: int, order: int, name: str) -> Iterator[Event]:
    for what, arguments in (("name", {"name": name}), ("sort_index", {"sort_index": order})):
        yield {"ph": "M", "name": f"{kind}_{what}", **_place(process, row), "args": arguments}


def _us(ns: int) -> float:
    """Whole ns in us, such that cutting off what is below gives them back.

    Perfetto cuts start and length by themselves, and drops what then overlaps.
    """
    us = ns / 1000
    return us if int(us * 1000) == ns else math.nextafter(us, math.inf)


def _place(process: int, row: int) -> dict[str, int]:
    """Numbers that Perfetto has no own meaning for: 0 is idle time, equal ones a main thread."""
    return {"pid": process + 1, "tid": 1000 * (process + 1) + row}
