"""What is decided before the search: precedences that the arcs, time and memory force.

Three rules are repeated until nothing new follows:

* arcs: the transitive closure, and heads and tails along it; among the ops of one resource
  that must all come before an op, the work adds up;
* time: if b can not follow a on their resource within the horizon, a follows b;
* memory: if an op that acquires memory can not fit while another op has not released its
  memory, that other op comes first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable

from schedopt.solvers.instance import Instance


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
    head, tail
        Earliest start; least time from the end of the op to the end of the schedule.
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
        self._extra_after: list[list[int]] = [[] for _ in range(count)]
        self._order = list(range(count))
        self._close()
        found = True
        self.deadline = deadline
        while found and not self.contradiction and not self._late():
            found = horizon is not None and self._by_time(horizon)
            found = self._by_memory() or found
            if found:
                self._close()

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
        head = list(instance.release)
        for b in self._order:
            for a, lag in incoming[b]:
                before[b] |= before[a] | 1 << a
                head[b] = max(head[b], head[a] + instance.duration[a] + lag)
            head[b] = max(head[b], self._stacked(before[b] & self.same_resource[b], head))
        outgoing: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        for b, arcs in enumerate(incoming):
            for a, lag in arcs:
                outgoing[a].append((b, lag))
        after = [0] * count
        tail = list(instance.delivery)
        for a in reversed(self._order):
            for b, lag in outgoing[a]:
                after[a] |= after[b] | 1 << b
                tail[a] = max(tail[a], tail[b] + instance.duration[b] + lag)
            tail[a] = max(tail[a], self._stacked(after[a] & self.same_resource[a], tail))
        self.before, self.after, self.head, self.tail = before, after, head, tail
        if self.horizon is not None:
            self.contradiction |= any(
                head[a] + instance.duration[a] + tail[a] > self.horizon for a in range(count)
            )

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

    def _stacked(self, members: int, head: list[int]) -> int:
        """End of the earliest execution one after the other of ops with these heads."""
        end = 0
        for a in sorted(_members(members), key=head.__getitem__):
            end = max(end, head[a]) + self.instance.duration[a]
        return end

    def _add(self, a: int, b: int) -> bool:
        """Let a come before b; tells whether that is new."""
        if self.before[b] >> a & 1:
            return False
        if self.after[b] >> a & 1:
            self.contradiction = True
        self._extra_after[a].append(b)
        self.arcs.append((a, b))
        self.before[b] |= 1 << a  # until the next closure, so that it is added once
        self.after[a] |= 1 << b
        return True

    def _by_time(self, horizon: int) -> bool:
        duration, found = self.instance.duration, False
        for ops in self.instance.ops_of_resource:
            for position, a in enumerate(ops):
                if self._late():
                    return found
                undecided = self.same_resource[a] & ~(self.before[a] | self.after[a])
                for b in ops[position + 1 :]:
                    if not undecided >> b & 1:
                        continue
                    both = duration[a] + duration[b]
                    if self.head[a] + both + self.tail[b] > horizon:
                        found |= self._add(b, a)
                    if self.head[b] + both + self.tail[a] > horizon:
                        found |= self._add(a, b)
        return found

    def _by_memory(self) -> bool:
        found = False
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
                    found |= self._release_before(a, room, ops, change)
        return found

    def _release_before(self, a: int, room: int, ops: list[int], change: _Change) -> bool:
        """Ops that must have released before `a` fits into `room`."""
        before, after, found = self.before[a], self.after[a], False
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
            return False
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
                found |= self._add(b, a)
            else:
                free |= later
        return found


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


def _members(bits: int) -> list[int]:
    result = []
    while bits:
        low = bits & -bits
        result.append(low.bit_length() - 1)
        bits ^= low
    return result
