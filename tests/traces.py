"""Chrome traces made from schedules, for tests of what reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from schedopt.schedule import Schedule


def events_of(
    schedule: Schedule, *, unit_us: float = 1000, pid: int = 0, row: str = "device {} measured"
) -> Iterator[dict[str, Any]]:
    """A step that happened just as it was planned."""
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": schedule.name}}
    step = float(schedule.resolution) * unit_us
    for device, ops in schedule.by_device.items():
        name = row.format(device)
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": device, "args": {"name": name}}
        for timed in ops:
            yield complete(
                str(timed.op), pid, device, 5e6 + timed.start * step, 5e6 + timed.end * step
            )


def complete(name: str, pid: int, tid: int, start: float, end: float) -> dict[str, Any]:
    """A complete event from `start` to `end` in us."""
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": start, "dur": end - start}


def write_trace(path: Path, events: Iterable[dict[str, Any]]) -> Path:
    """A trace file."""
    path.write_text(json.dumps({"traceEvents": list(events)}), encoding="utf-8")
    return path
