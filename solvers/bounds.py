"""Lower bounds in closed form. Each needs no search and says where it comes from.

All values are in steps of the instance. For the makespan they count from time 0; for the
period from the first start to the last end of a device.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from schedopt.solvers.frames import UNBOUND, Frame, follow_arcs, frames
from schedopt.solvers.instance import Instance

MOST_HEADS = 100_000
"""Ops times frames above which some frames are left out."""


class Bound(NamedTuple):
    """A proven lower bound of the objective, in steps, and what proves it."""

    value: int
    source: str


def closed_form_bound(instance: Instance) -> Bound:
    """The largest of all bounds in closed form."""
    return max(closed_form_bounds(instance), key=lambda bound: bound.value)


def closed_form_bounds(instance: Instance) -> Iterator[Bound]:
    """All bounds in closed form that apply."""
    yield Bound(0, "nothing to do")
    for resource, ops in enumerate(instance.ops_of_resource):
        name = str(instance.resources[resource])
        yield Bound(sum(instance.duration[a] for a in ops), f"work of {name}")
    chains = _Chains(instance)
    for resource in range(len(instance.resources)):
        yield from chains.fill_and_drain(resource)
    yield from _residence(instance, chains)
    known = list(frames(instance, most=max(2, MOST_HEADS // max(1, len(instance.ops)))))
    for frame in known:
        follow_arcs(instance, frame)
    yield from one_machine(instance, known)


def one_machine(instance: Instance, known: Sequence[Frame]) -> Iterator[Bound]:
    """Longest path, and heads, work and tails of each resource, within each frame.

    For the period this joins two devices: what one does between two ops of another takes its
    time in the span of the other.

    Parameters
    ----------
    instance
        The instance.
    known
        Frames with their heads and tails, by the arcs alone or by more that is known.
    """
    for frame in known:
        seen_from = "" if frame.span is None else f" within the span of {frame.span}"
        ops_of_resource = [
            tuple(a for a in ops if frame.head[a] > UNBOUND and frame.tail[a] > UNBOUND)
            for ops in instance.ops_of_resource
        ]
        longest = max(
            (
                frame.head[a] + instance.duration[a] + frame.tail[a]
                for ops in ops_of_resource
                for a in ops
            ),
            default=0,
        )
        yield Bound(longest, f"longest path{seen_from}")
        for resource, ops in enumerate(ops_of_resource):
            name = str(instance.resources[resource])
            value = _preemptive(instance, ops, frame.head, frame.tail)
            yield Bound(value, f"heads, work and tails of {name}{seen_from}")


def _preemptive(
    instance: Instance, ops: tuple[int, ...], heads: list[int], tails: list[int]
) -> int:
    """One machine with heads and tails, ops may be interrupted (Jackson, 1955)."""
    coming = sorted(ops, key=lambda a: -heads[a])
    ready: list[tuple[int, int]] = []  # (-tail, remaining)
    now = end = 0
    while coming or ready:
        if not ready:
            now = max(now, heads[coming[-1]])
        while coming and heads[coming[-1]] <= now:
            a = coming.pop()
            heapq.heappush(ready, (-tails[a], instance.duration[a]))
        tail, remaining = heapq.heappop(ready)
        until = heads[coming[-1]] if coming else now + remaining
        worked = min(remaining, until - now)
        now += worked
        if worked < remaining:
            heapq.heappush(ready, (tail, remaining - worked))
        end = max(end, now - tail)
    return end


class _Chains:
    """Bounds of resources whose ops form the same chain in each of equal microbatches.

    The first op (F) acquires memory that is held until the second (B), which comes R after the
    start of the first at the earliest, because the microbatch visits other devices in between;
    the rest (W) follows.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.heads = instance.heads()
        self.tails = instance.tails(within_microbatch=True)
        self.members: dict[int, list[int]] = {}  # ops of each microbatch, in topological order
        for a, microbatch in enumerate(instance.microbatch):
            self.members.setdefault(microbatch, []).append(a)

    def chain(self, resource: int) -> list[int] | None:
        """The chain of the first microbatch, if all are equal to it."""
        instance = self.instance
        members: dict[int, list[int]] = {}
        for a in instance.ops_of_resource[resource]:
            members.setdefault(instance.microbatch[a], []).append(a)
        if not members:
            return None

        def signature(ops: list[int]) -> tuple[object, ...]:
            return tuple(
                (instance.ops[a][:2], instance.duration[a], instance.memory[a]) for a in ops
            )

        first, *others = members.values()
        first.sort(key=lambda a: self._distance(first, a))
        order = [instance.ops[a][:2] for a in first]
        for ops in others:
            ops.sort(
                key=lambda a: (
                    order.index(instance.ops[a][:2]) if instance.ops[a][:2] in order else -1
                )
            )
            if signature(ops) != signature(first):
                return None
        if len(first) not in (2, 3):
            return None
        for a, b in pairwise(first):
            if self.distances(a).get(b) is None:
                return None
        if any(
            len(instance.memory[a]) > 1
            or any(u.device != instance.resources[resource].device for u in instance.memory[a])
            for a in first
        ):
            return None
        return first

    def _distance(self, ops: list[int], a: int) -> int:
        return max((self.distances(b).get(a, -1) for b in ops), default=-1)

    def distances(self, a: int) -> dict[int, int]:
        """Longest path within the microbatch from the start of `a` to the start of others."""
        instance = self.instance
        far = {a: 0}
        for b in self.members[instance.microbatch[a]]:
            if b in far:
                for c, lag in instance.within_microbatch[b]:
                    far[c] = max(far.get(c, 0), far[b] + instance.duration[b] + lag)
        return far

    def fill_and_drain(self, resource: int) -> Iterator[Bound]:
        """Idle time before the first B and after the last F of a device with limited memory.

        Fill: until the first B, R after the first F, only F can run, and no more of them than
        fit. Drain: when the last F starts, the memory says how many B and W can be left to do
        until the last microbatch is back. If more microbatches exist than fit, the two do not
        overlap and add up.
        """
        chain = self.chain(resource)
        if chain is None:
            return
        instance = self.instance
        device = instance.resources[resource].device
        limit = instance.available.get(device)
        if limit is None:
            return
        duration = [instance.duration[a] for a in chain]
        first, second = chain[0], chain[1]
        count = len(instance.ops_of_resource[resource]) // len(chain)
        use = [instance.memory[a][0] if instance.memory[a] else None for a in chain]
        acquired = [u.acquired if u else 0 for u in use]
        net = [u.acquired - u.released if u else 0 for u in use]
        transient = [u.transient if u else 0 for u in use]
        if acquired[0] <= 0:
            return
        # F that are done before the first B; what the first F may release at its end is ignored
        held = [net[0], net[0] + net[1]]
        if held[0] <= 0 or held[1] < 0:
            return
        room = limit - max(transient[0] + acquired[0] - held[0], 0)
        most = min(count, max(room // held[0], 0))
        return_time = self.distances(first)[second]
        fill = max(0, return_time - most * duration[0])

        rest = duration[2] if len(chain) == 3 else 0
        if instance.period:
            after = return_time + duration[1] + rest
        else:
            after = duration[0] + self.tails[first]
        drain = None
        for waiting_second in range(1, most + 1):
            spare = room - waiting_second * held[0]
            waiting_rest = count
            if held[1] > 0:
                waiting_rest = min(count, waiting_second + spare // held[1])
            left = duration[0] + waiting_second * duration[1] + waiting_rest * rest
            idle = max(0, after - left)
            drain = idle if drain is None else min(drain, idle)
        if drain is None:
            return
        work = count * sum(duration)
        head = 0 if instance.period else self.heads[first]
        idle = fill + drain if count > most else max(fill, drain)
        yield Bound(head + work + idle, f"fill and drain of {instance.resources[resource]}")


def _residence(instance: Instance, chains: _Chains) -> Iterator[Bound]:
    """Memory times the time it is held, of all microbatches, over the memory of the device.

    What is released by an op was acquired by an op before it and is held at least for the
    longest path between the two.
    """
    heads, tails = instance.heads(), instance.tails()
    area: dict[int, int] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    known: dict[object, dict[int, int]] = {}
    members: dict[int, list[int]] = {}
    for a, uses in enumerate(instance.memory):
        for use in uses:
            if use.acquired or use.transient:
                first[use.device] = min(first.get(use.device, heads[a]), heads[a])
            if use.released or use.transient:
                last[use.device] = min(last.get(use.device, tails[a]), tails[a])
        if uses:
            members.setdefault(instance.microbatch[a], []).append(a)
    for ops in members.values():
        signature = tuple(
            (instance.ops[a][:2], instance.memory[a], instance.duration[a]) for a in ops
        )
        if signature not in known:
            known[signature] = _held_area(instance, chains, ops)
        for device, amount in known[signature].items():
            area[device] = area.get(device, 0) + amount
    for device, limit in instance.available.items():
        if limit > 0 and area.get(device):
            span = -(-area[device] // limit)
            if not instance.period:
                span += first[device] + last[device]
            yield Bound(span, f"memory held over time on device {device}")


def _held_area(instance: Instance, chains: _Chains, ops: list[int]) -> dict[int, int]:
    """Memory times time that one microbatch holds at least on each device."""
    area: dict[int, int] = {}
    open_amounts: dict[int, list[list[int]]] = {}  # device -> [op, amount still held]
    for a in ops:
        for use in instance.memory[a]:
            if use.acquired:
                open_amounts.setdefault(use.device, []).append([a, use.acquired])
    distances = {a: chains.distances(a) for a in ops}
    for b in ops:
        for use in instance.memory[b]:
            left = use.released
            sources = [s for s in open_amounts.get(use.device, []) if b in distances[s[0]]]
            # the same stage first: the latest acquisition before b that still holds something
            for source in sorted(sources, key=lambda s: distances[s[0]][b]):
                amount = min(left, source[1])
                held_for = distances[source[0]][b] + instance.duration[b]
                area[use.device] = area.get(use.device, 0) + amount * held_for
                source[1] -= amount
                left -= amount
            area[use.device] = area.get(use.device, 0) + (use.transient * instance.duration[b])
    return area
