"""Ops that take the time their problem says without computing, so that any machine can time a step.

An emulated stage computes next to nothing. Either the executor lets its ops last as long as they
should, or, where another runtime is to run it, the stage itself waits where a real one computes: in
its forward, in the backward to its input, and when the gradient of its weight is computed; what
autograd and a runtime need for an op then comes on top. Everything else is as for a real model:
autograd, queues of weight gradients, and boundary tensors that are sent. Ranks that wait need no
core, so there can be more of them than cores.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from schedopt.errors import Fault, ProblemError
from schedopt.executor.models import PipelineModel
from schedopt.executor.slowness import Links, OpTimes, wait_until
from schedopt.problem import Problem

BOUNDARY_BYTES = 64 * 1024
"""Of the tensor between two stages for a microbatch."""


class _Wait(torch.autograd.Function):
    """Adds a number to a tensor at the time at which its op ends, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, number: Tensor, end: float, backward: float) -> Tensor:
        ctx.backward_seconds = backward
        output = x + number
        wait_until(end)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        end = time.perf_counter() + ctx.backward_seconds
        of_x = gradient if ctx.needs_input_grad[0] else None
        of_number = gradient.sum().view(1, 1)
        wait_until(end)
        return of_x, of_number, None, None


class EmulatedStage(nn.Module):
    """A stage with one weight, whose ops take as long as they are told.

    Parameters
    ----------
    seconds
        By kind of op: F, and B and W, or BW.
    """

    def __init__(self, seconds: Mapping[str, float]) -> None:
        super().__init__()
        self._forward = seconds["F"]
        self._backward = seconds["BW"] if "BW" in seconds else seconds["B"]
        self._weight = seconds.get("W", 0.0)
        # Its gradient is what W has to compute.
        self.linear = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.linear.weight, 0.125)
        if self._weight:
            self.linear.weight.register_hook(self._wait_for_weight)  # type: ignore[no-untyped-call]

    def forward(self, *inputs: Tensor) -> Tensor:
        """The first input plus a number that depends on all inputs and the weight."""
        end = time.perf_counter() + self._forward
        x = inputs[0]
        for other in inputs[1:]:
            x = x + other
        number = self.linear(x[:1, :1])
        output: Tensor = _Wait.apply(x, number, end, self._backward)  # type: ignore[no-untyped-call]
        return output

    def _wait_for_weight(self, gradient: Tensor) -> None:
        wait_until(time.perf_counter() + self._weight)


def emulated(
    problem: Problem,
    *,
    unit_seconds: float,
    boundary_bytes: int = BOUNDARY_BYTES,
    stages_wait: bool = True,
) -> PipelineModel:
    """A model whose ops take as long as those of a problem; its weights are those of any other.

    Parameters
    ----------
    problem
        Has the durations.
    unit_seconds
        Seconds that one time unit of the problem takes.
    boundary_bytes
        Size of the tensors between stages.
    stages_wait
        False if the ops are to be as long by `emulated_ops`.

    Raises
    ------
    ProblemError
        If the microbatches are not equal.
    """
    if len(set(problem.factors)) > 1:
        shown = str([float(factor) for factor in problem.factors])
        valid = "must be equal to be emulated: a stage does not know which microbatch it runs"
        raise ProblemError([Fault("microbatch_factors", shown, valid)])
    width = max(1, boundary_bytes // torch.float32.itemsize)

    def build(stage: int) -> EmulatedStage:
        durations = problem.stage_data[stage].durations
        unit = unit_seconds if stages_wait else 0.0
        return EmulatedStage({k: float(d) * unit for k, d in durations.items()})

    def numbers(microbatches: int, first: float) -> Tensor:
        return torch.linspace(first, 1.0, microbatches).unsqueeze(1).repeat(1, width)

    return PipelineModel(
        problem.stage_count,
        build,
        inputs=lambda microbatches: (numbers(microbatches, 0.0),),
        target=lambda microbatches: numbers(microbatches, 0.5),
        loss_fn=functional.mse_loss,
    )


def emulated_ops(problem: Problem, *, unit_seconds: float) -> OpTimes:
    """The durations of a problem in seconds, by stage and kind."""
    return {
        (stage, kind): float(duration) * unit_seconds
        for every in (problem.recomputed_stage_data, problem.stage_data)
        for stage, data in enumerate(every)
        for kind, duration in data.durations.items()
    }


def emulated_links(problem: Problem, *, unit_seconds: float) -> Links:
    """The lags of a problem by devices, in seconds; links without a lag are left out.

    Raises
    ------
    ProblemError
        If messages from one device to another have different lags.
    """
    lags: dict[tuple[int, int], float] = {}
    faults = []
    for source, target, lag in _lags(problem):
        pair = problem.device_of[source], problem.device_of[target]
        if lags.setdefault(pair, lag) != lag:
            valid = (
                f"must be equal to be emulated, from stage {source} to {target} it is {lag:g}: "
                "a link has one lag in each direction"
            )
            faults.append(
                Fault(f"lag from device {pair[0]} to {pair[1]}", f"{lags[pair]:g}", valid)
            )
    if faults:
        raise ProblemError(faults)
    return {pair: lag * unit_seconds for pair, lag in lags.items() if lag}


def _lags(problem: Problem) -> Iterator[tuple[int, int, float]]:
    """Source stage, target stage and lag of all transfers between devices, in time units."""
    for source, target, forward, backward in problem.connections:
        for s, t, transfer in ((source, target, forward), (target, source, backward)):
            if problem.device_of[s] != problem.device_of[t]:
                yield s, t, float(transfer.latency + transfer.duration)
