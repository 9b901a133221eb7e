"""What ranks do in tests of recomputation and optimizer steps; each returns plain data."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from schedopt.executor import PipelineExecutor
from schedopt.schedule import Schedule
from tests.executor import steps
from tests.executor.steps import difference, gradients_of, loss_fn

STEPS = 5
LEARNING_RATES = (0.5, 0.1, 0.7, 0.2, 0.3)


class Counted(nn.Module):
    """Counts its forwards, drops out, and keeps running statistics."""

    def __init__(self, module: nn.Module, rate: float) -> None:
        super().__init__()
        self.module, self.drop = module, nn.Dropout(rate)
        self.norm = nn.BatchNorm1d(6).double()
        self.forwards = self.recorded = 0

    def forward(self, x: Tensor) -> Any:
        self.forwards += 1
        self.recorded += torch.is_grad_enabled()
        return self.module(self.drop(self.norm(x)))


def counted_stages(count: int, rate: float) -> list[nn.Module]:
    return [Counted(module, rate) for module in steps.mlp(count)]


def recomputed_and_not(schedule: Schedule, other: Schedule, rate: float) -> dict[str, Any] | None:
    """The same two steps with and without recomputation; differences, and what was counted."""
    group = steps.group_of(schedule.problem.devices)
    if group is None:
        return None
    rank = dist.get_rank(group)
    x, y = steps.numbers(2 * schedule.problem.microbatches)
    found: list[dict[str, Any]] = []
    for each in (schedule, other):
        problem = each.problem
        stages = counted_stages(problem.stage_count, rate)
        own = {stage: stages[stage] for stage in problem.stages_on[rank]}
        executor = PipelineExecutor(
            own, each, loss_fn=loss_fn, group=group, timeout=30, count_activations=True
        )
        torch.manual_seed(7 + rank)
        losses: list[Tensor] = []
        for _ in range(2):
            executor.step(x, target=y, losses=losses)
        found.append(
            {
                "gradients": gradients_of(list(own.values())),
                "buffers": [b.clone() for m in own.values() for b in m.buffers()],
                "random": torch.rand(3),
                "losses": losses,
                "forwards": [m.forwards for m in own.values()],
                "recorded": [m.recorded for m in own.values()],
                "stats": executor.memory_stats(),
            }
        )
        executor.close()
    ours, theirs = found
    return {
        **{name: difference(ours[name], theirs[name]) for name in ("gradients", "buffers")},
        "losses": difference(ours["losses"], theirs["losses"]),
        "random": difference([ours["random"]], [theirs["random"]]),
        "forwards": (ours["forwards"], theirs["forwards"]),
        "recorded": (ours["recorded"], theirs["recorded"]),
        "stats": (ours["stats"], theirs["stats"]),
    }


def batch_of(step: int, rows: int, wrong: int | None) -> tuple[Tensor, Tensor]:
    """Numbers that grow, so that some steps are clipped; one that is not finite in one step."""
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(2, rows, 6, dtype=torch.float64, generator=generator)
    y = y * (1 + 3 * (step % 2))
    if step == wrong:
        y[0, 0] = float("inf")
    return x, y


def optimizer_of(name: str, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    if name == "SGD":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    return torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.1)


def trained(
    schedule: Schedule, name: str, options: Mapping[str, Any], wrong: int | None, replicas: int
) -> dict[str, Any] | None:
    """Five optimizer steps: the parameters of this rank, and those of one process."""
    problem = schedule.problem
    groups: dict[str, Any] = {}
    if replicas > 1:
        mesh = init_device_mesh(
            "cpu", (replicas, problem.devices), mesh_dim_names=("replica", "device")
        )
        groups = {"group": mesh["device"], "replicas": mesh["replica"]}
        rank, replica = mesh["device"].get_local_rank(), mesh["replica"].get_local_rank()
    else:
        group = steps.group_of(problem.devices)
        if group is None:
            return None
        groups, rank, replica = {"group": group}, dist.get_rank(group), 0
    try:
        return _trained(schedule, name, options, wrong, replicas, groups, rank, replica)
    except Exception:
        return {"error": traceback.format_exc()}


def _trained(
    schedule: Schedule,
    name: str,
    options: Mapping[str, Any],
    wrong: int | None,
    replicas: int,
    groups: Mapping[str, Any],
    rank: int,
    replica: int,
) -> dict[str, Any]:
    problem = schedule.problem
    stages, whole = steps.mlp(problem.stage_count), steps.mlp(problem.stage_count)
    own = {stage: stages[stage] for stage in problem.stages_on[rank]}
    parameters = [p for module in own.values() for p in module.parameters()]
    optimizer = optimizer_of(name, parameters)
    executor = PipelineExecutor(
        own, schedule, loss_fn=loss_fn, timeout=30, optimizer=optimizer, **groups, **options
    )
    rows = 2 * problem.microbatches
    for step, rate in enumerate(LEARNING_RATES):
        x, y = batch_of(step, rows * replicas, wrong)
        mine = slice(replica * rows, (replica + 1) * rows)
        optimizer.param_groups[0]["lr"] = rate
        executor.step(x[mine], target=y[mine])
    executor.settle()
    verdicts = executor.verdicts
    executor.close()
    everything = [p for module in whole for p in module.parameters()]
    reference = optimizer_of(name, everything)
    for step, rate in enumerate(LEARNING_RATES):
        x, y = batch_of(step, rows * replicas, wrong)
        reference.param_groups[0]["lr"] = rate
        output = x
        for module in whole:
            output = module(output)
        loss_fn(output, y).backward()
        finite = all(bool(p.grad.isfinite().all()) for p in everything if p.grad is not None)
        if options.get("max_norm") is not None:
            nn.utils.clip_grad_norm_(everything, options["max_norm"])
        if finite:
            reference.step()
        reference.zero_grad()
    expected = [p for stage in own for p in whole[stage].parameters()]
    return {
        "error": "",
        "parameters": [p.detach().clone() for p in parameters],
        "difference": difference(parameters, expected),
        "verdicts": verdicts,
        "gradients left": [p.grad is not None for p in parameters],
    }


def ends_that_differ(schedule: Schedule) -> str:
    """Rank 0 clips and the others do not."""
    rank = dist.get_rank()
    own = {rank: steps.mlp(schedule.problem.stage_count)[rank]}
    optimizer = optimizer_of("SGD", list(own[rank].parameters()))
    try:
        PipelineExecutor(
            own,
            schedule,
            loss_fn=loss_fn,
            timeout=20,
            optimizer=optimizer,
            max_norm=1.0 if rank == 0 else None,
        )
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def evaluated(schedule: Schedule) -> dict[str, Any] | None:
    """A forward-only schedule, with as many microbatches as it has and with others."""
    problem = schedule.problem
    group = steps.group_of(problem.devices)
    if group is None:
        return None
    rank = dist.get_rank(group)
    stages = steps.mlp(problem.stage_count)
    own = {stage: stages[stage] for stage in problem.stages_on[rank]}
    executor = PipelineExecutor(own, schedule, loss_fn=loss_fn, group=group, timeout=30)
    x, y = steps.numbers(2 * problem.microbatches)
    losses: list[Tensor] = []
    output = executor.eval(x, target=y, losses=losses)
    ops = [str(op) for op in executor._forward[problem.microbatches].program.ops[rank]]
    other = executor.eval(x, target=y, microbatches=2)
    try:
        executor.step(x, target=y)
        refused = ""
    except Exception as error:
        refused = str(error)
    expected = x
    for module in stages:
        expected = module(expected)
    executor.close()
    is_last = output is not None
    return {
        "output": difference([output, other], [expected, expected]) if is_last else 0.0,
        "losses": len(losses),
        "refused": refused,
        "ops": ops,
    }


def towers(schedule: Schedule) -> float | None:
    """Two stages that take the batch, and a third that takes both of their outputs."""
    group = steps.group_of(schedule.problem.devices)
    if group is None:
        return None
    rank = dist.get_rank(group)

    class Both(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, a: Tensor, b: Tensor) -> Any:
            return self.module(a * b)

    ours, theirs = (steps.mlp(3) for _ in range(2))
    for stages in (ours, theirs):
        stages[2] = Both(stages[2])
    x, y = steps.numbers(8)
    own = {rank: ours[rank]}
    executor = PipelineExecutor(own, schedule, loss_fn=loss_fn, group=group, timeout=30)
    executor.step(x, target=y)
    executor.close()
    loss_fn(theirs[2](theirs[0](x), theirs[1](x)), y).backward()
    return difference(gradients_of([ours[rank]]), gradients_of([theirs[rank]]))
