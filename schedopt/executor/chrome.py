"""A trace that chrome://tracing and Perfetto show: measured and predicted rows side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schedopt.executor.trace import Trace
from schedopt.schedule import Schedule
from schedopt.trace_events import Event, process, span, thread


def side_by_side(
    number: int,
    name: str,
    predicted: Schedule,
    traces: Sequence[Trace],
    *,
    unit_us: float = 1.0,
) -> Iterator[Event]:
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
    yield from process(number, name)
    step = float(predicted.resolution) * unit_us
    for device, timed_ops in predicted.by_device.items():
        row = 2 * device
        yield from thread(number, row, f"device {device} predicted")
        for timed in timed_ops:
            start, end = timed.start * step, timed.end * step
            yield span(number, row, str(timed.op), timed.op.kind, start=start, end=end)
    began = min((trace.began for trace in traces), default=0.0)
    for trace in traces:
        row, offset = 2 * trace.rank + 1, 1e6 * (trace.began - began)
        yield from thread(number, row, f"device {trace.rank} measured")
        for each in trace.ops:
            start, end = offset + 1e6 * each.start, offset + 1e6 * each.end
            yield span(number, row, str(each.op), each.op.kind, start=start, end=end)
        for message in trace.messages:
            start, end = offset + 1e6 * message.start, offset + 1e6 * message.end
            if not message.is_sent:
                yield span(number, row, f"wait for {message.message}", "wait", start=start, end=end)
