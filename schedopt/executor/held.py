"""What a rank holds for the backward: activations, boundary tensors, microbatches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch.autograd.graph import saved_tensors_hooks

from schedopt.executor.program import Program
from schedopt.executor.transport import Transport


class HeldInStep(NamedTuple):
    """What the ops of a step held; see `MemoryStats`."""

    activation_bytes: int | None
    activation_bytes_left: int | None
    held_microbatches: Mapping[int, int]


class MemoryStats(NamedTuple):
    """What a rank held in its last step.

    Attributes
    ----------
    activation_bytes
        Most bytes that autograd and the queues of weight gradients held at a time, each storage
        once; without parameters, buffers and the batch. None unless it was asked for.
    activation_bytes_left
        The same when the step was over: 0.
    held_microbatches, planned_microbatches
        Most microbatches between F and the end of the backward, by stage: measured, and by the
        schedule.
    boundary_messages, boundary_bytes
        Most messages between ranks that there was room for at a time.
    boundary_messages_left
        Those left when the step was over: 0.
    planned_boundary_messages
        Most messages that the program allows after the first step.
    allocated_bytes
        Most bytes that the allocator of the GPU gave out, all included; None on a CPU, or unless
        it was asked for.
    """

    activation_bytes: int | None
    activation_bytes_left: int | None
    held_microbatches: Mapping[int, int]
    planned_microbatches: Mapping[int, int]
    boundary_messages: int
    boundary_bytes: int
    boundary_messages_left: int
    planned_boundary_messages: int
    allocated_bytes: int | None


def reset_allocator(device: torch.device) -> None:
    """Let the allocator of a GPU count its largest number of bytes anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def memory_stats(
    held: HeldInStep,
    program: Program,
    rank: int,
    transport: Transport | None,
    *,
    device: torch.device,
) -> MemoryStats:
    """What a rank held in the last step of a program, beside its plan."""
    counts_allocator = device.type == "cuda" and held.activation_bytes is not None
    planned = program.held_microbatches()
    return MemoryStats(
        *held,
        planned_microbatches={stage: planned[stage] for stage in held.held_microbatches},
        boundary_messages=transport.most if transport else 0,
        boundary_bytes=transport.most_bytes if transport else 0,
        boundary_messages_left=transport.alive if transport else 0,
        planned_boundary_messages=program.boundary_messages(rank),
        allocated_bytes=torch.cuda.max_memory_allocated(device) if counts_allocator else None,
    )


class HeldStorages:
    """Counts the storages that autograd holds, by hooks on what it saves.

    Parameters
    ----------
    static
        Tensors that are there anyway.
    """

    def __init__(self, static: Iterable[torch.Tensor]) -> None:
        self._static = {_key(tensor) for tensor in static}
        self._uses: Counter[int] = Counter()
        self.bytes = 0

    def counting(self) -> AbstractContextManager[object]:
        """What is saved within is counted until it is freed."""
        return saved_tensors_hooks(self._pack, _unpack)

    def bytes_with(self, others: Iterable[torch.Tensor]) -> int:
        """Bytes of these tensors and of what is counted, each storage once."""
        storages = [t.untyped_storage() for t in others]
        sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}
        return self.bytes + sum(
            size for key, size in sizes.items() if key not in self._static | self._uses.keys()
        )

    def _pack(self, tensor: torch.Tensor) -> _Saved | torch.Tensor:
        return tensor if _key(tensor) in self._static else _Saved(tensor, self)

    def add(self, key: int, size: int) -> None:
        """A storage is saved once more."""
        self._uses[key] += 1
        if self._uses[key] == 1:
            self.bytes += size

    def remove(self, key: int, size: int) -> None:
        """A storage is saved once less."""
        self._uses[key] -= 1
        if not self._uses[key]:
            self.bytes -= size
            del self._uses[key]


class _Saved:
    """A saved tensor; the graph holds this in its place, and drops it when it drops the tensor."""

    def __init__(self, tensor: torch.Tensor, held: HeldStorages) -> None:
        self.tensor = tensor
        self._held, self._key, self._size = held, _key(tensor), tensor.untyped_storage().nbytes()
        held.add(self._key, self._size)

    def __del__(self) -> None:
        self._held.remove(self._key, self._size)


def _unpack(saved: _Saved | torch.Tensor) -> torch.Tensor:
    return saved.tensor if isinstance(saved, _Saved) else saved


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
