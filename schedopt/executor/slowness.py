"""Ops and links that are as slow as wanted: to emulate others on one machine, over gloo.

With every message its sender sends the time; the receiver takes the message when the link would
have delivered it. Neither end is kept from anything else meanwhile: a lag is a pure delay.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

Links = Mapping[tuple[int, int], float]
"""(From rank, to rank) -> seconds that a message takes at least."""

OpTimes = Mapping[tuple[int, str], float]
"""(Stage, kind) -> seconds that an op takes at least."""

_TIME_TAG = 2**30
"""Added to the tag of a message for the time at which it was sent."""

_SPIN = 0.0001
"""Seconds before the end of a wait in which sleeping could oversleep."""


def wait_until(end: float) -> None:
    """Sleep, and spin at last, until `time.perf_counter` is at `end`."""
    remaining = end - time.perf_counter() - _SPIN
    if remaining > 0:
        time.sleep(remaining)
    while time.perf_counter() < end:
        pass


class SlowLinks:
    """A gloo backend, or anything with its `send` and `recv`, some links of which are slow.

    Parameters
    ----------
    backend
        What transfers.
    rank
        This rank.
    links
        The slow ones, on all ranks alike.
    """

    def __init__(self, backend: Any, rank: int, links: Links) -> None:
        self._backend, self._rank, self._links = backend, rank, links

    def send(self, tensors: Sequence[Tensor], peer: int, tag: int) -> Any:
        """As the backend; the message can be taken when the time of its link has passed."""
        work = self._backend.send(tensors, peer, tag)
        if (self._rank, peer) not in self._links:
            return work
        # The clock of one machine is the same for all of its processes.
        now = torch.tensor([time.perf_counter()], dtype=torch.float64)
        return _Slow([work, self._backend.send([now], peer, tag + _TIME_TAG)])

    def recv(self, tensors: Sequence[Tensor], peer: int, tag: int) -> Any:
        """As the backend; waiting for it ends when the time of the link has passed as well."""
        work = self._backend.recv(tensors, peer, tag)
        if (peer, self._rank) not in self._links:
            return work
        sent = torch.zeros(1, dtype=torch.float64)
        works = [work, self._backend.recv([sent], peer, tag + _TIME_TAG)]
        return _Slow(works, sent, self._links[peer, self._rank])


class _Slow:
    """A transfer with its time."""

    def __init__(self, works: list[Any], sent: Tensor | None = None, lag: float = 0.0) -> None:
        self._works, self._sent, self._lag = works, sent, lag

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until the transfer is over."""
        for work in self._works:
            work.wait() if timeout is None else work.wait(timeout)
        if self._sent is not None:
            wait_until(float(self._sent) + self._lag)
        return True
