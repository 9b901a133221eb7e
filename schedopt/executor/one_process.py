"""The gradients of a pipeline against those of the whole model in one process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from schedopt.executor.factory import naming
from schedopt.executor.models import PipelineModel, batch_of, build_stages
from schedopt.executor.pipeline import PipelineExecutor
from schedopt.executor.stage import tensors_of
from schedopt.schedule import Schedule

CHECKED_STEPS = 2
"""Steps that are compared: one that learns what the messages are, and one that knows."""

LIMIT = 1e-12
"""Largest relative difference of gradients in float64 that come from another order of additions."""


def largest_difference(
    name: str,
    model: PipelineModel,
    schedule: Schedule,
    rank: int,
    *,
    device: torch.device,
    timeout: float,
) -> float:
    """Largest difference of a gradient of this rank, or of the loss, from one process.

    In float64, and as in evaluation, so that there is no dropout. To be called on all ranks; each
    computes the whole model besides its own stages.

    Parameters
    ----------
    name
        Of the model, for errors.
    model
        Is built anew.
    schedule
        What is run.
    rank
        This one.
    device
        Where it runs.
    timeout
        Seconds that a rank waits for another one.

    Returns
    -------
    float
        Relative to the largest gradient of the stage; infinite if one is missing, or not a number.
    """
    microbatches = schedule.problem.microbatches
    given, target = batch_of(name, model, microbatches)
    inputs, target = tuple(map(_double, given)), _double(target)
    own = build_stages(name, model, schedule.problem.stages_on[rank])
    own = {stage: _prepared(module) for stage, module in own.items()}
    executor = PipelineExecutor(
        own,
        schedule,
        loss_fn=model.loss_fn,
        shared=model.shared,
        timeout=timeout,
        device=device,
    )
    losses: list[Tensor] = []
    for _ in range(CHECKED_STEPS):
        with naming(name, "a step in float64"):
            executor.step(*inputs, target=target, losses=losses)
    executor.close()
    with naming(name, "the whole model in one process"):
        whole = _prepared(model.whole())
        loss = model.loss_fn(_run(whole, inputs), target)
        torch.autograd.backward(CHECKED_STEPS * loss)
    worst = 0.0
    for stage, module in own.items():
        names = [parameter_name for parameter_name, _ in module.named_parameters()]
        ours = [module.get_parameter(each).grad for each in names]
        theirs = [whole.get_parameter(f"{stage}.{each}").grad for each in names]
        worst = max(worst, difference(ours, theirs))
    if losses:
        worst = max(worst, difference([torch.stack(losses).mean()], [loss.detach()]))
    return worst


def difference(ours: Iterable[Tensor | None], theirs: Iterable[Tensor | None]) -> float:
    """Largest difference of two lists of tensors, relative to the largest entry of the second.

    Examples
    --------
    >>> difference([torch.tensor([1.0, 3.0])], [torch.tensor([1.0, 4.0])])
    0.25
    >>> difference([None], [torch.tensor([1.0])])
    inf
    """
    worst = scale = 0.0
    for one, other in zip(ours, theirs, strict=True):
        if one is None or other is None:
            if one is not other:
                return float("inf")
            continue
        if other.numel():
            found = float((one - other).abs().max())
            if found != found:
                return float("inf")
            worst, scale = max(worst, found), max(scale, float(other.abs().max()))
    return worst / scale if worst else 0.0


def _prepared(module: nn.Module) -> nn.Module:
    return module.double().eval()


def _double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _run(whole: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    """Stage by stage, since a stage may take and return several tensors."""
    returned: Any = None
    for stage, module in enumerate(whole.children()):
        returned = module(*inputs)
        inputs = tensors_of(returned, stage)
    return returned
