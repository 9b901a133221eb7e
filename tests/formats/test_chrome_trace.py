"""A trace has every op where the schedule has it, and arrows and memory beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schedopt.formats.chrome_trace import write_chrome_trace
from schedopt.formats.palette import KIND_COLOURS, KIND_NAMES_OF_CHROME
from schedopt.measured import read_trace
from schedopt.memory import memory_curves
from tests.schedules import two_by_two

MS = two_by_two(time_unit="ms", lag=0.5)
OTHER = two_by_two()


def events_of(*schedules: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(write_chrome_trace(schedules))["traceEvents"]
    return found


def test_every_op_is_a_span_in_the_row_of_its_device_in_us() -> None:
    spans = [e for e in events_of(MS) if e["ph"] == "X"]
    step = float(MS.resolution) * 1000
    assert {(e["tid"] - 1000, e["name"], e["cat"], e["ts"], e["dur"]) for e in spans} == {
        (device, str(t.op), t.op.kind, t.start * step, (t.end - t.start) * step)
        for device, timed_ops in MS.by_device.items()
        for t in timed_ops
    }
    assert spans[0]["args"] == {"meaning": "forward", "stage": 0, "microbatch": 0}
    assert KIND_NAMES_OF_CHROME.keys() == KIND_COLOURS.keys()


def test_every_schedule_is_a_process_and_every_device_a_row() -> None:
    named = [
        (e["name"], e["pid"], e["tid"], e["args"].get("name"))
        for e in events_of(MS, OTHER)
        if e["ph"] == "M" and e["name"] in ("process_name", "thread_name")
    ]
    assert named == [
        ("process_name", 1, 1000, "by hand"),
        ("thread_name", 1, 1000, "device 0"),
        ("thread_name", 1, 1001, "device 1"),
        ("process_name", 2, 2000, "by hand (1 of units drawn as 1 us)"),
        ("thread_name", 2, 2000, "device 0"),
        ("thread_name", 2, 2001, "device 1"),
    ]


def test_arrows_lead_from_within_an_op_to_within_the_one_that_needs_it() -> None:
    events = events_of(MS, OTHER)
    spans = [e for e in events if e["ph"] == "X"]

    def around(arrow: dict[str, Any]) -> str:
        (name,) = [
            s["name"]
            for s in spans
            if (s["pid"], s["tid"]) == (arrow["pid"], arrow["tid"])
            and s["ts"] < arrow["ts"] < s["ts"] + s["dur"]
        ]
        return str(name)

    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert begins.keys() == ends.keys() == set(range(1, 9))
    found = [(around(begins[k]), around(ends[k])) for k in begins if begins[k]["pid"] == 1]
    assert sorted(found) == [("0F0", "1F0"), ("0F1", "1F1"), ("1B0", "0B0"), ("1B1", "0B1")]
    assert {e["bp"] for e in ends.values()} == {"e"}


@pytest.mark.parametrize("device", [0, 1])
def test_memory_is_a_counter_of_each_device(device: int) -> None:
    counters = [e for e in events_of(MS) if e["name"] == f"memory of device {device}"]
    curve = memory_curves(MS)[device]
    assert [(e["ts"], e["args"]) for e in counters] == [
        (float(time * 1000), {"activations": float(amount)}) for time, amount in curve.points
    ]


def test_a_trace_can_be_read_as_a_measured_step(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text(write_chrome_trace([OTHER, MS]), encoding="utf-8")
    measured = read_trace(file, MS.problem)
    assert {device: tuple(ops) for device, ops in measured.orders.items()} == OTHER.orders
    assert measured.makespan == OTHER.makespan
