"""The core of a problem: its F, B and W alone, for whatever makes patterns of these.

A pattern is an order of F, B and W on each device. For a problem with more than that it is made
for the core, in which recomputation is part of the backward, links are lags and the step ends with
the last W. The whole order follows from it: R directly before its backward, the optimizer last,
and the ops on links and networks in the order in which they become ready.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fractions import Fraction
from typing import Any

import networkx as nx

from schedopt.choices import Orders, recomputed_in
from schedopt.exact import plain
from schedopt.graph import build_graph
from schedopt.op import COMPUTE, Op, Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.stage import StageData
from schedopt.timing import earliest_starts
from schedopt.variants import with_stages


def is_core(problem: Problem) -> bool:
    """Whether there is nothing but F, B and W."""
    return (
        problem.links is None
        and problem.end_of_step is None
        and set(problem.recompute_modes) == {"never"}
    )


def stages_that_decide(problem: Problem) -> tuple[int, ...]:
    """Stages of which it is decided what they recompute, in model order."""
    modes = enumerate(problem.recompute_modes)
    return tuple(stage for stage, mode in modes if mode == "decide")


def decided_graph(problem: Problem, recomputed: Collection[int] = ()) -> nx.DiGraph[Op]:
    """Graph of a problem in which some stages recompute every microbatch, and others none."""
    microbatches = range(problem.microbatches)
    return build_graph(problem, recomputed={(s, i) for s in recomputed for i in microbatches})


def core_of(problem: Problem, recomputed: Collection[int] = ()) -> Problem:
    """The problem with F, B and W alone; itself if it has nothing else.

    Parameters
    ----------
    problem
        The problem.
    recomputed
        Stages that are recomputed, of those where that is decided.
    """
    if is_core(problem):
        return problem
    stages = []
    for stage, data in enumerate(problem.stage_data):
        mode = problem.recompute_modes[stage]
        chosen = mode == "always" or (mode == "decide" and stage in recomputed)
        stages.append(_folded(problem.recomputed_stage_data[stage]) if chosen else data)
    bare = with_stages(problem.replace(recompute=None, links=None, end_of_step=None), stages)
    return bare if problem.links is None else bare.replace(**_lags(problem))


def _folded(data: StageData) -> StageData:
    """A stage with R and the backward as one op, which needs the memory of both."""
    durations, memory, transient = map(dict, data[1:])
    kind, none = data.backward, Fraction(0)
    r, change = memory.pop("R"), memory[kind]
    peak = max(r + transient.pop("R"), r + max(change, none) + transient[kind])
    durations[kind] += durations.pop("R")
    memory[kind] = r + change
    transient[kind] = peak - max(r + change, none)
    return StageData(data.device, durations, memory, transient)


def _lags(problem: Problem) -> dict[str, Any]:
    """Lags in the place of links, for microbatches of length factor 1."""
    along: dict[str, list[Any]] = {"forward": [], "backward": []}
    edges = []
    for position, connection in enumerate(problem.connections):
        forward, backward = (
            plain(transfer.latency + transfer.duration)
            for transfer in (connection.forward, connection.backward)
        )
        if problem.chain and position < problem.stage_count - 1:
            along["forward"].append(forward)
            along["backward"].append(backward)
        else:
            lag = max(forward, backward)
            edges.append({"from": connection.source, "to": connection.target, "lag": lag})
    return {"lag": along if problem.chain else 0, "edges": edges}


def completed(orders: Orders, graph: nx.DiGraph[Op]) -> dict[Resource, tuple[Op, ...]]:
    """Orders of every resource of a graph, from those of F, B and W on the devices.

    Parameters
    ----------
    orders
        Orders of the core in the kinds of the graph; R and OPT may be among them.
    graph
        From `schedopt.graph.build_graph`, without open choices.
    """
    resource_of = {op: data["resource"] for op, data in graph.nodes.items()}
    compute: dict[Resource, list[Op]] = {
        resource: [] for resource in set(resource_of.values()) if resource.kind == COMPUTE
    }
    given = {op for ops in orders.values() for op in ops}
    placed: set[Op] = set()
    for resource, ops in orders.items():
        for op in ops:
            r = op._replace(kind="R")
            if op.kind in ("B", "BW") and r in graph and r not in given:
                compute[resource].append(r)
            compute[resource].append(op)
        placed.update(compute[resource])
    rest: dict[Resource, list[Op]] = {}
    for op, resource in resource_of.items():
        if resource.kind != COMPUTE:
            rest.setdefault(resource, []).append(op)
        elif op not in placed:
            compute[resource].append(op)
    result = {resource: tuple(ops) for resource, ops in compute.items()}
    if not rest:
        return result
    starts = earliest_starts(graph, result)
    return result | {resource: _by_readiness(ops, starts) for resource, ops in rest.items()}


def whole(problem: Problem, orders: Orders, *, name: str = "") -> Schedule:
    """A schedule of the whole problem from orders of what its devices compute.

    Raises
    ------
    ScheduleError, DeadlockError
        As `Schedule.from_order`.
    """
    graph = build_graph(problem, recomputed=recomputed_in(orders))
    faults = {resource: [op for op in ops if op not in graph] for resource, ops in orders.items()}
    if any(faults.values()):
        return Schedule.from_order(graph, orders, name=name)  # which says what is wrong
    return Schedule.from_order(graph, completed(orders, graph), name=name)


def without_links(problem: Problem) -> Problem:
    """The problem with lags in the place of links, and with the last W or BW as its end."""
    if problem.links is None and problem.end_of_step is None:
        return problem
    lags = {} if problem.links is None else _lags(problem)
    return problem.replace(**{"links": None, "end_of_step": None, **lags})


def _by_readiness(ops: Iterable[Op], starts: dict[Op, int]) -> tuple[Op, ...]:
    """Ops of a link or a network as they become ready; what follows another one starts later."""
    rank = {op: position for position, op in enumerate(starts)}  # topological order
    return tuple(sorted(ops, key=lambda op: (starts[op], rank[op])))
