"""Stretching: a schedule of few microbatches becomes one of many.

In the middle of a long schedule there are moments between which every stage and kind has gone on
by the same number of microbatches. What happens between two such moments can happen again and
again: each device then holds what it held before, and the same ops follow. So the cost of a good
schedule does not depend on the number of microbatches; it is found for few of them.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from schedopt.op import Op
from schedopt.solvers.ordered import OrderedInstance

KEY_BITS = 62


class Repeat(NamedTuple):
    """What a schedule can repeat.

    Attributes
    ----------
    group
        Microbatches by which everything goes on.
    begin, end
        Per resource, the positions in its order between which the ops are repeated.
    time, passed
        Steps and microbatches from the first to the last moment of the schedule like these.
    """

    group: int
    begin: tuple[int, ...]
    end: tuple[int, ...]
    time: int
    passed: int

    @property
    def growth(self) -> Fraction:
        """Steps per microbatch."""
        return Fraction(self.time, self.passed)


def shortest_repeat(current: OrderedInstance, *, multiple_of: int = 0) -> Repeat | None:
    """What can be repeated with the least time per microbatch; None if there is nothing.

    Parameters
    ----------
    current
        A schedule of equal microbatches, in first-in-first-out order.
    multiple_of
        The group divides this number.
    """
    alike: dict[int, list[tuple[int, int]]] = {}
    for time, done, key in _moments(current):
        alike.setdefault(key, []).append((time, done))
    best: Repeat | None = None
    for moments in alike.values():
        rounds = [
            (later[1] - earlier[1], earlier[0], later[0]) for earlier, later in pairwise(moments)
        ]
        group, begin, end = min((r for r in rounds if multiple_of % r[0] == 0), default=(0, 0, 0))
        if not group:
            continue
        time, passed = (last - first for first, last in zip(moments[0], moments[-1], strict=True))
        if best is None or (time * best.passed, group) < (best.time * passed, best.group):
            places = _positions(current, begin), _positions(current, end)
            best = Repeat(group, *places, time, passed)
    return best


def _moments(current: OrderedInstance) -> list[tuple[int, int, int]]:
    """Time, ops of the first (stage, kind) that have started before it, and a key.

    Two moments have equal keys if the numbers of ops that have started differ by the same for
    every stage and kind.
    """
    instance, starts = current.instance, current.starts
    pick = random.Random(0)
    weight: dict[tuple[str, int], int] = {}
    for op in instance.ops:
        if op[:2] not in weight:
            weight[op[:2]] = pick.getrandbits(KEY_BITS)
    reference = next(iter(weight))
    # the sum over the (stage, kind) of weight x (ops started - those of the reference)
    weight[reference] -= sum(weight.values())
    moments: list[tuple[int, int, int]] = []
    key = done = 0
    before = -1
    for a in sorted(range(len(starts)), key=starts.__getitem__):
        if starts[a] > before:
            moments.append((starts[a], done, key))
            before = starts[a]
        own = instance.ops[a][:2]
        key += weight[own]
        done += own == reference
    return moments


def _positions(current: OrderedInstance, time: int) -> tuple[int, ...]:
    """Per resource, how many of its ops start before a time."""
    key = current.starts.__getitem__
    return tuple(bisect_left(sequence, time, key=key) for sequence in current.sequences)


def stretched(orders: Sequence[Sequence[Op]], repeat: Repeat, microbatches: int) -> list[list[Op]]:
    """Orders with some more microbatches.

    Parameters
    ----------
    orders
        Orders of the resources.
    repeat
        What is repeated, from `shortest_repeat` for these orders.
    microbatches
        How many more; a multiple of the group.
    """
    result = []
    for ops, begin, end in zip(orders, repeat.begin, repeat.end, strict=True):
        longer = list(ops[:end])
        for shift in range(repeat.group, microbatches + 1, repeat.group):
            longer += (op._replace(microbatch=op.microbatch + shift) for op in ops[begin:end])
        longer += (op._replace(microbatch=op.microbatch + microbatches) for op in ops[end:])
        result.append(longer)
    return result
