"""The search: keeps the best schedule and the best bound, and runs the stages in turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version

from schedopt.cache import Cache, Entry
from schedopt.exact import text
from schedopt.graph import build_graph
from schedopt.problem import Problem
from schedopt.solvers.bounds import closed_form_bound, one_machine
from schedopt.solvers.capacity import Shortage, shortages, smallest_passages
from schedopt.solvers.fewer import Extensible, Extension, enough_microbatches
from schedopt.solvers.incumbent import Incumbent
from schedopt.solvers.instance import Instance, build_instance
from schedopt.solvers.neighbourhood import WindowSearch
from schedopt.solvers.order_model import OrderModel, Outcome
from schedopt.solvers.ordered import OrderedInstance, Sequences
from schedopt.solvers.patience import PatienceSearch
from schedopt.solvers.periodic import PeriodicModel, shortest_periods, unrolled
from schedopt.solvers.portfolio import PATIENT_RULE, Candidate, candidates, justified, priorities
from schedopt.solvers.relaxation import growing, relaxed
from schedopt.solvers.solution import (
    ProgressCallback,
    Solution,
    StageRecord,
    Status,
)
from schedopt.solvers.stretch import Repeat, shortest_repeat
from schedopt.solvers.team import Team, TeamError

CACHED = "cache: "
"""Precedes the source of what an earlier solve has found."""
MAX_BOOLEANS = 150_000
"""Order Booleans above which the complete model is not built."""
MAX_PAIRS = 1_500_000
"""Pairs of ops on one resource above which it is not even measured."""
SMALL = 1_000
"""Ops up to which the complete model gets most of the time."""
SHARE_OF_RELAXATION = 0.2
"""Share of the time for relaxations that one of them may take."""
LARGE = 20_000
"""Ops above which schedules of fewer microbatches come first."""
MOST_OPS_OF_WINDOWS = 60_000
"""Ops above which the whole is too large for windows: for time, and for memory per process."""
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
        self.passages = smallest_passages(self.instance)
        self.known = Incumbent(self.graph, self.instance, began=self.began, progress=progress)
        self.records: list[StageRecord] = []
        self.search: WindowSearch | None = None
        self.team: Team | None = None
        self.kept: Repeat | None = None
        self._effort_left = deterministic_limit
        self.covered: set[str] = set()  # candidates that need not be built for the whole

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
                members = list(candidates(self.graph, self.instance, self.passages))
                if self.large:
                    self.stage("first schedule", partial(self._build, members[:1]))
                    self._turn("fewer microbatches", 0.7)
                    members = [member for member in members if member.name not in self.covered]
                self.stage("portfolio", partial(self._portfolio, members))
                self._improve()
        except KeyboardInterrupt:
            interrupted = True
        finally:
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

    def _portfolio(self, members: Sequence[Candidate]) -> str:
        detail = self._build(members)
        if self.known.best is not None and not self.known.closed and self.time_left:
            for found in justified(self.instance, self.passages, self.known.starts()):
                if not self.time_left:
                    break
                orders = self.instance.orders(found.sequences)
                if not self.known.accept(orders, f"{self.known.best_source}, justified"):
                    break
        return detail

    def _build(self, members: Sequence[Candidate]) -> str:
        count = 0
        for candidate in members:
            if self.known.closed:
                break
            if self.known.best is not None and not candidate.classic and not self.time_left:
                continue
            orders = candidate.build()
            if orders is not None:
                count += 1
                self.known.accept(orders, candidate.name, must_fit=not candidate.classic)
        return f"{count} candidates; best: {self.known.best_source}"

    def _improve(self) -> None:
        """Share the time that is left between the windows and the complete order model.

        A small model is mostly proven, so it gets most of the time, and a short try first; for
        a large one the windows find more. Both start from the best that is known.
        """
        turns: list[tuple[str, float]]
        if self.instance.period and self.open_pairs() <= MAX_PAIRS:
            turns = [("patience", 0.3), ("order model", 0.2), ("windows", 0.6)]
            turns += [("relaxations", 0.3), ("order model", 0.5), ("windows", 1.0)]
        elif self.instance.period:
            turns = [("patience", 0.6), ("windows", 1.0)]
        elif len(self.instance.ops) <= SMALL:
            turns = [("order model", 0.1), ("windows", 0.1), ("order model", 0.6)]
            turns += [("windows", 0.5), ("order model", 1.0)]
        elif self.large:
            turns = [("periodic", 0.15), ("windows", 1.0)]
        elif self.open_pairs() <= MAX_PAIRS:
            turns = [("fewer microbatches", 0.3), ("periodic", 0.15), ("windows", 0.6)]
            turns += [("relaxations", 0.4), ("order model", 0.5), ("windows", 1.0)]
        else:
            turns = [("fewer microbatches", 0.3), ("periodic", 0.15), ("windows", 1.0)]
        for name, share in turns:
            self._turn(name, share)

    def _turn(self, name: str, share: float) -> None:
        """Run one stage for a share of the time and of the effort that are left."""
        limit = self._effort_left
        if self.known.settled or not self.time_left or limit == 0:
            return
        run = {
            "patience": self._patience,
            "fewer microbatches": self._fewer_microbatches,
            "periodic": self._periodic,
            "windows": self._windows,
            "relaxations": self._relaxations,
            "order model": self._order_model,
        }[name]
        effort = None if limit is None else limit * share
        self.stage(name, partial(run, self.time_left * share, effort))
        self._effort_left = None if limit is None else limit - (effort or 0)

    @property
    def large(self) -> bool:
        """Whether schedules of fewer microbatches come first."""
        return len(self.instance.ops) > LARGE

    def _fewer_microbatches(self, seconds: float, effort: float | None) -> str:
        """Schedules of a shorter problem, stretched to this one."""
        count = enough_microbatches(self.instance)
        if count is None:
            return "does not apply: there are not many more than the fill and the drain take"
        factors = self.problem.microbatch_factors
        shorter = Search(
            self.problem.replace(
                microbatches=count, microbatch_factors=factors and factors[:count]
            ),
            time_limit=seconds,
            workers=self.workers,
            seed=self.seed,
            deterministic_limit=effort,
            index_order=self.index_order,
            progress=None,
            cache=None,
        )
        extension = Extension(shorter.instance, self.problem.microbatches - count)
        shorter.extend(extension)
        best = extension.best
        if best is None:
            return f"nothing repeats with {count} microbatches"
        self.covered = extension.covered
        source = f"{best.name}, stretched from {count} microbatches"
        sequences: Sequences = best.ordered.sequences
        try:
            if best.value * shorter.instance.step > self.known.bound:
                sequences = shorter.polished(best)
                if sequences != best.ordered.sequences:
                    source = f"windows on {source}"
        finally:
            self.known.accept(extension.orders(sequences, best.repeat), source)
        self.known.faults += shorter.known.faults
        period = text(best.repeat.growth * shorter.instance.step)
        return f"{source}: {period} {self.problem.time_unit} per microbatch"

    def extend(self, extension: Extension) -> None:
        """Offer constructive schedules and steady states to be stretched."""
        for candidate in candidates(self.graph, self.instance, self.passages):
            late = self.elapsed > 0.4 * self.time_limit
            if extension.best is not None and not candidate.classic and late:
                break
            orders = candidate.build()
            if orders is not None:
                extension.consider(candidate.name, self.instance.sequences(orders))
        for steady in shortest_periods(
            PeriodicModel(self.instance),
            longest=extension.longest_period(),
            workers=self.workers,
            seed=self.seed,
            seconds=0.3 * self.time_left,
            deterministic_limit=self.deterministic_limit,
        ):
            extension.consider("steady state", unrolled(self.instance, steady))

    def polished(self, best: Extensible) -> Sequences:
        """Orders after windows on everything but what is repeated."""
        self.known.accept(self.instance.orders(best.ordered.sequences), best.name)
        self.kept = best.repeat
        try:
            self._windows(self.time_left, self.deterministic_limit)
        finally:
            if self.team is not None:
                self.team.close()
        return self.known.sequences()

    def _patience(self, seconds: float, effort: float | None) -> str:
        """List schedules with other patience and other targets for each resource."""
        if self.known.best is None:
            return "no start"
        until = self.elapsed + seconds
        search = PatienceSearch(
            self.instance,
            self.passages,
            priorities(self.instance)[PATIENT_RULE],
            bound=self.known.bound_in_steps(),
            best=self.known.best_in_steps(),
            seed=self.seed,
        )
        search.run(
            until=lambda: (
                self.elapsed >= until
                or (effort is not None and search.deterministic_time >= effort)
            ),
            on_better=lambda found: self._accept(found, "patience"),
        )
        return f"{search.schedules} list schedules"

    def _accept(self, found: OrderedInstance, source: str) -> None:
        self.known.accept(self.instance.orders(found.sequences), source)

    def _periodic(self, seconds: float, effort: float | None) -> str:
        """Steady states with shorter and shorter periods, unrolled."""
        instance = self.instance
        if self.known.best is None or not PeriodicModel.applies(instance):
            return "does not apply: microbatches or resources differ"
        model = PeriodicModel(instance)
        repeat = shortest_repeat(OrderedInstance(instance, self.known.sequences()))
        if repeat is not None and repeat.growth <= model.least:
            return "the best schedule already repeats with the shortest period there can be"
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
        if len(self.instance.ops) > MOST_OPS_OF_WINDOWS:
            return f"too large: {len(self.instance.ops)} ops, at most {MOST_OPS_OF_WINDOWS}"
        until = self.elapsed + seconds
        if self.workers == 1 or effort is not None:
            return self._windows_here(until, effort)
        try:
            return self._windows_by_team(until)
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
                kept=self.kept,
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
                size=self.workers,
                seed=self.seed,
                kept=self.kept,
            )
        windows = 0
        while self.elapsed < until and not self.known.closed:
            found = self.team.run(
                self.known.sequences(),
                value=self.known.best_in_steps(),
                bound=self.known.bound_in_steps(),
                seconds=min(SECONDS_TO_MEETING, until - self.elapsed),
                latest=until - self.elapsed,
            )
            windows += found.windows
            if found.value < self.known.best_in_steps():
                self.known.accept(self.instance.orders(found.sequences), "windows")
        return f"{windows} windows by {self.workers} processes"

    def _relaxations(self, seconds: float, effort: float | None) -> str:
        """Bounds from some devices alone, more of them while that improves the bound."""
        until, before, count, spent = self.elapsed + seconds, self.known.bound, 0, 0.0
        subsets = growing(sorted({resource.device for resource in self.instance.resources}))
        kept = next(subsets, None)
        while kept is not None and not self.known.closed and self.elapsed < until:
            if effort is not None and spent >= effort:
                break
            outcome = self._relaxation(
                kept,
                min(until, self.elapsed + seconds * SHARE_OF_RELAXATION),
                None if effort is None else effort * SHARE_OF_RELAXATION,
            )
            count += 1
            spent += outcome.deterministic_time if outcome else 0.0
            try:
                kept = subsets.send(outcome.bound if outcome else 0)
            except StopIteration:
                kept = None
        return f"{count} relaxations, " + (
            f"bound from {self.known.bound_source}"
            if self.known.bound > before
            else "no better bound"
        )

    def _relaxation(
        self, kept: Collection[int], until: float, effort: float | None
    ) -> Outcome | None:
        """Raise the bound by what the order model proves with these devices alone."""
        instance = relaxed(self.instance, kept)
        model = self._model(instance, until)
        if model.size > MAX_BOOLEANS or self.elapsed >= until:
            return None
        model.build()
        outcome = model.solve(
            time_limit=until - self.elapsed,
            workers=self.workers,
            seed=self.seed,
            deterministic_limit=effort,
        )
        names = " and ".join(map(str, sorted(kept)))
        source = f"device{'s' if len(kept) > 1 else ''} {names} alone"
        if outcome.status in ("infeasible", "invalid"):
            self.known.faults.append(f"CP-SAT calls the relaxation to {source} {outcome.status}")
            return None
        if not self._assumes_an_order():
            self.known.raise_bound(outcome.bound * instance.step, source)
        return outcome

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
        if self.elapsed >= until:
            return f"not built: no time left for {model.size} order Booleans"
        model.build()
        model.hint(self.known.starts(), self.known.sequences())
        outcome = model.solve(
            time_limit=until - self.elapsed,
            workers=self.workers,
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
