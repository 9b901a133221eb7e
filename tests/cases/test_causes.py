"""Where the time went, in reports that could not tell."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from schedopt import Problem, Schedule
from schedopt.formats.causes import verdict
from schedopt.idle import DeviceIdle, causes
from schedopt.measured import read_trace
from schedopt.variants import with_lags_times
from tests.cases.solving import fused_pipeline, optimal_schedule, optimum, pipeline
from tests.traces import events_of, write_trace


def kinds_of_waiting(device: DeviceIdle) -> tuple[Fraction, Fraction, Fraction]:
    """Start and end of the step, waiting for data, waiting for memory."""
    of = device.causes
    return of["fill"] + of["drain"], of["transfer"] + of["imbalance"], of["memory"]


def test_N04_waiting_for_data_and_for_memory_and_the_ends_of_the_step_sum_up(
    tmp_path: Path,
) -> None:
    """One transfer kernel covered idle time and transfer; predicted and measured, side by side."""
    schedule = optimal_schedule(pipeline(4, 8, 2, 2, 2, lag=[0, 4, 0], capacity=4))
    for device in causes(schedule):
        assert device.work == 48
        ends, data, memory = kinds_of_waiting(device)
        assert 48 + ends + data + memory + device.causes["order"] == 70
        assert data > 0
        assert device.causes["late"] == 0
    trace = write_trace(tmp_path / "trace.json", events_of(schedule))
    measured = read_trace(trace, schedule.problem).causes()
    for here, there in zip(measured, causes(schedule), strict=True):
        assert kinds_of_waiting(here) == tuple(1000 * t for t in kinds_of_waiting(there))


def test_N07_the_other_devices_wait_for_the_slowest_stage() -> None:
    """Stage 3 works 60 of 69; the rest of the step is fill and drain around it."""
    devices = causes(optimal_schedule(fused_pipeline(4, 4, [1, 1, 1, 5], [2, 2, 2, 10])))
    assert [device.causes["imbalance"] for device in devices] == [48, 48, 48, 0]
    last = devices[3].causes
    assert last["fill"] + last["drain"] == 69 - 60 == devices[3].idle


def test_N12_nothing_is_idle_in_the_period_and_still_the_step_fills_and_drains() -> None:
    """The objective is named, and idle time is said to be that of the makespan."""
    problem = pipeline(4, 8, capacity=7, objective="period")
    schedule = optimal_schedule(problem)
    assert schedule.period == 24
    devices = causes(schedule)
    assert all(device.idle == schedule.makespan - 24 > 0 for device in devices)
    lines = verdict(schedule, devices, schedule.period, "")
    assert "objective: period" in lines[0]
    assert not any("never idle" in line for line in lines)


@pytest.mark.parametrize(("capacity", "exposed"), [(2, True), (4, False)])
def test_N16_a_faster_link_helps_only_where_memory_exposes_the_transfer(
    capacity: int, exposed: bool
) -> None:
    """Doubling the bandwidth gave no throughput: 50, 54, 62 with room for 2; 50, 51, 52 for 4."""
    problem = pipeline(2, 8, 2, 2, 2, lag=2, capacity=capacity)
    schedule = optimal_schedule(problem)
    transfer = causes(schedule)[0].causes["transfer"]
    saved = schedule.makespan - optimum(with_lags_times(problem, Fraction(1, 2)))
    assert saved == (8 if exposed else 1)
    assert (transfer > 2) == exposed


@pytest.mark.parametrize(
    ("problem", "busiest"),
    [
        (pipeline(4, 4, [25, 9, 29, 29], [25, 9, 29, 29], [25, 9, 29, 29], capacity=4), (2, 3)),
        (pipeline(4, 8, [2, 2, 2, 3], [2, 2, 2, 3], 2, capacity=4), (3,)),
    ],
    ids=["N20", "N21"],
)
def test_N20_N21_the_bottleneck_is_named_and_the_others_lack_work(
    problem: Problem, busiest: tuple[int, ...]
) -> None:
    """Encoder and decoder cut by ceil; a heavy head on the last stage."""
    schedule: Schedule = optimal_schedule(problem)
    devices = causes(schedule)
    most = max(device.work for device in devices)
    for device in devices:
        assert device.causes["imbalance"] == most - device.work
        assert (device.causes["imbalance"] == 0) == (device.device in busiest)
    (line,) = (line for line in verdict(schedule, devices, None, "") if "Busiest" in line)
    numbers = ", ".join(map(str, busiest))
    assert f"{numbers} (" in line
    assert f"{numbers}) with {most} of {schedule.makespan} units" in line
