"""List scheduling: build a schedule in the order of time by a rule of priority.

Memory is never exceeded and the construction never gets stuck: an op that acquires memory
starts only if afterwards the microbatches can still be finished one after the other, each with
the memory that is left (the banker's rule).
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from schedopt.solvers.capacity import Passage
from schedopt.solvers.instance import Instance


@dataclass(frozen=True)
class ListSchedule:
    """Starts of each op, and the order of each resource, by op numbers."""

    starts: tuple[int, ...]
    sequences: tuple[tuple[int, ...], ...]


class _Memory:
    """Levels of the devices, and what the microbatches still need there."""

    def __init__(self, instance: Instance, passages: dict[tuple[int, int], Passage]) -> None:
        self.instance = instance
        self.level = dict.fromkeys(instance.available, 0)
        self.passages = passages
        self.microbatches: dict[int, list[int]] = {}
        for microbatch, device in passages:
            self.microbatches.setdefault(device, []).append(microbatch)
        self.largest = {}
        for device, members in self.microbatches.items():
            members.sort()
            self.largest[device] = max(passages[m, device].peak for m in members)
        self.first = dict.fromkeys(self.microbatches, 0)  # first that is not finished
        self.last = dict.fromkeys(self.microbatches, -1)  # last that has begun
        self.held: dict[tuple[int, int], int] = dict.fromkeys(passages, 0)
        self.done = [False] * len(instance.ops)

    def may_start(self, a: int) -> bool:
        for use in self.instance.memory[a]:
            limit = self.instance.available.get(use.device)
            if limit is None:
                continue
            held = self.level[use.device] + use.acquired
            if held + use.transient > limit:
                return False
            free = limit - held + use.released
            if use.acquired and free < self.largest[use.device]:
                self.done[a] = True
                safe = self._safe(a, use.device, use.acquired - use.released, free)
                self.done[a] = False
                if not safe:
                    return False
        return True

    def _safe(self, a: int, device: int, change: int, free: int) -> bool:
        own = self.instance.microbatch[a]
        members = self.microbatches[device]
        for position in range(self.first[device], len(members)):
            microbatch = members[position]
            if microbatch > own and position > self.last[device]:
                break
            if self._needed(microbatch, device) > free:
                return False
            free += self.held[microbatch, device] + (change if microbatch == own else 0)
            if free >= self.largest[device]:
                return True
        return True

    def _needed(self, microbatch: int, device: int) -> int:
        """Peak of what is left of a microbatch above what it holds."""
        level = peak = 0
        for a in self.passages[microbatch, device].ops:
            if not self.done[a]:
                use = next(u for u in self.instance.memory[a] if u.device == device)
                level += use.acquired
                peak = max(peak, level + use.transient)
                level -= use.released
        return peak

    def start(self, a: int) -> None:
        self.done[a] = True
        microbatch = self.instance.microbatch[a]
        for use in self.instance.memory[a]:
            if use.device in self.level:
                self.level[use.device] += use.acquired + use.transient
            self.held[microbatch, use.device] += use.acquired - use.released
            members = self.microbatches[use.device]
            first, last = self.first[use.device], self.last[use.device]
            while last + 1 < len(members) and members[last + 1] <= microbatch:
                last += 1
            while first < len(members) and all(
                self.done[b] for b in self.passages[members[first], use.device].ops
            ):
                first += 1
            self.first[use.device], self.last[use.device] = first, last

    def end(self, a: int) -> None:
        for use in self.instance.memory[a]:
            if use.device in self.level:
                self.level[use.device] -= use.released + use.transient


def list_schedule(
    instance: Instance,
    passages: dict[tuple[int, int], Passage],
    priority: Sequence[tuple[int, ...]],
    *,
    patience: float | Sequence[float] = 0.0,
    may_idle: Sequence[int] | None = None,
) -> ListSchedule:
    """Build a schedule.

    Parameters
    ----------
    instance, passages
        A feasible instance (`capacity.shortages` is empty).
    priority
        Per op; the smallest of the ops that can start goes first.
    patience
        An op is held back if one of smaller priority becomes ready within this share of its
        duration; one number, or one per resource.
    may_idle
        Steps per resource, from its first op on, after which it holds back no op any more.
    """
    count = len(instance.ops)
    memory = _Memory(instance, passages)
    waiting = [len(before) for before in instance.predecessors]
    earliest = list(instance.release)
    starts = [-1] * count
    sequences: list[list[int]] = [[] for _ in instance.resources]
    ready: list[list[tuple[tuple[int, ...], int]]] = [[] for _ in instance.resources]
    free_at = [0] * len(instance.resources)
    patiences = [patience] * len(free_at) if isinstance(patience, float) else patience
    idle = list(may_idle) if may_idle is not None else None
    resources_of_device: dict[int, set[int]] = {}
    for a in range(count):
        for use in instance.memory[a]:
            resources_of_device.setdefault(use.device, set()).add(instance.resource[a])
    # events at one time: (0, op that ends), (1, resource that may start something), and (2, the
    # same again) once the others have started theirs, if it would start an op nothing waits for
    events: list[tuple[int, int, int]] = []

    def make_ready(a: int) -> None:
        bisect.insort(ready[instance.resource[a]], (priority[a], a))
        heapq.heappush(events, (earliest[a], 1, instance.resource[a]))

    for a in range(count):
        if not waiting[a]:
            make_ready(a)
    while events:
        now, kind, what = heapq.heappop(events)
        if kind == 0:
            memory.end(what)
            for use in instance.memory[what]:
                for r in resources_of_device[use.device]:
                    heapq.heappush(events, (now, 1, r))
            continue
        if free_at[what] > now:
            continue
        begun = bool(sequences[what])
        limit = math.inf if idle is None or not begun else free_at[what] + idle[what]
        chosen = _choose(instance, memory, ready[what], earliest, now, limit, patiences[what])
        if chosen is None:
            continue
        if kind == 1 and patiences[what] and not instance.within_microbatch[chosen]:
            heapq.heappush(events, (now, 2, what))
            continue
        if idle is not None and begun:
            idle[what] -= now - free_at[what]
        del ready[what][bisect.bisect_left(ready[what], (priority[chosen], chosen))]
        memory.start(chosen)
        end = now + instance.duration[chosen]
        starts[chosen] = now
        sequences[what].append(chosen)
        free_at[what] = end
        heapq.heappush(events, (end, 0, chosen))
        heapq.heappush(events, (end, 1, what))
        for b, lag in instance.successors[chosen]:
            earliest[b] = max(earliest[b], end + lag)
            waiting[b] -= 1
            if not waiting[b]:
                make_ready(b)
    return ListSchedule(tuple(starts), tuple(map(tuple, sequences)))


def _choose(
    instance: Instance,
    memory: _Memory,
    ready: Sequence[tuple[tuple[int, ...], int]],
    earliest: Sequence[int],
    now: int,
    limit: float,
    patience: float,
) -> int | None:
    """The op to start now; None to wait for a better one, no longer than until the limit."""
    soonest: int | None = None  # when an op of smaller priority than the chosen becomes ready
    for _, a in ready:
        if earliest[a] > now:
            soonest = earliest[a] if soonest is None else min(soonest, earliest[a])
        elif memory.may_start(a):
            wait_until = min(now + patience * instance.duration[a], limit)
            return None if soonest is not None and soonest < wait_until else a
    return None
