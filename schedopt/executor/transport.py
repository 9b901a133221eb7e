"""Messages between ranks: tensors that are posted, waited for, sent and released.

Each rank keeps room only for what its list of actions has posted or sent and not yet used or
released, so the boundary tensors of a step are as many as the program says, whatever m is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

import torch

from schedopt.executor.distributed import PrefixStore, Store, gloo, nccl
from schedopt.executor.layouts import Layout, TensorLayout, bytes_of
from schedopt.executor.program import Direction, Message
from schedopt.executor.slowness import Links, SlowLinks

MOST_TENSORS = 256
"""Tensors in one message; the place of a tensor in its message is a part of its tag."""

_UNUSED_TAG = 2**31 - 1


class _InFlight(NamedTuple):
    """A message that is posted or sent: buffers, transfers, and what it is."""

    buffers: list[torch.Tensor | None]
    works: list[Any]
    layout: Layout


class Transport(ABC):
    """Messages of one rank, and the count of those that are alive.

    Attributes
    ----------
    alive, most
        Messages that are posted or sent and not yet used or released: now, and at most since
        `reset_count`.
    alive_bytes, most_bytes
        The same in bytes.
    """

    def __init__(self) -> None:
        self._flying: dict[Message, _InFlight] = {}
        self.alive = self.most = self.alive_bytes = self.most_bytes = 0

    def post(self, message: Message, peer: int, tag: int, layout: Layout) -> None:
        """Make room for a message from `peer` and let it arrive."""
        buffers = [None if part is None else self._room(part) for part in layout]
        works = [
            self._receive(buffer, peer, tag * MOST_TENSORS + place)
            for place, buffer in enumerate(buffers)
            if buffer is not None
        ]
        self._take_off(message, _InFlight(buffers, works, layout))

    def wait(self, message: Message) -> list[torch.Tensor | None]:
        """The tensors of a posted message, once they are there."""
        flying = self._land(message)
        return [None if buffer is None else self._arrived(buffer) for buffer in flying.buffers]

    def send(
        self,
        message: Message,
        peer: int,
        tag: int,
        tensors: Sequence[torch.Tensor | None],
        layout: Layout,
    ) -> None:
        """Send a message without waiting for it; the tensors are not to be changed any more."""
        buffers = [None if tensor is None else self._leaving(tensor) for tensor in tensors]
        works = [
            self._dispatch(buffer, peer, tag * MOST_TENSORS + place)
            for place, buffer in enumerate(buffers)
            if buffer is not None
        ]
        self._take_off(message, _InFlight(buffers, works, layout))

    def release(self, message: Message) -> None:
        """Wait until a sent message has been received, and give its room back."""
        self._land(message)

    def reset_count(self) -> None:
        """Begin to count the largest numbers anew."""
        self.most, self.most_bytes = self.alive, self.alive_bytes

    @abstractmethod
    def abort(self) -> None:
        """Cut the connections: every wait here and at the other ends stops with an error."""

    @abstractmethod
    def _room(self, part: TensorLayout) -> torch.Tensor: ...

    @abstractmethod
    def _leaving(self, tensor: torch.Tensor) -> torch.Tensor: ...

    @abstractmethod
    def _receive(self, buffer: torch.Tensor, peer: int, tag: int) -> Any: ...

    @abstractmethod
    def _dispatch(self, buffer: torch.Tensor, peer: int, tag: int) -> Any: ...

    @abstractmethod
    def _finish(self, work: Any) -> None: ...

    def _arrived(self, buffer: torch.Tensor) -> torch.Tensor:
        return buffer

    def _take_off(self, message: Message, flying: _InFlight) -> None:
        self._flying[message] = flying
        self._count(flying.layout, 1)

    def _land(self, message: Message) -> _InFlight:
        flying = self._flying[message]
        for work in flying.works:
            self._finish(work)
        del self._flying[message]
        self._count(flying.layout, -1)
        return flying

    def _count(self, layout: Layout, change: int) -> None:
        self.alive += change
        self.alive_bytes += change * bytes_of(layout)
        self.most = max(self.most, self.alive)
        self.most_bytes = max(self.most_bytes, self.alive_bytes)


class GlooTransport(Transport):
    """Over gloo, each tensor with a tag of its own; tensors of a GPU pass through pinned memory.

    A send over gloo lasts until the other rank has posted the receive; beginning one does not
    block. Every transfer gives a handle of its own, and each one is waited for.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        *,
        timeout: float,
        device: torch.device,
        slow_links: Links,
    ) -> None:
        super().__init__()
        self._timeout = timedelta(seconds=timeout)
        self._device = device
        self._staged = device.type != "cpu"
        self._neighbour = (rank + 1) % size
        self._backend = gloo(store, rank, size, timeout=self._timeout)
        if slow_links:
            self._backend = SlowLinks(self._backend, rank, slow_links)

    def abort(self) -> None:
        cut_connections(self._backend, self._neighbour)

    def _room(self, part: TensorLayout) -> torch.Tensor:
        return torch.empty(part.shape, dtype=part.dtype, pin_memory=self._staged)

    def _leaving(self, tensor: torch.Tensor) -> torch.Tensor:
        if not self._staged:
            return tensor.contiguous()
        staged = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        staged.copy_(tensor, non_blocking=True)
        torch.cuda.current_stream(self._device).synchronize()
        return staged

    def _arrived(self, buffer: torch.Tensor) -> torch.Tensor:
        return buffer.to(self._device, non_blocking=True)

    def _receive(self, buffer: torch.Tensor, peer: int, tag: int) -> Any:
        return self._backend.recv([buffer], peer, tag)

    def _dispatch(self, buffer: torch.Tensor, peer: int, tag: int) -> Any:
        return self._backend.send([buffer], peer, tag)

    def _finish(self, work: Any) -> None:
        work.wait(self._timeout)


