"""What is to be expected of a schedule: of stages that can not be split, with other times."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from schedopt.choices import recomputed_in
from schedopt.graph import build_graph
from schedopt.op import COMPUTE
from schedopt.schedule import Schedule
from schedopt.variants import with_stages


def with_fused_stages(schedule: Schedule, fused: Collection[int]) -> Schedule:
    """The same orders with B of some stages as the whole backward, and nothing left for their W.

    Parameters
    ----------
    schedule
        Has B and W for these stages.
    fused
        Their numbers. With none the schedule is returned as it is.
    """
    if not fused:
        return schedule
    stages = []
    for stage, data in enumerate(schedule.problem.stage_data):
        if stage in fused:
            time, memory = data.durations, data.memory
            data = data._replace(
                durations={**time, "B": time["B"] + time["W"], "W": time["W"] * 0},
                memory={**memory, "B": -memory["F"], "W": memory["W"] * 0},
            )
        stages.append(data)
    changed = with_stages(schedule.problem, stages)
    graph = build_graph(changed, recomputed=recomputed_in(schedule.orders))
    return Schedule.from_order(graph, schedule.orders, name=schedule.name, info=schedule.info)


def any_given(column: list[Any]) -> bool:
    """Whether a list with one value per stage has any."""
    return any(value is not None for value in column)


def timed_with(
    schedule: Schedule,
    durations: Sequence[Mapping[str, float]],
    lag: Callable[[int, int], float],
) -> Schedule:
    """The same orders as early as possible with other times.

    Parameters
    ----------
    schedule
        Has the orders, and the memory.
    durations
        By stage and kind, in us.
    lag
        From device, to device -> us.

    Returns
    -------
    Schedule
        In whole us, its objective the makespan.
    """
    problem = schedule.problem
    devices = range(problem.devices)
    columns = {
        kind: [None if kind not in of else round(of[kind]) for of in durations]
        for kind in ("F", "B", "W", "BW")
    }
    changed = problem.replace(
        stages=problem.stage_count,
        durations={kind: column for kind, column in columns.items() if any_given(column)},
        extras=(),
        links=None,
        end_of_step=None,
        lag=[[0 if d == e else round(lag(d, e)) for e in devices] for d in devices],
        edges=[{"from": e.from_stage, "to": e.to_stage} for e in problem.edges],
        objective="makespan",
        time_unit="us",
    )
    if problem.recompute is not None:
        r = [round(of.get("R", of["F"])) for of in durations]
        changed = changed.replace(recompute={**problem.recompute.model_dump(), "R": r})
    orders = {
        resource: [op for op in ops if op.kind != "OPT"]
        for resource, ops in schedule.orders.items()
        if resource.kind == COMPUTE
    }
    graph = build_graph(changed, recomputed=recomputed_in(orders))
    return Schedule.from_order(graph, orders, name=schedule.name, info=schedule.info)
