"""A trace that chrome://tracing and Perfetto show: measured and predicted rows side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from schedopt.executor.trace import Trace
from schedopt.schedule import Schedule


def side_by_side(
    number: int,
    name: str,
    predicted: Schedule,
    traces: Sequence[Trace],
    *,
    unit_us: float = 1.0,
) -> Iterator[dict[str, Any]]:
    """The events of one schedule: for each device a row as predicted and one as measured.

    Parameters
    ----------
    number
        Of the schedule in the trace.
    name
        What its rows are headed with.
    predicted
        Its times are drawn as they are planned.
    traces
        Of one step, by rank.
    unit_us
        Time unit of the schedule in us.
    """
    yield _label("process_name", number, 0, name)
    yield {"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}}
    step = float(predicted.resolution) * unit_us
    for device, timed_ops in predicted.by_device.items():
        row = 2 * device
        yield _label("thread_name", number, row, f"device {device} predicted")
        for timed in timed_ops:
            start, end = timed.start * step, timed.end * step
            yield _op(number, row, str(timed.op), timed.op.kind, start, end)
    began = min((trace.began for trace in traces), default=0.0)
    for trace in traces:
        row, offset = 2 * trace.rank + 1, 1e6 * (trace.began - began)
        yield _label("thread_name", number, row, f"device {trace.rank} measured")
        for each in trace.ops:
            start, end = offset + 1e6 * each.start, offset + 1e6 * each.end
            yield _op(number, row, str(each.op), each.op.kind, start, end)
        for message in trace.messages:
            start, end = offset + 1e6 * message.start, offset + 1e6 * message.end
            if not message.is_sent:
                yield _op(number, row, f"wait for {message.message}", "wait", start, end)


def _label(what: str, number: int, row: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": number, "tid": row, "args": {"name": name}}


def _op(
    number: int, row: int, name: str, category: str, start: float, end: float
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": number,
        "tid": row,
        "ts": start,
        "dur": end - start,
    }
