"""What is known while a solve runs: the best schedule, the best bound, and how they came."""

from __future__ import annotations

import math
import time
from fractions import Fraction

import networkx as nx

from schedopt.check import check
from schedopt.choices import Orders, closed, opened, recomputed_in
from schedopt.errors import DeadlockError, ScheduleError
from schedopt.exact import text
from schedopt.graph import build_graph
from schedopt.op import Op
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.solvers.instance import Instance
from schedopt.solvers.ordered import CircleError, OrderedInstance
from schedopt.solvers.solution import Progress, ProgressCallback, gap


class Incumbent:
    """The best schedule and the best bound of a solve, with their history.

    Nothing gets in unchecked: a schedule is timed with exact numbers and checked, and a bound
    must not contradict a valid schedule. What does not pass is kept as a fault.

    Parameters
    ----------
    graph, instance
        The problem as a graph and as arrays.
    began
        When the solve began, in seconds of `time.monotonic`.
    progress
        Is told everything new.
    """

    def __init__(
        self,
        graph: nx.DiGraph[Op],
        instance: Instance,
        *,
        began: float,
        progress: ProgressCallback | None,
    ) -> None:
        self.graph = graph
        self.instance = instance
        self.began = began
        self.progress = progress
        self.best: Schedule | None = None
        self.best_source = ""
        self.bound = Fraction(0)
        self.bound_source = "nothing"
        self.history: list[Progress] = []
        self.faults: list[str] = []

    @property
    def closed(self) -> bool:
        """Whether the best schedule is proven optimal."""
        return self.best is not None and self.best.objective <= self.bound

    @property
    def settled(self) -> bool:
        """Whether the search can do no more: closed as far as its steps can tell."""
        if self.best is None or self.instance.exact:
            return self.closed
        return self.bound_in_steps() >= self.best_in_steps()

    def tell(
        self, source: str, objective: Fraction | None = None, bound: Fraction | None = None
    ) -> None:
        """Record news that is better than what was known, and pass it on.

        A running model tells values before its schedule is taken over and checked.
        """
        last = self.history[-1] if self.history else None
        if last is not None:
            if objective is None or (last.objective is not None and last.objective < objective):
                objective = last.objective
            if bound is None or (last.bound is not None and last.bound > bound):
                bound = last.bound
            if (objective, bound) == (last.objective, last.bound):
                return
        news = Progress(
            time.monotonic() - self.began, objective, bound, gap(objective, bound), source
        )
        self.history.append(news)
        if self.progress is not None:
            self.progress(news)

    def accept(
        self, orders: Orders, source: str, *, must_fit: bool = True, any_order: bool = False
    ) -> bool:
        """Take orders as the best schedule if they are valid and better; tells whether.

        Choices in the orders may be open or closed (`schedopt.choices`). With `any_order` they need
        not keep the order of the microbatches that the instance has.
        """
        orders = opened(orders, self.graph.graph["problem"])
        try:
            comparable = self.best is not None and not any_order
            if comparable and self.value_of(orders) >= self.known().objective:
                return False
            schedule = self._timed(orders)
        except (DeadlockError, ScheduleError, CircleError) as error:
            self.faults.append(f"{source}: {error}")
            return False
        if self.best is not None and schedule.objective >= self.best.objective:
            return False
        violations = check(schedule)
        if violations:
            if must_fit or any(violation.rule != "memory" for violation in violations):
                self.faults.append(f"{source}: {violations[0]}")
            return False
        if schedule.objective < self.bound:
            self.faults.append(
                f"{self.bound_source}: the bound {text(self.bound)} is above a valid schedule of "
                f"{text(schedule.objective)}; it is not used any more"
            )
            self.bound, self.bound_source = Fraction(0), "nothing"
        self.best, self.best_source = schedule, source
        self.tell(source, objective=schedule.objective)
        return True

    def value_of(self, orders: Orders) -> Fraction:
        """Objective of orders, quickly; rounded down if the instance is."""
        orders = opened(orders, self.graph.graph["problem"])
        ordered = OrderedInstance(self.instance, self.instance.sequences(orders))
        return ordered.value * self.instance.step

    def _timed(self, orders: Orders) -> Schedule:
        problem: Problem = self.graph.graph["problem"]
        if not problem.decides:
            return Schedule.from_order(self.graph, orders)
        decided = closed(orders, problem)
        graph = build_graph(problem, recomputed=recomputed_in(decided))
        return Schedule.from_order(graph, decided)

    def raise_bound(self, value: Fraction, source: str) -> None:
        """Take a proven bound if it is better."""
        if self.best is not None and value > self.best.objective:
            self.faults.append(
                f"{source}: the bound {text(value)} is above a valid schedule of "
                f"{text(self.best.objective)}; it is not used"
            )
            return
        if value > self.bound:
            self.bound, self.bound_source = value, source
            self.tell(source, bound=value)

    def bound_in_steps(self) -> int:
        """The bound in steps of the instance."""
        return math.ceil(self.bound / self.instance.step)

    def best_in_steps(self) -> int:
        """Objective of the best schedule in steps of the instance."""
        return math.floor(self.known().objective / self.instance.step)

    def sequences(self, instance: Instance | None = None) -> tuple[tuple[int, ...], ...]:
        """Orders of the best schedule, by op numbers of the instance or of another one."""
        schedule = self.known()
        orders = opened(schedule.orders, schedule.problem)
        return (instance or self.instance).sequences(orders)

    def starts(self, instance: Instance | None = None) -> list[int]:
        """Starts of the best schedule in steps of the instance, or of another one."""
        schedule = self.known()
        instance = instance or self.instance
        unit = schedule.resolution / instance.step
        times = {t.op: t for timed_ops in schedule.timeline.values() for t in timed_ops}

        def start(op: Op) -> int:
            if op not in times:  # a choice against it: it takes no time after its F
                return times[op._replace(kind="F")].end
            return times[op].start

        return [math.floor(start(op) * unit) for op in instance.ops]

    def known(self) -> Schedule:
        """The best schedule.

        Raises
        ------
        RuntimeError
            If there is none yet.
        """
        if self.best is None:
            raise RuntimeError("no schedule is known yet")
        return self.best
