"""Whether the stages of a rank are those of the schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from schedopt.executor.errors import ExecutorError

Stages = Mapping[int, torch.nn.Module] | Sequence[torch.nn.Module]
"""Modules by the number of their stage, or in the order of the stages of a rank."""


def require_ranks(size: int, devices: int) -> None:
    """Raise an ExecutorError unless there is one rank for each device."""
    if size != devices:
        raise ExecutorError(
            f"the schedule has {devices} devices, the group {size} ranks; there has to be one "
            "rank for each device"
        )


def stages_of(
    stages: Stages, stages_on: Sequence[Sequence[int]], rank: int
) -> dict[int, torch.nn.Module]:
    """The modules of a rank by the number of their stage, in model order.

    Raises
    ------
    ExecutorError
        If they are not the stages that the schedule has on this rank; names both.
    """
    own = list(stages_on[rank])
    if not isinstance(stages, Mapping):
        if len(stages) != len(own):
            raise ExecutorError(
                f"rank {rank}: the schedule has {_count(len(own))} on this device "
                f"({own}), the model has {len(stages)}"
            )
        return dict(zip(own, stages, strict=True))
    if sorted(stages) != own:
        raise ExecutorError(
            f"rank {rank}: the schedule has the stages {own} on this device, the model was cut "
            f"for {sorted(stages)}; all stages by device: {[list(s) for s in stages_on]}"
        )
    return {stage: stages[stage] for stage in own}


def _count(number: int) -> str:
    return f"{number} stage" + ("s" if number != 1 else "")


def device_of(stages: Stages, device: torch.device | str | None) -> torch.device:
    """The device that was asked for, or that of the first parameter; a CPU without any."""
    if device is not None:
        return torch.device(device)
    modules = stages.values() if isinstance(stages, Mapping) else stages
    devices = (p.device for module in modules for p in module.parameters())
    return next(devices, torch.device("cpu"))
