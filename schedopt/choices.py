"""What is recomputed where that is decided: choices are orders.

In a graph with open choices (`schedopt.graph.build_graph`) every microbatch of such a stage has an
R. If it directly follows its F it takes no time and stands for no recomputation; anywhere later it
is one. So a choice is a place in an order, and whoever searches orders searches choices as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from schedopt.graph import Cell
from schedopt.op import Op, Resource
from schedopt.problem import Problem

Orders = Mapping[Resource, Sequence[Op]]


def recomputed_in(orders: Orders) -> frozenset[Cell]:
    """The (stage, microbatch) that are recomputed in orders without open choices."""
    return frozenset(
        (op.stage, op.microbatch) for ops in orders.values() for op in ops if op.kind == "R"
    )


def opened(orders: Orders, problem: Problem) -> dict[Resource, tuple[Op, ...]]:
    """Orders as the graph with open choices has them: R after each F that has none."""
    if not problem.decides:
        return {resource: tuple(ops) for resource, ops in orders.items()}
    recomputed = recomputed_in(orders)

    def with_r(ops: Sequence[Op]) -> Iterator[Op]:
        for op in ops:
            yield op
            decided = op.kind == "F" and problem.recompute_modes[op.stage] == "decide"
            if decided and (op.stage, op.microbatch) not in recomputed:
                yield op._replace(kind="R")

    return {resource: tuple(with_r(ops)) for resource, ops in orders.items()}


def closed(orders: Orders, problem: Problem) -> dict[Resource, tuple[Op, ...]]:
    """Inverse of `opened`: an R that directly follows its F is left out where it is decided."""

    def without(ops: Sequence[Op]) -> tuple[Op, ...]:
        idle = {
            after
            for before, after in pairwise(ops)
            if after == before._replace(kind="R")
            and before.kind == "F"
            and problem.recompute_modes[after.stage] == "decide"
        }
        return tuple(op for op in ops if op not in idle)

    return {resource: without(ops) for resource, ops in orders.items()}
