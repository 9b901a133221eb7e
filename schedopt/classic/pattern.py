"""What the classic schedules share: the placement they need, and orders made of a pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps

import networkx as nx

from schedopt.core import completed, core_of, is_core
from schedopt.errors import NotApplicableError
from schedopt.exact import steps
from schedopt.graph import build_graph
from schedopt.op import Op, Resource
from schedopt.placement import named_placement
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.variants import fused

_NEEDS = {
    "linear": "one stage on each device, stage s on device s",
    "interleaved": "equally many stages on each device, stage s on device s mod p",
    "v": "two stages on each device, stages s and 2p - 1 - s on device s",
    "wave": "equally many stages on each device, back and forth: 0..p-1, p-1..0, 0..p-1, ...",
}


def require_placement(problem: Problem, schedule: str, placement: str) -> int:
    """Number of stages per device of a problem with a named placement.

    Raises
    ------
    NotApplicableError
        If the problem has another placement; says what `schedule` needs.
    """
    devices, given = problem.devices, problem.device_of
    chunks, rest = divmod(len(given), devices)
    fixed = {"linear": 1, "v": 2}.get(placement, chunks)
    if rest or chunks != fixed or given != named_placement(placement, devices, chunks):
        name = problem.placement_name
        shown = list(given) if len(given) <= 32 else [*given[:32], "..."]
        raise NotApplicableError(
            f"{schedule} needs the placement {placement!r} ({_NEEDS[placement]}); this problem has "
            f"{f'{name!r}: ' if name else ''}{len(given)} stages on devices "
            f"{', '.join(map(str, shown))}"
        )
    return chunks


def own_kind(graph: nx.DiGraph[Op], op: Op) -> Op | None:
    """An op of a pattern in the kinds of the problem: for a fused stage B is BW, and W nothing."""
    if op in graph:
        return op
    fused = op._replace(kind="BW")
    return fused if op.kind == "B" and fused in graph else None


def schedule_of(problem: Problem, name: str, sequences: Iterable[Iterable[Op]]) -> Schedule:
    """Time the orders of devices 0, 1, ... given as F, B, W for split and for fused stages."""
    graph = build_graph(problem)
    orders = {
        Resource("compute", device): tuple(filter(None, (own_kind(graph, op) for op in ops)))
        for device, ops in enumerate(sequences)
    }
    return Schedule.from_order(graph, orders, name=name)


def whole_step(pattern: Callable[[Problem], Schedule]) -> Callable[[Problem], Schedule]:
    """A pattern of F, B and W for any problem: made for the core, completed for the whole.

    Where recomputation is decided, nothing is recomputed.
    """

    @wraps(pattern)
    def classic(problem: Problem) -> Schedule:
        if is_core(problem):
            return pattern(problem)
        core = core_of(problem)
        schedule = pattern(core)
        graph = build_graph(problem if schedule.problem == core else fused(problem))
        return Schedule.from_order(graph, completed(schedule.orders, graph), name=schedule.name)

    return classic


def best_of(schedules: Iterable[Schedule]) -> Schedule:
    """The first with the least objective; of equal ones that with the least period, makespan."""
    return min(schedules, key=lambda s: (s.objective, s.period, s.makespan))


def memory_of_activations(graph: nx.DiGraph[Op], count: int) -> dict[int, int]:
    """Memory on each device of `count` microbatches (the largest, if unequal), in steps."""
    problem: Problem = graph.graph["problem"]
    step, largest = graph.graph["memory_resolution"], max(problem.factors)
    return {
        device: count
        * sum(steps(problem.stage_data[s].memory["F"] * largest, step) for s in stages)
        for device, stages in enumerate(problem.stages_on)
    }


def one_forward_one_backward(
    forwards: Sequence[Op], backwards: Sequence[Op], warm_up: int
) -> Iterator[Op]:
    """`warm_up` forwards, then forward and backward in turn, then the backwards that are left."""
    yield from forwards[:warm_up]
    for index, backward in enumerate(backwards):
        yield from forwards[warm_up + index : warm_up + index + 1]
        yield backward
