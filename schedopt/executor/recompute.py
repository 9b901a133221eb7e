"""What a recomputed forward needs to be the same: random numbers, and buffers that it updates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class RandomState(NamedTuple):
    """State of the random number generators: of the CPU, and of GPUs by their index."""

    cpu: Tensor
    gpus: Mapping[int, Tensor]

    @classmethod
    def now(cls, devices: Iterable[torch.device]) -> RandomState:
        """The state as it is, of the CPU and of these devices."""
        indices = {d.index or 0 for d in devices if d.type == "cuda"}
        return cls(torch.get_rng_state(), {i: torch.cuda.get_rng_state(i) for i in indices})

    def restore(self) -> None:
        """Let the generators go on from this state."""
        torch.set_rng_state(self.cpu)
        for index, state in self.gpus.items():
            torch.cuda.set_rng_state(state, index)


class Forward(NamedTuple):
    """A forward that is to be run again: what it was given, and where randomness began."""

    inputs: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    loss: Any
    random: RandomState


class UpdatedBuffers:
    """The buffers that a module changes in its forward, such as running statistics.

    They are found in the first forward of all (layers do not always count what they change as a
    version of it), and kept from being updated once more in a second one.
    """

    def __init__(self, module: nn.Module) -> None:
        self._buffers: Sequence[Tensor] = tuple(dict.fromkeys(module.buffers()))
        self._updated: set[int] | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """The first forward of a microbatch."""
        if self._updated is not None:
            yield
            return
        before = [buffer.clone() for buffer in self._buffers]
        yield
        pairs = enumerate(zip(self._buffers, before, strict=True))
        self._updated = {place for place, (now, then) in pairs if not torch.equal(now, then)}

    @contextmanager
    def kept(self) -> Iterator[None]:
        """The second forward: buffers are afterwards what they were before."""
        copies = {place: self._buffers[place].clone() for place in self._updated or ()}
        try:
            yield
        finally:
            for place, copy in copies.items():
                self._buffers[place].data.copy_(copy)
