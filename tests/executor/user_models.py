"""Factories as users write them, most of them with a fault."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn

from schedopt.executor.models import PipelineModel, mlp


class Affine(nn.Module):
    """A layer of its own: its weight gradient can not be deferred."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.register_buffer("offset", torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.offset


def affine(stages: int, *, device: torch.device | str, width: int = 8) -> PipelineModel:
    """Stages that can not be split."""
    model = mlp(stages, device=device, width=width)
    return PipelineModel(
        stages, lambda stage: Affine(width).to(device), model.inputs, model.target, model.loss_fn
    )


class Failing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ArithmeticError("no such sum")  # this line is shown


class FailingBackward(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = _Bad.apply(x)
        return result


class _Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise ArithmeticError("no way back")


def with_stage_1(module: type[nn.Module], stages: int, device: torch.device | str) -> PipelineModel:
    model = mlp(stages, device=device)
    return PipelineModel(
        stages,
        lambda stage: module() if stage == 1 else model.build(stage),
        model.inputs,
        model.target,
        model.loss_fn,
    )


def failing(stages: int, *, device: torch.device | str) -> PipelineModel:
    """Stage 1 raises in F."""
    return with_stage_1(Failing, stages, device)


def failing_backward(stages: int, *, device: torch.device | str) -> PipelineModel:
    """Stage 1 raises in its backward."""
    return with_stage_1(FailingBackward, stages, device)


class Dying(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        os._exit(7)


def dying(stages: int, *, device: torch.device | str) -> PipelineModel:
    """The process of stage 1 ends."""
    return with_stage_1(Dying, stages, device)


def failing_build(stages: int, *, device: torch.device | str) -> PipelineModel:
    """Stage 1 can not be made."""
    model = mlp(stages, device=device)

    def build(stage: int) -> nn.Module:
        if stage == 1:
            raise FileNotFoundError("stage_1.pt")
        return model.build(stage)

    return PipelineModel(stages, build, model.inputs, model.target, model.loss_fn)


def raising(stages: int, *, device: torch.device | str) -> PipelineModel:
    """The factory itself raises."""
    raise KeyError("checkpoint")


class Drifting(nn.Module):
    """Has other weights each time it is made, so that ranks and one process differ."""

    count = 0

    def __init__(self) -> None:
        super().__init__()
        Drifting.count += 1
        self.scale = nn.Parameter(torch.full((64,), float(Drifting.count)))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def drifting(stages: int, *, device: torch.device | str) -> PipelineModel:
    """Stage 1 is another one each time it is built, against the rule for `build`."""
    return with_stage_1(Drifting, stages, device)
