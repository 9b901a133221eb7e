"""Benchmarks: every schedule computes the same, in its own order, beside what was predicted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schedopt.classic import CLASSIC
from schedopt.errors import InputError, NotApplicableError
from schedopt.executor.bench import Report, bench, entries_of
from schedopt.executor.bench_rank import Source
from schedopt.executor.local import LocalRanks
from schedopt.problem import Problem
from schedopt.schedule import Schedule

MLP = "schedopt.executor.models:mlp"
LAG_MS = 2


def problem(**fields: Any) -> Problem:
    given = {"devices": 4, "microbatches": 4, "F": 2, "B": 1, "W": 1, "time_unit": "ms"}
    return Problem.uniform(**{**given, "lag": LAG_MS, **fields})


def v_problem() -> Problem:
    return problem(stages=8, placement="v")


@pytest.fixture(scope="module")
def report(ranks: LocalRanks) -> Report:
    """Emulated: ZB-H1, and 1F1B by both runtimes."""
    source = Source(boundary_bytes=256)
    return bench([CLASSIC["ZB-H1"](problem())], source, rounds=2, against_torch=True, ranks=ranks)


def test_there_is_a_row_for_each_schedule_and_for_torch(report: Report) -> None:
    rows = [(row.name, row.runtime) for row in report.rows]
    assert rows == [("ZB-H1", "schedopt"), ("1F1B", "schedopt"), ("1F1B", "torch")]
    assert all(len(row.milliseconds) == 2 for row in report.rows)


def test_all_schedules_and_torch_have_the_same_losses(report: Report) -> None:
    assert report.loss_difference == 0
    assert report.losses_equal
    assert all(row.losses == report.rows[0].losses for row in report.rows)
    assert len(set(report.rows[0].losses)) == 4


def test_ops_run_in_the_order_of_their_schedule(report: Report) -> None:
    for row, schedule in zip(report.rows, (CLASSIC["ZB-H1"], CLASSIC["1F1B"]), strict=False):
        planned = schedule(problem()).by_device
        for ranks in row.steps:
            for rank, step in enumerate(ranks):
                assert step.trace is not None
                assert [op.op for op in step.trace.ops] == [timed.op for timed in planned[rank]]


def test_emulated_ops_take_at_least_their_time(report: Report) -> None:
    wanted = {"F": 0.002, "B": 0.001, "W": 0.001, "BW": 0.002}
    for trace in (trace for row in report.rows for trace in row.traces):
        assert all(op.end - op.start >= wanted[op.op.kind] for op in trace.ops)


def test_the_prediction_has_the_times_of_the_problem_and_no_lag_below_the_measured_one(
    report: Report,
) -> None:
    row = report.rows[1]
    assert row.predicted is not None
    lag_us = max(1000 * LAG_MS, round(report.lag_us))
    expected = CLASSIC["1F1B"](problem(lag=lag_us / 1000)).makespan
    assert row.predicted.milliseconds == pytest.approx(float(expected))
    assert row.predicted.schedule.orders == CLASSIC["1F1B"](problem()).orders


def test_the_prediction_from_op_times_is_no_shorter_than_that_of_waits_alone(
    report: Report,
) -> None:
    for row in report.rows[:2]:
        assert row.predicted is not None
        assert row.from_ops is not None
        assert row.from_ops.milliseconds >= row.predicted.milliseconds


def test_no_rank_holds_more_than_planned(report: Report) -> None:
    zb_h1, classic, torch = report.rows
    assert (zb_h1.within_plan, classic.within_plan, torch.within_plan) == (True, True, None)
    assert classic.held_microbatches == (4, 4)
    assert classic.memory[3].activation_bytes


def test_the_figures_are_json_with_the_same_keys_in_every_row(report: Report) -> None:
    data = json.loads(json.dumps(report.to_dict()))
    assert list(data) == ["lag_us", "losses_equal", "loss_difference", "rows"]
    for row in data["rows"]:
        assert list(row) == [
            "name",
            "runtime",
            "microbatches",
            "stages",
            "predicted_ms",
            "measured_ms",
            "difference",
            "steps_ms",
            "from_op_times_ms",
            "predicted_bubble",
            "measured_bubble",
            "cpu_ms",
            "loss",
            "within_plan",
            "memory",
        ]
    assert data["rows"][2]["predicted_ms"] is None
    assert data["rows"][0]["measured_ms"] > 0


def test_one_trace_has_every_schedule_predicted_and_measured(report: Report) -> None:
    events = json.loads(json.dumps(report.trace()))["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {"ZB-H1", "1F1B"}  # torch tells no times of its ops
    ops = [
        (e["pid"], e["tid"] % 2, e["name"]) for e in events if e["ph"] == "X" and e["cat"] != "wait"
    ]
    assert len(ops) == 2 * 4 * 4 * (3 + 2)
    assert {name for pid, measured, name in ops if (pid, measured) == (1, 0)} == {
        name for pid, measured, name in ops if (pid, measured) == (1, 1)
    }


def schedules_of_a_model() -> list[Schedule]:
    return [CLASSIC["1F1B"](problem()), CLASSIC["ZB-V"](v_problem())]


def test_cuts_of_one_model_have_the_same_losses_also_with_torch(ranks: LocalRanks) -> None:
    source = Source(MLP, {"layers": 8, "width": 8})
    report = bench(schedules_of_a_model(), source, rounds=1, against_torch=True, ranks=ranks)
    assert [(row.name, row.runtime) for row in report.rows] == [
        ("1F1B", "schedopt"),
        ("ZB-V", "schedopt"),
        ("1F1B", "torch"),
        ("ZB-V", "torch"),
    ]
    assert report.losses_equal
    assert report.rows[0].loss > 0


def test_schedules_that_compute_something_else_are_found(ranks: LocalRanks) -> None:
    source = Source(MLP, {"width": 8})  # two layers in each stage
    report = bench(schedules_of_a_model(), source, rounds=1, ranks=ranks)
    assert not report.losses_equal


def test_without_a_unit_of_time_there_is_a_prediction_only_from_the_ops(ranks: LocalRanks) -> None:
    schedule = CLASSIC["1F1B"](problem(time_unit="units"))
    (row,) = bench([schedule], Source(MLP, {"width": 8}), rounds=1, ranks=ranks).rows
    assert row.predicted is row.error is None
    assert row.from_ops is not None


def test_all_schedules_are_for_as_many_devices() -> None:
    given = [CLASSIC["1F1B"](problem(devices=devices)) for devices in (2, 3)]
    with pytest.raises(InputError, match=r"schedules\[1\].devices = 3: must be 2"):
        bench(given, Source())


def test_a_schedule_that_is_the_classic_one_already_runs_once() -> None:
    entries = entries_of(
        [CLASSIC["1F1B"](problem()), CLASSIC["ZB-H1"](problem())], against_torch=True
    )
    assert [(e.schedule.name, e.by_torch) for e in entries] == [
        ("1F1B", False),
        ("ZB-H1", False),
        ("1F1B", True),
    ]


def test_a_placement_that_torch_has_nothing_for_is_named() -> None:
    given = CLASSIC["Wave"](problem(stages=12, placement="wave"))
    with pytest.raises(NotApplicableError, match=r"has a schedule for linear, interleaved and v"):
        entries_of([given], against_torch=True)
