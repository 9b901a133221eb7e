"""What is to be expected of a schedule: of stages that can not be split, with other times."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from schedopt.exact import plain
from schedopt.graph import build_graph
from schedopt.schedule import Schedule


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
    problem = schedule.problem
    durations: dict[str, list[Any]] = {kind: [] for kind in ("F", "B", "W", "BW")}
    memory: dict[str, list[Any]] = {kind: [] for kind in ("F", "B", "W", "BW")}
    for stage, data in enumerate(problem.stage_data):
        of_time, of_memory = dict(data.durations), dict(data.memory)
        if stage in fused:
            of_time |= {"B": of_time["B"] + of_time["W"], "W": of_time["W"] * 0}
            of_memory |= {"B": -of_memory["F"], "W": of_memory["W"] * 0}
        for kind in durations:
            durations[kind].append(plain(of_time[kind]) if kind in of_time else None)
            memory[kind].append(plain(of_memory[kind]) if kind in of_memory else None)
    changed = problem.replace(
        stages=problem.stage_count,
        durations={kind: column for kind, column in durations.items() if any_given(column)},
        memory={
            **problem.to_dict().get("memory", {}),
            **{kind: column for kind, column in memory.items() if any_given(column)},
        },
    )
    return Schedule.from_order(
        build_graph(changed), schedule.orders, name=schedule.name, info=schedule.info
    )


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
        lag=[[0 if d == e else round(lag(d, e)) for e in devices] for d in devices],
        edges=[{"from": e.from_stage, "to": e.to_stage} for e in problem.edges],
        objective="makespan",
        time_unit="us",
    )
    return Schedule.from_order(
        build_graph(changed), schedule.orders, name=schedule.name, info=schedule.info
    )
