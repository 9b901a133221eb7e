"""Start times for given orders: as early as possible, or with the shortest period."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import networkx as nx
import numpy as np

from schedopt.choices import Orders
from schedopt.errors import DeadlockError
from schedopt.graph import FIFO, attribute
from schedopt.op import Op


class _OrderedGraph:
    """The rules of a graph together with the order of each resource, in topological order."""

    def __init__(self, graph: nx.DiGraph[Op], orders: Orders) -> None:
        duration: dict[Op, int] = attribute(graph, "duration")
        next_on_resource: dict[Op, Op] = {}
        for ops in orders.values():
            next_on_resource.update(pairwise(ops))
        waiting = dict.fromkeys(duration, 0)
        self.successors: dict[Op, list[tuple[Op, int]]] = {}
        for op, targets in graph.adjacency():
            length = duration[op]
            after = [
                (target, length + edge["lag"])
                for target, edge in targets.items()
                if edge["reason"] != FIFO
            ]
            if op in next_on_resource:
                after.append((next_on_resource[op], length))
            self.successors[op] = after
            for target, _ in after:
                waiting[target] += 1
        self.duration = duration
        self.order = [op for op, count in waiting.items() if not count]
        for op in self.order:
            for target, _ in self.successors[op]:
                waiting[target] -= 1
                if not waiting[target]:
                    self.order.append(target)
        if len(self.order) != len(duration):
            raise DeadlockError(self._cycle({op for op, count in waiting.items() if count}))

    def _cycle(self, stuck: set[Op]) -> list[Op]:
        blocked: nx.DiGraph[Op] = nx.DiGraph(
            (op, target) for op in stuck for target, _ in self.successors[op] if target in stuck
        )
        return [edge[0] for edge in cast(list[tuple[Op, Op]], nx.find_cycle(blocked))]

    def earliest(self, release: Mapping[Op, int]) -> dict[Op, int]:
        start = dict.fromkeys(self.order, 0) | dict(release)
        for op in self.order:
            begin = start[op]
            for target, distance in self.successors[op]:
                if begin + distance > start[target]:
                    start[target] = begin + distance
        return start


def earliest_starts(graph: nx.DiGraph[Op], orders: Orders) -> dict[Op, int]:
    """Start of each op when every op starts as early as the rules and the orders allow.

    Memory follows from the orders and is not looked at.

    Raises
    ------
    DeadlockError
        If the orders wait for each other in a circle; names the ops.
    """
    return _OrderedGraph(graph, orders).earliest({})


def shortest_period_starts(graph: nx.DiGraph[Op], orders: Orders) -> dict[Op, int]:
    """Start times with the shortest period for given orders.

    The period is the largest span of a device (or an occupied link), from its first start to its
    last end. With L[d][e] the longest path from the first start on device d to the last end on
    e, it is the largest mean of a cycle over L, because every step of a cycle from e back to its
    own first start may take the period once (Karp, 1978). The starts are the earliest for that
    period.

    Raises
    ------
    DeadlockError
        As `earliest_starts`.
    """
    ordered = _OrderedGraph(graph, orders)
    ops_of_span: dict[str, list[Sequence[Op]]] = {}
    for resource, ops in orders.items():
        if ops:
            ops_of_span.setdefault(resource.span, []).append(ops)
    groups = list(ops_of_span.values())
    count = len(groups)
    if count == 0:
        return {}
    # from_first[op][d]: longest path from the first start on device d to the start of op
    unreached = -(2**60)
    from_first = {op: np.full(count, unreached, dtype=object) for op in ordered.order}
    for d, sequences in enumerate(groups):
        for ops in sequences:
            from_first[ops[0]][d] = 0
    for op in ordered.order:
        for target, distance in ordered.successors[op]:
            np.maximum(from_first[target], from_first[op] + distance, out=from_first[target])
    span = np.array(
        [
            np.max([from_first[ops[-1]] + ordered.duration[ops[-1]] for ops in sequences], axis=0)
            for sequences in groups
        ]
    ).T
    period = _largest_cycle_mean(span)
    first = np.zeros(count, dtype=object)
    for _ in range(count):
        first = np.maximum(first, np.max(first[:, None] + span - period, axis=0))
    release = {ops[0]: int(first[d]) for d, sequences in enumerate(groups) for ops in sequences}
    return ordered.earliest(release)


def _largest_cycle_mean(weight: np.ndarray[Any, Any]) -> int:
    """Largest mean weight of a cycle, rounded up (Karp, 1978); all weights are integers."""
    count = len(weight)
    longest = [np.zeros(count, dtype=object)]
    for _ in range(count):
        longest.append(np.max(longest[-1][:, None] + weight, axis=0))
    means = (
        min(-(-(longest[count][v] - longest[k][v]) // (count - k)) for k in range(count))
        for v in range(count)
    )
    return int(max(means))
