"""Search of how long each resource may wait: list schedules for the period.

With the period as the objective every device begins when it likes, so no time is lost before
its first op, and idle time later is what makes the difference. A list schedule waits for a better
op or it does not; too patient, and the waiting adds up; too impatient, and W keeps B of other
devices waiting. So every resource gets two numbers: its patience, and how long it may wait in
all, namely as long as its work leaves it within a target. The search tries targets from the
bound on with one patience for all resources, then changes the numbers of single resources.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import product

from schedopt.solvers.capacity import Passage
from schedopt.solvers.instance import Instance
from schedopt.solvers.list_schedule import list_schedule
from schedopt.solvers.ordered import OrderedInstance

PATIENCES = (0.5, 0.75, 0.4, 0.15, 1.0, 0.2, 0.25, 0.3, 0.1, 0.6, 0.9, 0.05, 0.0)
TARGETS = (0.0, 0.25, 0.0625, 0.015625, 0.5, 0.125)
"""Targets between the bound (0) and the best that is known (1)."""
MOST_OF_TARGET = 1.2
SHARE_OF_PATIENCE_MOVES = 0.6
STALE = 3000
"""Schedules without a better one after which the walk ends."""
COST_PER_OP = 2e-5
"""Deterministic time of a list schedule, per op of it."""


class PatienceSearch:
    """Walk over the patience and the target of each resource.

    Parameters
    ----------
    instance, passages
        A feasible instance with the period as objective.
    priority
        Per op; the smallest of the ops that can start goes first.
    bound
        Value of the objective at which to stop, in steps.
    best
        Value of the best schedule that is known, in steps.
    seed
        Of the walk.

    Attributes
    ----------
    schedules
        Schedules that were built.
    deterministic_time
        What they took.
    """

    def __init__(
        self,
        instance: Instance,
        passages: dict[tuple[int, int], Passage],
        priority: Sequence[tuple[int, ...]],
        *,
        bound: int,
        best: int,
        seed: int,
    ) -> None:
        self.instance = instance
        self.passages = passages
        self.priority = priority
        self.bound = bound
        self.best = best
        self.random = random.Random(seed)
        self.work = [sum(instance.duration[a] for a in ops) for ops in instance.ops_of_resource]
        self.schedules = 0
        self.deterministic_time = 0.0

    def run(
        self, *, until: Callable[[], bool], on_better: Callable[[OrderedInstance], object]
    ) -> None:
        """Try schedules until told to stop, the bound is met, or the walk brings nothing more.

        Each better schedule is passed on.
        """
        count, improved = len(self.work), 0
        reached: int | None = None
        patiences, targets = [0.0] * count, [1.0] * count

        def attempt(new_patiences: list[float], new_targets: list[float]) -> None:
            nonlocal reached, patiences, targets, improved
            found = self._schedule(new_patiences, new_targets)
            if reached is None or found.value < reached:
                improved = self.schedules
            if reached is None or found.value <= reached:
                reached, patiences, targets = found.value, new_patiences, new_targets
            if found.value < self.best:
                self.best = found.value
                on_better(found)

        for patience, target in product(PATIENCES, TARGETS):
            if until() or self.best <= self.bound:
                return
            attempt([patience] * count, [target] * count)
        while not until() and self.best > self.bound and self.schedules - improved < STALE:
            attempt(*self._neighbour(patiences, targets))

    def _neighbour(
        self, patiences: list[float], targets: list[float]
    ) -> tuple[list[float], list[float]]:
        patiences, targets = list(patiences), list(targets)
        count, pick = len(self.work), self.random
        for r in pick.sample(range(count), min(count, pick.choice((1, 1, 2, count)))):
            if pick.random() < SHARE_OF_PATIENCE_MOVES:
                patiences[r] = pick.choice(PATIENCES)
            else:
                targets[r] = MOST_OF_TARGET * pick.random()
        return patiences, targets

    def _schedule(self, patiences: list[float], targets: list[float]) -> OrderedInstance:
        may_idle = [
            int(self.bound + target * (self.best - self.bound)) - work
            for target, work in zip(targets, self.work, strict=True)
        ]
        found = list_schedule(
            self.instance, self.passages, self.priority, patience=patiences, may_idle=may_idle
        )
        self.schedules += 1
        self.deterministic_time += COST_PER_OP * len(found.starts)
        return OrderedInstance(self.instance, found.sequences)
