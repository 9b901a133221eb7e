"""Schedules on the V placement with B and W split: ZB-V, V-Half and V-Min.

Each repeats a block, the F and B of one microbatch in slots of equal length, every six slots.
The longer a block keeps a microbatch on a device, the more microbatches are there at a time. The
two slots of six that are left on each device take W. The periodic pattern is then squeezed
(`schedopt.classic.squeeze`) in a few ways, and the best one for the real costs is the result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import networkx as nx

from schedopt.classic.pattern import (
    best_of,
    memory_of_activations,
    own_kind,
    require_placement,
    whole_step,
)
from schedopt.classic.squeeze import (
    DRAIN,
    FILL,
    STEADY,
    PatternOp,
    Squeezing,
    peak_of_pattern,
    squeeze,
)
from schedopt.graph import build_graph
from schedopt.op import Op, Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule

SQUEEZINGS = (
    Squeezing(nominal=True, free=frozenset({FILL, DRAIN}), lazy=frozenset({DRAIN}), reserving=True),
    Squeezing(nominal=True),
    Squeezing(nominal=False, free=frozenset({FILL})),
    Squeezing(nominal=False, free=frozenset({FILL}), balanced=True),
)
"""Ways to squeeze: the first keeps the steady state of the pattern, as the paper does; the second
keeps only its priorities; the others keep the order of F and B and use the real costs."""


class Block(NamedTuple):
    """One microbatch on all devices: its F down and up the devices, then its B down and up.

    Attributes
    ----------
    down, up
        Slots from a device to the next, on the way down and on the way up.
    turns
        Slots from the last op of each way to the first of the next way.
    interval
        Slots from a microbatch to the next.
    """

    down: int
    up: int
    turns: tuple[int, int, int] = (1, 1, 1)
    interval: int = 6

    def slots(self, devices: int) -> list[tuple[int, int, int, int]]:
        """Slots of each device: F and F of its second stage, B of that one and of its first."""
        start = 0
        ways: list[list[int]] = []
        for step, turn in zip((self.down, self.up) * 2, (*self.turns, 0), strict=True):
            way = [start + step * i for i in range(devices)]
            start = way[-1] + turn
            ways.append(way if len(ways) % 2 == 0 else way[::-1])
        return list(zip(*ways, strict=True))


@whole_step
def zb_v(problem: Problem) -> Schedule:
    """ZB-V: no bubble in the steady state, with the memory of p activations.

    Where the problem has a capacity, that is the limit of the memory instead. Below p
    activations the blocks of V-Half or V-Min are used, or one microbatch at a time; if not even
    that fits, so it stays.

    Raises
    ------
    NotApplicableError
        If the placement is not the V.

    References
    ----------
    Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024; the block: Qi et al.,
    "Pipeline Parallelism with Controllable Memory", NeurIPS 2024 (V-ZB).
    """
    p = problem.devices
    blocks = (Block(4, 2), half_block(p), min_block(p), Block(1, 1, (1, 1, 2), 4 * p + 3))
    return _squeezed(problem, "ZB-V", p, blocks, fill_capacity=True)


@whole_step
def v_half(problem: Problem) -> Schedule:
    """V-Half: about half of the memory of 1F1B, floor(p/2) + 1 activations on every device.

    A capacity that is less is kept as far as the block allows.

    Raises
    ------
    NotApplicableError
        If the placement is not the V.

    References
    ----------
    Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024.
    """
    p = problem.devices
    return _squeezed(problem, "V-Half", p // 2 + 1, (half_block(p),))


@whole_step
def v_min(problem: Problem) -> Schedule:
    """V-Min: about a third of the memory of 1F1B, floor((p + 4) / 3) activations on every device.

    A capacity that is less is kept as far as the block allows.

    Raises
    ------
    NotApplicableError
        If the placement is not the V.

    References
    ----------
    Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024.
    """
    p = problem.devices
    return _squeezed(problem, "V-Min", (p + 4) // 3, (min_block(p),))


def half_block(devices: int) -> Block:
    """Block of V-Half; its turns keep all slots apart with the least memory."""
    return Block(2, 1, (1, 1, 2) if devices % 2 else (1, 4, 2))


def min_block(devices: int) -> Block:
    """Block of V-Min; its turns keep all slots apart with the least memory."""
    return Block(1, 1, (1, 1, 1) if devices % 3 else (1, 3, 1))


def _squeezed(
    problem: Problem,
    name: str,
    activations: int,
    blocks: tuple[Block, ...],
    *,
    fill_capacity: bool = False,
) -> Schedule:
    """Squeeze the first block that fits, or else the last one.

    The limit is the memory of `activations`, or the capacity of the device if that is less, or
    in any case if `fill_capacity`.
    """
    require_placement(problem, name, "v")
    graph = build_graph(problem)
    limit = memory_of_activations(graph, activations)
    for device, capacity in graph.graph["capacity"].items():
        if capacity is not None:
            free = capacity - graph.graph["static"][device]
            limit[device] = free if fill_capacity else min(free, limit[device])
    for block in blocks:
        pattern = _pattern(graph, block)
        if all(peak_of_pattern(graph, pattern[r]) <= limit[r.device] for r in pattern):
            break
    return best_of(
        Schedule.from_order(graph, orders, name=name)
        for orders in squeeze(graph, pattern, limit, SQUEEZINGS)
    )


def _pattern(graph: nx.DiGraph[Op], block: Block) -> dict[Resource, list[PatternOp]]:
    problem: Problem = graph.graph["problem"]
    slots = block.slots(problem.devices)
    fill_end = slots[0][3]  # the first device has its first backward of both stages
    drain_start = max(fill_end, block.interval * (problem.microbatches - 1) + 1)
    pattern: dict[Resource, list[PatternOp]] = {}
    for device, row in enumerate(slots):
        pattern[Resource("compute", device)] = [
            PatternOp(op, FILL if slot < fill_end else STEADY if slot < drain_start else DRAIN)
            for slot, planned in _planned(problem, device, row, block.interval)
            if (op := own_kind(graph, planned)) is not None
        ]
    return pattern


def _planned(
    problem: Problem, device: int, row: tuple[int, ...], interval: int
) -> Iterator[tuple[int, Op]]:
    """The ops of a device in their slots, each W in the first slot that is free after its B."""
    first, second = device, 2 * problem.devices - 1 - device
    kinds = (("F", first), ("F", second), ("B", second), ("B", first))
    at = {
        slot + interval * i: Op(kind, stage, i)
        for slot, (kind, stage) in zip(row, kinds, strict=True)
        for i in range(problem.microbatches)
    }
    pending: deque[Op] = deque()
    slot, last = 0, max(at)
    while slot <= last or pending:
        if slot in at:
            yield slot, at[slot]
            if at[slot].kind == "B":
                pending.append(at[slot]._replace(kind="W"))
        elif pending:
            yield slot, pending.popleft()
        slot += 1
