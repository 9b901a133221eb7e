"""How many boundary tensors a rank has at a time, counted alike for any runtime."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from schedopt.executor.bench_rank import Entry, Lane, Source


class Counter:
    """Counts tensors of one size whenever a stage runs."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.most = 0

    def watch(self, module: nn.Module) -> None:
        """Count in every forward and backward of a module."""
        module.register_forward_hook(self._after_forward)

    def _after_forward(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        self._count()
        if output.requires_grad:
            output.register_hook(lambda gradient: self._count())

    def _count(self) -> None:
        storages = {
            tensor.untyped_storage().data_ptr()
            for tensor in gc.get_objects()
            if type(tensor) is Tensor and tensor.untyped_storage().nbytes() == self._size
        }
        self.most = max(self.most, len(storages))


def most_alive(entries: Sequence[Entry], source: Source) -> list[int]:
    """Most boundary tensors on this rank within a step of each entry; on every rank alike."""
    found = []
    # What is there already has no boundary tensors, and need not be looked through each time.
    gc.collect()
    gc.freeze()
    for entry in entries:
        lane = Lane(entry, source, torch.distributed.get_rank())
        lane.step()
        counter = Counter(source.boundary_bytes)
        for module in lane.modules.values():
            counter.watch(module)
        lane.step()
        lane.close()
        found.append(counter.most)
        del lane
        gc.collect()
    gc.unfreeze()
    return found
