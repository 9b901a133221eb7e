"""Wave: the placement that goes back and forth over the devices several times."""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx

from schedopt.classic.pattern import (
    best_of,
    memory_of_activations,
    require_placement,
    whole_step,
)
from schedopt.classic.squeeze import NOMINAL, STEADY, PatternOp, Squeezing, squeeze
from schedopt.graph import build_graph
from schedopt.op import Op, Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.variants import fused

SQUEEZINGS = (Squeezing(nominal=True), Squeezing(nominal=False))


@whole_step
def wave(problem: Problem) -> Schedule:
    """Wave-like schedule of Hanayo with the memory of p activations; fused backward.

    The published rule: a device that is free runs the earliest microbatch that is ready. It is
    given for p microbatches. More of them start as memory allows, each as early as it can or in
    rounds of p, and "earliest" is meant with the paper's costs (BW = 2F, no transfer) or with
    the real ones, whichever is best.

    Raises
    ------
    NotApplicableError
        If the placement is not a wave.

    References
    ----------
    Liu et al., "Hanayo: Harnessing Wave-like Pipeline Parallelism for Enhanced Large Model
    Training Efficiency", SC 2023.
    """
    require_placement(problem, "Wave", "wave")
    graph = build_graph(fused(problem))
    limit = memory_of_activations(graph, problem.devices)
    patterns = (_pattern(graph, key) for key in (_by_microbatch, _by_round))
    return best_of(
        Schedule.from_order(graph, orders, name="Wave")
        for pattern in patterns
        for orders in squeeze(graph, pattern, limit, SQUEEZINGS)
    )


def _pattern(
    graph: nx.DiGraph[Op], key: Callable[[Problem, Op], tuple[int, int]]
) -> dict[Resource, list[PatternOp]]:
    problem: Problem = graph.graph["problem"]
    pattern: dict[Resource, list[PatternOp]] = {}
    for op in sorted(graph, key=lambda op: key(problem, op)):
        pattern.setdefault(graph.nodes[op]["resource"], []).append(PatternOp(op, STEADY))
    return pattern


def _slot(problem: Problem, op: Op) -> int:
    """Start of an op when its microbatch meets no other."""
    count = problem.stage_count
    if op.kind == "F":
        return op.stage * NOMINAL["F"]
    return count * NOMINAL["F"] + (count - 1 - op.stage) * NOMINAL["BW"]


def _by_microbatch(problem: Problem, op: Op) -> tuple[int, int]:
    return op.microbatch, _slot(problem, op)


def _by_round(problem: Problem, op: Op) -> tuple[int, int]:
    number, index = divmod(op.microbatch, problem.devices)
    start = number * problem.stage_count * (NOMINAL["F"] + NOMINAL["BW"])
    return start + index * NOMINAL["BW"] + _slot(problem, op), op.microbatch
