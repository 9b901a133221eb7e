"""Periodic construction: the steady state as a modulo schedule, unrolled to any number of
microbatches.

In the steady state every op of one microbatch repeats with the period T: it starts at
n T + phase. Its size does not depend on the number of microbatches: an integer n and a phase
per op, and one Boolean per pair of ops of a resource, the order of their phases. The memory a
device holds at a phase is linear in the n and the Booleans. A period may also hold several
microbatches, which can be shorter per microbatch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from ortools.sat.python import cp_model

from schedopt.op import Op
from schedopt.solvers.cp_sat import new_solver, run_solver
from schedopt.solvers.instance import Instance


@dataclass(frozen=True)
class SteadyState:
    """A modulo schedule.

    Attributes
    ----------
    period
        Steps from one group of microbatches to the next.
    group
        Microbatches per period.
    starts
        Start of each op of the first `group` microbatches.
    """

    period: int
    group: int
    starts: dict[Op, int]


class PeriodicModel:
    """Modulo schedules of an instance with equal microbatches.

    Parameters
    ----------
    instance
        The instance; `applies` tells whether it can be treated.
    group
        Microbatches per period.
    """

    def __init__(self, instance: Instance, *, group: int = 1) -> None:
        self.instance = instance
        self.group = group
        count = max(instance.microbatch, default=-1) + 1
        self.copies: dict[tuple[str, int], list[int]] = {}
        for a, op in enumerate(instance.ops):
            self.copies.setdefault(op[:2], [-1] * count)[op.microbatch] = a
        self.ops = [a for a, i in enumerate(instance.microbatch) if i < group]

    @staticmethod
    def applies(instance: Instance) -> bool:
        """Whether all microbatches are equal, and each device has one resource."""
        seen: dict[tuple[str, int], tuple[Any, ...]] = {}
        for a, op in enumerate(instance.ops):
            facts = (instance.duration[a], instance.memory[a], instance.resource[a])
            if seen.setdefault(op[:2], facts) != facts:
                return False
            if any(
                u.device != instance.resources[instance.resource[a]].device
                for u in instance.memory[a]
            ):
                return False
        devices = [resource.device for resource in instance.resources]
        return len(set(devices)) == len(devices)

    @property
    def least(self) -> int:
        """No period is shorter: the work of the busiest resource."""
        work = [0] * len(self.instance.resources)
        for a in self.ops:
            work[self.instance.resource[a]] += self.instance.duration[a]
        return max(work, default=0)

    def _passage(self) -> int:
        """Work and lags of a group: no op has to start later after the first one."""
        lags = sum(lag for a in self.ops for _, lag in self.instance.within_microbatch[a])
        return lags + sum(self.instance.duration[a] for a in self.ops)

    def solve(
        self,
        period: int,
        *,
        workers: int,
        seed: int,
        time_limit: float,
        deterministic_limit: float | None = None,
    ) -> SteadyState | None:
        """A steady state of this period, or None if there is none or none was found in time."""
        model = cp_model.CpModel()
        instance = self.instance
        rounds = 2 * max(1, -(-self._passage() // max(period, 1)))
        whole = {a: model.new_int_var(0, rounds, f"n {a}") for a in self.ops}
        phase = {a: model.new_int_var(0, period - 1, f"phase {a}") for a in self.ops}
        start = {a: whole[a] * period + phase[a] for a in self.ops}
        self._arcs(model, start, period)
        before: dict[tuple[int, int], cp_model.LiteralT] = {}
        for ops in instance.ops_of_resource:
            members = [a for a in ops if a in whole]
            for a, b in combinations(members, 2):
                first = model.new_bool_var(f"{a} before {b}")
                before[a, b], before[b, a] = first, ~first
                for x, y, literal in ((a, b, first), (b, a, ~first)):
                    end = phase[x] + instance.duration[x]
                    model.add(phase[y] >= end).only_enforce_if(literal)
                    model.add(phase[y] + instance.duration[y] <= phase[x] + period).only_enforce_if(
                        literal
                    )
            self._memory(model, members, whole, before)
        model.add(start[self.ops[0]] == 0)
        solver = new_solver(
            time_limit=time_limit,
            workers=workers,
            seed=seed,
            deterministic_limit=deterministic_limit,
        )
        status = run_solver(solver, model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        starts = {
            instance.ops[a]: solver.value(whole[a]) * period + solver.value(phase[a])
            for a in self.ops
        }
        return SteadyState(period, self.group, starts)

    def _arcs(self, model: cp_model.CpModel, start: dict[int, Any], period: int) -> None:
        instance = self.instance
        for a in self.ops:
            end = start[a] + instance.duration[a]
            for b, lag in instance.within_microbatch[a]:
                model.add(start[b] >= end + lag)
        for copies in self.copies.values():
            group = copies[: self.group]
            for a, b in pairwise(group):
                model.add(start[b] >= start[a] + instance.duration[a])
            last = start[group[-1]] + instance.duration[group[-1]]
            model.add(start[group[0]] + period >= last)

    def _memory(
        self,
        model: cp_model.CpModel,
        members: Sequence[int],
        whole: dict[int, cp_model.IntVar],
        before: dict[tuple[int, int], cp_model.LiteralT],
    ) -> None:
        """Memory when an op starts: of each other op it counts how often it ran by then.

        In the period number k, an op with smaller phase has run k - n + 1 times and one with
        larger phase k - n times; the k cancel out, because what is acquired is released.
        """
        instance = self.instance
        for a in members:
            for use in instance.memory[a]:
                limit = instance.available.get(use.device)
                peak = use.acquired + use.transient
                if limit is None or not peak:
                    continue
                terms: list[Any] = []
                for b in members:
                    for other in instance.memory[b]:
                        net = other.acquired - other.released
                        terms.append(-net * whole[b])
                        if b != a:
                            terms.append(net * before[b, a])
                model.add(cp_model.LinearExpr.sum(terms) + peak <= limit)


def unrolled(instance: Instance, steady: SteadyState) -> list[list[int]]:
    """Orders of all ops of an instance: the steady state from its first microbatch to its last.

    The instance may have another number of microbatches than the one that was solved.
    """

    def start(a: int) -> int:
        op = instance.ops[a]
        rounds, position = divmod(op.microbatch, steady.group)
        return steady.starts[op._replace(microbatch=position)] + rounds * steady.period

    return [sorted(ops, key=lambda a: (start(a), a)) for ops in instance.ops_of_resource]


def shortest_periods(
    model: PeriodicModel,
    *,
    longest: int,
    workers: int,
    seed: int,
    seconds: float,
    deterministic_limit: float | None = None,
) -> Iterator[SteadyState]:
    """Steady states with shorter and shorter periods, by bisection between `least` and `longest`.

    A period about which nothing is known in its share of the time counts as impossible.
    """
    low, high = model.least, longest
    tries = max(1, (high - low).bit_length())
    at = low
    while low <= high:
        steady = model.solve(
            at,
            workers=workers,
            seed=seed,
            time_limit=seconds / tries,
            deterministic_limit=deterministic_limit,
        )
        if steady is not None:
            yield steady
            high = at - 1
        else:
            low = at + 1
        at = (low + high) // 2
