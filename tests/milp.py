"""The problem as mixed-integer linear programs for HiGHS: a second exact method.

It shares the reading of a problem with `tests.brute_force` and nothing with the package. Orders
of ops are Booleans with large constants, memory is the prefix sums of the order of a device, and
equal microbatches may overtake each other.

The order of the ops of a device must be one that can run, also where ops take no time: each op
has a rank, and what comes before has a smaller one (Miller, Tucker and Zemlin, 1960). Of equal
microbatches only the names are interchangeable, so their first ops are put into one order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import highspy

from schedopt.problem import Problem
from tests.brute_force import Task, tasks_of

TOLERANCE = 1e-5
"""By how much a value that is whole may differ from a whole number."""


def milp_optimum(problem: Problem) -> Fraction | None:
    """Least objective of all schedules, exact; None if memory forbids every schedule."""
    period = problem.objective == "period"
    parts = math.lcm(*range(1, problem.devices + 1)) if period else 1
    tasks, step = tasks_of(problem, parts=parts)
    value = _Program(problem, tasks).solve()
    return None if value is None else value * step


class _Program:
    def __init__(self, problem: Problem, tasks: Sequence[Task]) -> None:
        self.problem, self.tasks = problem, tasks
        self.model = _silent()
        self.horizon = _one_by_one(tasks)
        head, tail = _heads_and_tails(tasks)
        self.earliest = head
        self.latest = [self.horizon - tail[k] for k in range(len(tasks))]
        self.start = [
            self.model.addVariable(self.earliest[k], self.latest[k]) for k in range(len(tasks))
        ]
        self.after = _followers(tasks)
        self.rank = [self.model.addVariable(0, len(tasks) - 1) for _ in tasks]
        self.before: dict[tuple[int, int], Any] = {}
        """1 if the first op comes before the second one on their device."""

    def solve(self) -> int | None:
        for k, task in enumerate(self.tasks):
            for other, lag in task.needs:
                end = self.start[other] + self.tasks[other].duration
                self.model.addConstr(self.start[k] >= end + lag)
                self.model.addConstr(self.rank[k] >= self.rank[other] + 1)
        for device in range(self.problem.devices):
            own = [k for k, task in enumerate(self.tasks) if task.device == device]
            self._orders(own)
            self._memory(device, own)
        self._names()
        objective = self.model.addVariable(0, self.horizon)
        self._objective(objective)
        return _whole_minimum(self.model, objective)

    def _orders(self, own: Sequence[int]) -> None:
        count = len(self.tasks)
        for a, b in combinations(own, 2):
            literal = self.model.addIntegral(int(b in self.after[a]), int(a not in self.after[b]))
            self.before[a, b], self.before[b, a] = literal, 1 - literal
            for x, y in ((a, b), (b, a)):
                after = 1 - self.before[x, y]
                end = self.start[x] + self.tasks[x].duration
                most = max(0, self.latest[x] + self.tasks[x].duration - self.earliest[y])
                self.model.addConstr(self.start[y] >= end - most * after)
                self.model.addConstr(self.rank[y] >= self.rank[x] + 1 - count * after)

    def _memory(self, device: int, own: Sequence[int]) -> None:
        capacity = self.problem.capacity[device]
        if capacity is None:
            return
        amounts = [self.tasks[k].change for k in own] + [self.tasks[k].taken for k in own]
        room = capacity - self.problem.static[device]
        scale = math.lcm(room.denominator, *(amount.denominator for amount in amounts))
        for a in own:
            held = sum(int(self.tasks[b].change * scale) * self.before[b, a] for b in own if b != a)
            self.model.addConstr(held + int(self.tasks[a].taken * scale) <= int(room * scale))

    def _names(self) -> None:
        """Equal microbatches are named in the order in which they begin."""
        factors = self.problem.factors
        first = {task.name[2]: k for k, task in reversed(list(enumerate(self.tasks)))}
        for factor in set(factors):
            equal = [first[i] for i, other in enumerate(factors) if other == factor]
            for a, b in pairwise(equal):
                self.model.addConstr(self.before[a, b] == 1)

    def _objective(self, objective: Any) -> None:
        for device in range(self.problem.devices):
            own = [k for k, task in enumerate(self.tasks) if task.device == device]
            begin: Any = 0
            if self.problem.objective == "period":
                begin = self.model.addVariable(0, self.horizon)
            self.model.addConstr(objective >= sum(self.tasks[k].duration for k in own))
            for k in own:
                self.model.addConstr(begin <= self.start[k])
                self.model.addConstr(objective + begin >= self.start[k] + self.tasks[k].duration)


def shortest_modulo_period(problem: Problem) -> Fraction | None:
    """Least time after which a steady state with one microbatch per period can repeat.

    Of times that are multiples of the greatest common divisor of all times. Microbatches must be
    equal and ops take time. None if memory forbids every steady state.
    """
    tasks, step = tasks_of(problem)
    tasks = tasks[: len(tasks) // problem.microbatches]  # those of the first microbatch
    unit = math.gcd(*(t.duration for t in tasks), *(lag for t in tasks for _, lag in t.needs))
    tasks = [
        task._replace(
            duration=task.duration // unit,
            needs=tuple((other, lag // unit) for other, lag in task.needs),
        )
        for task in tasks
    ]
    work = [0] * problem.devices
    for task in tasks:
        work[task.device] += task.duration
    for period in range(max(work), _one_by_one(tasks) + 1):
        if _repeats(problem, tasks, period):
            return period * unit * step
    return None


def _repeats(problem: Problem, tasks: Sequence[Task], period: int) -> bool:
    """Whether a steady state of this period exists, by a Boolean per op and phase.

    Op k of microbatch i starts at (i + rounds[k]) * period + phase. Memory is that of each
    moment of a period, by how many have started and how many have ended.
    """
    model = _silent()
    most = len(tasks) + _one_by_one(tasks) // period
    rounds = [model.addIntegral(0, most) for _ in tasks]
    at = [[model.addBinary() for _ in range(period)] for _ in tasks]
    model.addConstr(rounds[0] <= 0)  # everything waits for the first op, which may start at 0
    model.addConstr(at[0][0] == 1)
    start = [
        period * rounds[k] + sum(t * begins for t, begins in enumerate(at[k]))
        for k in range(len(tasks))
    ]
    for k, task in enumerate(tasks):
        model.addConstr(sum(at[k]) == 1)
        for other, lag in task.needs:
            model.addConstr(start[k] >= start[other] + tasks[other].duration + lag)
    for device in range(problem.devices):
        own = [k for k, task in enumerate(tasks) if task.device == device]
        for t in range(period if own else 0):
            model.addConstr(
                sum(at[k][t - age] for k in own for age in range(tasks[k].duration)) <= 1
            )
            held = sum(_held(tasks[k], rounds[k], at[k], t) for k in own)
            capacity = problem.capacity[device]
            if capacity is not None:
                model.addConstr(held <= float(capacity - problem.static[device]))
    return _whole_minimum(model, rounds[0]) is not None


def _held(task: Task, rounds: Any, at: Sequence[Any], t: int) -> Any:
    """What the runs of an op hold at a time t of a late period, less what cancels out."""
    acquired, released = float(max(task.change, 0)), float(max(-task.change, 0))
    transient = float(task.taken) - acquired
    period = len(at)
    total = (released - acquired) * rounds
    for phase, begins in enumerate(at):
        started = 1 + (t - phase) // period
        ended = 1 + (t - phase - task.duration) // period
        amount = acquired * started - released * ended + transient * (started - ended)
        total = total + amount * begins
    return total


def _silent() -> highspy.Highs:
    model = highspy.Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("mip_rel_gap", 0.0)):
        model.setOptionValue(option, value)
    return model


def _whole_minimum(model: highspy.Highs, objective: Any) -> int | None:
    """The least value of a variable, which is whole; None if nothing is feasible."""
    model.minimize(objective)
    status = model.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    if status != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"HiGHS ended with {model.modelStatusToString(status)}")
    value = model.val(objective)
    if abs(value - round(value)) > TOLERANCE:
        raise RuntimeError(f"HiGHS found {value}, which is not whole")
    return round(value)


def _one_by_one(tasks: Sequence[Task]) -> int:
    """Time that all ops and lags take one after the other; no best schedule takes longer."""
    return sum(task.duration + sum(lag for _, lag in task.needs) for task in tasks)


def _followers(tasks: Sequence[Task]) -> list[set[int]]:
    """The tasks that need each task, directly or not."""
    after: list[set[int]] = [set() for _ in tasks]
    for _ in tasks:
        for k, task in enumerate(tasks):
            for other, _ in task.needs:
                after[other] |= {k} | after[k]
    return after


def _heads_and_tails(tasks: Sequence[Task]) -> tuple[list[int], list[int]]:
    """Earliest start of each task, and least time from its start to the end of all."""
    head, tail = [0] * len(tasks), [task.duration for task in tasks]
    for _ in tasks:
        for k, task in enumerate(tasks):
            for other, lag in task.needs:
                head[k] = max(head[k], head[other] + tasks[other].duration + lag)
                tail[other] = max(tail[other], tasks[other].duration + lag + tail[k])
    return head, tail