def cut_connections(backend: Any, neighbour: int) -> None:
    """End all waits of a gloo backend, also those of other threads and of the other ranks."""
    # A wait that ends by its timeout makes gloo close all connections of the rank.
    with suppress(RuntimeError):  # the timeout, or connections that are closed already
        work = backend.recv([torch.empty(1)], neighbour, _UNUSED_TAG)
        work.wait(timedelta(milliseconds=1))


class NcclTransport(Transport):
    """Over NCCL, in the agreed order of each direction; `wait` holds up the stream, not the host.

    NCCL has no tags, and runs the transfers of one communicator one after the other in the order
    in which they were begun. With one communicator for both directions of a pair a receive that
    was posted ahead would hold up every later send to the same rank, and the two ranks would
    have to agree on one order of both directions. So each direction has a communicator of its
    own, in which both ends keep the order of the program.

    Parameters
    ----------
    directions
        All pairs (from, to) that send anything.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        directions: Iterable[Direction],
        *,
        timeout: float,
        device: torch.device,
    ) -> None:
        super().__init__()
        self._device = device
        self._to: dict[int, Any] = {}
        self._from: dict[int, Any] = {}
        probe = torch.zeros(1, device=device)
        # In one order on all ranks, and used at once: a communicator comes to be in its first
        # transfer, which waits for the other rank.
        for source, target in sorted(directions):
            if rank not in (source, target):
                continue
            pair = PrefixStore(f"{source}>{target}", store)
            place = 0 if rank == source else 1
            backend = nccl(pair, place, 2, timeout=timedelta(seconds=timeout))
            if rank == source:
                self._to[target] = backend
                backend.send([probe], 1, 0).wait()
            else:
                self._from[source] = backend
                backend.recv([probe], 0, 0).wait()

    def abort(self) -> None:
        for backend in (*self._to.values(), *self._from.values()):
            backend.abort()

    def _room(self, part: TensorLayout) -> torch.Tensor:
        return torch.empty(part.shape, dtype=part.dtype, device=self._device)

    def _leaving(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.contiguous()

    def _receive(self, buffer: torch.Tensor, peer: int, tag: int) -> Any:
        return self._from[peer].recv([buffer], 0, 0)

    def _dispatch(self, buffer: torch.Tensor, peer: int, tag: int) -> Any:
        return self._to[peer].send([buffer], 1, 0)

    def _finish(self, work: Any) -> None:
        # Later work of this stream starts after the transfer; memory that is given back now is
        # used again by later work of this stream only.
        work.wait()


def connect(
    store: Store,
    rank: int,
    size: int,
    directions: Iterable[Direction],
    *,
    is_nccl: bool,
    timeout: float,
    device: torch.device,
    slow_links: Links | None = None,
) -> Transport:
    """The transport between ranks that share a store; its parameters are theirs.

    Raises
    ------
    ValueError
        If links over NCCL are to be slow.
    """
    store = PrefixStore("transport", store)
    if not is_nccl:
        return GlooTransport(
            store, rank, size, timeout=timeout, device=device, slow_links=slow_links or {}
        )
    if slow_links:
        raise ValueError("slow_links: links are made slow over gloo only, not over NCCL")
    return NcclTransport(store, rank, directions, timeout=timeout, device=device)
