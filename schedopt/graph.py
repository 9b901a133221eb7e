"""Problem -> graph of ops. Everything after this sees ops, resources, lags and memory only.

Nodes are `Op`; their attributes:

===========  =================================================================
duration     int, steps of the time resolution
resource     `Resource` that the op occupies, one op at a time
memory       tuple of `MemoryUse`, steps of the memory resolution
free_after   None, or an op on the same resource: directly after it this op takes no time
===========  =================================================================

Edges say "starts after the end of, plus lag"; their attributes:

=========  =================================================================
lag        int, steps of the time resolution
reason     "data" (within a stage), "activation", "gradient" (between stages), "step" (at the
           end of the step), "fifo"
=========  =================================================================

``fifo`` edges are no rule of the problem. They keep equal microbatches in the order of their
index in each (stage, kind), which loses nothing: relabelling the k-th op of each (stage, kind)
as microbatch k keeps every precedence, and devices and memory see only kinds and stages. With
unequal microbatches this holds within each set of equal ones. Where it is decided for each
microbatch whether it is recomputed, they are equal only as wholes: then this edge is there for
one (stage, kind) alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import networkx as nx

from schedopt.connection import Transfer
from schedopt.exact import exact, steps
from schedopt.op import COMPUTE, NETWORK, MemoryUse, Op, Resource
from schedopt.problem import Problem
from schedopt.stage import StageData, item

FIFO = "fifo"

Cell = tuple[int, int]
"""A stage and a microbatch."""


def build_graph(
    problem: Problem,
    *,
    recomputed: Collection[Cell] = (),
    choices_open: bool = False,
    choices_in_order: bool = False,
    index_order: bool = False,
) -> nx.DiGraph[Op]:
    """Build the graph of a problem.

    Parameters
    ----------
    problem
        The problem.
    recomputed
        Which (stage, microbatch) are recomputed, of the stages where that is decided.
    choices_open
        Leave open what is recomputed: there is an R wherever it is decided, which takes no time
        if it directly follows its F. Then it has no effect, and stands for no recomputation.
    choices_in_order
        Also keep microbatches in the order of their index that are unequal by what is recomputed.
    index_order
        Also keep those in order that have unequal lengths. Both are heuristics that make the search
        smaller and can lose the optimum.

    Returns
    -------
    networkx.DiGraph
        Nodes and edges as above. Graph attributes: ``problem``; ``resolution`` and
        ``memory_resolution`` (`fractions.Fraction`, unit of the problem per step);
        ``capacity`` (device -> int or None) and ``static`` (device -> int), in memory steps.
    """
    in_order = choices_in_order or index_order or not problem.decides
    return _Builder(problem, frozenset(recomputed), choices_open, in_order, index_order).graph


def attribute(graph: nx.DiGraph[Op], name: str) -> dict[Op, Any]:
    """One attribute of every op of a graph."""
    return {op: data[name] for op, data in graph.nodes.items()}


class _Row(NamedTuple):
    """One kind of op of a stage for one microbatch: what the nodes of equal ones share."""

    duration: int
    resource: Resource
    memory: tuple[MemoryUse, ...]


class _Builder:
    def __init__(
        self,
        problem: Problem,
        recomputed: frozenset[Cell],
        choices_open: bool,
        in_order: bool,
        index_order: bool,
    ) -> None:
        self.problem = problem
        self.recomputed, self.choices_open = recomputed, choices_open
        self.time_step, self.memory_step = problem.time_resolution, problem.memory_resolution
        memory_step = self.memory_step
        self.graph: nx.DiGraph[Op] = nx.DiGraph(
            problem=problem,
            resolution=self.time_step,
            memory_resolution=memory_step,
            capacity={
                device: None if amount is None else steps(amount, memory_step)
                for device, amount in enumerate(problem.capacity)
            },
            static={d: steps(s, memory_step) for d, s in enumerate(problem.static)},
        )
        self._ops()
        self._transfers()
        self._end_of_step()
        everything = list(range(problem.microbatches))
        alike = [everything]
        if not index_order:
            lengths = sorted(set(problem.factors))
            alike = [[i for i in everything if problem.factors[i] == f] for f in lengths]
        for members in alike:
            self._connect(self._fifo_edges(members, in_order), 0, FIFO)

    def _recomputes(self, stage: int, microbatch: int) -> bool:
        mode = self.problem.recompute_modes[stage]
        if mode != "decide":
            return mode == "always"
        return self.choices_open or (stage, microbatch) in self.recomputed

    def _data(self, stage: int, microbatch: int) -> StageData:
        return self.problem.data_of(stage, recomputed=self._recomputes(stage, microbatch))

    # ------------------------------------------------------------------ nodes

    def _ops(self) -> None:
        problem, rows = self.problem, dict[tuple[Any, ...], _Row]()
        for i, factor in enumerate(problem.factors):
            for stage in range(problem.stage_count):
                recomputes = self._recomputes(stage, i)
                data = problem.data_of(stage, recomputed=recomputes)
                for kind in data.durations:
                    key = (kind, stage, factor, recomputes)
                    if key not in rows:
                        rows[key] = self._row(data, kind, stage, i)
                    free = kind == "R" and problem.recompute_modes[stage] == "decide"
                    forward = Op("F", stage, i)
                    self._add(
                        Op(kind, stage, i),
                        *rows[key],
                        free_after=forward if free and self.choices_open else None,
                    )
                for kind, following in pairwise(data.durations):
                    pair = Op(kind, stage, i), Op(following, stage, i)
                    self.graph.add_edge(*pair, lag=0, reason="data")

    def _row(self, data: StageData, kind: str, stage: int, microbatch: int) -> _Row:
        factor, step = self.problem.factors[microbatch], self.memory_step
        change = steps(data.memory[kind] * factor, step)
        transient = steps(data.transient[kind] * factor, step)
        use = MemoryUse(data.device, max(change, 0), max(-change, 0), transient)
        duration = steps(data.durations[kind] * factor, self.time_step)
        resource = Resource(COMPUTE, data.device)
        return _Row(duration, resource, (use,) if any(use[1:]) else ())

    def _add(
        self,
        op: Op,
        duration: int,
        resource: Resource,
        memory: tuple[MemoryUse, ...] = (),
        *,
        free_after: Op | None = None,
    ) -> None:
        self.graph.add_node(
            op, duration=duration, resource=resource, memory=memory, free_after=free_after
        )

    # ------------------------------------------------------------------ edges

    def _connect(self, pairs: Iterator[tuple[Op, Op]], lag: int, reason: str) -> None:
        for tail, head in pairs:
            if not self.graph.has_edge(tail, head):
                self.graph.add_edge(tail, head, lag=lag, reason=reason)
            elif reason != FIFO and lag > self.graph.edges[tail, head]["lag"]:
                self.graph.edges[tail, head]["lag"] = lag

    def _transfers(self) -> None:
        problem = self.problem
        for source, target, forward, backward in problem.connections:
            last, first = problem.stage_data[target].backward, problem.stage_data[source].backward
            for i in range(problem.microbatches):
                ends = Op("F", source, i), Op("F", target, i)
                self._transfer(*ends, forward, Op("SF", source, i), "activation")
                if first:
                    ends = Op(last, target, i), Op(first, source, i)
                    self._transfer(*ends, backward, Op("SB", source, i), "gradient")

    def _transfer(self, tail: Op, head: Op, transfer: Transfer, send: Op, reason: str) -> None:
        factor = self.problem.factors[tail.microbatch]
        if transfer.resource is not None:
            duration = steps(transfer.duration * factor, self.time_step)
            self._add(send, duration, transfer.resource)
            self.graph.add_edge(tail, send, lag=0, reason=reason)
            tail = send
        lag = steps(transfer.lag(factor), self.time_step)
        self._connect(iter([(tail, head)]), lag, reason)

    def _end_of_step(self) -> None:
        problem, part = self.problem, self.problem.end_of_step
        if part is None:
            return
        complete: dict[int, list[Op]] = {}  # what the optimizer waits for, by stage
        for stage, data in enumerate(problem.stage_data):
            last = [Op(data.last, stage, i) for i in range(problem.microbatches)]
            reduction = steps(exact(item(part.reduction, stage)), self.time_step)
            if reduction:
                reduce = Op("RED", stage, 0)
                self._add(reduce, reduction, Resource(NETWORK, data.device))
                self._connect(((op, reduce) for op in last), 0, "step")
                last = [reduce]
            complete[stage] = last
        for tied in part.tied:
            first = min(tied.stages)
            op = Op("TIE", first, 0)
            duration = steps(exact(tied.duration), self.time_step)
            self._add(op, duration, Resource(NETWORK, problem.device_of[first]))
            for stage in tied.stages:
                self._connect(((before, op) for before in complete[stage]), 0, "step")
            for stage in tied.stages:
                complete[stage] = (
                    [op] if complete[stage][0].kind != "TIE" else [*complete[stage], op]
                )
        for device, stages in enumerate(problem.stages_on):
            if stages:
                op = Op("OPT", stages[0], 0)
                duration = steps(exact(item(part.optimizer, device)), self.time_step)
                self._add(op, duration, Resource(COMPUTE, device))
                for stage in stages:
                    self._connect(((before, op) for before in complete[stage]), 0, "step")

    def _fifo_edges(self, microbatches: list[int], in_order: bool) -> Iterator[tuple[Op, Op]]:
        problem = self.problem
        if not in_order:
            for i, j in pairwise(microbatches):
                yield Op("F", 0, i), Op("F", 0, j)
            return
        for stage in range(problem.stage_count):
            decided = problem.recompute_modes[stage] == "decide"
            for i, j in pairwise(microbatches):
                for kind in self._data(stage, i).durations:
                    if kind != "R" or not decided:
                        yield Op(kind, stage, i), Op(kind, stage, j)
        for connection in problem.connections:
            for kind, transfer in (("SF", connection.forward), ("SB", connection.backward)):
                if transfer.resource is not None and Op(kind, connection.source, 0) in self.graph:
                    for i, j in pairwise(microbatches):
                        yield Op(kind, connection.source, i), Op(kind, connection.source, j)
