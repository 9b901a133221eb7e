"""Problem -> graph of ops. Everything after this sees ops, resources, lags and memory only.

Nodes are `Op`; their attributes:

=========  =================================================================
duration   int, steps of the time resolution
resource   `Resource` that the op occupies, one op at a time
memory     tuple of `MemoryUse`, steps of the memory resolution
=========  =================================================================

Edges say "starts after the end of, plus lag"; their attributes:

=========  =================================================================
lag        int, steps of the time resolution
reason     "data" (within a stage), "activation", "gradient" (between stages), "fifo"
=========  =================================================================

``fifo`` edges are no rule of the problem. They keep equal microbatches in the order of their
index in each (stage, kind), which loses nothing: relabelling the k-th op of each (stage, kind)
as microbatch k keeps every precedence, and devices and memory see only kinds and stages. With
unequal microbatches this holds within each set of equal ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

import networkx as nx

from schedopt.exact import Number, exact, steps
from schedopt.op import MemoryUse, Op, Resource
from schedopt.problem import Problem

FIFO = "fifo"


def build_graph(problem: Problem, *, index_order: bool = False) -> nx.DiGraph[Op]:
    """Build the graph of a problem.

    Parameters
    ----------
    problem
        The problem.
    index_order
        Also keep microbatches of unequal length in the order of their index: a heuristic
        that makes the search smaller and can lose the optimum.

    Returns
    -------
    networkx.DiGraph
        Nodes and edges as above. Graph attributes: ``problem``; ``resolution`` and
        ``memory_resolution`` (`fractions.Fraction`, unit of the problem per step);
        ``capacity`` (device -> int or None) and ``static`` (device -> int), in memory steps.
    """
    time_step, memory_step = problem.time_resolution, problem.memory_resolution
    graph: nx.DiGraph[Op] = nx.DiGraph(
        problem=problem,
        resolution=time_step,
        memory_resolution=memory_step,
        capacity={
            d: None if c is None else steps(c, memory_step) for d, c in enumerate(problem.capacity)
        },
        static={d: steps(s, memory_step) for d, s in enumerate(problem.static)},
    )
    for factor in sorted(set(problem.factors)):
        members = [i for i, f in enumerate(problem.factors) if f == factor]
        _add_ops(graph, problem, factor, members)
        if not index_order:
            graph.add_edges_from(_fifo_edges(problem, members), lag=0, reason=FIFO)
    if index_order:
        everything = list(range(problem.microbatches))
        graph.add_edges_from(_fifo_edges(problem, everything), lag=0, reason=FIFO)
    _add_data_edges(graph, problem)
    return graph


def attribute(graph: nx.DiGraph[Op], name: str) -> dict[Op, Any]:
    """One attribute of every op of a graph."""
    return {op: data[name] for op, data in graph.nodes.items()}


def _add_ops(
    graph: nx.DiGraph[Op], problem: Problem, factor: Fraction, microbatches: list[int]
) -> None:
    time_step, memory_step = problem.time_resolution, problem.memory_resolution
    for stage, data in enumerate(problem.stage_data):
        for kind, duration in data.durations.items():
            change = steps(data.memory[kind] * factor, memory_step)
            transient = steps(data.transient[kind] * factor, memory_step)
            use = MemoryUse(data.device, max(change, 0), max(-change, 0), transient)
            graph.add_nodes_from(
                (Op(kind, stage, i) for i in microbatches),
                duration=steps(duration * factor, time_step),
                resource=Resource("compute", data.device),
                memory=(use,) if any(use[1:]) else (),
            )


def _fifo_edges(problem: Problem, microbatches: list[int]) -> Iterator[tuple[Op, Op]]:
    for stage, data in enumerate(problem.stage_data):
        for kind in data.durations:
            for i, j in pairwise(microbatches):
                yield Op(kind, stage, i), Op(kind, stage, j)


def _add_data_edges(graph: nx.DiGraph[Op], problem: Problem) -> None:
    step, microbatches = problem.time_resolution, range(problem.microbatches)
    stages = problem.stage_data

    def connect(source: tuple[str, int], target: tuple[str, int], lag: int, reason: str) -> None:
        for i in microbatches:
            tail, head = Op(*source, i), Op(*target, i)
            if graph.has_edge(tail, head):
                lag = max(lag, graph.edges[tail, head]["lag"])
            graph.add_edge(tail, head, lag=lag, reason=reason)

    for stage, data in enumerate(stages):
        kinds = list(data.durations)
        for kind, following in pairwise(kinds):
            connect((kind, stage), (following, stage), 0, "data")
    links: list[tuple[int, int, Number | None]] = [
        (s, t, None) for s, t in pairwise(range(len(stages)))
    ]
    links += [(e.from_stage, e.to_stage, e.lag) for e in problem.edges]
    for source, target, own_lag in links:
        for s, t, kinds_of, reason in (
            (source, target, ("F", "F"), "activation"),
            (target, source, (stages[target].backward, stages[source].backward), "gradient"),
        ):
            lag = problem.lag_between(s, t) if own_lag is None else exact(own_lag)
            connect((kinds_of[0], s), (kinds_of[1], t), steps(lag, step), reason)
