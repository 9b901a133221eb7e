"""The order model: one Boolean for each pair of ops whose order is open, solved by CP-SAT.

It knows ops, arcs, resources and memory, and nothing of what the ops mean:

* a start variable per op, within its head and tail; arcs with their lags;
* per resource one no-overlap, and a Boolean "a before b" for each pair that the closure of all
  precedences leaves open, tied to the starts in both directions and monotone along the closure;
* an op with a surcharge has a Boolean "charged"; without it, it starts where the op that waives it
  ends, and nothing comes between the two;
* memory at the start of each op that acquires some: what is acquired by then, less what is
  released by then, linear in the Booleans;
* the objective: the end of all ops, or the largest span of a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from itertools import combinations
from typing import Any

from ortools.sat.python import cp_model

from schedopt.solvers.cp_sat import new_solver, run_solver
from schedopt.solvers.frames import start_limits
from schedopt.solvers.instance import MAX_HORIZON, Instance
from schedopt.solvers.precedence import Precedence

Literal = cp_model.LiteralT  # a Boolean variable, or 0 or 1 where the order is decided


@dataclass(frozen=True)
class Outcome:
    """What CP-SAT found.

    Attributes
    ----------
    status
        "optimal", "feasible", "infeasible", "unknown" or "invalid".
    starts, sequences
        Start of each op and order of each resource, or None.
    bound
        Proven lower bound of the objective, in steps.
    seconds, deterministic_time, booleans
        What it took.
    """

    status: str
    starts: tuple[int, ...] | None
    sequences: tuple[tuple[int, ...], ...] | None
    bound: int
    seconds: float
    deterministic_time: float
    booleans: int


class OrderModel:
    """Order model of an instance.

    Parameters
    ----------
    instance
        The instance.
    horizon
        No solution above this value of the objective is wanted, in steps.
    bound
        A proven lower bound of the objective.
    deadline
        Time of `time.monotonic` after which no more is decided before the search.
    """

    def __init__(
        self, instance: Instance, *, horizon: int, bound: int, deadline: float = math.inf
    ) -> None:
        self.instance = instance
        self.precedence = Precedence(instance, horizon, deadline=deadline)
        self.model = cp_model.CpModel()
        self.literals: dict[tuple[int, int], cp_model.IntVar] = {}
        self.bound = bound
        self.horizon = horizon

    @property
    def size(self) -> int:
        """Number of order Booleans the model has."""
        precedence, pairs = self.precedence, 0
        for ops in self.instance.ops_of_resource:
            for a in ops:
                decided = precedence.before[a] | precedence.after[a]
                pairs += (precedence.same_resource[a] & ~decided).bit_count() - 1
        return pairs // 2

    def build(self, *, spread: bool = False) -> None:
        """Make variables and constraints.

        Parameters
        ----------
        spread
            Among the solutions with the best objective find one with the smallest sum, over
            the resources, of the longest path through their ops.
        """
        instance = self.instance
        earliest, self.latest = start_limits(instance, self.precedence.frames, self.horizon)
        self.starts = [
            self.model.new_int_var(low, max(low, high), str(op))
            for op, low, high in zip(instance.ops, earliest, self.latest, strict=True)
        ]
        self.charged = {
            a: self.model.new_bool_var(f"{a} charged")
            for a, surcharge in enumerate(instance.surcharge)
            if surcharge
        }
        self.ends = [self._end(a) for a in range(len(instance.ops))]
        self._arcs()
        for ops in instance.ops_of_resource:
            self._no_overlap(ops)
            self._no_circles([a for a in ops if self._takes_no_time(a)])
            self._waivers(ops)
        for ops in instance.ops_of_resource:
            self._monotone(ops)
        self._memory()
        self._objective()
        if spread:
            self._spread()

    # ------------------------------------------------------------------ constraints

    def _end(self, a: int) -> cp_model.LinearExpr:
        duration = self.instance.duration[a]
        if a in self.charged:
            return self.starts[a] + self.charged[a] * self.instance.surcharge[a] + duration
        return self.starts[a] + duration

    def _arcs(self) -> None:
        for a, after in enumerate(self.instance.successors):
            for b, lag in after:
                self.model.add(self.starts[b] >= self.ends[a] + lag)
        for a, b in self.precedence.arcs:
            self.model.add(self.starts[b] >= self.ends[a])

    def _interval(self, a: int) -> cp_model.IntervalVar:
        """An op as long as it is; one with a surcharge is there only as it is charged."""
        duration, name = self.instance.duration[a], f"on {a}"
        if a not in self.charged:
            return self.model.new_fixed_size_interval_var(self.starts[a], duration, name)
        size = duration + self.instance.surcharge[a]
        return self.model.new_optional_fixed_size_interval_var(
            self.starts[a], size, self.charged[a], name
        )

    def _no_overlap(self, ops: Sequence[int]) -> None:
        self.model.add_no_overlap([self._interval(a) for a in ops])
        for a in ops:
            open_to = self._open(a)
            for b in ops:
                if b <= a or not open_to >> b & 1:
                    continue
                literal = self.model.new_bool_var(f"{a} before {b}")
                self.literals[a, b] = literal
                self.model.add(self.starts[b] >= self.ends[a]).only_enforce_if(literal)
                self.model.add(self.starts[a] >= self.ends[b]).only_enforce_if(~literal)

    def _waivers(self, ops: Sequence[int]) -> None:
        """Without the surcharge an op directly follows the one that waives it."""
        for a in ops:
            if a not in self.charged:
                continue
            charged, waiver = self.charged[a], self.instance.waiver[a]
            self.model.add(self.starts[a] <= self.ends[waiver]).only_enforce_if(~charged)
            for b in ops:
                if b in (a, waiver):
                    continue
                between = [self._before(waiver, b), self._before(b, a)]
                if not any(isinstance(literal, int) and literal == 0 for literal in between):
                    opened = [literal for literal in between if not isinstance(literal, int)]
                    self.model.add_bool_or([charged, *(~literal for literal in opened)])

    def _takes_no_time(self, a: int) -> bool:
        """Whether two such ops may stand at one time and place.

        An op that is charged takes time, and one that is not follows its own waiver.
        """
        instance = self.instance
        if a in self.charged:
            return not instance.duration[instance.waiver[a]]
        return not instance.duration[a]

    def _no_circles(self, ops: Sequence[int]) -> None:
        """Ops that take no time: their starts can not keep a < b < c < a from happening."""
        for a, b, c in combinations(ops, 3):
            circle = [self._before(a, b), self._before(b, c), self._before(c, a)]
            if sum(isinstance(literal, int) for literal in circle) < 2:
                self.model.add_linear_constraint(cp_model.LinearExpr.sum(circle), 1, 2)

    def _open(self, a: int) -> int:
        """Ops on the resource of `a` whose order with `a` is open."""
        precedence = self.precedence
        decided = precedence.before[a] | precedence.after[a] | 1 << a
        return precedence.same_resource[a] & ~decided

    def _before(self, a: int, b: int) -> Literal:
        """Literal of "a before b" for two ops of one resource."""
        if self.precedence.after[a] >> b & 1:
            return 1
        if self.precedence.before[a] >> b & 1:
            return 0
        return self.literals[a, b] if a < b else ~self.literals[b, a]

    def _monotone(self, ops: Sequence[int]) -> None:
        """If a comes before b, it comes before what follows b; b stands for its next ones."""
        after, before = self.precedence.after, self.precedence.before
        mine = self.precedence.same_resource[ops[0]] if ops else 0
        following = {b: _minimal(after[b] & mine, before) for b in ops}
        for a in ops:
            for b in ops:
                if a == b or not self._open(a) >> b & 1:
                    continue
                for c in following[b]:
                    if self._open(a) >> c & 1:
                        self.model.add_implication(self._before(a, b), self._before(a, c))

    def _memory(self) -> None:
        instance = self.instance
        users: dict[int, list[int]] = {}
        for a, uses in enumerate(instance.memory):
            for use in uses:
                users.setdefault(use.device, []).append(a)
        for device, limit in instance.available.items():
            ops = users.get(device, [])
            use_of = {a: next(u for u in instance.memory[a] if u.device == device) for a in ops}
            for a in ops:
                peak = use_of[a].acquired + use_of[a].transient
                if not peak:
                    continue
                terms: list[Any] = [peak]
                for b in ops:
                    if b == a:
                        continue
                    started = self._started_by(b, a)
                    ended = self._ended_by(b, a)
                    terms.append(use_of[b].acquired * started)
                    terms.append(-use_of[b].released * ended)
                    if instance.resource[a] != instance.resource[b]:
                        terms.append(use_of[b].transient * started)
                        terms.append(-use_of[b].transient * ended)
                total = sum(term for term in terms if isinstance(term, int))
                expressions = [term for term in terms if not isinstance(term, int)]
                self.model.add(cp_model.LinearExpr.sum(expressions) + total <= limit)

    def _known_order(self, b: int, a: int) -> Literal | None:
        """Literal of "b before a" where there is one already: on one resource, or decided."""
        if self.instance.resource[a] == self.instance.resource[b]:
            return self._before(b, a)
        if self.precedence.before[a] >> b & 1:
            return 1
        return 0 if self.precedence.after[a] >> b & 1 else None

    def _started_by(self, b: int, a: int) -> Literal:
        """1 if b may have started when a starts (0 is enforced to mean later)."""
        known = self._known_order(b, a)
        if known is not None:
            return known
        literal = self.model.new_bool_var(f"{b} started by {a}")
        tie = 1 if b < a else 0  # of two that start together one sees the other
        self.model.add(self.starts[b] >= self.starts[a] + tie).only_enforce_if(~literal)
        return literal

    def _ended_by(self, b: int, a: int) -> Literal:
        """1 only if b has ended when a starts."""
        known = self._known_order(b, a)
        if known is not None:
            return known
        literal = self.model.new_bool_var(f"{b} ended by {a}")
        self.model.add(self.starts[a] >= self.ends[b]).only_enforce_if(literal)
        return literal

    def _objective(self) -> None:
        instance, precedence = self.instance, self.precedence
        self.objective = self.model.new_int_var(self.bound, self.horizon, "objective")
        self.first: dict[str, cp_model.IntVar] = {}
        for span, ops in instance.spans.items():
            members = sum(1 << a for a in ops)
            begin: cp_model.IntVar | int = 0
            if span is not None:
                latest = max(0, min(self.latest[a] for a in ops))
                begin = self.model.new_int_var(0, latest, f"first of {span}")
                self.first[span] = begin
                for a in ops:
                    if not precedence.before[a] & members:
                        self.model.add(begin <= self.starts[a])
            for end in self._ends(ops):
                self.model.add(self.objective >= end - begin)
        self.model.minimize(self.objective)

    def _spread(self) -> None:
        paths = []
        for ops in self.instance.ops_of_resource:
            if ops:
                path = self.model.new_int_var(-MAX_HORIZON, self.horizon, "path")
                for end in self._ends(ops):
                    self.model.add(path >= end)
                paths.append(path)
        # no single path counts for more than the objective, so it comes first
        total = cp_model.LinearExpr.sum(paths)
        self.model.minimize(self.objective * (len(paths) + 1) + total)

    def _ends(self, ops: Sequence[int]) -> Iterator[cp_model.LinearExpr]:
        """Ends with what is to follow, of the ops that can be the last of these."""
        instance = self.instance
        members = sum(1 << a for a in ops)
        for a in ops:
            if instance.delivery[a] or not self.precedence.after[a] & members:
                yield self.ends[a] + instance.delivery[a]

    # ------------------------------------------------------------------ solving

    def hint(self, starts: Sequence[int], sequences: Sequence[Sequence[int]]) -> None:
        """Give a complete solution as the place to start from."""
        for variable, start in zip(self.starts, starts, strict=True):
            self.model.add_hint(variable, start)
        durations = self.instance.durations(sequences)
        for a, literal in self.charged.items():
            self.model.add_hint(literal, durations[a] > self.instance.duration[a])
        position = {a: place for ops in sequences for place, a in enumerate(ops)}
        for (a, b), literal in self.literals.items():
            self.model.add_hint(literal, position[a] < position[b])
        for span, begin in self.first.items():
            self.model.add_hint(begin, min(starts[a] for a in self.instance.spans[span]))
        self.model.add_hint(self.objective, self.instance.objective(starts, durations))

    def solve(
        self,
        *,
        time_limit: float,
        workers: int,
        seed: int = 0,
        deterministic_limit: float | None = None,
        on_solution: Callable[[int], None] | None = None,
        on_bound: Callable[[int], None] | None = None,
    ) -> Outcome:
        """Run CP-SAT on the model that `build` made.

        Parameters
        ----------
        time_limit
            Seconds.
        workers, seed, deterministic_limit
            As CP-SAT's num_workers, random_seed and max_deterministic_time. One worker with a
            deterministic limit is reproducible.
        on_solution, on_bound
            Called with the objective and with the bound, in steps, while it runs.
        """
        solver = new_solver(
            time_limit=time_limit,
            workers=workers,
            seed=seed,
            deterministic_limit=deterministic_limit,
        )
        if on_bound is not None:
            solver.best_bound_callback = lambda value: on_bound(_up(value))
        status = run_solver(solver, self.model, _Report(on_solution) if on_solution else None)
        name = {
            cp_model.OPTIMAL: "optimal",
            cp_model.FEASIBLE: "feasible",
            cp_model.INFEASIBLE: "infeasible",
            cp_model.MODEL_INVALID: "invalid",
        }.get(status, "unknown")
        starts = sequences = None
        bound = self.bound
        if name in ("optimal", "feasible"):
            starts = tuple(solver.value(variable) for variable in self.starts)
            sequences = tuple(
                self._sequence(ops, starts, solver) for ops in self.instance.ops_of_resource
            )
        if name in ("optimal", "feasible", "unknown"):
            bound = max(bound, _up(solver.best_objective_bound))
        return Outcome(
            name,
            starts,
            sequences,
            bound,
            solver.wall_time,
            solver.response_proto.deterministic_time,
            len(self.literals),
        )

    def _sequence(
        self, ops: Sequence[int], starts: Sequence[int], solver: cp_model.CpSolver
    ) -> tuple[int, ...]:
        """Order of a resource: by time, and by its Booleans where several ops take no time."""

        def compare(a: int, b: int) -> int:
            times = [(starts[c], solver.value(self.ends[c])) for c in (a, b)]
            if times[0] != times[1]:
                return -1 if times[0] < times[1] else 1
            before = self._before(a, b)
            return -1 if (before if isinstance(before, int) else solver.value(before)) else 1

        return tuple(sorted(ops, key=cmp_to_key(compare)))


class _Report(cp_model.CpSolverSolutionCallback):
    def __init__(self, tell: Callable[[int], None]) -> None:
        super().__init__()
        self._tell = tell

    def on_solution_callback(self) -> None:
        self._tell(round(self.objective_value))


def _minimal(members: int, before: Sequence[int]) -> list[int]:
    """Members that have no other member before them."""
    result = []
    rest = members
    while rest:
        low = rest & -rest
        a = low.bit_length() - 1
        rest ^= low
        if not before[a] & members:
            result.append(a)
    return result


def _up(value: float) -> int:
    """A bound of an integer objective, rounded up, safe against rounding errors."""
    return -int(-(value - 1e-6) // 1)
