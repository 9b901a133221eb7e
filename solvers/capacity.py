"""The capacity test: whether any schedule can fit, decided without search.

In any schedule the ops of one microbatch pass through a device in some order, and what other
microbatches hold there can only add to what this one holds. The order of its ops with the
smallest peak is found exactly; if that does not fit, nothing does. If it fits on every device,
running one microbatch at a time in these orders is feasible.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from schedopt.solvers.instance import Instance


class Shortage(NamedTuple):
    """A device that is too small, in memory steps; static memory is not counted."""

    device: int
    needed: int
    available: int
    microbatch: int


class Passage(NamedTuple):
    """The order of the ops of one microbatch on one device with the smallest peak."""

    peak: int
    ops: tuple[int, ...]


def smallest_passages(instance: Instance) -> dict[tuple[int, int], Passage]:
    """`Passage` of each (microbatch, device) that has ops with memory there."""
    members: dict[int, list[int]] = {}
    for a, microbatch in enumerate(instance.microbatch):
        members.setdefault(microbatch, []).append(a)
    known: dict[Hashable, dict[int, tuple[int, tuple[int, ...]]]] = {}
    result = {}
    for microbatch, ops in members.items():
        signature = tuple((instance.ops[a][:2], instance.memory[a]) for a in ops)
        if signature not in known:
            known[signature] = _passages_by_position(instance, ops)
        for device, (peak, positions) in known[signature].items():
            passage = Passage(peak, tuple(ops[position] for position in positions))
            result[microbatch, device] = passage
    return result


def shortages(instance: Instance, passages: dict[tuple[int, int], Passage]) -> list[Shortage]:
    """Devices on which not even one microbatch at a time fits; empty if feasible."""
    worst = {
        device: Shortage(device, 0, available, 0)
        for device, available in instance.available.items()
    }
    for (microbatch, device), passage in passages.items():
        if device in worst and passage.peak > worst[device].needed:
            worst[device] = Shortage(device, passage.peak, worst[device].available, microbatch)
    return [short for _, short in sorted(worst.items()) if short.needed > short.available]


def _passages_by_position(
    instance: Instance, ops: Sequence[int]
) -> dict[int, tuple[int, tuple[int, ...]]]:
    position_of = {a: position for position, a in enumerate(ops)}
    before = [0] * len(ops)  # bit set of all ops of the microbatch that come earlier
    for position, a in enumerate(ops):
        for b, _ in instance.within_microbatch[a]:
            if b in position_of:
                before[position_of[b]] |= before[position] | 1 << position
    on_device: dict[int, list[int]] = {}
    for position, a in enumerate(ops):
        for device in {use.device for use in instance.memory[a]}:
            on_device.setdefault(device, []).append(position)
    return {
        device: _smallest_peak(instance, ops, positions, before, device)
        for device, positions in on_device.items()
    }


def _smallest_peak(
    instance: Instance,
    ops: Sequence[int],
    positions: Sequence[int],
    before: Sequence[int],
    device: int,
) -> tuple[int, tuple[int, ...]]:
    """Best-first search over the sets of ops that are done, smallest peak first."""
    mine = sum(1 << position for position in positions)
    use = {
        position: next(u for u in instance.memory[ops[position]] if u.device == device)
        for position in positions
    }
    queue: list[tuple[int, int, int, int, tuple[int, ...]]] = [(0, 0, 0, 0, ())]
    seen = set()
    while True:
        peak, _, done, level, order = heapq.heappop(queue)
        if done == mine:
            return peak, order
        if done in seen:
            continue
        seen.add(done)
        for position in positions:
            bit = 1 << position
            if not done & bit and before[position] & mine & ~done == 0:
                held = level + use[position].acquired
                heapq.heappush(
                    queue,
                    (
                        max(peak, held + use[position].transient),
                        -len(order) - 1,
                        done | bit,
                        held - use[position].released,
                        (*order, position),
                    ),
                )
