"""What ranks do in tests with the runtime of torch: a step, compared with one process."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.utils.checkpoint import checkpoint

from schedopt.classic import CLASSIC, zb_h1
from schedopt.executor.torch_runtime import build, runtime_of_table
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from tests.executor.steps import difference, gradients_of, group_of, loss_fn, mlp, numbers

PLACEMENTS = {
    "Interleaved 1F1B": "interleaved",
    "Wave": "wave",
    **dict.fromkeys(("ZB-V", "V-Half", "V-Min", "DualPipeV"), "v"),
}


class TorchCase(NamedTuple):
    """A schedule, and how torch gets it: as a table in a file, or by `build`."""

    name: str
    schedule: Schedule
    form: str = "build"
    table: Path | None = None
    model: Callable[[int], list[nn.Module]] = mlp
    steps: int = 1


def classic(name: str, *, microbatches: int = 8) -> Schedule:
    """A classic schedule on four devices."""
    problem = Problem.uniform(devices=4, microbatches=microbatches)
    if name in PLACEMENTS:
        problem = problem.replace(placement=PLACEMENTS[name], stages=8)
    return CLASSIC[name](problem)


def run_torch(cases: Sequence[TorchCase]) -> list[float | str]:
    """For each case the largest difference of a gradient of this rank, or what went wrong."""
    found: list[float | str] = []
    for case in cases:
        try:
            found.append(_largest_difference(case))
        except Exception:
            found.append(traceback.format_exc())
            break  # the others wait for this rank
    return found


def _largest_difference(case: TorchCase) -> float:
    problem = case.schedule.problem
    group = group_of(problem.devices)
    rank = dist.get_rank()
    everything, reference = (case.model(problem.stage_count) for _ in range(2))
    own = {stage: everything[stage] for stage in problem.stages_on[rank]}
    runtime = runtime_of(case, own, group)
    worst = 0.0
    for step in range(case.steps):
        x, y = numbers(2 * problem.microbatches + step * problem.microbatches)
        if step:
            runtime = runtime_of(case, own, group)  # another shape
        for module in (*everything, *reference):
            module.zero_grad()
        target = {"target": y} if problem.stage_count - 1 in own else {}
        runtime.step(*((x,) if 0 in own else ()), **target)
        whole = nn.Sequential(*reference)
        loss_fn(whole(x), y).backward()
        pairs = zip(
            gradients_of(list(own.values())),
            gradients_of([reference[stage] for stage in own]),
            strict=True,
        )
        # Each parameter by itself: a small one counts as much as a large one.
        worst = max(worst, *(difference([ours], [theirs]) for ours, theirs in pairs))
    return worst


def runtime_of(case: TorchCase, own: dict[int, nn.Module], group: Any) -> Any:
    """The runtime of a rank."""
    problem = case.schedule.problem
    if case.form == "build":
        return build(case.schedule, own, loss_fn, group=group)
    stages = [
        PipelineStage(module, stage, problem.stage_count, torch.device("cpu"), group=group)
        for stage, module in own.items()
    ]
    assert case.table is not None
    form: Any = case.form
    return runtime_of_table(case.table, form, stages, problem.microbatches, loss_fn)


def lowered(schedule: Schedule) -> str:
    """The table of all ranks that torch makes of a schedule, with its own transfers."""
    problem = schedule.problem
    group = group_of(problem.devices)
    modules = mlp(problem.stage_count)
    own = {stage: modules[stage] for stage in problem.stages_on[dist.get_rank()]}
    rows = build(schedule, own, loss_fn, group=group).pipeline_order_with_comms
    return "\n".join(",".join(map(str, rows[rank])) for rank in sorted(rows))


def sharded_difference() -> float:
    """Two replicas of two devices, whose stages FSDP shards between the replicas."""
    everyone = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3], [0, 2], [1, 3])]
    replica, device = divmod(dist.get_rank(), 2)
    schedule = zb_h1(Problem.uniform(devices=2, microbatches=4))
    modules, reference = mlp(2), nn.Sequential(*mlp(2))
    mesh = DeviceMesh.from_group(everyone[2 + device], "cpu")
    fully_shard(modules[device], mesh=mesh)
    runtime = build(schedule, {device: modules[device]}, loss_fn, group=everyone[replica])
    x, y = numbers(16)
    parts = x.chunk(2)[replica], y.chunk(2)[replica]
    runtime.step(*(parts[:1] if device == 0 else ()), **({"target": parts[1]} if device else {}))
    loss_fn(reference(x), y).backward()
    found: list[Any] = gradients_of([modules[device]])
    whole = [None if gradient is None else gradient.full_tensor() for gradient in found]
    return difference(whole, gradients_of([reference[device]]))


# ---------------------------------------------------------------------- models


def frozen_first(stages: int) -> list[nn.Module]:
    """The first stage is frozen, so that the input of the second needs no gradient."""
    modules = mlp(stages)
    modules[0].requires_grad_(False)
    return modules


class _Viewed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).view(x.shape)  # type: ignore[no-any-return]


class _Checkpointed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)  # type: ignore[no-any-return]


def views(stages: int) -> list[nn.Module]:
    """Every stage returns a view."""
    return [_Viewed(module) for module in mlp(stages)]


def checkpointed(stages: int) -> list[nn.Module]:
    """Every stage is computed again in B."""
    return [_Checkpointed(module) for module in mlp(stages)]


def sharing(stages: int) -> list[nn.Module]:
    """Every stage uses one layer twice."""
    torch.manual_seed(stages)
    layers = [nn.Linear(6, 6).double() for _ in range(stages)]
    return [nn.Sequential(layer, nn.Tanh(), layer) for layer in layers]


def unsplit(stages: int) -> list[nn.Module]:
    """No layer of a stage can wait for W."""

    class Own(nn.Linear):
        pass

    torch.manual_seed(stages)
    return [Own(6, 6).double() for _ in range(stages)]
