"""Steps of a schedule with a model: gradients of one process, memory of the plan, named faults."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from schedopt import solve
from schedopt.classic import CLASSIC
from schedopt.errors import InputError
from schedopt.executor import ExecutorError
from schedopt.executor.launch import Report, run_here, torchrun_line
from schedopt.executor.launch_rank import Request, guarded
from schedopt.executor.local import LocalRanks
from schedopt.executor.one_process import LIMIT, difference
from schedopt.problem import Problem
from schedopt.schedule import Schedule

MLP = "schedopt.executor.models:mlp"
TENSOR = 16 * 2 * 4
"""Bytes of a boundary tensor of an MLP of width 16 with 2 rows in a microbatch."""


def problem(**fields: Any) -> Problem:
    """Four devices, with the memory of the MLP's stages in bytes and room for 3 microbatches."""
    memory = {"F": 3 * TENSOR, "B": TENSOR, "W": -4 * TENSOR}
    return Problem.uniform(
        devices=4,
        microbatches=5,
        time_unit="ms",
        memory_unit="bytes",
        **{"memory": memory, "capacity": 10 * TENSOR, **fields},
    )


def solved(of: Problem) -> Schedule:
    schedule = solve(of, deterministic_limit=0.2, workers=1).schedule
    assert schedule is not None
    return schedule


@pytest.fixture(scope="module")
def report(ranks: LocalRanks) -> Report:
    """Three checked steps of a solved schedule."""
    options = {"width": 16, "rows": 2}
    request = Request(solved(problem()), MLP, options, steps=3, check=True, learning_rate=0.5)
    request.require_valid(4)
    return run_here(request, ranks=ranks)


def test_gradients_of_a_solved_schedule_are_those_of_one_process(report: Report) -> None:
    assert report.difference is not None
    assert report.difference <= LIMIT == 1e-12
    assert report.is_right


