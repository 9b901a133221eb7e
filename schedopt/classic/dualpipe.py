"""DualPipeV: DualPipe cut in half, on the V placement."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from schedopt.classic.pattern import (
    require_placement,
    schedule_of,
    whole_step,
)
from schedopt.op import Op
from schedopt.problem import Problem
from schedopt.schedule import Schedule


@whole_step
def dualpipe_v(problem: Problem) -> Schedule:
    """DualPipeV; where it overlaps a forward and a backward, here the forward comes first.

    A device runs one op at a time, so an overlapped pair lasts as long as both ops together:
    what the overlap hides has to be in their durations. A backward that the pattern does not
    split is B directly followed by W.

    The pattern is published for m >= 2p. For fewer microbatches it is that of 2p without the ops
    that do not exist.

    Raises
    ------
    NotApplicableError
        If the placement is not the V.

    References
    ----------
    DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.2.1 (DualPipe); Qi et al.,
    "DualPipe could be better without the Dual", 2025 (cut in half); the eight steps: DeepSeek-AI,
    DualPipe repository, 2025.
    """
    require_placement(problem, "DualPipeV", "v")
    m = problem.microbatches
    sequences = (
        [op for op in _sequence(problem.devices, device, m) if op.microbatch < m]
        for device in range(problem.devices)
    )
    return schedule_of(problem, "DualPipeV", sequences)


def _sequence(devices: int, device: int, microbatches: int) -> Iterator[Op]:
    builder = _Builder(device, 2 * devices - 1 - device)
    before, after = device + 1, devices - device - 1
    rounds = max(microbatches, 2 * devices) - 2 * devices + before
    # fill: forwards of the first stage, then of both, then backwards of the second
    for _ in range(2 * after):
        yield builder.forward(0)
    for _ in range(before):
        yield builder.forward(0)
        yield builder.forward(1)
    for _ in range(after):
        yield from builder.backward(1, split=True)
        yield from builder.weights()
        yield builder.forward(1)
    # steady state: a forward of one stage with a backward of the other
    for _ in range(rounds):
        yield builder.forward(0)
        yield from builder.backward(1)
        yield builder.forward(1)
        yield from builder.backward(0)
    # drain: the last forwards of the second stage, then backwards, split from their middle on
    for _ in range(after):
        yield from builder.backward(1)
        yield builder.forward(1)
        yield from builder.backward(0)
    for number in range(2 * before):
        yield from builder.backward(1 - number % 2, split=number >= before)
    for _ in range(after):
        yield from builder.weights()
        yield from builder.backward(0, split=True)
    for _ in range(before):
        yield from builder.weights()


class _Builder:
    """Counts the microbatches of both stages of a device, and keeps the W that are put off."""

    def __init__(self, first: int, second: int) -> None:
        self.stages = first, second
        self.next = {"F": [0, 0], "B": [0, 0]}
        self.put_off: deque[Op] = deque()

    def forward(self, chunk: int) -> Op:
        return self._op("F", chunk)

    def backward(self, chunk: int, *, split: bool = False) -> Iterator[Op]:
        op = self._op("B", chunk)
        yield op
        if split:
            self.put_off.append(op._replace(kind="W"))
        else:
            yield op._replace(kind="W")

    def weights(self) -> Iterator[Op]:
        if self.put_off:
            yield self.put_off.popleft()

    def _op(self, kind: str, chunk: int) -> Op:
        microbatch = self.next[kind][chunk]
        self.next[kind][chunk] += 1
        return Op(kind, self.stages[chunk], microbatch)
