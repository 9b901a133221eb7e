"""Unusual models for tests: what they are, and how ranks compare them with one process."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from schedopt.executor import PipelineExecutor
from schedopt.executor.held import HeldStorages
from schedopt.executor.stage import StageRunner
from schedopt.schedule import Schedule
from tests.executor import steps
from tests.executor.steps import difference, gradients_of


class Feature(NamedTuple):
    """Modules of all stages, and what a step is given."""

    stages: list[nn.Module]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    target: Any
    loss_fn: Callable[[Any, Any], Tensor] = steps.loss_fn


class Splitting(nn.Module):
    """Returns a view, whole numbers, something that nobody uses, and a part of a chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.unused = nn.Linear(6, 12).double(), nn.Linear(6, 6).double()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        a, b = self.first(x).chunk(2, dim=1)
        return a, torch.arange(len(x)), self.unused(x), b.t()


class Joining(nn.Module):
    """Takes what `Splitting` returns, and returns what it does not use as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6).double()

    def forward(self, a: Tensor, numbers: Tensor, unused: Tensor, b: Tensor) -> Tensor:
        return self.layer(a) + 10 * b.t() + numbers[:, None]


class Scaled(nn.Module):
    """Has arguments besides its input; one is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6).double()

    def forward(self, x: Tensor, *, factor: float, weights: Tensor | None = None) -> Tensor:
        x = factor * self.layer(x)
        return x if weights is None else x * weights[:, None]


class Shorter(nn.Module):
    """Drops columns that are zero in the whole microbatch, so microbatches differ in shape."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.5, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x[:, : int((x != 0).any(0).sum())]


class Sums(nn.Module):
    """Takes any number of columns."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 6).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.sum(1, keepdim=True))


class OwnWeight(nn.Module):
    """A layer that no rule splits."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.weight = nn.Parameter(torch.randn(6, 6, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


class Checkpointed(nn.Module):
    """Computes its activations again in the backward."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.module, x, use_reentrant=False)


