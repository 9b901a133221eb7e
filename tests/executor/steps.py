"""What ranks do in tests: run steps, and compare with the same model in one process."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from schedopt.executor import PipelineExecutor
from schedopt.schedule import Schedule

_GROUPS: dict[int, Any] = {}


def group_of(size: int) -> Any:
    """The first `size` ranks; every rank asks for it, those outside get None."""
    if size not in _GROUPS:
        _GROUPS[size] = dist.new_group(list(range(size)))
    return _GROUPS[size] if dist.get_rank() < size else None


class Case(NamedTuple):
    """A schedule to run with a model; `options` are those of the executor."""

    name: str
    schedule: Schedule
    model: Callable[[int], list[nn.Module]]
    batch: Callable[[int], tuple[Tensor, Tensor]]
    rows: int = 0
    steps: int = 1
    options: Mapping[str, Any] | None = None


def mlp(stages: int) -> list[nn.Module]:
    """Linear layers and norms in float64, no two stages alike."""
    torch.manual_seed(stages)
    return [
        nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 6)).double()
        for _ in range(stages)
    ]


def numbers(rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows)
    x, y = torch.randn(2, rows, 6, dtype=torch.float64, generator=generator)
    return x, y


class Block(nn.Module):
    """Attention and a feed-forward part."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.mix(self.norm(x)).chunk(3, dim=-1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.feed(x)


def transformer(stages: int) -> list[nn.Module]:
    """Embedding, blocks and head; tokens go in, logits come out."""
    torch.manual_seed(stages)
    parts: list[list[nn.Module]] = [[Block(8)] for _ in range(stages)]
    parts[0].insert(0, nn.Embedding(11, 8))
    parts[-1].append(nn.Linear(8, 11))
    return [nn.Sequential(*part).double() for part in parts]


def tokens(rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows)
    x, y = torch.randint(0, 11, (2, rows, 5), generator=generator)
    return x, y


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Mean square for numbers, cross entropy for tokens."""
    if target.dtype == torch.float64:
        return nn.functional.mse_loss(output, target)
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def difference(ours: Sequence[Tensor | None], theirs: Sequence[Tensor | None]) -> float:
    """Largest difference relative to the largest entry; infinite if one is None alone."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a is None or b is None:
            worst = max(worst, 0.0 if a is b else float("inf"))
            continue
        a, b = a.detach(), b.detach()
        scale = float(b.abs().max()) or 1.0
        worst = max(worst, float((a - b).abs().max()) / scale)
    return worst


def gradients_of(modules: Sequence[nn.Module]) -> list[Tensor | None]:
    return [p.grad for module in modules for p in module.parameters()]


def run_case(case: Case) -> dict[str, Any] | None:
    """Differences of gradients, losses and outputs from one process; None if not part of it.

    What goes wrong is returned under "error", so that the ranks stay together.
    """
    group = group_of(case.schedule.problem.devices)
    if group is None:
        return None
    try:
        return compared(case, group)
    except Exception:
        return {"error": traceback.format_exc()}


def compared(case: Case, group: Any) -> dict[str, Any]:
    problem = case.schedule.problem
    rank = dist.get_rank(group)
    everything = case.model(problem.stage_count)
    reference = case.model(problem.stage_count)
    x, y = case.batch(case.rows or 2 * problem.microbatches)
    own = {stage: everything[stage] for stage in problem.stages_on[rank]}
    executor = PipelineExecutor(
        own, case.schedule, loss_fn=loss_fn, group=group, timeout=60, **(case.options or {})
    )
    losses: list[Tensor] = []
    for _ in range(case.steps):
        output = executor.step(x, target=y, losses=losses, return_outputs=True)
    expected = x
    for module in reference:
        expected = module(expected)
    loss = loss_fn(expected, y)
    (case.steps * loss).backward()
    stats, unsplit = executor.memory_stats(), executor.unsplit
    executor.close()
    return {
        "error": "",
        "gradients": difference(
            gradients_of(list(own.values())), gradients_of([reference[s] for s in own])
        ),
        "output": 0.0 if output is None else difference([output], [expected]),
        "losses": [float(each) for each in losses],
        "loss": float(loss),
        "stats": stats,
        "unsplit": unsplit,
    }


def run_cases(cases: Sequence[Case]) -> list[dict[str, Any] | None]:
    return [run_case(case) for case in cases]
