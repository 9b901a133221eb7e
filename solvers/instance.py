"""The graph as arrays: what every part of the search works on.

Times and memory are divided by their greatest common divisor, so that a problem and the same
problem in other units are one instance, and ops are numbered in topological order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import networkx as nx

from schedopt.graph import FIFO
from schedopt.op import MemoryUse, Op, Resource

MAX_HORIZON = 2**40
"""Sum of all times in steps above which times are rounded down to coarser steps."""


@dataclass(frozen=True)
class Instance:
    """Ops 0..n-1 in topological order, with their arcs and uses.

    Attributes
    ----------
    ops, duration, resource, memory
        Per op: the op, its duration in steps, the index of its resource, its `MemoryUse`.
    surcharge, waiver
        Per op: what it takes longer unless it directly follows the op `waiver` on its resource;
        0 and -1 for most. So `duration` is the least it can be.
    resources
        The resources.
    successors, predecessors
        Per op: (other op, lag in steps); the start of the later is at least the end of the
        earlier plus the lag. FIFO arcs are among them.
    within_microbatch
        Per op: the successors that are no FIFO arcs.
    release, delivery
        Per op: no start before `release`; at least `delivery` from its end to the end of all.
    available
        Per device with a capacity: capacity less static memory, in steps.
    step, memory_step
        Unit of the problem per step.
    exact
        False if times had to be rounded down; a bound stays a bound then, and schedules are
        timed again from their order.
    period
        Whether the objective is the period.
    """

    ops: tuple[Op, ...]
    duration: tuple[int, ...]
    surcharge: tuple[int, ...]
    waiver: tuple[int, ...]
    resource: tuple[int, ...]
    memory: tuple[tuple[MemoryUse, ...], ...]
    resources: tuple[Resource, ...]
    successors: tuple[tuple[tuple[int, int], ...], ...]
    predecessors: tuple[tuple[tuple[int, int], ...], ...]
    within_microbatch: tuple[tuple[tuple[int, int], ...], ...]
    release: tuple[int, ...]
    delivery: tuple[int, ...]
    available: Mapping[int, int]
    step: Fraction
    memory_step: Fraction
    exact: bool
    period: bool

    @cached_property
    def ops_of_resource(self) -> tuple[tuple[int, ...], ...]:
        """Ops of each resource, in topological order."""
        result: list[list[int]] = [[] for _ in self.resources]
        for a, r in enumerate(self.resource):
            result[r].append(a)
        return tuple(map(tuple, result))

    @cached_property
    def spans(self) -> dict[str | None, tuple[int, ...]]:
        """Sets of ops whose span is the objective.

        For the period the ops of each device, or of a link; for the makespan all ops, from time
        0 (None).
        """
        if not self.period:
            return {None: tuple(range(len(self.ops)))}
        spans: dict[str | None, list[int]] = {}
        for a, r in enumerate(self.resource):
            spans.setdefault(self.resources[r].span, []).append(a)
        return {span: tuple(ops) for span, ops in spans.items()}

    @cached_property
    def has_choices(self) -> bool:
        """Whether the duration of some op depends on the order."""
        return any(self.surcharge)

    def durations(self, sequences: Sequence[Sequence[int]]) -> Sequence[int]:
        """Duration of each op in given orders, surcharges included."""
        if not self.has_choices:
            return self.duration
        result = [d + more for d, more in zip(self.duration, self.surcharge, strict=True)]
        for sequence in sequences:
            for before, a in pairwise(sequence):
                if self.surcharge[a] and self.waiver[a] == before:
                    result[a] = self.duration[a]
        return result

    def objective(self, starts: Sequence[int], durations: Sequence[int] | None = None) -> int:
        """Value of the objective for given starts, in steps."""
        durations = self.duration if durations is None else durations
        return max(
            (
                max(starts[a] + durations[a] + self.delivery[a] for a in ops)
                - (0 if span is None else min(starts[a] for a in ops))
                for span, ops in self.spans.items()
            ),
            default=0,
        )

    @cached_property
    def ending(self) -> frozenset[int]:
        """Ops that wait for several microbatches, and those that follow them: the end of it all."""
        result: set[int] = set()
        waits: list[set[int]] = [set() for _ in self.ops]
        for a, after in enumerate(self.within_microbatch):
            if len(waits[a]) > 1:
                result.add(a)
            for b, _ in after:
                waits[b].add(self.microbatch[a])
                if a in result:
                    result.add(b)
        return frozenset(result)

    @cached_property
    def microbatch(self) -> tuple[int, ...]:
        """Microbatch of each op."""
        return tuple(op.microbatch for op in self.ops)

    def heads(self) -> list[int]:
        """Earliest start of each op by the arcs alone."""
        head = list(self.release)
        for a, after in enumerate(self.successors):
            end = head[a] + self.duration[a]
            for b, lag in after:
                head[b] = max(head[b], end + lag)
        return head

    def tails(self, *, within_microbatch: bool = False) -> list[int]:
        """Longest time from the end of each op to the end of everything after it."""
        arcs = self.within_microbatch if within_microbatch else self.successors
        tail = list(self.delivery)
        for a in range(len(self.ops) - 1, -1, -1):
            for b, lag in arcs[a]:
                tail[a] = max(tail[a], lag + self.duration[b] + tail[b])
        return tail

    def reversed(self) -> Instance:
        """The instance with time running backwards; op a becomes op n-1-a."""
        last = len(self.ops) - 1

        def turn(
            arcs: Sequence[Sequence[tuple[int, int]]],
        ) -> tuple[tuple[tuple[int, int], ...], ...]:
            return tuple(tuple((last - b, lag) for b, lag in after) for after in reversed(arcs))

        within: list[list[tuple[int, int]]] = [[] for _ in self.ops]
        for a, after in enumerate(self.within_microbatch):
            for b, lag in after:
                within[last - b].append((last - a, lag))
        return replace(
            self,
            ops=self.ops[::-1],
            duration=self.duration[::-1],
            surcharge=self.surcharge[::-1],
            waiver=tuple(last - b if b >= 0 else -1 for b in self.waiver[::-1]),
            resource=self.resource[::-1],
            memory=tuple(
                tuple(MemoryUse(u.device, u.released, u.acquired, u.transient) for u in uses)
                for uses in self.memory[::-1]
            ),
            successors=turn(self.predecessors),
            predecessors=turn(self.successors),
            within_microbatch=tuple(map(tuple, within)),
            release=self.delivery[::-1],
            delivery=self.release[::-1],
        )

    def orders(self, sequences: Sequence[Sequence[int]]) -> dict[Resource, tuple[Op, ...]]:
        """Orders of op numbers per resource as orders of ops."""
        return {
            resource: tuple(self.ops[a] for a in sequence)
            for resource, sequence in zip(self.resources, sequences, strict=True)
        }

    def sequences(self, orders: Mapping[Resource, Sequence[Op]]) -> tuple[tuple[int, ...], ...]:
        """Inverse of `orders`."""
        number = {op: a for a, op in enumerate(self.ops)}
        return tuple(tuple(number[op] for op in orders[resource]) for resource in self.resources)


def build_instance(graph: nx.DiGraph[Op], *, max_horizon: int | None = MAX_HORIZON) -> Instance:
    """Number the ops of a graph and reduce its times and memory to the smallest integers.

    Parameters
    ----------
    graph
        From `schedopt.graph.build_graph`.
    max_horizon
        Round times down to coarser steps if their sum is larger; None never rounds.
    """
    topological: list[Op] = list(nx.topological_sort(graph))
    number = {op: a for a, op in enumerate(topological)}
    nodes = [graph.nodes[op] for op in topological]
    problem = graph.graph["problem"]

    free_after = [number.get(data["free_after"], -1) for data in nodes]
    times = [data["duration"] for data in nodes]
    lags: list[int] = [data["lag"] for _, _, data in graph.edges(data=True)]
    unit = math.gcd(*times, *lags) or 1
    total = (sum(times) + sum(lags)) // unit
    exact = max_horizon is None or total <= max_horizon
    if max_horizon is not None and not exact:
        unit *= -(-total // max_horizon)

    static = graph.graph["static"]
    limits = {d: c - static[d] for d, c in graph.graph["capacity"].items() if c is not None}
    amounts = [amount for data in nodes for use in data["memory"] for amount in use[1:]]
    memory_unit = math.gcd(*amounts) or 1

    resources = sorted({data["resource"] for data in nodes})
    resource_number = {resource: r for r, resource in enumerate(resources)}
    successors: list[list[tuple[int, int]]] = [[] for _ in topological]
    predecessors: list[list[tuple[int, int]]] = [[] for _ in topological]
    within: list[list[tuple[int, int]]] = [[] for _ in topological]
    for source, target, data in graph.edges(data=True):
        a, b, lag = number[source], number[target], data["lag"] // unit
        successors[a].append((b, lag))
        predecessors[b].append((a, lag))
        if data["reason"] != FIFO:
            within[a].append((b, lag))
    return Instance(
        ops=tuple(topological),
        duration=tuple(
            0 if waiver >= 0 else time // unit
            for time, waiver in zip(times, free_after, strict=True)
        ),
        surcharge=tuple(
            time // unit if waiver >= 0 else 0
            for time, waiver in zip(times, free_after, strict=True)
        ),
        waiver=tuple(free_after),
        resource=tuple(resource_number[data["resource"]] for data in nodes),
        memory=tuple(
            tuple(
                MemoryUse(
                    use.device,
                    use.acquired // memory_unit,
                    use.released // memory_unit,
                    use.transient // memory_unit,
                )
                for use in data["memory"]
            )
            for data in nodes
        ),
        resources=tuple(resources),
        successors=tuple(map(tuple, successors)),
        predecessors=tuple(map(tuple, predecessors)),
        within_microbatch=tuple(map(tuple, within)),
        release=(0,) * len(topological),
        delivery=(0,) * len(topological),
        available={d: limit // memory_unit for d, limit in limits.items()},
        step=graph.graph["resolution"] * unit,
        memory_step=graph.graph["memory_resolution"] * memory_unit,
        exact=exact,
        period=problem.objective == "period",
    )
