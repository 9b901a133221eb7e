"""Optimum of a tiny problem by looking at every order: the yardstick for the solver.

Written from the rules of a problem alone. It shares no code with the graph, the timing, the
memory curves or the checker, and does not use that equal microbatches may stay in order.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise, product
from typing import NamedTuple

from schedopt.exact import exact
from schedopt.problem import Problem

Name = tuple[str, int, int]
"""Kind, stage and microbatch of an op."""
_Entry = tuple[int, int, int, tuple[int, ...], tuple[int, ...]]


class Task(NamedTuple):
    """One op: times in steps; memory in the unit of the problem.

    `needs` holds (index of another task, lag). `taken` is acquired at the start, `change` is
    what the memory of the device has become more once the task has ended. `resource` is what
    runs one task at a time: the device itself, or a number from the number of devices on.
    """

    name: Name
    device: int
    duration: int
    needs: tuple[tuple[int, int], ...]
    taken: Fraction
    change: Fraction
    resource: int


def tasks_of(
    problem: Problem, *, fifo: bool = False, parts: int = 1
) -> tuple[list[Task], Fraction]:
    """All ops of a problem, and the step of their times.

    Parameters
    ----------
    fifo
        Let each op also wait for the start of the same op of the microbatch before it.
    parts
        Further parts into which each step is divided.
    """
    stages, factors = problem.stage_data, problem.factors
    names = [
        (kind, stage, microbatch)
        for microbatch in range(problem.microbatches)
        for stage, data in enumerate(stages)
        for kind in data.durations
    ]
    index = {name: position for position, name in enumerate(names)}
    durations = [stages[s].durations[kind] * factors[i] for kind, s, i in names]
    needs = [_needs(problem, *name) for name in names]
    times = [*durations, *(lag for need in needs for lag in need.values())]
    step = Fraction(1, parts * math.lcm(*(time.denominator for time in times)))
    tasks = []
    for name, duration, need in zip(names, durations, needs, strict=True):
        kind, stage, microbatch = name
        data, factor = stages[stage], factors[microbatch]
        waits = {index[other]: int(lag / step) for other, lag in need.items()}
        before = index.get((kind, stage, microbatch - 1))
        if fifo and before is not None:
            # the start of the one before counts: its duration is taken off again
            waits[before] = -int(durations[before] / step)
        taken = max(data.memory[kind], Fraction(0)) + data.transient[kind]
        tasks.append(
            Task(
                name,
                data.device,
                int(duration / step),
                tuple(waits.items()),
                taken * factor,
                data.memory[kind] * factor,
                data.device,
            )
        )
    return tasks, step


def _needs(problem: Problem, kind: str, stage: int, microbatch: int) -> dict[Name, Fraction]:
    """What an op waits for, with the lag after its end."""
    needs: dict[Name, Fraction] = {}
    backward = [data.backward for data in problem.stage_data]

    def need(other: str, of: int, lag: Fraction) -> None:
        name = (other, of, microbatch)
        needs[name] = max(lag, needs.get(name, lag))

    if kind == "W":
        need("B", stage, Fraction(0))
        return needs
    if kind == "F":
        if stage > 0:
            need("F", stage - 1, problem.lag_between(stage - 1, stage))
    else:
        need("F", stage, Fraction(0))
        if stage < problem.stage_count - 1:
            need(backward[stage + 1], stage + 1, problem.lag_between(stage + 1, stage))
    for edge in problem.edges:
        early, late = edge.from_stage, edge.to_stage
        if kind == "F" and late == stage:
            lag = problem.lag_between(early, late) if edge.lag is None else exact(edge.lag)
            need("F", early, lag)
        if kind != "F" and early == stage:
            lag = problem.lag_between(late, early) if edge.lag is None else exact(edge.lag)
            need(backward[late], late, lag)
    return needs


def brute_force(problem: Problem, *, fifo: bool = False) -> Fraction | None:
    """Least objective of all schedules, exact; None if memory forbids every schedule.

    The period is looked for among all orders one by one, which only the tiniest problems allow.
    """
    if problem.objective == "period":
        return _least_period(problem)
    best = best_order(problem, fifo=fifo)
    return None if best is None else best[0]


# ---------------------------------------------------------------------- makespan


def best_order(problem: Problem, *, fifo: bool = False) -> tuple[Fraction, list[Name]] | None:
    """Least makespan, and all ops in the order of their starts; None if nothing is possible.

    Search over partial schedules, built in the order of start times, the most promising first.

    Some best schedule starts every op as early as its device's order and what it needs allow;
    sorted by start (then topologically), it is met here. A partial schedule is described by the
    set of started ops, the time of the last start (now), the time at which each device is free,
    and the release of each op some of whose needs have started. One that is nowhere later than
    another with the same set replaces it. Memory of a device depends on the set alone.
    """
    tasks, step = tasks_of(problem, fifo=fifo)
    best = least_makespan(problem, tasks)
    return None if best is None else (best[0] * step, best[1])


def least_makespan(problem: Problem, tasks: Sequence[Task]) -> tuple[int, list[Name]] | None:
    """As `best_order`, for any tasks that use the devices of a problem; in steps."""
    count = len(tasks)
    devices = max([problem.devices, *(task.resource + 1 for task in tasks)])
    needed = [sum(1 << other for other, _ in task.needs) for task in tasks]
    followers: list[list[tuple[int, int]]] = [[] for _ in tasks]
    for position, task in enumerate(tasks):
        for other, lag in task.needs:
            followers[other].append((position, lag))
    tail = _tails(tasks, followers)
    everything = (1 << count) - 1

    @cache
    def open_ops(started: int) -> tuple[int, ...]:
        """Ops with a release: not started, and some need has started."""
        return tuple(k for k in range(count) if not started >> k & 1 and needed[k] & started)

    @cache
    def choices(started: int) -> tuple[int, ...]:
        """Ops that can start next: all needs have started and the memory suffices."""
        level = list(problem.static)
        for k, task in enumerate(tasks):
            if started >> k & 1:
                level[task.device] += task.change
        return tuple(
            k
            for k, task in enumerate(tasks)
            if not started >> k & 1
            and needed[k] & started == needed[k]
            and (
                (limit := problem.capacity[task.device]) is None
                or level[task.device] + task.taken <= limit
            )
        )

    @cache
    def work_left(started: int) -> tuple[int, ...]:
        left = [0] * devices
        for k, task in enumerate(tasks):
            if not started >> k & 1:
                left[task.resource] += task.duration
        return tuple(left)

    def bound(started: int, free: Sequence[int], release: dict[int, int]) -> int:
        """No completion ends earlier than this."""
        end = max(time + work for time, work in zip(free, work_left(started), strict=True))
        return max([end, *(time + tail[k] for k, time in release.items())])

    kept: dict[int, list[tuple[int, ...]]] = {}

    def is_new(started: int, times: tuple[int, ...]) -> bool:
        known = kept.setdefault(started, [])
        if any(_nowhere_later(other, times) for other in known):
            return False
        known[:] = [other for other in known if not _nowhere_later(times, other)]
        known.append(times)
        return True

    ties = 0
    start_times = (0,) * (1 + devices)
    queue: list[_Entry] = [(bound(0, start_times[1:], {}), 0, 0, start_times, ())]
    while queue:
        least, _, started, times, path = heapq.heappop(queue)
        if started == everything:
            return least, [tasks[k].name for k in path]
        if started and times not in kept[started]:
            continue  # another one was nowhere later
        now, free = times[0], times[1 : 1 + devices]
        release = dict(zip(open_ops(started), times[1 + devices :], strict=True))
        for k in choices(started):
            task = tasks[k]
            start = max(now, free[task.resource], release.get(k, 0))
            end = start + task.duration
            free_then = [max(time, start) for time in free]
            free_then[task.resource] = end
            release_then = {other: max(time, start) for other, time in release.items()}
            release_then.pop(k, None)
            for other, lag in followers[k]:
                release_then[other] = max(end + lag, release_then.get(other, start))
            then = started | 1 << k
            ordered = (release_then[other] for other in open_ops(then))
            times_then = (start, *free_then, *ordered)
            if is_new(then, times_then):
                ties -= 1  # of equal bounds the newest first: straight down to a schedule
                least = bound(then, free_then, release_then)
                heapq.heappush(queue, (least, ties, then, times_then, (*path, k)))
    return None


def _nowhere_later(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    for a, b in zip(one, other, strict=True):  # noqa: SIM110 (the hot spot: no generator)
        if a > b:
            return False
    return True


def _tails(tasks: Sequence[Task], followers: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    """Least time from the start of each op to the end of everything that waits for it."""

    @cache
    def tail(k: int) -> int:
        after = (lag + tail(other) for other, lag in followers[k])
        return tasks[k].duration + max(after, default=0)

    return [tail(k) for k in range(len(tasks))]


def runs(tasks: Sequence[Task], orders: Sequence[Sequence[int]]) -> bool:
    """Whether every op gets its turn when only the orders are kept."""
    started: set[int] = set()
    waiting = [list(reversed(order)) for order in orders if order]
    moved = True
    while moved:
        moved = False
        for order in waiting:
            while order and all(other in started for other, _ in tasks[order[-1]].needs):
                started.add(order.pop())
                moved = True
    return not any(waiting)


def broken_rules(problem: Problem, orders: Mapping[int, Sequence[Name]]) -> set[str]:
    """Which of "deadlock" and "memory" the orders of the devices break, by definition."""
    tasks, _ = tasks_of(problem)
    index = {task.name: k for k, task in enumerate(tasks)}
    broken = set()
    if not runs(tasks, [[index[name] for name in order] for order in orders.values()]):
        broken.add("deadlock")
    for device, order in orders.items():
        level, capacity = problem.static[device], problem.capacity[device]
        for task in (tasks[index[name]] for name in order):
            if capacity is not None and task.taken and level + task.taken > capacity:
                broken.add("memory")
            level += task.change
    return broken


# ---------------------------------------------------------------------- period


def _least_period(problem: Problem) -> Fraction | None:
    """Least span of a device, looked for in every combination of orders."""
    tasks, step = tasks_of(problem, parts=math.lcm(*range(1, problem.devices + 1)))
    best = least_period(problem, tasks, [[device] for device in range(problem.devices)])
    return None if best is None else best * step


def least_period(
    problem: Problem, tasks: Sequence[Task], spans: Sequence[Sequence[int]]
) -> int | None:
    """Least period of tasks in steps, rounded up; `spans` are resources that count together."""
    resources = range(max(task.resource for task in tasks) + 1)
    orders = [list(_orders_of(problem, tasks, resource)) for resource in resources]
    work = [sum(task.duration for task in tasks if task.resource == r) for r in resources]
    best: int | None = None
    needs = [(other, k, lag) for k, task in enumerate(tasks) for other, lag in task.needs]
    longest = sum(work) + sum(lag for _, _, lag in needs)
    for combination in product(*orders):
        waits = needs + [(a, b, 0) for order in combination for a, b in pairwise(order)]
        limit = longest if best is None else best - 1
        if limit < max(work) or not runs(tasks, combination):
            continue
        together = [[combination[r] for r in span if r in resources] for span in spans]
        while limit >= max(work) and _fits(tasks, waits, together, limit):
            best, limit = limit, limit - 1
    return best


def period_of_orders(problem: Problem, orders: Mapping[int, Sequence[Name]]) -> Fraction:
    """Least period of given orders that can run, by bisection."""
    tasks, step = tasks_of(problem, parts=math.lcm(*range(1, problem.devices + 1)))
    index = {task.name: k for k, task in enumerate(tasks)}
    by_index = [[index[name] for name in order] for order in orders.values()]
    waits = [(other, k, lag) for k, task in enumerate(tasks) for other, lag in task.needs]
    waits += [(a, b, 0) for order in by_index for a, b in pairwise(order)]
    low, high = -1, sum(task.duration for task in tasks) + sum(lag for _, _, lag in waits)
    while high - low > 1:
        middle = (low + high) // 2
        if _fits(tasks, waits, [[order] for order in by_index], middle):
            high = middle
        else:
            low = middle
    return high * step


def _orders_of(problem: Problem, tasks: Sequence[Task], resource: int) -> Iterator[tuple[int, ...]]:
    """Orders of the ops of a resource that its memory allows, each after what it needs there."""
    own = [k for k, task in enumerate(tasks) if task.resource == resource]
    is_device = resource < problem.devices
    capacity = problem.capacity[resource] if is_device else None

    def extend(order: tuple[int, ...], level: Fraction) -> Iterator[tuple[int, ...]]:
        if len(order) == len(own):
            yield order
        for k in own:
            needs = [other for other, _ in tasks[k].needs if tasks[other].resource == resource]
            if k in order or any(other not in order for other in needs):
                continue
            if capacity is None or level + tasks[k].taken <= capacity:
                yield from extend((*order, k), level + tasks[k].change)

    return extend((), problem.static[resource] if is_device else Fraction(0))


def _fits(
    tasks: Sequence[Task],
    waits: Sequence[tuple[int, int, int]],
    spans: Sequence[Sequence[Sequence[int]]],
    period: int,
) -> bool:
    """Whether start times exist with no span above `period` (Bellman and Ford)."""
    distances = [(a, b, tasks[a].duration + lag) for a, b, lag in waits]
    distances += [
        (one[-1], other[0], tasks[one[-1]].duration - period)
        for span in spans
        for one in span
        for other in span
        if one and other
    ]
    start = [0] * len(tasks)
    for _ in range(len(tasks) + 1):
        later = False
        for a, b, distance in distances:
            if start[a] + distance > start[b]:
                start[b] = start[a] + distance
                later = True
        if not later:
            return True
    return False
