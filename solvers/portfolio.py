"""Constructive schedules to start from: the classic ones, and list schedules by several rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import networkx as nx

from schedopt.choices import Orders
from schedopt.classic import CLASSIC
from schedopt.core import completed, core_of, decided_graph, stages_that_decide
from schedopt.errors import NotApplicableError
from schedopt.graph import build_graph
from schedopt.op import Op, Resource
from schedopt.problem import Problem
from schedopt.solvers.capacity import Passage, shortages, smallest_passages
from schedopt.solvers.instance import Instance, build_instance
from schedopt.solvers.list_schedule import ListSchedule, list_schedule
from schedopt.variants import refine_orders

PATIENCE = (0.0, 0.1, 0.25, 0.5, 1.0)
ROUNDS_OF_JUSTIFICATION = 4
PATIENT_RULE = "nearest to its end"
"""The rule that gains most from patience."""


class Candidate(NamedTuple):
    """A schedule to start from.

    Attributes
    ----------
    name
        What it is.
    build
        Makes its orders; None if it does not apply to this problem.
    classic
        Whether it is a classic schedule. These may exceed a capacity, and are never left out, so
        that the result is never worse than one of them; the others always fit, and are left out
        when time is short.
    """

    name: str
    build: Callable[[], Orders | None]
    classic: bool


def candidates(
    graph: nx.DiGraph[Op], instance: Instance, passages: dict[tuple[int, int], Passage]
) -> Iterator[Candidate]:
    """All members of the portfolio of a problem of F, B and W, cheap and certain ones first."""
    rules = priorities(instance)
    members = [
        Candidate(
            f"list schedule, {rule}, patience {patience:g}",
            partial(_list_orders, instance, passages, priority, patience),
            classic=False,
        )
        for patience in PATIENCE
        for rule, priority in rules.items()
    ]
    yield members[0]
    for name in CLASSIC:
        yield Candidate(name, partial(_classic_orders, graph, name), classic=True)
    yield from members[1:]


def candidates_by_core(problem: Problem) -> Iterator[Candidate]:
    """The portfolio of a problem with more than F, B and W: that of its core, completed.

    Where recomputation is decided, once for no recomputation and once for all of it.
    """
    decided = stages_that_decide(problem)
    for chosen, label in ((frozenset(decided), ", all recomputed"), (frozenset[int](), "")):
        if decided or not label:
            yield from _of_core(problem, chosen, label)
    yield _as_ready(problem, decided)


def _as_ready(problem: Problem, recomputed: Collection[int]) -> Candidate:
    """A list schedule of all ops. It fits whenever the problem does, if all is recomputed."""
    instance = build_instance(decided_graph(problem, recomputed))
    passages = smallest_passages(instance)
    priority = priorities(instance)["nearest to its end"]
    build = partial(_list_orders, instance, passages, priority, PATIENCE[0])
    return Candidate("list schedule of all ops", build, classic=False)


def _of_core(problem: Problem, chosen: Collection[int], label: str) -> Iterator[Candidate]:
    core, graph = core_of(problem, chosen), decided_graph(problem, chosen)
    bare = build_graph(core)
    instance = build_instance(bare)
    passages = smallest_passages(instance)
    fits = not shortages(instance, passages)

    def orders(candidate: Candidate) -> Orders | None:
        found = candidate.build()
        return None if found is None else completed(found, graph)

    for candidate in candidates(bare, instance, passages):
        if candidate.classic or fits:
            name = candidate.name + label
            yield Candidate(name, partial(orders, candidate), candidate.classic)


def _list_orders(
    instance: Instance,
    passages: dict[tuple[int, int], Passage],
    priority: Sequence[tuple[int, ...]],
    patience: float,
) -> Orders:
    found = list_schedule(instance, passages, priority, patience=patience)
    return instance.orders(found.sequences)


def _classic_orders(graph: nx.DiGraph[Op], name: str) -> Orders | None:
    problem: Problem = graph.graph["problem"]
    try:
        schedule = CLASSIC[name](problem)
    except NotApplicableError:
        return None
    return first_in_first_out(refine_orders(schedule, graph), problem)


def priorities(instance: Instance) -> dict[str, list[tuple[int, ...]]]:
    """Rules of priority; of two ready ops the one with the smaller tuple goes first."""
    near_end = instance.tails(within_microbatch=True)
    longest = instance.tails()
    ending = instance.ending
    leaf = [int(all(b in ending for b, _ in after)) for after in instance.within_microbatch]
    ops = range(len(instance.ops))
    return {
        "nearest to its end": [(leaf[a], near_end[a], a) for a in ops],
        "longest path": [(-longest[a], a) for a in ops],
        "longest path, its end last": [(leaf[a], -longest[a], a) for a in ops],
        "farthest from its end": [(leaf[a], -near_end[a], a) for a in ops],
        "ends at once": [(1 - leaf[a], near_end[a], a) for a in ops],
    }


def justified(
    instance: Instance,
    passages: dict[tuple[int, int], Passage],
    starts: Sequence[int],
) -> Iterator[ListSchedule]:
    """Schedules made from another by turns backwards and forwards in time.

    Each turn is a list schedule whose priority is the order of the one before, seen from its
    end (forward-backward improvement; Li and Willis, 1992).
    """
    last = len(instance.ops) - 1
    mirror = instance.reversed()
    turned = {
        key: Passage(passage.peak, tuple(last - a for a in reversed(passage.ops)))
        for key, passage in passages.items()
    }
    for _ in range(ROUNDS_OF_JUSTIFICATION):
        ends = [start + d for start, d in zip(starts, instance.duration, strict=True)]
        backwards = list_schedule(mirror, turned, [(-ends[last - a], a) for a in range(last + 1)])
        ends = [backwards.starts[last - a] + instance.duration[a] for a in range(last + 1)]
        forwards = list_schedule(instance, passages, [(-ends[a], a) for a in range(last + 1)])
        yield forwards
        starts = forwards.starts


def first_in_first_out(orders: Orders, problem: Problem) -> dict[Resource, tuple[Op, ...]]:
    """The same orders with equal microbatches renamed so that each (stage, kind) keeps theirs.

    The k-th op of a stage and kind becomes that of the k-th microbatch among the equal ones.
    """
    factors = problem.factors
    members: dict[object, list[int]] = {}
    for i, factor in enumerate(factors):
        members.setdefault(factor, []).append(i)
    result = {}
    for resource, ops in orders.items():
        seen: dict[object, int] = {}
        renamed = []
        for op in ops:
            factor = factors[op.microbatch]
            key = (op.kind, op.stage, factor)
            position = seen.get(key, 0)
            seen[key] = position + 1
            renamed.append(op._replace(microbatch=members[factor][position]))
        result[resource] = tuple(renamed)
    return result
