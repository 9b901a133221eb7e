"""Events of the Trace Event Format, which Perfetto and chrome://tracing show.

Times are in us, as the format has them; a process is a group of rows, a thread is a row.
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Event = dict[str, Any]


def process(number: int, name: str) -> Iterator[Event]:
    """The heading of a group of rows; groups stand in the order of their numbers."""
    yield {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}}


def thread(process: int, row: int, name: str) -> Iterator[Event]:
    """The heading of a row; rows stand in the order of their numbers."""
    yield {"ph": "M", "name": "thread_name", "pid": process, "tid": row, "args": {"name": name}}
    order = {"sort_index": row}
    yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": row, "args": order}


def span(
    process: int, row: int, name: str, category: str, *, start: float, end: float, **more: Any
) -> Event:
    """Something that lasts; `more` are further fields."""
    place = {"pid": process, "tid": row, "ts": start, "dur": end - start}
    return {"ph": "X", "name": name, "cat": category, **place, **more}


def flow(
    process: int,
    identity: str,
    name: str,
    category: str,
    *,
    begin: tuple[int, float],
    end: tuple[int, float],
) -> Iterator[Event]:
    """An arrow from one row to another; begin and end are row and time, within a span each.

    No other arrow of the trace has its identity.
    """
    same = {"name": name, "cat": category, "id": identity, "pid": process}
    yield {"ph": "s", **same, "tid": begin[0], "ts": begin[1]}
    yield {"ph": "f", "bp": "e", **same, "tid": end[0], "ts": end[1]}


def counter(process: int, name: str, time: float, values: Mapping[str, float]) -> Event:
    """A value from a time on, until the next."""
    return {"ph": "C", "name": name, "pid": process, "ts": time, "args": dict(values)}