class WithSkip(nn.Module):
    """Also takes the output of an earlier stage."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6).double()

    def forward(self, x: Tensor, skipped: Tensor) -> Tensor:
        return self.layer(x) * skipped


class Mixing(nn.Module):
    """Takes the outputs of any number of stages."""

    def __init__(self, stage: int) -> None:
        super().__init__()
        torch.manual_seed(stage)
        self.layer, self.norm = nn.Linear(6, 6).double(), nn.LayerNorm(6).double()

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.tanh(self.layer(self.norm(sum(inputs))))


def frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False)


def feature(name: str) -> Feature:
    """A model by its name; the same on every rank."""
    torch.manual_seed(1)
    x, y = steps.numbers(8)
    two, three = steps.mlp(2), steps.mlp(3)
    padded = x.clone()
    padded[:4, 4:] = 0
    if name.startswith("mixing"):
        _, stages, rows = name.split()
        x, y = steps.numbers(int(rows))
        return Feature([Mixing(s) for s in range(int(stages))], (x,), {}, y)
    return {
        "several outputs": lambda: Feature([Splitting(), Joining()], (x,), {}, y),
        "arguments": lambda: Feature(
            [Scaled(), Scaled()], (x,), {"factor": 3.0, "weights": y[:, 0]}, y
        ),
        "frozen first": lambda: Feature([frozen(two[0]), two[1]], (x,), {}, y),
        "frozen middle": lambda: Feature([three[0], frozen(three[1]), three[2]], (x,), {}, y),
        "frozen first of three": lambda: Feature([frozen(three[0]), *three[1:]], (x,), {}, y),
        "all frozen but the last": lambda: Feature(
            [frozen(three[0]), frozen(three[1]), three[2]], (x,), {}, y
        ),
        "lengths 4 and 6": lambda: Feature([Shorter(), Sums()], (padded,), {}, y),
        "no rule": lambda: Feature([OwnWeight(), two[1]], (x,), {}, y),
        "no parameters": lambda: Feature([three[0], nn.Tanh(), three[2]], (x,), {}, y),
        "checkpoint": lambda: Feature([Checkpointed(m) for m in two], (x,), {}, y),
        "input as it is": lambda: Feature([two[0], nn.Identity(), two[1]], (x,), {}, y),
        "dropout": lambda: Feature(
            [nn.Sequential(m, nn.Dropout(0.5), nn.Linear(6, 6).double()) for m in two], (x,), {}, y
        ),
        "skip": lambda: Feature([three[0], three[1], WithSkip()], (x,), {}, y),
        "gradient of the input": lambda: Feature(two, (x.clone().requires_grad_(),), {}, y),
    }[name]()


def reference(model: Feature, links: Sequence[Any], count: int) -> Tensor:
    """The loss in one process, microbatch by microbatch only where shapes need it."""
    total = torch.zeros((), dtype=torch.float64)
    for part in range(count):
        outputs: list[tuple[Any, ...]] = []
        size = len(model.target) // count
        span = slice(part * size, (part + 1) * size)
        kwargs = {k: v[span] if isinstance(v, Tensor) else v for k, v in model.kwargs.items()}
        for stage, module in enumerate(model.stages):
            inputs = tuple(t for s in links[stage].sources for t in outputs[s])
            returned = module(*(inputs or (model.args[0][span],)), **kwargs)
            outputs.append(returned if isinstance(returned, tuple) else (returned,))
        total = total + model.loss_fn(outputs[-1][0], model.target[span]) / count
    return total


def run_feature(name: str, schedule: Schedule, options: Mapping[str, Any]) -> dict[str, Any] | None:
    group = steps.group_of(schedule.problem.devices)
    if group is None:
        return None
    try:
        return _run_feature(name, schedule, options, group)
    except Exception:
        return {"error": traceback.format_exc()}


def _run_feature(
    name: str, schedule: Schedule, options: Mapping[str, Any], group: Any
) -> dict[str, Any]:
    problem = schedule.problem
    rank = dist.get_rank(group)
    ours, theirs = feature(name), feature(name)
    own = {stage: ours.stages[stage] for stage in problem.stages_on[rank]}
    executor = PipelineExecutor(
        own, schedule, loss_fn=ours.loss_fn, group=group, timeout=30, **options
    )
    for _ in range(2):
        executor.step(*ours.args, target=ours.target, **ours.kwargs)
    links = executor._training.program.links
    (2 * reference(theirs, links, problem.microbatches)).backward()
    trace = executor.last_trace()
    found = {
        "error": "",
        "gradients": difference(
            gradients_of(list(own.values())), gradients_of([theirs.stages[s] for s in own])
        ),
        "has gradients": [g is not None for g in gradients_of(list(own.values()))],
        "of the input": difference([ours.args[0].grad], [theirs.args[0].grad])
        if 0 in own and ours.args[0].requires_grad
        else 0.0,
        "received": sorted({str(m.message)[:8] for m in trace.messages if not m.is_sent}),
        "sent": len([m for m in trace.messages if m.is_sent]),
        "unsplit": executor.unsplit,
        "durations": [
            {k: int(v) for k, v in data.durations.items()}
            for data in executor.schedule.problem.stage_data
        ],
    }
    executor.close()
    return found


def run_features(
    cases: Sequence[tuple[str, Schedule, Mapping[str, Any]]],
) -> list[dict[str, Any] | None]:
    return [run_feature(*case) for case in cases]


def clipped(schedule: Schedule, max_norm: float, norm_type: float) -> tuple[float, float, float]:
    """Norm, and difference of the clipped gradients from one process; norm of one process."""
    group = steps.group_of(schedule.problem.devices)
    if group is None:
        return 0.0, 0.0, 0.0
    rank = dist.get_rank(group)
    count = schedule.problem.stage_count
    ours, theirs = steps.mlp(count), steps.mlp(count)
    x, y = steps.numbers(8)
    own = {stage: ours[stage] for stage in schedule.problem.stages_on[rank]}
    executor = PipelineExecutor(own, schedule, loss_fn=steps.loss_fn, group=group)
    executor.step(x, target=y)
    norm = executor.clip_grad_norm(max_norm, norm_type=norm_type)
    executor.close()
    steps.loss_fn(nn.Sequential(*theirs)(x), y).backward()
    parameters = [p for module in theirs for p in module.parameters()]
    expected = nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)
    worst = difference(gradients_of(list(own.values())), gradients_of([theirs[s] for s in own]))
    return float(norm), float(expected), worst


def evaluated(schedule: Schedule, counts: Sequence[int]) -> dict[str, Any] | None:
    """Evaluation with other numbers of microbatches between two steps."""
    group = steps.group_of(schedule.problem.devices)
    if group is None:
        return None
    rank = dist.get_rank(group)
    count = schedule.problem.stage_count
    ours, theirs = steps.mlp(count), steps.mlp(count)
    x, y = steps.numbers(12)
    own = {stage: ours[stage] for stage in schedule.problem.stages_on[rank]}
    executor = PipelineExecutor(own, schedule, loss_fn=steps.loss_fn, group=group, timeout=30)
    expected = nn.Sequential(*theirs)(x)
    worst, losses_seen = 0.0, []
    for each in counts:
        executor.step(x, target=y)
        losses: list[Tensor] = []
        output = executor.eval(x, target=y, losses=losses, microbatches=each)
        losses_seen.append(len(losses))
        if output is not None:
            worst = max(worst, difference([output], [expected]))
            mean = sum(float(loss) for loss in losses) / each
            worst = max(worst, abs(mean - float(steps.loss_fn(expected, y))))
        assert executor.memory_stats().boundary_messages_left == 0
    (len(counts) * steps.loss_fn(expected, y)).backward()
    executor.close()
    own_gradients = gradients_of(list(own.values()))
    return {
        "output": worst,
        "losses": losses_seen,
        "gradients": difference(own_gradients, gradients_of([theirs[s] for s in own])),
    }


def float32_gradients(schedule: Schedule) -> list[Tensor | None]:
    """Of the stages of this rank, as they are."""
    group = steps.group_of(schedule.problem.devices)
    if group is None:
        return []
    rank = dist.get_rank(group)
    modules = [module.float() for module in steps.mlp(schedule.problem.stage_count)]
    x, y = (t.float() for t in steps.numbers(8))
    own = {stage: modules[stage] for stage in schedule.problem.stages_on[rank]}
    executor = PipelineExecutor(own, schedule, loss_fn=nn.functional.mse_loss, group=group)
    executor.step(x, target=y)
    executor.close()
    return gradients_of(list(own.values()))


def memory_of(schedule: Schedule, rows: int) -> dict[str, Any] | None:
    """Statistics of two steps, and what one microbatch of each stage holds after F and B."""
    problem = schedule.problem
    group = steps.group_of(problem.devices)
    if group is None:
        return None
    rank = dist.get_rank(group)
    modules = steps.mlp(problem.stage_count)
    own = {stage: modules[stage] for stage in problem.stages_on[rank]}
    split = "BW" not in problem.stage_data[0].durations
    largest = {stage: bytes_of_one(own[stage], rows, split=split) for stage in own}
    executor = PipelineExecutor(
        own, schedule, loss_fn=steps.loss_fn, group=group, timeout=30, count_activations=True
    )
    x, y = steps.numbers(rows * problem.microbatches)
    statistics = []
    for _ in range(3):
        executor.step(x, target=y)
        statistics.append(executor.memory_stats())
    executor.close()
    return {"stats": statistics, "one": largest}


def bytes_of_one(module: nn.Module, rows: int, *, split: bool) -> int:
    """The larger of what is held after F and after B, with a loss at the end."""
    runner = StageRunner(0, module, split=split)
    held = HeldStorages(module.parameters())
    x, y = steps.numbers(rows)
    x.requires_grad_()
    with held.counting():
        runner.forward(0, (x,), {}, loss=lambda output: steps.loss_fn(output, y))
    after_forward = held.bytes
    runner.backward(0, ())
    queued = runner.deferred.queued(0) if runner.deferred else ()
    after_backward = held.bytes_with(queued)
    runner.weight(0)
    runner.restore()
    module.zero_grad()
    return max(after_forward, after_backward)


def memories_of(schedules: Sequence[Schedule], rows: int) -> list[dict[str, Any] | None]:
    return [memory_of(schedule, rows) for schedule in schedules]
