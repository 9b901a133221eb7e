"""The stage that solves the core: F, B and W alone, by everything that is known about them.

What it finds is completed to the whole problem (`schedopt.core`). Where recomputation is decided
there is one core for each set of stages that recompute. The first stages hold the most
microbatches, so the sets tried are the first k stages, and k is searched as if the objective had
one valley over it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from schedopt.choices import Orders
from schedopt.core import completed, core_of, decided_graph, stages_that_decide
from schedopt.solvers.solution import Solution
from schedopt.solvers.state import State

SHARE = 0.2
"""Share of what is left of the time that one of several cores may take."""

SolveCore = Callable[[State], Solution]


def by_core(state: State, seconds: float, effort: float | None, *, solve_core: SolveCore) -> str:
    """Solve the core, or those of the best simple choices, for some time or some effort."""
    search = _Cores(state, seconds, effort, solve_core)
    decided = stages_that_decide(state.problem)
    if not decided:
        value = search.value(0, alone=True)
        return "the core does not fit" if math.isinf(value) else f"core completed to {value}"
    best = search.search(len(decided))
    tried = f"{len(search.values)} of {len(decided) + 1} simple choices"
    return f"{tried}; best: {_first(best)} recomputed"


def _first(count: int) -> str:
    if count < 2:
        return "the first stage" if count else "nothing"
    return f"the first {count} stages"


class _Cores:
    def __init__(
        self, state: State, seconds: float, effort: float | None, solve_core: SolveCore
    ) -> None:
        self.state, self.effort, self.solve_core = state, effort, solve_core
        self.until = state.elapsed + seconds
        self.values: dict[int, Fraction | float] = {}

    @property
    def over(self) -> bool:
        state = self.state
        return state.known.closed or state.elapsed >= self.until or self.effort == 0

    def search(self, count: int) -> int:
        """Number of first stages whose recomputation leads to the best; by thirds."""
        low, high = 0, count
        self.value(high)
        self.value(low)
        while high - low > 1 and not self.over:
            third = max(1, (high - low) // 3)
            left, right = low + third, high - third
            if left >= right:
                self.value((low + high) // 2)
                break
            if self.value(left) <= self.value(right):
                high = right
            else:
                low = left
        return min(self.values, key=lambda k: (self.values[k], k))

    def value(self, k: int, *, alone: bool = False) -> Fraction | float:
        """Objective of the whole with the first k of the stages that decide recomputed."""
        if k not in self.values:
            self.values[k] = math.inf if self.over else self._solve(k, 1.0 if alone else SHARE)
        return self.values[k]

    def _solve(self, k: int, share: float) -> Fraction | float:
        state, problem = self.state, self.state.problem
        chosen = stages_that_decide(problem)[:k]
        effort = None if self.effort is None else share * self.effort
        core = State(
            core_of(problem, chosen),
            time_limit=share * (self.until - state.elapsed),
            workers=state.workers,
            seed=state.seed,
            deterministic_limit=effort,
            index_order=state.index_order,
            budget=state.budget,
        )
        solution = self.solve_core(core)
        if self.effort is not None:
            self.effort = max(0.0, self.effort - (effort or 0))
        if solution.schedule is None:
            return math.inf
        orders: Orders = completed(solution.schedule.orders, decided_graph(problem, chosen))
        names = f", {_first(k)} recomputed" if stages_that_decide(problem) else ""
        source = f"core: {solution.objective_source}{names}"
        state.known.accept(orders, source)
        if solution.interrupted:
            raise KeyboardInterrupt
        return state.known.value_of(orders)
