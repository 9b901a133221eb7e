"""The search: keeps the best schedule and the best bound, and runs the stages in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version

from schedopt.cache import Cache, Entry
from schedopt.cache.entry import keeps_order
from schedopt.core import is_core
from schedopt.exact import text
from schedopt.problem import Problem
from schedopt.solvers.by_core import by_core
from schedopt.solvers.capacity import Shortage, shortages
from schedopt.solvers.constructive import build, patience, periodic, portfolio
from schedopt.solvers.fewer import fewer_microbatches
from schedopt.solvers.instance import Instance
from schedopt.solvers.portfolio import candidates, candidates_by_core
from schedopt.solvers.proving import any_order, closed_forms, order_model, relaxations
from schedopt.solvers.solution import (
    Solution,
    StageRecord,
    Status,
)
from schedopt.solvers.state import State
from schedopt.solvers.windows import Windows

CACHED = "cache: "
"""Precedes the source of what an earlier solve has found."""
MAX_PAIRS = 1_500_000
"""Pairs of ops on one resource above which the order model is not even measured."""
SMALL = 1_000
"""Ops up to which the complete model gets most of the time."""
LARGE = 20_000
"""Ops above which schedules of fewer microbatches come first."""

Turn = tuple[str, float]
"""A stage, and its share of the time that is left."""


class Search:
    """Runs the stages of one solve in turn.

    Parameters
    ----------
    state
        The problem and its limits.
    cache
        What earlier solves have found, or None.
    """

    def __init__(self, state: State, *, cache: Cache | None) -> None:
        self.state = state
        self.known = state.known
        self.cache = cache
        self.records: list[StageRecord] = []
        self.windows = Windows(state)
        self._effort_left = state.deterministic_limit

    def stage(self, name: str, run: Callable[[], str]) -> None:
        """Run one stage of the search and record what it contributed."""
        began = self.state.elapsed
        detail = "interrupted"
        try:
            detail = run()
        except MemoryError:
            detail = "not enough memory; skipped"
        finally:
            objective = self.known.best.objective if self.known.best else None
            self.records.append(
                StageRecord(name, objective, self.known.bound, self.state.elapsed - began, detail)
            )

    # ------------------------------------------------------------------ stages

    def run(self) -> Solution:
        """Run all stages until the time is over or the best schedule is proven optimal."""
        state = self.state
        interrupted = False
        reasons: tuple[str, ...] = ()
        try:
            reasons = tuple(
                _reason(state.problem, state.instance, short)
                for short in shortages(state.instance, state.passages)
            )
            if not reasons:
                self.stage("bounds", partial(closed_forms, state))
                if self.cache is not None:
                    self.stage("cache", partial(self._recall, self.cache))
                self._start()
                self._improve()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            self.windows.close()
        try:
            self._remember()
        except KeyboardInterrupt:
            interrupted = True
        return self._solution(reasons, interrupted=interrupted)

    def _start(self) -> None:
        """Schedules to start from."""
        state = self.state
        if not self.is_core:
            members = list(candidates_by_core(state.problem))
            self.stage("portfolio", partial(portfolio, state, members))
            return
        members = list(candidates(state.graph, state.instance, state.passages))
        if self.large:
            self.stage("first schedule", partial(build, state, members[:1]))
            self._turn("fewer microbatches", 0.7)
            members = [member for member in members if member.name not in state.covered]
        if state.instance.period:  # patience does more than the other list schedules
            certain = [m for m in members[1:] if m.classic]
            self.stage("portfolio", partial(build, state, [*members[:1], *certain]))
            self._turn("patience", 0.4 if len(state.instance.ops) <= SMALL else 0.7)
            members = [m for m in members[1:] if not m.classic]
        self.stage("portfolio", partial(portfolio, state, members))

    def _recall(self, cache: Cache) -> str:
        """The best schedule and the best bound of earlier solves."""
        entry = cache.load(self.state.problem)
        if entry is None:
            return "nothing known"
        in_order = keeps_order(entry.schedule, all_lengths=self.state.index_order)
        if in_order or not self.state.assumes_an_order:
            self.known.accept(entry.schedule.orders, CACHED + entry.objective_source)
        self.known.raise_bound(entry.bound, CACHED + entry.bound_source)
        return f"{entry.status}, found by {entry.objective_source}"

    def _remember(self) -> None:
        """Store what is known; the bound never assumes more than the problem."""
        if self.cache is None or self.known.best is None:
            return
        self.cache.store(
            Entry(
                self.known.best,
                self.known.bound,
                self.known.bound_source.removeprefix(CACHED),
                self.known.best_source.removeprefix(CACHED),
            )
        )

    def _improve(self) -> None:
        for name, share in self._turns():
            self._turn(name, share)

    def _turns(self) -> list[Turn]:
        """How the stages share the time.

        A small model is mostly proven, so it gets most of the time, and a short try first; for
        a large one the windows find more. All start from the best that is known.
        """
        proofs: list[Turn] = [("relaxations", 0.4), ("order model", 0.5)] if self.modelled else []
        if self.state.assumes_an_order:
            proofs = [("order model", 0.4), ("any order", 0.6)] if self.modelled else []
        if not self.is_core:
            first = [("order model", 0.1)] if len(self.state.instance.ops) <= SMALL else []
            return [*first, ("core", 0.5), ("windows", 0.6), *proofs, ("windows", 1.0)]
        if self.state.instance.period:
            first = [("order model", 0.2)] if self.modelled else []
            return [*first, ("windows", 0.6), *proofs, ("windows", 1.0)]
        if len(self.state.instance.ops) <= SMALL:
            first = [("order model", 0.1), ("windows", 0.1), ("order model", 0.6)]
            return [*first, ("windows", 0.5), ("order model", 1.0)]
        first = [] if self.large else [("fewer microbatches", 0.3)]
        return [*first, ("periodic", 0.15), ("windows", 0.6), *proofs, ("windows", 1.0)]

    def _turn(self, name: str, share: float) -> None:
        """Run one stage for a share of the time and of the effort that are left."""
        limit, state = self._effort_left, self.state
        if self.known.settled or not state.time_left or limit == 0:
            return
        if name == "any order" and state.index_order:
            return  # as it was asked for
        if name != "any order" and state.order_proven:
            return  # it only finds what the order allows
        runs: dict[str, Callable[[float, float | None], str]] = {
            "patience": partial(patience, state),
            "fewer microbatches": partial(fewer_microbatches, state),
            "periodic": partial(periodic, state),
            "core": partial(by_core, state, solve_core=_solve_core),
            "windows": self.windows.run,
            "relaxations": partial(relaxations, state),
            "order model": partial(order_model, state),
            "any order": partial(any_order, state),
        }
        effort = None if limit is None else limit * share
        self.stage(name, partial(runs[name], state.time_left * share, effort))
        self._effort_left = None if limit is None else limit - (effort or 0)

    @property
    def is_core(self) -> bool:
        """Whether there is nothing but F, B and W."""
        return is_core(self.state.problem)

    @property
    def modelled(self) -> bool:
        """Whether the complete model may be small enough to be built."""
        return self.state.open_pairs <= MAX_PAIRS

    @property
    def large(self) -> bool:
        """Whether schedules of fewer microbatches come first."""
        return len(self.state.instance.ops) > LARGE

    def _solution(self, reasons: Sequence[str], *, interrupted: bool) -> Solution:
        status: Status = "feasible"
        if reasons:
            status = "infeasible"
        elif self.known.best is None:
            status = "unknown"
        elif self.known.closed:
            status = "optimal"
        solution = Solution(
            problem=self.state.problem,
            schedule=self.known.best,
            status=status,
            objective=None if self.known.best is None else self.known.best.objective,
            bound=self.known.bound,
            bound_source=self.known.bound_source,
            objective_source=self.known.best_source,
            stages=tuple(self.records),
            history=tuple(self.known.history),
            reasons=tuple(reasons),
            faults=tuple(self.known.faults),
            interrupted=interrupted,
            resolution_note=self._resolution_note(),
            seed=self.state.seed,
            workers=self.state.workers,
            time_limit=None if math.isinf(self.state.time_limit) else self.state.time_limit,
            deterministic_limit=self.state.deterministic_limit,
            seconds=self.state.elapsed,
            versions=versions(),
            memory_limit=self.state.budget.limit,
            peak_resident=self.state.budget.peak,
        )
        if self.known.best is None:
            return solution
        named = replace(self.known.best, name="solved", info=solution.summary())
        return replace(solution, schedule=named)

    def _resolution_note(self) -> str:
        instance = self.state.instance
        if instance.exact:
            return "exact"
        unit = self.state.problem.time_unit
        return (
            f"searched in steps of {text(instance.step)} {unit}, times rounded down; the schedule "
            "is timed with the exact numbers and the bound holds for them"
        )


def _solve_core(state: State) -> Solution:
    return Search(state, cache=None).run()


def versions() -> Mapping[str, str]:
    """Versions of what a result depends on."""
    return {name: version(name) for name in ("schedopt", "ortools")}


def _reason(problem: Problem, instance: Instance, short: Shortage) -> str:
    step, unit = instance.memory_step, problem.memory_unit
    static = problem.static[short.device]
    capacity = problem.capacity[short.device]
    microbatch = "" if len(set(problem.factors)) == 1 else f" (microbatch {short.microbatch})"
    needed = short.needed * step
    return (
        f"device {short.device} needs {text(static + needed)} {unit} "
        f"({text(static)} static + {text(needed)} for one microbatch{microbatch}), "
        f"its capacity is {text(capacity or 0)}"
    )
