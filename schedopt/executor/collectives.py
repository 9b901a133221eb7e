"""Sums and copies over a set of ranks, which end with an error if one of the ranks fails."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor

from schedopt.executor.distributed import Store, gloo, nccl
from schedopt.executor.failure import Watch
from schedopt.executor.transport import cut_connections


class Started(NamedTuple):
    """A collective that has begun; `what` says what it is for."""

    work: Any
    what: str


class Collectives:
    """Collectives of some ranks, begun by all of them in one order.

    Parameters
    ----------
    store
        Of these ranks alone.
    place, size
        Of this rank among them, and their number.
    watch
        Of these ranks, or of more; has the timeout.
    over_nccl
        Over NCCL instead of gloo.
    """

    def __init__(
        self,
        store: Store,
        place: int,
        size: int,
        watch: Watch,
        *,
        over_nccl: bool,
    ) -> None:
        self.size, self.place = size, place
        self._watch = watch
        self._timeout = timedelta(seconds=watch.timeout)
        connect = nccl if over_nccl else gloo
        self._backend = connect(store, place, size, timeout=self._timeout)
        self._over_nccl = over_nccl

    def start_sum(self, tensor: Tensor, what: str) -> Started:
        """Begin to replace a tensor by its sum over the ranks; it is not to be used until then."""
        return Started(self._backend.allreduce([tensor]), what)

    def largest(self, tensor: Tensor, what: str) -> None:
        """Replace a tensor by its maximum over the ranks."""
        self.finish(Started(self._backend.allreduce([tensor], dist.ReduceOp.MAX), what))

    def finish(self, started: Started) -> None:
        """Wait for a collective; over NCCL the stream waits and not the host.

        Raises
        ------
        PeerError
            If a rank fails, or does not take part within the timeout.
        """
        if self._over_nccl:
            started.work.wait()
            return
        self._watch.waits(lambda: f"waiting for {started.what}", (self.place + 1) % self.size)
        try:
            started.work.wait(self._timeout)
        except RuntimeError as error:
            raise self._watch.lost(error) from error
        self._watch.goes_on()

    def copy_from_first(self, tensor: Tensor, what: str) -> None:
        """Give all ranks the values of the first one."""
        values = tensor.detach().contiguous()
        self.finish(Started(self._backend.broadcast(values, 0), what))
        tensor.detach().copy_(values)

    def abort(self) -> None:
        """End all waits, here and on the other ranks."""
        if self._over_nccl:
            self._backend.abort()
        else:
            cut_connections(self._backend, (self.place + 1) % self.size)
