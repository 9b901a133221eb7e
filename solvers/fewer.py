"""Fewer microbatches: schedules of a shorter problem, stretched to the whole one.

With many microbatches only the fill and the drain are worth a search; the middle repeats. A
problem with just enough microbatches for all three is solved in their place, so that the cost of
a solve hardly depends on their number.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from schedopt.choices import Orders
from schedopt.exact import text
from schedopt.solvers.constructive import patience_search, run_for
from schedopt.solvers.instance import Instance
from schedopt.solvers.ordered import OrderedInstance, Sequences
from schedopt.solvers.periodic import PeriodicModel, shortest_periods, unrolled
from schedopt.solvers.portfolio import candidates
from schedopt.solvers.proving import closed_forms
from schedopt.solvers.state import State
from schedopt.solvers.stretch import Repeat, shortest_repeat, stretched
from schedopt.solvers.windows import Windows

SHARE_OF_PORTFOLIO, SHARE_OF_SEARCH = 0.4, 0.3
"""Shares of the time for constructive schedules, and of what is left for each search of others."""
PASSES, SPARE = 2, 8
"""Microbatches per resource, and more of them, that hold a fill, a steady state and a drain."""


def enough_microbatches(instance: Instance) -> int | None:
    """Microbatches of the shorter problem; None if the whole has not twice as many, or unequal
    ones.

    The difference is a multiple of the number of resources, because patterns often repeat after
    so many microbatches or a divisor of it.
    """
    count = max(instance.microbatch, default=-1) + 1
    resources = len(instance.resources)
    least = PASSES * resources + SPARE
    if count < 2 * least or not PeriodicModel.applies(instance):
        return None
    return least + (count - least) % resources


class Extensible(NamedTuple):
    """A schedule of the shorter problem, what of it is repeated, and the value it leads to."""

    value: Fraction
    name: str
    ordered: OrderedInstance
    repeat: Repeat


class Extension:
    """The best schedule of the shorter problem for the whole one.

    Parameters
    ----------
    instance
        Instance of the shorter problem.
    more
        Microbatches that the whole problem has more.

    Attributes
    ----------
    best
        The best so far, or None.
    covered
        Names of those that will not be better on the whole than the best when they came.
    """

    def __init__(self, instance: Instance, more: int) -> None:
        self.instance = instance
        self.more = more
        self.best: Extensible | None = None
        self.covered: set[str] = set()
        self.least = PeriodicModel(instance).least

    def consider(self, name: str, sequences: Sequences) -> bool:
        """Take orders as the best if they repeat, fit, and lead to a smaller value."""
        if not self._fits(sequences):
            self.covered.add(name)
            return False
        ordered = OrderedInstance(self.instance, sequences)
        if self.best is not None and ordered.value + self.least * self.more >= self.best.value:
            self.covered.add(name)
            return False
        repeat = shortest_repeat(ordered, multiple_of=self.more)
        if repeat is None:
            return False
        self.covered.add(name)
        value = ordered.value + repeat.growth * self.more
        if self.best is not None and value >= self.best.value:
            return False
        self.best = Extensible(value, name, ordered, repeat)
        return True

    def longest_period(self) -> int:
        """Longest period in steps of a steady state, with one microbatch, that is of use."""
        if self.best is None:
            return sum(self.instance.duration) // (max(self.instance.microbatch) + 1)
        return math.ceil(self.best.repeat.growth) - 1

    def _fits(self, sequences: Sequences) -> bool:
        """Whether orders keep the capacity; each device has one resource."""
        instance = self.instance
        for resource, sequence in zip(instance.resources, sequences, strict=True):
            limit, level = instance.available.get(resource.device), 0
            for use in (use for a in sequence for use in instance.memory[a]):
                level += use.acquired
                if limit is not None and level + use.transient > limit:
                    return False
                level -= use.released
        return True

    def orders(self, sequences: Sequences, repeat: Repeat) -> Orders:
        """Orders of the whole problem, from such of the shorter one."""
        orders = self.instance.orders(sequences)
        return dict(zip(orders, stretched(list(orders.values()), repeat, self.more), strict=True))


def fewer_microbatches(state: State, seconds: float, effort: float | None) -> str:
    """Schedules of a shorter problem, stretched to the whole one."""
    count = enough_microbatches(state.instance)
    if count is None:
        return "does not apply: there are not many more than the fill and the drain take"
    factors = state.problem.microbatch_factors
    shorter = State(
        state.problem.replace(microbatches=count, microbatch_factors=factors and factors[:count]),
        time_limit=seconds,
        workers=state.workers,
        seed=state.seed,
        deterministic_limit=effort,
        index_order=state.index_order,
        budget=state.budget,
    )
    extension = Extension(shorter.instance, state.problem.microbatches - count)
    _offer(shorter, extension)
    best = extension.best
    if best is None:
        return f"nothing repeats with {count} microbatches"
    state.covered = extension.covered
    source = f"{best.name}, stretched from {count} microbatches"
    sequences: Sequences = best.ordered.sequences
    try:
        if best.value * shorter.instance.step > state.known.bound:
            sequences = _polished(shorter, best)
            if sequences != best.ordered.sequences:
                source = f"windows on {source}"
    finally:
        state.known.accept(extension.orders(sequences, best.repeat), source)
    state.known.faults += shorter.known.faults
    period = text(best.repeat.growth * shorter.instance.step)
    return f"{source}: {period} {state.problem.time_unit} per microbatch"


def _offer(shorter: State, extension: Extension) -> None:
    """Offer constructive schedules and steady states to be stretched."""
    for candidate in candidates(shorter.graph, shorter.instance, shorter.passages):
        late = shorter.elapsed > SHARE_OF_PORTFOLIO * shorter.time_limit
        if extension.best is not None and not candidate.classic and late:
            break
        orders = candidate.build()
        if orders is not None:
            extension.consider(candidate.name, shorter.instance.sequences(orders))
    share = SHARE_OF_SEARCH
    effort = shorter.deterministic_limit
    if shorter.instance.period:
        closed_forms(shorter)
        run_for(
            shorter,
            patience_search(shorter, best=sum(shorter.instance.duration)),
            share * shorter.time_left,
            None if effort is None else share * effort,
            on_better=lambda found: extension.consider("patience", found.sequences),
        )
    for steady in shortest_periods(
        PeriodicModel(shorter.instance),
        longest=extension.longest_period(),
        workers=shorter.workers,
        seed=shorter.seed,
        seconds=share * shorter.time_left,
        deterministic_limit=effort,
    ):
        extension.consider("steady state", unrolled(shorter.instance, steady))


def _polished(shorter: State, best: Extensible) -> Sequences:
    """Orders after windows on everything but what is repeated."""
    shorter.known.accept(shorter.instance.orders(best.ordered.sequences), best.name)
    windows = Windows(shorter, kept=best.repeat)
    try:
        windows.run(shorter.time_left, shorter.deterministic_limit)
    finally:
        windows.close()
    return shorter.known.sequences()
