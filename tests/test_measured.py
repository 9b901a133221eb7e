from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from schedopt import Problem, classic
from schedopt.errors import InputError
from schedopt.executor.chrome import side_by_side
from schedopt.executor.program import Message
from schedopt.executor.trace import Trace, TracedMessage, TracedOp
from schedopt.idle import causes
from schedopt.measured import read_trace
from tests.schedules import two_by_two
from tests.traces import complete, events_of, write_trace

FOUR = Problem.uniform(devices=4, microbatches=8, F=4, B=4, W=4, lag=1, capacity=4)


def test_a_step_as_planned_has_the_causes_of_the_plan(tmp_path: Path) -> None:
    schedule = classic.one_f_one_b(FOUR)
    path = write_trace(tmp_path / "trace.json", events_of(schedule))
    measured = read_trace(path, schedule.problem)
    assert measured.makespan == 1000 * schedule.makespan
    for here, there in zip(measured.causes(), causes(schedule), strict=True):
        assert here.work == 1000 * there.work
        assert here.causes == {cause: 1000 * time for cause, time in there.causes.items()}


def test_time_of_the_runtime_is_late(tmp_path: Path) -> None:
    """The last op of device 1 starts 7 ms after what it waits for."""
    schedule = two_by_two()
    events = list(events_of(schedule))
    (last,) = (event for event in events if event["name"] == "1W1")
    last["ts"] += 7000
    found = read_trace(write_trace(tmp_path / "t.json", events), schedule.problem).causes()
    before = causes(schedule)
    assert [device.causes["late"] for device in found] == [7000, 7000]
    assert [sum(d.causes.values()) - d.causes["late"] for d in found] == [
        1000 * device.idle for device in before
    ]


def test_a_wait_right_before_an_op_shows_when_its_message_came(tmp_path: Path) -> None:
    """1F0 starts 500 us after 0F0: 300 in transfer, 200 until the runtime begins."""
    schedule = two_by_two()
    shifted = [
        {**event, "ts": event["ts"] + 500} if event.get("tid") == 1 and "ts" in event else event
        for event in events_of(schedule)
    ]
    for event in shifted:  # what device 0 waits for comes as much later
        if event["name"] in ("0B0", "0W0", "0B1", "0W1"):
            event["ts"] += 500
    wait = complete("wait for output of stage 0", 0, 1, 5e6, 5e6 + 1300)
    path = tmp_path / "trace.json"
    with_wait = read_trace(write_trace(path, [*shifted, wait]), schedule.problem)
    assert {d.causes["transfer"] for d in with_wait.causes()} == {300}
    assert {d.causes["late"] for d in with_wait.causes()} == {200}
    without = read_trace(write_trace(path, shifted), schedule.problem)
    assert {d.causes["transfer"] for d in without.causes()} == {500}


def test_the_trace_of_the_executor_can_be_read(tmp_path: Path) -> None:
    schedule = two_by_two()
    traces = [
        Trace(
            device,
            100.0,
            0.007,
            tuple(
                TracedOp(t.op, 0.0, 0.0, t.start / 1000 + 1 / 3, t.end / 1000 + 1 / 3) for t in ops
            ),
            (TracedMessage(Message(0, 1, 0), False, 0.0, 0.0005),),
        )
        for device, ops in schedule.by_device.items()
    ]
    events = side_by_side(3, "by hand", schedule, traces)
    path = write_trace(tmp_path / "trace.json", events)
    measured = read_trace(path, schedule.problem, name="by hand")
    assert abs(measured.makespan - 7000) < Fraction(1, 100)
    assert abs(measured.causes()[0].causes["fill"] - 1000) < Fraction(1, 100)


def test_the_process_with_the_name_of_the_schedule_is_taken(tmp_path: Path) -> None:
    slow, fast = two_by_two(W=3), two_by_two()
    events = [*events_of(slow, pid=1), *events_of(fast, pid=2)]
    events[0]["args"]["name"] = "slow"
    path = write_trace(tmp_path / "trace.json", events)
    assert read_trace(path, fast.problem, name="by hand").makespan == 7000
    assert read_trace(path, fast.problem, name="slow").makespan > 7000
    assert read_trace(path, fast.problem, name="neither").makespan > 7000


def test_rows_may_be_named_without_measured_and_predicted_ones_do_not_count(
    tmp_path: Path,
) -> None:
    schedule = two_by_two()
    path = write_trace(tmp_path / "trace.json", events_of(schedule, row="device {}"))
    assert read_trace(path, schedule.problem).makespan == 7000
    write_trace(path, events_of(schedule, row="device {} predicted"))
    with pytest.raises(InputError, match="no row named"):
        read_trace(path, schedule.problem)


def test_every_op_that_is_wrong_is_named(tmp_path: Path) -> None:
    schedule = two_by_two()
    events = [event for event in events_of(schedule) if event["name"] != "0F1"]
    (moved,) = (event for event in events if event["name"] == "1B0")
    moved["tid"] = 0
    events += [complete("1W1", 0, 1, 0, 1), complete("7F0", 0, 0, 0, 1)]
    with pytest.raises(InputError) as error:
        read_trace(write_trace(tmp_path / "t.json", events), schedule.problem)
    assert {(fault.value, fault.valid) for fault in error.value.faults} == {
        ("0F1", "is missing on device 0"),
        ("1B0", "is on device 0, not on device 1"),
        ("1W1", "is there more than once"),
        ("7F0", "is no op of this problem"),
    }
    assert str(tmp_path / "t.json") in str(error.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory: must be a readable JSON file"),
        ("{", "must be a readable JSON file"),
        ("7", "must be a list of events"),
        ('{"traceEvents": [1]}', "must be a list of events"),
        ("[]", "no row named 'device 0', 'device 1', ... has ops"),
    ],
)
def test_a_file_that_is_no_trace_is_an_error(
    tmp_path: Path, content: str | None, reason: str
) -> None:
    path = tmp_path / "trace.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=reason):
        read_trace(path, two_by_two().problem)


def test_an_op_before_what_it_needs_on_one_device_is_no_trace_of_the_problem(
    tmp_path: Path,
) -> None:
    schedule = two_by_two()
    events = list(events_of(schedule))
    (early,) = (event for event in events if event["name"] == "1B1")
    early["ts"] -= 1500
    with pytest.raises(InputError, match=r"its order is a deadlock: .* 1(F1|B1) -> 1(F1|B1)$"):
        read_trace(write_trace(tmp_path / "t.json", events), schedule.problem)


def test_a_long_list_of_faults_ends_with_their_number(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", list(events_of(two_by_two())))
    with pytest.raises(InputError) as error:
        read_trace(path, FOUR)
    assert len(error.value.faults) == 21
    assert error.value.faults[-1].valid == f"{4 * 8 * 3 - 12 - 20} more of the like"


@pytest.mark.parametrize("shift", [-3000, -900, 250, 1700])
def test_whatever_clocks_say_the_causes_sum_to_the_step(shift: int, tmp_path: Path) -> None:
    """The clock of device 1 is wrong: ops seem to start before what they need."""
    schedule = two_by_two(lag=1)
    events = list(events_of(schedule))
    for event in events:
        if event["ph"] == "X" and event["tid"] == 1:
            event["ts"] += shift
    measured = read_trace(write_trace(tmp_path / "trace.json", events), schedule.problem)
    for device in measured.causes():
        assert min(device.causes.values()) >= 0
        assert device.work + sum(device.causes.values()) == measured.makespan
