"""What is used of torch.distributed and has no types there, in one place."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import (  # type: ignore[attr-defined]
    HashStore,
    PrefixStore,
    Store,
    TCPStore,
)
from torch.distributed.device_mesh import DeviceMesh

from schedopt.executor.errors import ExecutorError

__all__ = [
    "Group",
    "HashStore",
    "PrefixStore",
    "Store",
    "TCPStore",
    "gloo",
    "is_over_nccl",
    "nccl",
    "own_store",
    "place_in",
    "process_group",
]


Group = dist.ProcessGroup | DeviceMesh
"""Ranks; a mesh has one dimension."""


def place_in(group: Group | None) -> tuple[int, int, Store]:
    """Rank and number of ranks in a group, and a store that the ranks share.

    Without a group all ranks of the job count; without a job there is one.

    Raises
    ------
    ExecutorError
        If this process does not belong to the group.
    """
    group = process_group(group)
    if group is None:
        if not dist.is_initialized():
            return 0, 1, HashStore()
        group = dist.group.WORLD
    if group is None or dist.get_rank(group) < 0:
        raise ExecutorError("this process does not belong to the group")
    return dist.get_rank(group), dist.get_world_size(group), group.get_group_store()


def process_group(group: Group | None) -> dist.ProcessGroup | None:
    """The group of a mesh."""
    return group.get_group() if isinstance(group, DeviceMesh) else group


def own_store(group: Group | None) -> tuple[int, int, Store]:
    """Rank and number of ranks in a group, and a store that nothing else of them uses."""
    rank, size, shared = place_in(group)
    number = shared.add(f"executors/{rank}", 1)
    return rank, size, PrefixStore(f"executor/{number}", shared)


def is_over_nccl(group: dist.ProcessGroup | None, device: torch.device) -> bool:
    """Whether tensors on this device go over NCCL within a group."""
    if device.type != "cuda" or not dist.is_initialized():
        return False
    return "nccl" in str(dist.get_backend(group))


def gloo(store: Store, rank: int, size: int, *, timeout: timedelta) -> Any:
    """Connections over gloo between ranks that share a store.

    Made from the store and not by `new_group`, in which every rank of the job has to take part,
    also those of other pipelines.
    """
    return dist.ProcessGroupGloo(store, rank, size, timeout)


def nccl(store: Store, rank: int, size: int, *, timeout: timedelta) -> Any:
    """Connections over NCCL between ranks that share a store."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(store, rank, size, options)
