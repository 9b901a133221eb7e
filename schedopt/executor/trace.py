"""When each op and each transfer of a step happened, beside when it was planned."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from schedopt.executor.program import Message
from schedopt.op import Op


class TracedOp(NamedTuple):
    """An op: planned in the time unit of the problem, measured in seconds from `Trace.began`."""

    op: Op
    planned_start: float
    planned_end: float
    start: float
    end: float


class TracedMessage(NamedTuple):
    """A message at one of its ends, in seconds from `Trace.began`.

    At the sender: when it was sent (`start` = `end`). At the receiver: the time in which the
    rank did nothing but wait for it.
    """

    message: Message
    is_sent: bool
    start: float
    end: float


class Trace(NamedTuple):
    """One step on one rank.

    Attributes
    ----------
    began
        Start of the step in seconds of `time.time`, to lay the traces of ranks side by side.
    seconds
        Length of the step on this rank.
    ops, messages
        In their order.
    """

    rank: int
    began: float
    seconds: float
    ops: tuple[TracedOp, ...]
    messages: tuple[TracedMessage, ...]


class Recorder:
    """Takes times: of the host, or of the stream of a GPU by events that nobody waits for."""

    def __init__(self, device: torch.device) -> None:
        self.began = time.time()
        self._device = device
        self._mark: Callable[[], Any] = time.perf_counter
        if device.type == "cuda":
            self._mark = self._event
        self._first: Any = self._mark()
        self._ops: list[tuple[Op, Any, Any]] = []
        self._messages: list[tuple[Message, bool, Any, Any]] = []
        self._last: Any = self._first

    def _event(self) -> torch.cuda.Event:
        event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def mark(self) -> Any:
        """The time now."""
        return self._mark()

    def at(self, host_time: float, mark: Any) -> Any:
        """A time of the host in place of a mark, where times are those of the host."""
        return mark if self._device.type == "cuda" else host_time

    def op(self, op: Op, start: Any) -> None:
        """An op that ends now."""
        self._last = self._mark()
        self._ops.append((op, start, self._last))

    def sent(self, message: Message) -> None:
        """A message that is sent now."""
        now = self._mark()
        self._messages.append((message, True, now, now))

    def received(self, message: Message, start: Any) -> None:
        """A message that was waited for until now."""
        self._messages.append((message, False, start, self._mark()))

    def end(self) -> None:
        """The step ends now."""
        self._last = self._mark()

    def trace(self, rank: int, planned: Callable[[Op], tuple[float, float]]) -> Trace:
        """All of it, on a GPU once it has been done."""
        if self._device.type == "cuda":
            self._last.synchronize()
        return Trace(
            rank,
            self.began,
            self._seconds(self._last),
            tuple(
                TracedOp(op, *planned(op), self._seconds(start), self._seconds(end))
                for op, start, end in self._ops
            ),
            tuple(
                TracedMessage(message, is_sent, self._seconds(start), self._seconds(end))
                for message, is_sent, start, end in self._messages
            ),
        )

    def _seconds(self, mark: Any) -> float:
        if self._device.type == "cuda":
            return float(self._first.elapsed_time(mark)) / 1000
        return float(mark - self._first)
