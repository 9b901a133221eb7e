"""Random tiny problems, for hypothesis and from a fixed seed.

They are built from one function that picks whole numbers, so that both ways give the same kind
of problem: any placement, unequal stages and microbatches, fused and split stages, signed and
transient memory, lags of every form, skip connections, capacities that just fit or do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

from hypothesis import strategies as st

from schedopt.graph import build_graph
from schedopt.op import Op, Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from tests.brute_force import Name, best_order, tasks_of

Pick = Callable[[int, int], int]
"""A whole number from the first to the second argument, both included."""

SHAPES: tuple[tuple[int, str | list[int], int], ...] = (
    (1, "linear", 1),
    (2, "linear", 2),
    (3, "linear", 3),
    (3, "linear", 3),
    (1, "v", 2),
    (2, "v", 4),
    (2, "v", 4),
    (2, "interleaved", 4),
    (2, "wave", 4),
    (2, [0, 1, 0], 3),
    (2, [1, 0], 2),
    (3, [0, 2, 0], 3),
    (3, [2, 0, 1], 3),
)
"""Devices, placement, stages."""


def problem_fields(pick: Pick, *, ops: int = 18, most: int = 3) -> dict[str, Any]:
    """Fields of a valid random problem with at most `ops` ops and `most` microbatches.

    There are 12 `ops` or more; 12 times `most` allow all sizes.
    """
    devices, placement, stages = SHAPES[pick(0, len(SHAPES) - 1)]
    most = min(most, ops // (3 * stages))
    microbatches = max(pick(1, most), pick(1, most))
    unit = (1, 1, 1, 2, 10)[pick(0, 4)]
    fused = [pick(0, 3) == 0 for _ in range(stages)]

    def time(low: int, high: int) -> int | float:
        number = pick(low, high)
        return number if unit == 1 else number / unit

    def per_stage(low: int, high: int) -> Any:
        return [time(low, high) for _ in range(stages)] if pick(0, 2) else time(low, high)

    fields: dict[str, Any] = {
        "devices": devices,
        "placement": placement,
        "stages": stages,
        "microbatches": microbatches,
        "durations": _durations(fused, per_stage, time),
        "lag": _lag(pick, devices, stages, time),
    }
    factors = None
    if pick(0, 3) == 0:
        factors = [(1, 2, 0.5)[pick(0, 2)] for _ in range(microbatches)]
        fields["microbatch_factors"] = factors
    edges = [(s, t) for s in range(stages) for t in range(s + 1, stages)]
    if edges and pick(0, 2) == 0:
        count = pick(1, 2)
        fields["edges"] = [
            {"from": s, "to": t} | ({"lag": time(0, 6)} if pick(0, 1) else {})
            for s, t in (edges[pick(0, len(edges) - 1)] for _ in range(count))
        ]
    fields["memory"] = _memory(pick, fused)
    problem = Problem(**fields)
    if pick(0, 4):
        fields["memory"]["capacity"] = [
            max(0, least + pick(-1 if pick(0, 5 * devices) == 0 else 0, 3) / 2)
            for least in _memory_of_one(problem)
        ]
    return fields


def random_problem(pick: Pick, *, ops: int = 18, most: int = 3, **fields: Any) -> Problem:
    """A random problem (see `problem_fields`); `fields` replaces some of its fields."""
    return Problem(**problem_fields(pick, ops=ops, most=most), **fields)


def random_problems(
    count: int, seed: int, *, ops: int = 18, most: int = 3, **fields: Any
) -> Iterator[Problem]:
    """The same `count` problems for the same seed."""
    random = Random(seed)
    for number in range(count):
        name = f"random problem {number} of seed {seed}"
        yield random_problem(random.randint, ops=ops, most=most, name=name, **fields)


def random_orders(problem: Problem, pick: Pick) -> dict[Resource, list[Op]] | None:
    """Orders of a valid schedule, at random where the memory allows; None if it allows none."""
    tasks, _ = tasks_of(problem)
    for _attempt in range(10):
        started: list[int] = []
        level = list(problem.static)
        while True:
            choices = [
                k
                for k, task in enumerate(tasks)
                if k not in started
                and all(other in started for other, _ in task.needs)
                and (
                    (capacity := problem.capacity[task.device]) is None
                    or level[task.device] + task.taken <= capacity
                )
            ]
            if not choices:
                break
            k = choices[pick(0, len(choices) - 1)]
            started.append(k)
            level[tasks[k].device] += tasks[k].change
        if len(started) == len(tasks):
            return orders_of(problem, [tasks[k].name for k in started])
    best = best_order(problem)
    return None if best is None else orders_of(problem, best[1])


def orders_of(problem: Problem, names: Iterable[Name]) -> dict[Resource, list[Op]]:
    """The orders of the devices in one sequence of all ops."""
    orders: dict[Resource, list[Op]] = {
        Resource("compute", device): [] for device, stages in enumerate(problem.stages_on) if stages
    }
    for name in names:
        op = Op(*name)
        orders[Resource("compute", problem.device_of[op.stage])].append(op)
    return orders


def best_schedule(problem: Problem) -> Schedule:
    """A schedule with the least makespan.

    Raises
    ------
    ValueError
        If there is none.
    """
    best = best_order(problem)
    if best is None:
        raise ValueError("the memory allows no schedule")
    return Schedule.from_order(build_graph(problem), orders_of(problem, best[1]))


@st.composite
def problems(draw: st.DrawFn, *, ops: int = 18, **fields: Any) -> Problem:
    """Hypothesis strategy of random problems."""
    return random_problem(lambda low, high: draw(st.integers(low, high)), ops=ops, **fields)


@st.composite
def fields_of_problems(draw: st.DrawFn) -> dict[str, Any]:
    """Hypothesis strategy of the fields of valid problems, as in a file."""
    return problem_fields(lambda low, high: draw(st.integers(low, high)))


def _durations(
    fused: list[bool],
    per_stage: Callable[[int, int], Any],
    time: Callable[[int, int], int | float],
) -> dict[str, Any]:
    durations: dict[str, Any] = {"F": per_stage(0, 4)}
    if all(fused):
        durations["BW"] = per_stage(0, 6)
    elif not any(fused):
        durations |= {"B": per_stage(0, 4), "W": per_stage(0, 4)}
    else:
        durations["B"] = [None if is_fused else time(0, 4) for is_fused in fused]
        durations["W"] = [None if is_fused else time(0, 4) for is_fused in fused]
        durations["BW"] = [time(0, 6) if is_fused else None for is_fused in fused]
    return durations


def _lag(pick: Pick, devices: int, stages: int, time: Callable[[int, int], int | float]) -> Any:
    def one() -> Any:
        form = pick(0, 3)
        if form == 1 and stages > 1:
            return [time(0, 3) for _ in range(stages - 1)]
        if form == 2 and devices > 1:
            return [
                [0 if source == target else time(0, 3) for target in range(devices)]
                for source in range(devices)
            ]
        return time(0, 3)

    return {"forward": one(), "backward": one()} if pick(0, 2) == 0 else one()


def _memory(pick: Pick, fused: list[bool]) -> dict[str, Any]:
    """Amounts in halves; B from the release of everything to an amount of its own."""
    forward = [pick(1, 4) / 2 if pick(0, 5) else 0 for _ in fused]
    backward = [
        None if is_fused else pick(-int(2 * amount), 2) / 2
        for amount, is_fused in zip(forward, fused, strict=True)
    ]
    memory: dict[str, Any] = {"F": forward, "B": backward}
    if pick(0, 2) == 0:
        amounts = {kind: pick(0, 2) / 2 for kind in ("F", "B", "W", "BW")}
        kinds = {"F", *(("BW",) if any(fused) else ()), *(() if all(fused) else ("B", "W"))}
        memory["transient"] = {kind: amounts[kind] for kind in amounts if kind in kinds}
    if pick(0, 2) == 0:
        memory["static"] = pick(0, 3)
    return memory


def _memory_of_one(problem: Problem) -> list[float]:
    """Memory of each device when one microbatch at a time passes through all stages."""
    stages, factor = problem.stage_data, max(problem.factors)
    level = list(problem.static)
    peak = list(problem.static)
    there = [(stage, "F") for stage in stages]
    back = [(stage, kind) for stage in reversed(stages) for kind in stage.durations if kind != "F"]
    for stage, kind in there + back:
        change = stage.memory[kind] * factor
        during = level[stage.device] + max(change, 0) + stage.transient[kind] * factor
        peak[stage.device] = max(peak[stage.device], during)
        level[stage.device] += change
    return [float(amount) for amount in peak]