def test_losses_fall_step_by_step_and_are_those_of_the_model_in_one_process(
    report: Report,
) -> None:
    model = report.request.make_model("cpu")
    whole = model.whole()
    expected = []
    for _ in range(3):
        loss = model.loss_fn(whole(*model.inputs(5)), model.target(5))
        gradients = torch.autograd.grad(loss, list(whole.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(whole.parameters(), gradients, strict=True):
                parameter.sub_(gradient, alpha=0.5)
        expected.append(float(loss.detach()))
    assert report.losses == pytest.approx(expected, rel=1e-5)
    assert report.losses == sorted(report.losses, reverse=True)


def test_what_was_held_is_within_the_plan_and_comes_near_to_it(report: Report) -> None:
    assert None not in report.planned_bytes
    for run, planned in zip(report.ranks, report.planned_bytes, strict=True):
        stats = run.memory
        assert stats.activation_bytes is not None
        assert planned is not None
        assert 0.7 * planned <= stats.activation_bytes <= planned <= 10 * TENSOR
        assert stats.held_microbatches.keys() == stats.planned_microbatches.keys()
        for stage, planned_microbatches in stats.planned_microbatches.items():
            assert 1 <= stats.held_microbatches[stage] <= planned_microbatches
        assert stats.boundary_messages <= stats.planned_boundary_messages
        assert stats.activation_bytes_left == stats.boundary_messages_left == 0


def test_the_prediction_is_the_makespan_in_seconds(report: Report) -> None:
    makespan = report.request.schedule.makespan
    assert report.predicted == pytest.approx(float(makespan) / 1000)
    assert len(report.seconds) == 3
    assert report.measured == pytest.approx(sum(report.seconds[1:]) / 2)


def test_the_report_is_json_with_a_row_for_each_rank(report: Report) -> None:
    data = json.loads(json.dumps(report.to_dict()))
    assert data["gradient_difference"] == report.difference
    assert [row["stages"] for row in data["ranks"]] == [[0], [1], [2], [3]]
    assert [row["planned_activation_bytes"] for row in data["ranks"]] == report.planned_bytes


def test_the_trace_has_every_op_as_predicted_in_us_and_as_measured(report: Report) -> None:
    events = [event for event in report.trace()["traceEvents"] if event["ph"] == "X"]
    ops = [event for event in events if event["cat"] != "wait"]
    names = sorted(str(op) for order in report.request.schedule.orders.values() for op in order)
    for parity in (0, 1):  # rows of predicted ops are even, of measured ones odd
        assert sorted(e["name"] for e in ops if e["tid"] % 2 == parity) == names
    ends = [event["ts"] + event["dur"] for event in ops if event["tid"] % 2 == 0]
    assert max(ends) == pytest.approx(1000 * float(report.request.schedule.makespan))


def test_a_unit_that_is_no_time_gives_no_prediction_and_a_plan_without_bytes_none(
    ranks: LocalRanks,
) -> None:
    of = Problem.uniform(devices=4, microbatches=2)
    report = run_here(Request(CLASSIC["1F1B"](of), MLP, steps=1), ranks=ranks)
    assert report.predicted is report.difference is None
    assert report.is_right
    assert report.planned_bytes == [None] * 4
    events = [event for event in report.trace()["traceEvents"] if event["ph"] == "X"]
    ends = [e["ts"] + e["dur"] for e in events if e["tid"] % 2 == 0]
    assert max(ends) == pytest.approx(1e6 * report.measured)  # drawn as long as what was measured


def test_stages_that_can_not_be_split_are_predicted_as_bw(ranks: LocalRanks) -> None:
    schedule = CLASSIC["ZB-H1"](Problem.uniform(devices=4, microbatches=4, time_unit="ms"))
    name = "tests.executor.user_models:affine"
    report = run_here(Request(schedule, name, steps=1, check=True), ranks=ranks)
    assert [run.fused for run in report.ranks] == [(0,), (1,), (2,), (3,)]
    assert report.difference is not None
    assert report.difference <= LIMIT
    assert float(report.expected.makespan) > float(schedule.makespan)
    assert report.predicted == pytest.approx(float(report.expected.makespan) / 1000)


@pytest.mark.parametrize(
    ("name", "place", "message"),
    [
        ("failing", "stage 1, microbatch 0", "ArithmeticError: no such sum"),
        ("failing_backward", "stage 1, microbatch 0", "ArithmeticError: no way back"),
    ],
)
def test_what_a_stage_raises_is_shown_and_the_ranks_come_to_an_end(
    ranks: LocalRanks, name: str, place: str, message: str
) -> None:
    schedule = CLASSIC["1F1B"](Problem.uniform(devices=4, microbatches=4))
    request = Request(schedule, f"tests.executor.user_models:{name}", steps=1, timeout=30)
    with pytest.raises(InputError) as caught:
        run_here(request, ranks=ranks)
    (fault,) = caught.value.faults
    assert place in fault.field
    assert fault.valid.startswith(message)
    assert "user_models.py" in fault.valid


def test_a_stage_that_can_not_be_made_stops_all_ranks_before_they_wait_for_it(
    ranks: LocalRanks,
) -> None:
    schedule = CLASSIC["1F1B"](Problem.uniform(devices=4, microbatches=4))
    request = Request(schedule, "tests.executor.user_models:failing_build")
    failures = [outcome.value for outcome in ranks.outcomes(guarded, request)]
    (fault,) = failures[1].faults
    assert fault.field == "stage 1, build"
    assert fault.valid.startswith("FileNotFoundError: stage_1.pt")
    for rank in (0, 2, 3):
        assert failures[rank].is_consequence
        assert "rank 1 could not make or check its stages" in failures[rank].text


def test_gradients_that_differ_are_found(ranks: LocalRanks) -> None:
    schedule = CLASSIC["1F1B"](Problem.uniform(devices=4, microbatches=4))
    request = Request(schedule, "tests.executor.user_models:drifting", steps=1, check=True)
    report = run_here(request, ranks=ranks)
    assert report.difference is not None
    assert report.difference > 0.1
    assert not report.is_right


def test_what_does_not_belong_together_is_named_before_anything_starts() -> None:
    schedule = CLASSIC["1F1B"](problem(capacity=None))
    with pytest.raises(InputError, match="nproc = 3: must be 4, one process for each device"):
        Request(schedule, MLP).require_valid(3)
    name = "tests.executor.test_models:wrong_count"
    with pytest.raises(InputError, match="must return 4 stages, not 5"):
        Request(schedule, name).require_valid(4)
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="device = cuda: must be cpu"):
            Request(schedule, MLP, device="cuda").require_valid(4)


@pytest.mark.slow
def test_a_rank_that_is_lost_is_named() -> None:
    schedule = CLASSIC["1F1B"](Problem.uniform(devices=2, microbatches=2))
    request = Request(schedule, "tests.executor.user_models:dying", steps=1, timeout=20)
    with pytest.raises(ExecutorError, match="rank 1: the process has ended with exit code 7"):
        run_here(request)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([[1.0, 2.0], [0.0]], [[1.0, 2.5], [5.0]], 1.0),
        ([[1.0]], [[1.0]], 0.0),
        ([[0.0]], [[0.0]], 0.0),
        ([[math.nan]], [[1.0]], math.inf),
        ([None, [1.0]], [None, [1.0]], 0.0),
        ([[0.0]], [None], math.inf),
    ],
)
def test_a_difference_is_relative_to_the_largest_entry(
    ours: list[Any], theirs: list[Any], expected: float
) -> None:
    one, other = ([None if t is None else torch.tensor(t) for t in side] for side in (ours, theirs))
    assert difference(one, other) == expected


def test_the_line_for_several_machines_has_all_ranks() -> None:
    line = torchrun_line(["schedopt", "run", "my best.json"], 6)
    assert line.startswith("torchrun --nnodes 2 --nproc-per-node 3 ")
    assert line.endswith("--no-python schedopt run 'my best.json'")
    assert torchrun_line(["x"], 3).startswith("torchrun --nnodes 3 --nproc-per-node 1 ")
