"""What models may do: each is compared with the same model in one process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from schedopt import Problem, Schedule
from schedopt.classic import gpipe, one_f_one_b, zb_h1, zb_v
from schedopt.executor import ExecutorError, PipelineExecutor
from schedopt.executor.local import LocalRanks
from tests.executor import features, steps

EXACT = 1e-12


def zb(devices: int, microbatches: int = 4, **fields: Any) -> Schedule:
    return zb_h1(Problem.uniform(devices=devices, microbatches=microbatches, **fields))


def fused(devices: int, microbatches: int = 4) -> Schedule:
    durations = {"F": 1, "BW": 2}
    return one_f_one_b(Problem(devices=devices, microbatches=microbatches, durations=durations))


TWO = ("several outputs", "arguments", "frozen first", "lengths 4 and 6", "no rule", "checkpoint")
THREE = ("frozen middle", "frozen first of three", "all frozen but the last", "no parameters")
MORE = ("input as it is",)
SKIP = zb(3, edges=[{"from": 0, "to": 2}])
CASES: list[tuple[str, Schedule, dict[str, Any]]] = [
    *((name, zb(2, 2), {}) for name in (*TWO, "gradient of the input")),
    *((name, fused(2, 2), {}) for name in TWO),
    *((name, zb(3), {}) for name in (*THREE, *MORE)),
    ("skip", SKIP, {}),
]


@pytest.fixture(scope="module")
def found(ranks: LocalRanks) -> dict[tuple[str, str], list[Any]]:
    """Results of all ranks by name of the feature and of the schedule."""
    results = ranks.run(features.run_features, CASES)
    return {
        (name, schedule.name): [results[rank][k] for rank in range(schedule.problem.devices)]
        for k, (name, schedule, _) in enumerate(CASES)
    }


@pytest.mark.parametrize(("name", "schedule"), [(name, s.name) for name, s, _ in CASES])
def test_gradients_are_those_of_one_process(
    found: dict[tuple[str, str], list[Any]], name: str, schedule: str
) -> None:
    for rank, result in enumerate(found[name, schedule]):
        assert result["error"] == "", rank
        assert result["gradients"] <= EXACT, (rank, result)
        assert result["of the input"] <= EXACT


@pytest.mark.parametrize("schedule", ["ZB-H1", "1F1B"])
def test_X34_a_frozen_first_stage_gets_no_gradient_from_the_next(
    found: dict[tuple[str, str], list[Any]], schedule: str
) -> None:
    first, second = found["frozen first", schedule]
    assert first["received"] == []
    assert second["sent"] == 0
    assert not any(first["has gradients"])
    assert all(second["has gradients"])


def test_a_frozen_stage_between_trained_ones_passes_gradients_on(
    found: dict[tuple[str, str], list[Any]],
) -> None:
    first, middle, last = found["frozen middle", "ZB-H1"]
    assert all(first["has gradients"])
    assert not any(middle["has gradients"])
    assert all(last["has gradients"])


def test_X09_microbatches_of_different_shapes_are_exact(
    found: dict[tuple[str, str], list[Any]],
) -> None:
    for schedule in ("ZB-H1", "1F1B"):
        assert all(result["gradients"] <= EXACT for result in found["lengths 4 and 6", schedule])


def test_a_stage_that_can_not_be_split_is_named_and_predicted_as_fused(
    found: dict[tuple[str, str], list[Any]],
) -> None:
    first, second = found["no rule", "ZB-H1"]
    assert first["unsplit"][0][0][0] == ""
    assert second["unsplit"] == {}
    for result in (first, second):  # both ranks know
        assert result["durations"] == [{"F": 1, "B": 2, "W": 0}, {"F": 1, "B": 1, "W": 1}]


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
def test_clipping_uses_the_norm_over_all_ranks(ranks: LocalRanks, norm_type: float) -> None:
    for norm, expected, worst in ranks.run(features.clipped, zb(3), 0.01, norm_type)[:3]:
        assert norm == pytest.approx(expected, rel=1e-12)
        assert worst <= EXACT


def test_X32_evaluation_takes_any_number_of_microbatches(ranks: LocalRanks) -> None:
    schedule = zb_v(Problem.uniform(devices=2, microbatches=3, placement="v"))
    first, second, *_ = ranks.run(features.evaluated, schedule, [1, 4, 3, 12])
    for result in (first, second):
        assert result["output"] <= EXACT
        assert result["gradients"] <= EXACT
    assert first["losses"] == [1, 4, 3, 12]  # the last stage of a V is on the first rank
    assert second["losses"] == [0, 0, 0, 0]


def test_X37_gradients_do_not_depend_on_the_schedule_if_w_keeps_the_order(
    ranks: LocalRanks,
) -> None:
    """Bit by bit in float32: each schedule adds the microbatches in the same order."""
    schedules = [zb(2), gpipe(Problem.uniform(devices=2, microbatches=4)), fused(2)]
    results = [ranks.run(features.float32_gradients, schedule)[:2] for schedule in schedules]
    for other in results[1:]:
        for ours, theirs in zip(results[0], other, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


# ---------------------------------------------------------------------- in one process


def one_stage(microbatches: int = 2) -> Schedule:
    return zb_h1(Problem.uniform(devices=1, microbatches=microbatches))


class Weight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w * x


@pytest.mark.parametrize("m", [1, 2, 4])
def test_X19_the_gradient_of_a_mean_does_not_depend_on_the_number_of_microbatches(m: int) -> None:
    model = Weight()
    executor = PipelineExecutor([model], one_stage(m), loss_fn=lambda output, _: output.mean())
    executor.step(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert model.w.grad is not None
    assert model.w.grad.item() == 2.5
    executor.close()


def test_X19_losses_can_be_added_instead() -> None:
    model = Weight()
    executor = PipelineExecutor(
        [model], one_stage(2), loss_fn=lambda output, _: output.sum(), loss_reduction="sum"
    )
    losses: list[torch.Tensor] = []
    executor.step(torch.tensor([1.0, 2.0, 3.0, 4.0]), losses=losses)
    assert model.w.grad is not None
    assert model.w.grad.item() == 10
    assert [loss.item() for loss in losses] == [3, 7]
    executor.close()


@pytest.mark.parametrize(("rows", "m"), [(7, 3), (5, 4)])
def test_microbatches_of_unequal_length_are_weighed_by_it(rows: int, m: int) -> None:
    ours, theirs = steps.mlp(1)[0], steps.mlp(1)[0]
    x, y = steps.numbers(rows)
    executor = PipelineExecutor([ours], one_stage(m), loss_fn=steps.loss_fn)
    executor.step(x, target=y)
    steps.loss_fn(theirs(x), y).backward()
    assert steps.difference(steps.gradients_of([ours]), steps.gradients_of([theirs])) <= EXACT
    executor.close()


def test_a_scaled_loss_scales_the_gradients_and_not_the_losses() -> None:
    model, losses = Weight(), list[torch.Tensor]()
    executor = PipelineExecutor(
        [model],
        one_stage(),
        loss_fn=lambda output, _: output.mean(),
        scale_loss=lambda loss: 1024 * loss,
    )
    executor.step(torch.tensor([1.0, 3.0]), losses=losses)
    assert model.w.grad is not None
    assert model.w.grad.item() == 2 * 1024
    assert [loss.item() for loss in losses] == [1, 3]
    executor.close()


def test_closing_gives_the_modules_their_own_forwards_back() -> None:
    layer = nn.Linear(2, 2)
    executor = PipelineExecutor([layer], one_stage(), loss_fn=steps.loss_fn)
    assert "forward" in vars(layer)
    executor.close()
    assert "forward" not in vars(layer)


def failing(**options: Any) -> PipelineExecutor:
    return PipelineExecutor([nn.Identity()], one_stage(), **options)


def test_errors_name_what_is_missing_or_wrong() -> None:
    x = torch.ones(4, 2)
    with pytest.raises(ExecutorError, match="last stage needs a loss_fn"):
        failing().step(x)
    with pytest.raises(ValueError, match=r"must be \"mean\" or \"sum\""):
        failing(loss_reduction="average")
    with pytest.raises(ExecutorError, match="stage 0 returned dict"):
        PipelineExecutor([Dictionary()], one_stage(), loss_fn=steps.loss_fn).step(x)
    with pytest.raises(ExecutorError, match=r"the schedule has 1 stage on this device .* has 2"):
        PipelineExecutor([nn.Identity()] * 2, one_stage())
    with pytest.raises(ExecutorError, match="has 2 devices, the group 1 ranks"):
        PipelineExecutor([nn.Identity()], zb(2))
    with torch.no_grad(), pytest.raises(ExecutorError, match="use eval"):
        failing(loss_fn=steps.loss_fn).step(x)
    with pytest.raises(ValueError, match="microbatches = 0: must be at least 1"):
        failing().eval(x, microbatches=0)
    with pytest.raises(ExecutorError, match="before the first step"):
        failing().memory_stats()
    with pytest.raises(ExecutorError, match="before the first step"):
        failing().last_trace()


def test_an_executor_that_has_failed_says_why() -> None:
    executor = failing(loss_fn=steps.loss_fn)
    with pytest.raises(ValueError, match="at least 2"):
        executor.step(torch.ones(1, 2), target=torch.ones(1, 2))
    with pytest.raises(ExecutorError, match="has failed: rank 0: ValueError: the batch can not be"):
        executor.step(torch.ones(2, 2), target=torch.ones(2, 2))


class Dictionary(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"x": x}


def test_the_trace_has_every_op_in_its_order_beside_its_plan() -> None:
    schedule = one_stage(3)
    executor = PipelineExecutor(steps.mlp(1), schedule, loss_fn=steps.loss_fn)
    x, y = steps.numbers(6)
    executor.step(x, target=y)
    trace = executor.last_trace()
    assert [op.op for op in trace.ops] == [timed.op for timed in schedule.by_device[0]]
    assert [(op.planned_start, op.planned_end) for op in trace.ops] == [
        (timed.start, timed.end) for timed in schedule.by_device[0]
    ]
    times = [time for op in trace.ops for time in (op.start, op.end)]
    assert times == sorted(times)
    assert trace.seconds >= times[-1] > 0
    executor.close()


def test_without_torch_the_executor_says_how_to_install_it() -> None:
    program = """
import sys
sys.modules["torch"] = None
import schedopt.executor
import schedopt.executor.program
try:
    schedopt.executor.PipelineExecutor
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert "pip install schedopt[executor]" in done.stdout
