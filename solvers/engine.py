"""The search: keeps the best schedule and the best bound, and runs the stages in turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version

from schedopt.cache import Cache, Entry
from schedopt.exact import text
from schedopt.graph import build_graph
from schedopt.problem import Problem
from schedopt.solvers.bounds import closed_form_bound, one_machine
from schedopt.solvers.capacity import Shortage, shortages, smallest_passages
from schedopt.solvers.incumbent import Incumbent
from schedopt.solvers.instance import Instance, build_instance
from schedopt.solvers.neighbourhood import WindowSearch
from schedopt.solvers.order_model import OrderModel, Outcome
from schedopt.solvers.periodic import PeriodicModel, shortest_periods, unrolled
from schedopt.solvers.portfolio import candidates, justified
from schedopt.solvers.relaxation import relaxed
from schedopt.solvers.resident import Budget, peak_resident, size_text
from schedopt.solvers.solution import (
    ProgressCallback,
    Solution,
    StageRecord,
    Status,
)
from schedopt.solvers.team import Team, TeamError

CACHED = "cache: "
"""Precedes the source of what an earlier solve has found."""
MAX_BOOLEANS = 150_000
"""Order Booleans above which the complete model is not built."""
MAX_PAIRS = 1_500_000
"""Pairs of ops on one resource above which it is not even measured."""
SMALL = 1_000
"""Ops up to which the complete model gets most of the time."""
SECONDS_TO_MEETING = 3.0
"""Seconds after which the processes of the window search exchange their best."""


class Search:
    """One solve: its limits, its best schedule and bound, and what was learnt on the way."""

    def __init__(
        self,
        problem: Problem,
        *,
        time_limit: float,
        workers: int,
        seed: int,
        deterministic_limit: float | None,
        index_order: bool,
        progress: ProgressCallback | None,
        cache: Cache | None,
        memory_limit: int | None = None,
    ) -> None:
        self.problem = problem
        self.cache = cache
        self.time_limit = time_limit
        self.workers = workers
        self.seed = seed
        self.deterministic_limit = deterministic_limit
        self.index_order = index_order
        self.began = time.monotonic()
        self.graph = build_graph(problem, index_order=index_order)
        self.instance = build_instance(self.graph)
        self.budget = Budget(memory_limit, workers=workers, ops=len(self.instance.ops))
        self.peak_resident: int | None = None
        self.passages = smallest_passages(self.instance)
        self.known = Incumbent(self.graph, self.instance, began=self.began, progress=progress)
        self.records: list[StageRecord] = []
        self.search: WindowSearch | None = None
        self.team: Team | None = None

    # ------------------------------------------------------------------ state

    @property
    def elapsed(self) -> float:
        """Seconds since the solve began."""
        return time.monotonic() - self.began

    @property
    def time_left(self) -> float:
        """Seconds left."""
        return max(0.0, self.time_limit - self.elapsed)

    def stage(self, name: str, run: Callable[[], str]) -> None:
        """Run one stage of the search and record what it contributed."""
        began = self.elapsed
        detail = "interrupted"
        try:
            detail = run()
        except MemoryError:
            detail = "not enough memory; skipped"
        finally:
            objective = self.known.best.objective if self.known.best else None
            self.records.append(
                StageRecord(name, objective, self.known.bound, self.elapsed - began, detail)
            )

    # ------------------------------------------------------------------ stages

    def run(self) -> Solution:
        """Run all stages until the time is over or the best schedule is proven optimal."""
        interrupted = False
        reasons: tuple[str, ...] = ()
        try:
            reasons = tuple(
                _reason(self.problem, self.instance, short)
                for short in shortages(self.instance, self.passages)
            )
            if not reasons:
                self.stage("bounds", self._bounds)
                if self.cache is not None:
                    self.stage("cache", partial(self._recall, self.cache))
                self.stage("portfolio", self._portfolio)
                self._improve()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            self.peak_resident = peak_resident(self.team.pids if self.team else ())
            if self.team is not None:
                self.team.close()
        try:
            self._remember()
        except KeyboardInterrupt:
            interrupted = True
        return self._solution(reasons, interrupted=interrupted)

    def _bounds(self) -> str:
        instance = self.instance
        if self._assumes_an_order() or not instance.exact:
            instance = build_instance(build_graph(self.problem), max_horizon=None)
        bound = closed_form_bound(instance)
        self.known.raise_bound(bound.value * instance.step, bound.source)
        return bound.source

    def _recall(self, cache: Cache) -> str:
        """The best schedule and the best bound of earlier solves."""
        entry = cache.load(self.problem)
        if entry is None:
            return "nothing known"
        if not self._assumes_an_order():  # the schedule may not keep it
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

    def _portfolio(self) -> str:
        count = 0
        for candidate in candidates(self.graph, self.instance, self.passages):
            if self.known.closed:
                break
            if self.known.best is not None and not candidate.classic and not self.time_left:
                continue
            orders = candidate.build()
            if orders is not None:
                count += 1
                self.known.accept(orders, candidate.name, must_fit=not candidate.classic)
        if self.known.best is not None and not self.known.closed:
            for found in justified(self.instance, self.passages, self.known.starts()):
                if not self.time_left:
                    break
                orders = self.instance.orders(found.sequences)
                if not self.known.accept(orders, f"{self.known.best_source}, justified"):
                    break
        return f"{count} candidates; best: {self.known.best_source}"

    def _improve(self) -> None:
        """Share the time that is left between the windows and the complete order model.

        A small model is mostly proven, so it gets most of the time, and a short try first; for
        a large one the windows find more. Both start from the best that is known.
        """
        small = len(self.instance.ops) <= SMALL
        turns: list[tuple[str, float]]
        if small:
            turns = [("order model", 0.1), ("windows", 0.1), ("order model", 0.6)]
            turns += [("windows", 0.5), ("order model", 1.0)]
        elif self.open_pairs() <= MAX_PAIRS:
            turns = [("periodic", 0.15), ("windows", 0.6), ("relaxations", 0.4)]
            turns += [("order model", 0.5), ("windows", 1.0)]
        else:
            turns = [("periodic", 0.15), ("windows", 1.0)]
        limit = self.deterministic_limit
        for name, share in turns:
            if self.known.settled or not self.time_left or limit == 0:
                return
            seconds = self.time_left * share
            run = {
                "periodic": self._periodic,
                "windows": self._windows,
                "relaxations": self._relaxations,
                "order model": self._order_model,
            }[name]
            effort = None if limit is None else limit * share
            self.stage(name, partial(run, seconds, effort))
            limit = None if limit is None else limit - (effort or 0)

    def _periodic(self, seconds: float, effort: float | None) -> str:
        """Steady states with shorter and shorter periods, unrolled."""
        instance = self.instance
        if self.known.best is None or not PeriodicModel.applies(instance):
            return "does not apply: microbatches or resources differ"
        model = PeriodicModel(instance)
        found = shortest_periods(
            model,
            longest=self.known.best_in_steps() // self.problem.microbatches,
            workers=self.workers,
            seed=self.seed,
            seconds=seconds,
            deterministic_limit=effort,
        )
        detail = "no steady state found"
        for steady in found:
            period = text(steady.period * instance.step)
            detail = f"period {period} {self.problem.time_unit} per microbatch"
            self.known.accept(
                instance.orders(unrolled(instance, steady)), f"steady state, {detail}"
            )
        return detail

    def open_pairs(self) -> int:
        """Pairs of ops that share a resource: what the order model could have to decide."""
        return sum(len(ops) * (len(ops) - 1) // 2 for ops in self.instance.ops_of_resource)

    def _windows(self, seconds: float, effort: float | None) -> str:
        """Window search: one process per worker, or in this one if there is one worker."""
        if self.known.best is None:
            return "no start"
        until = self.elapsed + seconds
        note = self.budget.note(self.budget.processes, "processes")
        if self.budget.processes == 1 or effort is not None:
            return self._windows_here(until, effort) + note
        try:
            return self._windows_by_team(until) + note
        except TeamError as error:
            self.known.faults.append(f"windows: {error}; one process goes on")
            return self._windows_here(until, effort)

    def _windows_here(self, until: float, effort: float | None) -> str:
        if self.search is None:
            self.search = WindowSearch(
                self.instance,
                self.known.sequences(),
                bound=self.known.bound_in_steps(),
                seed=self.seed,
            )
        search = self.search
        if search.current.value > self.known.best_in_steps():
            search.restart(self.known.sequences())
        search.bound = self.known.bound_in_steps()
        search.deadline = self.began + until
        windows, spent = search.windows, search.deterministic_time

        def over() -> bool:
            if effort is not None and search.deterministic_time - spent >= effort:
                return True
            return self.elapsed >= until

        faults = len(search.faults)
        best = search.run(
            until=over,
            on_better=lambda better: self.known.tell(
                "windows", objective=better.value * self.instance.step
            ),
        )
        self.known.faults += [f"windows: {fault}" for fault in search.faults[faults:]]
        self.known.accept(self.instance.orders(best.sequences), "windows")
        return f"{search.windows - windows} windows"

    def _windows_by_team(self, until: float) -> str:
        if self.team is None:
            self.team = Team(
                self.problem,
                index_order=self.index_order,
                size=self.budget.processes,
                seed=self.seed,
            )
        windows = 0
        while self.elapsed < until and not self.known.closed:
            found = self.team.run(
                self.known.sequences(),
                value=self.known.best_in_steps(),
                bound=self.known.bound_in_steps(),
                seconds=min(SECONDS_TO_MEETING, until - self.elapsed),
            )
            windows += found.windows
            if found.value < self.known.best_in_steps():
                self.known.accept(self.instance.orders(found.sequences), "windows")
        return f"{windows} windows by {self.budget.processes} processes"

    def _relaxations(self, seconds: float, effort: float | None) -> str:
        """Bounds from some devices alone: the ends and the middle, then neighbours and ends."""
        used = sorted({resource.device for resource in self.instance.resources})
        first, last, middle = used[0], used[-1], used[len(used) // 2]
        subsets: list[set[int]] = []
        for devices in ({first}, {last}, {middle}, set(used[:2]), {first, last}, set(used[-2:])):
            if devices not in subsets and len(devices) < len(used):
                subsets.append(devices)
        until, before = self.elapsed + seconds, self.known.bound
        for position, devices in enumerate(subsets):
            if self.known.closed or self.elapsed >= until:
                break
            left = len(subsets) - position
            instance = relaxed(self.instance, devices)
            model = self._model(instance, until)
            threads = self.budget.threads(model.size)
            if model.size > MAX_BOOLEANS or not threads:
                continue
            model.build()
            outcome = model.solve(
                time_limit=(until - self.elapsed) / left,
                workers=threads,
                seed=self.seed,
                deterministic_limit=None if effort is None else effort / len(subsets),
            )
            names = " and ".join(map(str, sorted(devices)))
            source = f"device{'s' if len(devices) > 1 else ''} {names} alone"
            if outcome.status in ("infeasible", "invalid"):
                self.known.faults.append(
                    f"CP-SAT calls the relaxation to {source} {outcome.status}"
                )
            elif not self._assumes_an_order():
                self.known.raise_bound(outcome.bound * instance.step, source)
        return f"{len(subsets)} relaxations, " + (
            f"bound from {self.known.bound_source}"
            if self.known.bound > before
            else "no better bound"
        )

    def _assumes_an_order(self) -> bool:
        """Whether unequal microbatches are kept in order, which is no rule of the problem."""
        return self.index_order and len(set(self.problem.factors)) > 1

    def _model(self, instance: Instance, until: float) -> OrderModel:
        """Order model of the instance or a relaxation of it, within what is known."""
        return OrderModel(
            instance,
            horizon=self.known.best_in_steps(),
            bound=self.known.bound_in_steps(),
            deadline=self.began + until,
        )

    def _order_model(self, seconds: float, effort: float | None) -> str:
        """The complete order model, with the best schedule as hint and horizon."""
        if self.known.best is None:
            return "no start"
        instance = self.instance
        until = self.elapsed + seconds
        model = self._model(instance, until)
        if not self._assumes_an_order() and not model.precedence.contradiction:
            bound = max(one_machine(instance, model.precedence.frames))
            source = f"{bound.source}, with what memory and the best schedule decide"
            self.known.raise_bound(bound.value * instance.step, source)
        if model.size > MAX_BOOLEANS:
            return f"not built: {model.size} order Booleans, at most {MAX_BOOLEANS}"
        threads = self.budget.threads(model.size)
        if not threads:
            limit = size_text(self.budget.limit or 0)
            return f"not built: {model.size} order Booleans do not fit into {limit}"
        if self.elapsed >= until:
            return f"not built: no time left for {model.size} order Booleans"
        model.build()
        model.hint(self.known.starts(), self.known.sequences())
        outcome = model.solve(
            time_limit=until - self.elapsed,
            workers=threads,
            seed=self.seed,
            deterministic_limit=effort,
            on_solution=lambda value: self.known.tell(
                "order model", objective=value * instance.step
            ),
            on_bound=lambda bound: self.known.tell("order model", bound=bound * instance.step),
        )
        self._take(outcome)
        return (
            f"{outcome.status}, {outcome.booleans} order Booleans, "
            f"deterministic time {outcome.deterministic_time:.2f}"
            + self.budget.note(threads, "threads")
        )

    def _take(self, outcome: Outcome) -> None:
        """Take over what the order model found, unless it contradicts what is known."""
        if outcome.status in ("infeasible", "invalid"):
            self.known.faults.append(
                f"CP-SAT calls the order model {outcome.status}, but a valid schedule is known; "
                "its answer is not used"
            )
            return
        if outcome.sequences is not None:
            self.known.accept(self.instance.orders(outcome.sequences), "order model")
        if not self._assumes_an_order():
            self.known.raise_bound(outcome.bound * self.instance.step, "order model")

    def _solution(self, reasons: Sequence[str], *, interrupted: bool) -> Solution:
        status: Status = "feasible"
        if reasons:
            status = "infeasible"
        elif self.known.best is None:
            status = "unknown"
        elif self.known.closed:
            status = "optimal"
        solution = Solution(
            problem=self.problem,
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
            seed=self.seed,
            workers=self.workers,
            time_limit=None if math.isinf(self.time_limit) else self.time_limit,
            deterministic_limit=self.deterministic_limit,
            seconds=self.elapsed,
            versions=versions(),
            memory_limit=self.budget.limit,
            peak_resident=self.peak_resident,
        )
        if self.known.best is None:
            return solution
        named = replace(self.known.best, name="solved", info=solution.summary())
        return replace(solution, schedule=named)

    def _resolution_note(self) -> str:
        instance = getattr(self, "instance", None)
        if instance is None or instance.exact:
            return "exact"
        unit = self.problem.time_unit
        return (
            f"searched in steps of {text(instance.step)} {unit}, times rounded down; the schedule "
            "is timed with the exact numbers and the bound holds for them"
        )


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
