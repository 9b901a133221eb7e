"""A measured step, read from a Chrome trace, and its idle time by cause.

The trace has for every device a row (a thread) named ``device 3`` or ``device 3 measured``, with
one complete event (``"ph": "X"``, ``ts`` and ``dur`` in us) for each op, named as ops are written:
``11F3``. Events named ``wait for ...`` are times in which the device only waits for a message.
Other events and rows do not matter. `schedopt bench` and `schedopt run` write such traces.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import networkx as nx

from schedopt.choices import Orders
from schedopt.core import without_links
from schedopt.errors import DeadlockError, Fault, InputError
from schedopt.graph import FIFO, build_graph
from schedopt.idle import DeviceIdle, causes_of_orders
from schedopt.op import Op, Resource
from schedopt.problem import Problem
from schedopt.reading import read_data
from schedopt.timing import earliest_starts

_ROW = re.compile(r"device (\d+)( measured)?")
_NANOSECOND = Fraction(1, 1000)
_MOST_FAULTS = 20

Span = tuple[int, int]
"""Start and end in ns."""


@dataclass(frozen=True)
class Measured:
    """A step as it was measured.

    Attributes
    ----------
    graph
        That of the problem with the measured durations and lags; in ns, its unit is us.
    orders
        In which the ops of each device began.
    makespan
        From the start of the first op to the end of the last, in us.
    """

    graph: nx.DiGraph[Op]
    orders: Orders
    makespan: Fraction

    def causes(self) -> tuple[DeviceIdle, ...]:
        """Idle time of each device by cause, in us (`schedopt.idle`).

        The cause "late" is what neither durations nor lags explain: the time of the runtime
        itself. Capacities are those of the problem.
        """
        return causes_of_orders(self.graph, self.orders, makespan=self.makespan)


def read_trace(path: str | Path, problem: Problem, *, name: str = "") -> Measured:
    """Read the measured step of a schedule from a trace.

    The lag of a transfer is what was seen: from the end of its op to the end of the wait for it,
    if a wait stands right before the op that needs it; otherwise it had come before, and the
    smallest time between such ops of any microbatch limits it.

    Parameters
    ----------
    path
        A Chrome trace as JSON: an object with ``traceEvents``, or a list of events.
    problem
        That of the schedule.
    name
        Of the schedule: which process of the trace to take, if several have all ops. The first
        one if none has this name.

    Raises
    ------
    InputError
        If the file can not be read, or no process has every op once on its own device.
    """
    processes = _processes(_events(path))
    if not processes:
        fault = Fault("traceEvents", "", "no row named 'device 0', 'device 1', ... has ops")
        raise InputError("trace", [fault], str(path))
    problem = without_links(problem)
    faults: list[Fault] = []
    for process in sorted(processes, key=lambda process: process.name != name):
        graph = build_graph(problem, recomputed=process.recomputed)
        process.forget_others(graph)
        found = process.faults(graph)
        if not found:
            try:
                return _measured(process, graph)
            except DeadlockError as error:
                found = [Fault(f"process {process.name!r}", "", f"its order is a {error}")]
        faults = faults or found
    if len(faults) > _MOST_FAULTS:
        rest = Fault("...", "", f"{len(faults) - _MOST_FAULTS} more of the like")
        faults = [*faults[:_MOST_FAULTS], rest]
    raise InputError("trace", faults, str(path))


class _Process:
    """The measured rows of one process of a trace."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.spans: dict[Op, Span] = {}
        self.device_of: dict[Op, int] = {}
        self.repeated: list[Op] = []
        self.waits: dict[int, list[Span]] = {}

    def add(self, device: int, label: str, span: Span) -> None:
        if label.startswith("wait for "):
            self.waits.setdefault(device, []).append(span)
            return
        try:
            op = Op.parse(label)
        except ValueError:
            return  # something else that happened on the device
        if op in self.spans:
            self.repeated.append(op)
        self.spans[op] = span
        self.device_of[op] = device

    @property
    def recomputed(self) -> set[tuple[int, int]]:
        """Stage and microbatch of each R."""
        return {(op.stage, op.microbatch) for op in self.spans if op.kind == "R"}

    def forget_others(self, graph: nx.DiGraph[Op]) -> None:
        """Leave out what ends the step and what is sent: only what devices compute is compared."""
        for op in [op for op in self.spans if op not in graph]:
            if op.kind in ("SF", "SB", "RED", "TIE", "OPT"):
                del self.spans[op], self.device_of[op]

    def faults(self, graph: nx.DiGraph[Op]) -> list[Fault]:
        where = f"process {self.name!r}"
        result = [Fault(where, str(op), "is there more than once") for op in self.repeated]
        for op, data in graph.nodes.items():
            right = data["resource"].device
            if op not in self.spans:
                result.append(Fault(where, str(op), f"is missing on device {right}"))
            elif self.device_of[op] != right:
                valid = f"is on device {self.device_of[op]}, not on device {right}"
                result.append(Fault(where, str(op), valid))
        for op in self.spans:
            if op not in graph:
                result.append(Fault(where, str(op), "is no op of this problem"))
        return result


