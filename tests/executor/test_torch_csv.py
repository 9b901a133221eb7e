"""The runtime of torch reads the tables of actions that are written, and trains the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from schedopt.classic import CLASSIC
from schedopt.executor.local import LocalRanks
from schedopt.executor.models import build_stages, model_of
from schedopt.executor.one_process import difference
from schedopt.formats.torch_csv import write_torch_csv
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.solvers import solve
from tests.executor.steps import group_of

MLP = "schedopt.executor.models:mlp"
OPTIONS = {"layers": 8, "width": 8, "dtype": torch.float64}


def largest_difference(schedule: Schedule, table: str) -> float | None:
    """Largest relative difference of a gradient on this rank from that of one process."""
    problem = schedule.problem
    group = group_of(problem.devices)
    if group is None:
        return None
    rank = dist.get_rank()
    model = model_of(MLP, problem.stage_count, device="cpu", **OPTIONS)
    (inputs,), target = model.inputs(problem.microbatches), model.target(problem.microbatches)
    whole = model.whole()
    model.loss_fn(whole(inputs), target).backward()
    own = build_stages(MLP, model, problem.stages_on[rank])
    stages = [
        PipelineStage(module, stage, problem.stage_count, torch.device("cpu"), group=group)
        for stage, module in own.items()
    ]
    runtime = _PipelineScheduleRuntime(stages, problem.microbatches, loss_fn=model.loss_fn)
    runtime._load_csv(table, format="compute_only")
    last = problem.stage_count - 1 in own
    runtime.step(*((inputs,) if 0 in own else ()), **({"target": target} if last else {}))
    pairs = (zip(_gradients(own[s]), _gradients(whole[s]), strict=True) for s in own)
    # Each parameter by itself: a small one counts as much as a large one.
    return max(difference([ours], [wanted]) for of_stage in pairs for ours, wanted in of_stage)


def _gradients(module: nn.Module) -> list[Tensor]:
    found = [parameter.grad for parameter in module.parameters()]
    assert found
    assert all(gradient is not None for gradient in found)
    return [gradient for gradient in found if gradient is not None]


def solved(placement: str) -> Schedule:
    chunks = 1 if placement == "linear" else 2
    problem = Problem.uniform(
        devices=4, microbatches=6, stages=4 * chunks, placement=placement, lag=1, capacity=3
    )
    schedule = solve(problem, workers=1, deterministic_limit=0.5).schedule
    assert schedule is not None
    return schedule


def classic(name: str) -> Schedule:
    problem = Problem.uniform(devices=4, microbatches=8)
    chunks = {"Interleaved 1F1B": "interleaved", "ZB-V": "v"}
    if name in chunks:
        problem = problem.replace(placement=chunks[name], stages=8)
    return CLASSIC[name](problem)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        *((classic, name) for name in ("GPipe", "1F1B", "ZB-H1", "ZB-V", "Interleaved 1F1B")),
        *((solved, placement) for placement in ("linear", "v")),
    ],
)
def test_torch_runs_the_table_with_the_gradients_of_one_process(
    make: Callable[[str], Schedule], what: str, ranks: LocalRanks, tmp_path: Path
) -> None:
    schedule = make(what)
    table = tmp_path / "table.csv"
    table.write_text(write_torch_csv(schedule), encoding="utf-8")
    results = ranks.run(largest_difference, schedule, str(table), timeout=60)
    assert max(found for found in results if found is not None) < 1e-12
