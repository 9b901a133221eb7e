"""Lag and bandwidth between two ranks, measured over the transport that steps use.

One rank sends, the other answers with a few bytes, so that the times of both directions are
known from one clock: half of a round trip of few bytes, and what more bytes add to it one way.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import torch

from schedopt.executor.distributed import (
    Group,
    PrefixStore,
    Store,
    is_over_nccl,
    place_in,
    process_group,
)
from schedopt.executor.errors import ExecutorError
from schedopt.executor.layouts import layout_of
from schedopt.executor.program import Message
from schedopt.executor.transport import Transport, connect

SIZES = (4096, 65536, 1 << 20)
"""Bytes of the messages that are timed, besides the smallest one."""

REPEATS = 50
"""Messages of each size and direction that are timed."""

WARM_UP = 5

PAUSE = 0.003
"""Seconds before each message: in a step an op runs then, and the other rank sleeps."""
_SMALLEST = 4


class Link(NamedTuple):
    """One direction between two ranks.

    Attributes
    ----------
    latency_us
        From the call that sends a message of a few bytes to when it can be used.
    bytes_per_us
        Infinite if more bytes take no more time.
    """

    latency_us: float
    bytes_per_us: float

    def lag_us(self, size: int) -> float:
        """Time in us that a message of so many bytes needs."""
        return self.latency_us + size / self.bytes_per_us


def measure_link(
    first: int,
    second: int,
    *,
    group: Group | None = None,
    device: torch.device | str = "cpu",
    sizes: Sequence[int] = SIZES,
    repeats: int = REPEATS,
    over_nccl: bool | None = None,
    timeout: float = 60.0,
) -> tuple[Link, Link]:
    """The links from `first` to `second` and back; to be called on these two ranks alone.

    Parameters
    ----------
    first, second
        Ranks of the group.
    group
        All ranks by default.
    device
        Of the tensors.
    sizes
        Bytes of the messages; rounded up to 4.
    repeats
        Messages of each size and direction that are timed.
    over_nccl
        Over NCCL or gloo; by default as the executor would in this group.
    timeout
        Seconds that a rank waits for the other one.

    Raises
    ------
    ExecutorError
        If the other rank is lost or does not answer.
    """
    rank, _, store = place_in(group)
    if first == second or rank not in (first, second):
        raise ValueError(f"a link is measured by its two ranks, {first} and {second}, not {rank}")
    device = torch.device(device)
    if over_nccl is None:
        over_nccl = is_over_nccl(process_group(group), device)
    name = f"links/{first}-{second}"
    own = PrefixStore(f"{name}/{store.add(f'{name}/{rank}', 1)}", store)
    place = 0 if rank == first else 1
    try:
        transport = connect(
            PrefixStore("transport", own),
            place,
            2,
            [(0, 1), (1, 0)],
            is_nccl=over_nccl,
            timeout=timeout,
            device=device,
        )
        end = _End(transport, 1 - place, device)
        if place == 0:
            return _lead(end, own, sizes, repeats)
        return _follow(end, own, sizes, repeats)
    except RuntimeError as error:
        raise ExecutorError(
            f"the link between the ranks {first} and {second} can not be measured: {error}"
        ) from error


class _End:
    """One end of the link: counts the messages of both directions, which are its tags."""

    def __init__(self, transport: Transport, peer: int, device: torch.device) -> None:
        self._transport, self._peer, self._device = transport, peer, device
        self._posted: list[Message] = []
        self._sent: list[Message] = []
        self._received_count = self._sent_count = 0

    def tensor(self, size: int) -> torch.Tensor:
        """Of at least so many bytes."""
        return torch.zeros(max(1, -(-size // 4)), dtype=torch.float32, device=self._device)

    def post(self, like: torch.Tensor) -> None:
        """Make room for the next message."""
        message = Message(self._peer, 1 - self._peer, self._received_count)
        self._transport.post(message, self._peer, self._received_count, layout_of([like]))
        self._received_count += 1
        self._posted.append(message)

    def wait(self) -> None:
        """Until the oldest message that room was made for can be used."""
        self._transport.wait(self._posted.pop(0))
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def send(self, tensor: torch.Tensor) -> None:
        message = Message(1 - self._peer, self._peer, self._sent_count)
        layout = layout_of([tensor])
        self._transport.send(message, self._peer, self._sent_count, [tensor], layout)
        self._sent_count += 1
        self._sent.append(message)

    def release(self) -> None:
        """What was sent has arrived, as an answer shows."""
        while self._sent:
            self._transport.release(self._sent.pop(0))


class _Round(NamedTuple):
    """What is timed once: the message there, of so many bytes or few, and the one back."""

    name: str
    size: int
    there: torch.Tensor
    back: torch.Tensor


def _rounds(end: _End, sizes: Sequence[int], repeats: int) -> Iterator[_Round]:
    """In their order, alike at both ends; in turn, so that a busy moment is in all of them."""
    small = end.tensor(_SMALLEST)
    large = [end.tensor(size) for size in sorted(set(sizes) - {_SMALLEST})]
    for _ in range(repeats):
        yield _Round("both", _SMALLEST, small, small)
        for tensor in large:
            yield _Round("there", tensor.nbytes, tensor, small)
            yield _Round("back", tensor.nbytes, small, tensor)


def _lead(end: _End, store: Store, sizes: Sequence[int], repeats: int) -> tuple[Link, Link]:
    measured: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for each in _rounds(end, sizes, WARM_UP + repeats):
        end.post(each.back)
        time.sleep(PAUSE)
        start = time.perf_counter()
        end.send(each.there)
        end.wait()
        measured[each.name, each.size].append((time.perf_counter() - start) * 1e6)
        end.release()
    times = {key: median(t[WARM_UP:]) for key, t in measured.items()}
    small = times["both", _SMALLEST] / 2
    links = [
        # A large message is never faster than a small one.
        fit({size: max(small, t - small) for (name, size), t in times.items() if name in kinds})
        for kinds in (("there", "both"), ("back", "both"))
    ]
    store.set("links", json.dumps(links))
    store.get("done")  # who goes early breaks the last transfer of the other one
    return links[0], links[1]


def _follow(end: _End, store: Store, sizes: Sequence[int], repeats: int) -> tuple[Link, Link]:
    rounds = list(_rounds(end, sizes, WARM_UP + repeats))
    end.post(rounds[0].there)
    for each, following in zip(rounds, [*rounds[1:], None], strict=True):
        end.wait()
        if following is not None:
            end.post(following.there)
        end.send(each.back)
        end.release()
    first, second = (Link(*values) for values in json.loads(store.get("links")))
    store.set("done", "")
    return first, second


def fit(times: Mapping[int, float]) -> Link:
    """The link whose lags are nearest to times in us by size in bytes, in relative terms.

    Weighted least squares of a line. A line that falls, or starts below 0, is replaced by the
    nearest one that does not.

    Examples
    --------
    >>> round(fit({0: 10.0, 1000: 15.0, 3000: 25.0}).lag_us(2000), 6)
    20.0
    """
    weights = {size: 1 / max(t, 1e-3) ** 2 for size, t in times.items()}
    total = sum(weights.values())
    mean_size = sum(weights[size] * size for size in times) / total
    mean_time = sum(weights[size] * t for size, t in times.items()) / total
    variance = sum(weights[size] * (size - mean_size) ** 2 for size in times)
    covariance = sum(w * (s - mean_size) * (times[s] - mean_time) for s, w in weights.items())
    if variance == 0 or covariance <= 0:
        return Link(mean_time, math.inf)
    slope = covariance / variance
    latency = mean_time - slope * mean_size
    if latency < 0:
        squares = sum(w * s * s for s, w in weights.items())
        latency, slope = 0.0, sum(w * s * times[s] for s, w in weights.items()) / squares
    return Link(latency, 1 / slope)