def _events(path: str | Path) -> list[Mapping[str, Any]]:
    try:
        data = read_data(path)
    except InputError as error:
        raise InputError("trace", error.faults, str(path)) from None
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        fault = Fault("traceEvents", type(events).__name__, "must be a list of events")
        raise InputError("trace", [fault], str(path))
    return events


def _processes(events: Sequence[Mapping[str, Any]]) -> list[_Process]:
    names: dict[Any, str] = {}
    rows: dict[tuple[Any, Any], int] = {}
    for event in events:
        arguments = event.get("args")
        if event.get("ph") != "M" or not isinstance(arguments, dict):
            continue
        name = str(arguments.get("name"))
        if event.get("name") == "process_name":
            names[event.get("pid")] = name
        row = _ROW.fullmatch(name)
        if event.get("name") == "thread_name" and row:
            rows[event.get("pid"), event.get("tid")] = int(row[1])
    processes: dict[Any, _Process] = {}
    for event in events:
        pid, place = event.get("pid"), (event.get("pid"), event.get("tid"))
        ts, dur = event.get("ts"), event.get("dur")
        if event.get("ph") != "X" or place not in rows:
            continue
        if not isinstance(ts, int | float) or not isinstance(dur, int | float):
            continue
        start, length = round(1000 * ts), round(1000 * dur)
        process = processes.setdefault(pid, _Process(names.get(pid, "")))
        process.add(rows[place], str(event.get("name")), (start, start + length))
    return [process for process in processes.values() if process.spans]


def _measured(process: _Process, graph: nx.DiGraph[Op]) -> Measured:
    spans: dict[Op, Span] = {}
    free: dict[Op, int] = {}
    orders: dict[Resource, list[Op]] = {}
    begin = min(start for start, _ in process.spans.values())
    for op in sorted(process.spans, key=lambda op: process.spans[op]):
        orders.setdefault(graph.nodes[op]["resource"], []).append(op)
    for ops in orders.values():
        until = begin
        for op in ops:
            start, end = process.spans[op]
            start = max(start, until)  # rounding to ns can make ops overlap by one
            spans[op], free[op] = (start, max(start, end)), until
            graph.nodes[op]["duration"] = spans[op][1] - start
            until = spans[op][1]
    _set_lags(graph, spans, free, process.waits)
    graph.graph["resolution"] = _NANOSECOND
    length = max(end for _, end in spans.values()) - begin
    # clocks that disagree can show an op before what it needs: the step is at least so long
    starts = earliest_starts(graph, orders)
    least = max(start + graph.nodes[op]["duration"] for op, start in starts.items())
    return Measured(graph, orders, max(length, least) * _NANOSECOND)


def _set_lags(
    graph: nx.DiGraph[Op],
    spans: Mapping[Op, Span],
    free: Mapping[Op, int],
    waits: Mapping[int, Sequence[Span]],
) -> None:
    """Replace the lags between devices by those that were seen.

    Parameters
    ----------
    graph
        Its lags are changed, to ns.
    spans
        Of the ops.
    free
        When the op before each op ended.
    waits
        By device.
    """
    resource = {op: data["resource"] for op, data in graph.nodes.items()}
    ends = {device: sorted(end for _, end in spans_of) for device, spans_of in waits.items()}
    seen: dict[tuple[Op, Op], int] = {}
    least: dict[tuple[str, int, str, int], int] = {}
    for source, target, arc in graph.edges(data=True):
        arc["lag"] = 0
        if arc["reason"] != FIFO and resource[source] != resource[target]:
            delay = max(0, spans[target][0] - spans[source][1])
            seen[source, target] = delay
            link = source.kind, source.stage, target.kind, target.stage
            least[link] = min(delay, least.get(link, delay))
    for (source, target), delay in seen.items():
        came = _last_between(ends.get(resource[target].device, []), free[target], spans[target][0])
        if came is None:
            lag = min(delay, least[source.kind, source.stage, target.kind, target.stage])
        else:
            lag = min(delay, max(0, came - spans[source][1]))
        graph.edges[source, target]["lag"] = lag


def _last_between(times: Sequence[int], after: int, until: int) -> int | None:
    """The last of some sorted times from `after` to `until`."""
    position = bisect_right(times, until)
    return times[position - 1] if position and times[position - 1] >= after else None
