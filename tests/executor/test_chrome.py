"""The Chrome trace of a schedule: a row as predicted and one as measured for each device."""

from __future__ import annotations

from typing import Any

from schedopt.executor.chrome import side_by_side
from schedopt.executor.program import Message
from schedopt.executor.trace import Trace, TracedMessage, TracedOp
from schedopt.op import Op
from tests.schedules import two_by_two

PREDICTED = two_by_two(capacity=2, name="two by two")
OP = Op("F", 1, 0)
TRACES = (
    Trace(0, 100.0, 1.0, (TracedOp(Op("F", 0, 0), 0, 1, 0.25, 0.5),), ()),
    Trace(
        1,
        100.5,
        1.0,
        (TracedOp(OP, 1, 2, 0.25, 0.5),),
        (
            TracedMessage(Message(0, 1, 0), False, 0.0, 0.25),
            TracedMessage(Message(1, 0, 0), True, 0.5, 0.5),
        ),
    ),
)


def events() -> list[dict[str, Any]]:
    return list(side_by_side(7, "a name", PREDICTED, TRACES, unit_us=10))


def test_every_device_has_a_predicted_and_a_measured_row() -> None:
    names = {e["tid"]: e["args"]["name"] for e in events() if e["name"] == "thread_name"}
    assert names == {
        8000: "device 0 predicted",
        8001: "device 0 measured",
        8002: "device 1 predicted",
        8003: "device 1 measured",
    }
    assert all(e["pid"] == 8 for e in events())


def test_predicted_ops_are_where_the_schedule_has_them() -> None:
    drawn = {(e["name"], e["ts"], e["dur"]) for e in events() if e.get("tid") == 8002 and "ts" in e}
    unit = float(PREDICTED.resolution) * 10
    planned = PREDICTED.by_device[1]
    assert drawn == {(str(t.op), t.start * unit, (t.end - t.start) * unit) for t in planned}


def test_measured_ops_of_all_ranks_have_one_clock() -> None:
    drawn = {(e["tid"], e["name"]): (e["ts"], e["dur"]) for e in events() if e.get("ph") == "X"}
    assert drawn[8001, "0F0"] == (0.25e6, 0.25e6)
    assert drawn[8003, str(OP)] == (0.75e6, 0.25e6)


def test_waits_are_drawn_and_sends_are_not() -> None:
    waits = [e for e in events() if e.get("cat") == "wait"]
    assert [(e["tid"], e["ts"], e["dur"]) for e in waits] == [(8003, 0.5e6, 0.25e6)]
    assert "output of stage 0 for stage 1" in waits[0]["name"]
