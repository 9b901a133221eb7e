"""Steps of torch.distributed.pipelining, to be compared with: its own schedules, its own runtime.

Only its public names are used, with the same modules on the same ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleInterleaved1F1B,
    ScheduleZBVZeroBubble,
)

from schedopt.errors import NotApplicableError
from schedopt.executor.slowness import Links, SlowLinks
from schedopt.problem import Problem

SLOW_BACKEND = "schedopt_slow_links"

COUNTERPARTS = {"linear": "1F1B", "interleaved": "Interleaved 1F1B", "v": "ZB-V"}
"""Placement -> classic schedule that torch has for it."""


def counterpart(problem: Problem) -> str:
    """The classic schedule that torch has for the placement of a problem.

    Raises
    ------
    NotApplicableError
        If it has none.
    """
    name = COUNTERPARTS.get(problem.placement_name or "")
    if name is None or problem.devices == 1 or problem.edges:
        raise NotApplicableError(
            "torch.distributed.pipelining has a schedule for linear, interleaved and v placements "
            f"on several devices without skip connections, not for {list(problem.device_of)} on "
            f"{problem.devices}"
        )
    if name == "Interleaved 1F1B" and problem.microbatches % problem.devices:
        raise NotApplicableError(
            "Interleaved 1F1B of torch.distributed.pipelining needs a multiple of "
            f"{problem.devices} microbatches, not {problem.microbatches}"
        )
    return name


class TorchSteps:
    """Trains as `PipelineExecutor` does, with the runtime of torch.

    Parameters
    ----------
    modules
        Of this rank, by stage.
    problem
        Says how many stages and microbatches there are, and where.
    loss_fn
        A mean.
    links
        Those that are slow.
    device
        Of the tensors.

    Raises
    ------
    NotApplicableError
        If torch has no schedule for the placement.
    """

    def __init__(
        self,
        modules: Mapping[int, nn.Module],
        problem: Problem,
        *,
        loss_fn: Callable[[Any, torch.Tensor], torch.Tensor],
        links: Links,
        device: torch.device | str,
    ) -> None:
        name = counterpart(problem)
        # Of its own, so that nothing else is between its transfers.
        group = _slow_group(links) if links else dist.new_group()
        stages: list[Any] = [
            PipelineStage(module, stage, problem.stage_count, torch.device(device), group=group)
            for stage, module in sorted(modules.items())
        ]
        self._is_first = 0 in modules
        self._is_last = problem.stage_count - 1 in modules
        self._schedule: Any
        if name == "1F1B":
            self._schedule = Schedule1F1B(stages[0], problem.microbatches, loss_fn)
        elif name == "ZB-V":
            self._schedule = ScheduleZBVZeroBubble(stages, problem.microbatches, loss_fn)
        else:
            self._schedule = ScheduleInterleaved1F1B(stages, problem.microbatches, loss_fn)

    def step(self, *args: Any, target: Any, losses: list[torch.Tensor]) -> None:
        """Forward and backward of a batch, with the arguments of `PipelineExecutor.step`."""
        given = args if self._is_first else ()
        if self._is_last:
            self._schedule.step(*given, target=target, losses=losses, return_outputs=False)
        else:
            self._schedule.step(*given, return_outputs=False)


class _SlowGroup(dist.ProcessGroup):
    """A process group over gloo that has what the runtime of torch uses, with slow links."""

    def __init__(self, rank: int, size: int, gloo: Any, links: Links) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._slow = SlowLinks(gloo, rank, links)
        self._gloo = gloo

    def getBackendName(self) -> str:  # noqa: N802
        return SLOW_BACKEND

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Any:
        return self._slow.send(tensors, peer, tag)

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Any:
        return self._slow.recv(tensors, peer, tag)

    def barrier(self, *options: Any) -> Any:
        return self._gloo.barrier(*options)


def _slow_group(links: Links) -> dist.ProcessGroup:
    """All ranks, with slow links between them."""

    def create(store: Any, rank: int, size: int, timeout: Any) -> dist.ProcessGroup:
        return _SlowGroup(rank, size, dist.ProcessGroupGloo(store, rank, size, timeout), links)

    name = f"{SLOW_BACKEND}_{len(dist.Backend.backend_list)}"
    dist.Backend.register_backend(name, create, devices=["cpu"])
    group: dist.ProcessGroup = dist.new_group(backend=name)
    return group
