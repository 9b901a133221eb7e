"""Interleaved 1F1B: several chunks of the model on each device, in turn."""

from __future__ import annotations

from schedopt.classic.pattern import (
    one_forward_one_backward,
    require_placement,
    schedule_of,
    whole_step,
)
from schedopt.op import Op
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.variants import fused


@whole_step
def interleaved(problem: Problem) -> Schedule:
    """1F1B over chunks, in rounds of p microbatches; fused backward.

    A device takes a round of p microbatches through its first chunk, then through its next one.
    `warm_up_counts` forwards come first, then forward and backward in turn. If m is not a
    multiple of p the last round is shorter: the order is that of full rounds, without the ops
    that do not exist. It is therefore free of deadlock for any m.

    Raises
    ------
    NotApplicableError
        If the placement is not interleaved (linear is interleaved with one chunk).

    References
    ----------
    Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
    Megatron-LM", 2021, section 2.2.2.
    """
    chunks = require_placement(problem, "Interleaved 1F1B", "interleaved")
    p, m = problem.devices, problem.microbatches
    rounds = -(-m // p)
    sequences = []
    for device, warm_up in enumerate(warm_up_counts(p, chunks, rounds * p)):
        order = [
            (chunk, number * p + i)
            for number in range(rounds)
            for chunk in range(chunks)
            for i in range(p)
        ]
        forwards = [Op("F", chunk * p + device, i) for chunk, i in order]
        backwards = [Op("B", (chunks - 1 - chunk) * p + device, i) for chunk, i in order]
        ops = one_forward_one_backward(forwards, backwards, warm_up)
        sequences.append([op for op in ops if op.microbatch < m])
    return schedule_of(fused(problem), "Interleaved 1F1B", sequences)


def warm_up_counts(devices: int, chunks: int, microbatches: int) -> list[int]:
    """Forwards of each device before its first pair of forward and backward.

    2(p - d - 1) + (v - 1)p, at most all m v of them. The factor 2 keeps the steady state full: a
    device also waits for the backward of its neighbour, which comes one pair later.

    Examples
    --------
    >>> warm_up_counts(4, 2, 8)
    [10, 8, 6, 4]
    """
    return [
        min(2 * (devices - device - 1) + (chunks - 1) * devices, microbatches * chunks)
        for device in range(devices)
    ]
