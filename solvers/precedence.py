"""What is decided before the search: precedences that the arcs, time and memory force.

Three rules are repeated until hardly anything new follows:

* arcs: the transitive closure, and heads and tails along it; among the ops of one resource
  that must all come before an op, the work adds up;
* time: if b can not follow a on their resource within the horizon, a follows b;
* memory: if an op that acquires memory can not fit while another op has not released its
  memory, that other op comes first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from schedopt.solvers.frames import frames
from schedopt.solvers.instance import Instance

Numbers = npt.NDArray[np.int64]

WORTHWHILE = 0.05
"""New arcs of a round, as a share of those before, that are worth another round."""
MOST_HEADS = 40_000
"""Ops times frames above which some frames are left out."""


class Precedence:
    """Closure of all known precedences between the ops of an instance.

    Attributes
    ----------
    after
        Per op: bit set of the ops that start after its end (or at it).
    before
        The inverse.
    arcs
        (a, b) that time or memory added to the arcs of the instance.
    frames
        Earliest start and least time to the end of each op, per frame of the objective.
    contradiction
        Whether no schedule of at most the horizon exists.
    """

    def __init__(
        self, instance: Instance, horizon: int | None, *, deadline: float = math.inf
    ) -> None:
        self.instance = instance
        self.horizon = horizon
        self.arcs: list[tuple[int, int]] = []
        self.contradiction = False
        count = len(instance.ops)
        self.same_resource = [0] * count
        for ops in instance.ops_of_resource:
            members = _bits(ops)
            for a in ops:
                self.same_resource[a] = members
        self._numbers = [np.array(ops, np.int64) for ops in instance.ops_of_resource]
        self._duration = np.array(instance.duration, np.int64)
        self._extra_after: list[list[int]] = [[] for _ in range(count)]
        self._order = list(range(count))
        self.frames = list(frames(instance, most=max(1, MOST_HEADS // max(1, count))))
        self._close()
        self.deadline = deadline
        worthwhile = True
        while worthwhile and not self.contradiction and not self._late():
            known = len(self.arcs)
            if horizon is not None:
                self._by_time(horizon)
            self._by_memory()
            if len(self.arcs) > known:
                self._close()
            worthwhile = len(self.arcs) - known > WORTHWHILE * known

    def _late(self) -> bool:
        """Whether there is no time for more; what is decided by then is as true as it was."""
        return time.monotonic() >= self.deadline

    def _close(self) -> None:
        """Closure, heads and tails from the arcs of the instance and the added ones."""
        instance, count = self.instance, len(self.instance.ops)
        incoming: list[list[tuple[int, int]]] = [list(before) for before in instance.predecessors]
        for a, targets in enumerate(self._extra_after):
            for b in targets:
                incoming[b].append((a, 0))
        self._sort(incoming)
        before = [0] * count
        outgoing: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        for b in self._order:
            for a, lag in incoming[b]:
                before[b] |= before[a] | 1 << a
                outgoing[a].append((b, lag))
        after = [0] * count
        for a in reversed(self._order):
            for b, _ in outgoing[a]:
                after[a] |= after[b] | 1 << b
        self.before, self.after = before, after
        earlier, later = self._on_same_resource(before), self._on_same_resource(after)
        for frame in self.frames:
            self._lengthen(frame.head, self._order, incoming, earlier)
            self._lengthen(frame.tail, self._order[::-1], outgoing, later)
            if self.horizon is not None:
                self.contradiction |= any(
                    frame.head[a] + instance.duration[a] + frame.tail[a] > self.horizon
                    for a in range(count)
                )

    def _on_same_resource(self, sets: Sequence[int]) -> list[Numbers]:
        """Per op: the members of its bit set that are on the resource of the op."""
        result: list[Numbers] = [np.zeros(0, np.int64)] * len(sets)
        for ops, numbers in zip(self.instance.ops_of_resource, self._numbers, strict=True):
            for a, row in zip(ops, _rows(sets, ops, numbers), strict=True):
                result[a] = numbers[row]
        return result

    def _lengthen(
        self,
        head: list[int],
        order: Sequence[int],
        arcs: Sequence[Sequence[tuple[int, int]]],
        same_resource: Sequence[Numbers],
    ) -> None:
        """Raise heads along arcs, and by what must come before on the same resource.

        What must come before is done one after the other, each no earlier than its head. With
        everything turned round the same holds for tails.
        """
        duration = self.instance.duration
        heads = np.array(head, np.int64)
        for b in order:
            value = head[b]
            for a, lag in arcs[b]:
                value = max(value, head[a] + duration[a] + lag)
            members = same_resource[b]
            if len(members):
                latest_first = heads[members].argsort()[::-1]
                members = members[latest_first]
                ends = heads[members] + self._duration[members].cumsum()
                value = max(value, int(ends.max()))
            head[b] = heads[b] = value

    def _sort(self, incoming: list[list[tuple[int, int]]]) -> None:
        """Topological order of all arcs; a circle is a contradiction."""
        outgoing: list[list[int]] = [[] for _ in incoming]
        waiting = [len(arcs) for arcs in incoming]
        for b, arcs in enumerate(incoming):
            for a, _ in arcs:
                outgoing[a].append(b)
        order = [a for a, number in enumerate(waiting) if not number]
        for a in order:
            for b in outgoing[a]:
                waiting[b] -= 1
                if not waiting[b]:
                    order.append(b)
        if len(order) < len(incoming):
            self.contradiction = True
        else:
            self._order = order

    def _add(self, a: int, b: int) -> None:
        """Let a come before b."""
        if self.before[b] >> a & 1:
            return
        if self.after[b] >> a & 1:
            self.contradiction = True
        self._extra_after[a].append(b)
        self.arcs.append((a, b))
        self.before[b] |= 1 << a  # until the next closure, so that it is added once
        self.after[a] |= 1 << b

    def _by_time(self, horizon: int) -> None:
        """Order the pairs of which one order is too long for some frame."""
        frames = [(np.array(f.head, np.int64), np.array(f.tail, np.int64)) for f in self.frames]
        for ops, numbers in zip(self.instance.ops_of_resource, self._numbers, strict=True):
            if self._late():
                return
            work = self._duration[numbers]
            too_long = np.zeros((len(ops), len(ops)), bool)  # [a, b]: a can not come before b
            for head, tail in frames:
                start = (head[numbers] + work)[:, None]
                too_long |= start + (work + tail[numbers])[None, :] > horizon
            decided = _rows(self.before, ops, numbers)
            too_long &= ~(decided | decided.T)
            np.fill_diagonal(too_long, False)
            for row, column in np.argwhere(too_long).tolist():
                self._add(ops[column], ops[row])

    def _by_memory(self) -> None:
        users: dict[int, list[int]] = {}
        for a, uses in enumerate(self.instance.memory):
            for use in uses:
                if use.device in self.instance.available:
                    users.setdefault(use.device, []).append(a)
        for device, ops in users.items():
            change = _Change(self.instance, device, ops, self.before)
            for a in ops:
                peak = change.acquired[a] + change.transient[a]
                if peak and not self._late():
                    room = self.instance.available[device] - peak
                    self._release_before(a, room, ops, change)

    def _release_before(self, a: int, room: int, ops: list[int], change: _Change) -> None:
        """Ops that must have released before `a` fits into `room`."""
        before, after = self.before[a], self.after[a]
        level = 0
        open_ops: dict[int, list[int]] = {}
        for b in ops:
            if before >> b & 1:
                level += change.acquired[b] - change.released[b]
            elif b != a and not after >> b & 1:
                open_ops.setdefault(self.instance.microbatch[b], []).append(b)
        gain = {microbatch: change.best_release(o) for microbatch, o in open_ops.items()}
        least = level - sum(gain.values())
        if least > room:
            self.contradiction = True
            return
        free = 0  # ops that may come later, and so may all that follow them
        for b in (b for candidates in open_ops.values() for b in candidates):
            if free >> b & 1 or not change.released[b]:
                continue
            later = self.after[b] | 1 << b
            lost = 0
            for microbatch, candidates in open_ops.items():
                kept = [c for c in candidates if not later >> c & 1]
                if len(kept) < len(candidates):
                    lost += gain[microbatch] - change.best_release(kept)
            if least + lost > room:
                self._add(b, a)
            else:
                free |= later


class _Change:
    """How ops change the memory of one device."""

    MOST_OPS = 14
    """Ops of a microbatch up to which the best release is found exactly."""

    def __init__(self, instance: Instance, device: int, ops: list[int], before: list[int]) -> None:
        self.instance = instance
        self.acquired = {a: _amount(instance, a, device, 0) for a in ops}
        self.released = {a: _amount(instance, a, device, 1) for a in ops}
        self.transient = {a: _amount(instance, a, device, 2) for a in ops}
        self.before = before
        self._known: dict[Hashable, int] = {}

    def best_release(self, ops: list[int]) -> int:
        """Most memory that some of these ops of one microbatch can free together.

        Each op needs those before it: the heaviest closed set. Never less than the truth.
        """
        freed = [self.released[a] - self.acquired[a] for a in ops]
        if len(ops) > self.MOST_OPS:
            return sum(f for f in freed if f > 0)
        key = tuple((self.instance.ops[a][:2], f) for a, f in zip(ops, freed, strict=True))
        if key not in self._known:
            needs = [sum(1 << j for j, b in enumerate(ops) if self.before[a] >> b & 1) for a in ops]
            self._known[key] = _heaviest_closed_set(freed, needs, 0, 0)
        return self._known[key]


def _heaviest_closed_set(weight: list[int], needs: list[int], position: int, chosen: int) -> int:
    """Largest weight of a set with its needs; ops in topological order."""
    if position == len(weight):
        return 0
    best = _heaviest_closed_set(weight, needs, position + 1, chosen)
    if needs[position] & ~chosen == 0:
        taken = _heaviest_closed_set(weight, needs, position + 1, chosen | 1 << position)
        best = max(best, weight[position] + taken)
    return best


def _amount(instance: Instance, a: int, device: int, field: int) -> int:
    """Acquired, released or transient (0, 1, 2) memory of an op on a device."""
    return sum(use[1 + field] for use in instance.memory[a] if use.device == device)


def _bits(numbers: tuple[int, ...]) -> int:
    result = 0
    for number in numbers:
        result |= 1 << number
    return result


def _rows(sets: Sequence[int], ops: Sequence[int], numbers: Numbers) -> npt.NDArray[np.bool_]:
    """Which of `numbers` are in the bit set of each op; one row per op."""
    width = len(sets) // 8 + 1
    packed = b"".join(sets[a].to_bytes(width, "little") for a in ops)
    bits = np.frombuffer(packed, np.uint8).reshape(len(ops), width)
    columns = bits[:, numbers >> 3] >> (numbers & 7).astype(np.uint8)
    return (columns & 1).astype(bool)
