"""Large-neighbourhood search: windows of the best schedule, each solved exactly.

A window is a span of time and a band of resources. The ops in it are free; what starts before
keeps its times, what starts after keeps its order, and within the span of time the resources
outside the band keep their order too. What comes after an op of the window is then a longest
path to the end, the memory at the edge of the window is a number, and the window is a small
order model whose optimum is exact.

Most windows can not shorten the schedule alone, because the longest path is cut only here and
not elsewhere. So after the objective a window also minimises the sum over the resources of
(end + path to the end): that is a gain wherever there is slack to be had, and leaves plateaus.
"""

from __future__ import annotations

import math
import random
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from schedopt.solvers.instance import Instance
from schedopt.solvers.order_model import OrderModel
from schedopt.solvers.ordered import CircleError, OrderedInstance, Sequences
from schedopt.solvers.stretch import Repeat

SIZES = (40, 80, 160, 320)
"""Free ops of a window."""
MOST_OPS = 640
"""Ops of a window, those outside its band included."""
EXPLORATION = 0.3
"""Share of the windows whose shape is not the best so far."""
IDLE = 0.75
"""Share of the windows that are placed where resources are idle; the rest can be anywhere."""
MEMORY = 0.95
"""What the gain and the cost of a shape keep with each window of it."""
DETERMINISTIC_TIME_PER_WINDOW = 0.5
SECONDS_PER_WINDOW = 30.0
"""Only a safety net, so that a walk depends on its seed and not on the load of the machine."""
COST_PER_OP = 2e-4
"""Deterministic time that making the model of a window costs, per op of it."""


@dataclass
class Shape:
    """A kind of window, and how it has done.

    Attributes
    ----------
    share
        Share of the resources that are free.
    ops
        Free ops it aims at.
    gain, cost
        Recent gain in steps of the second objective, and recent deterministic time.
    spent
        All deterministic time it took.
    """

    share: float
    ops: int
    gain: float = 0.0
    cost: float = 0.0
    spent: float = 0.0


class WindowSearch:
    """Walk of an ordered instance by windows.

    Parameters
    ----------
    instance, sequences
        Where to start.
    bound
        Value of the objective at which to stop.
    seed
        Of the choice of windows.
    workers
        Of CP-SAT, per window.
    kept
        What stays as it is, so that it can still be repeated.

    Attributes
    ----------
    deadline
        Time of `time.monotonic` at which the window that is being solved is given up.
    """

    def __init__(
        self,
        instance: Instance,
        sequences: Sequences,
        *,
        bound: int,
        seed: int,
        workers: int = 1,
        kept: Repeat | None = None,
    ) -> None:
        self.current = OrderedInstance(instance, sequences)
        self.kept = kept
        self.bound = bound
        self.random = random.Random(seed)
        self.workers = workers
        self.deadline = math.inf
        self.windows = 0
        self.faults: list[str] = []
        self.deterministic_time = 0.0
        count = len(instance.resources)
        shares = {1.0, 0.5, 2 / count}
        self.shapes = [
            Shape(share, ops)
            for ops in SIZES
            if ops <= max(SIZES[0], 2 * len(instance.ops))
            for share in sorted(shares)
            if share <= 1
        ]

    def restart(self, sequences: Sequences) -> None:
        """Go on from another schedule, with what was learnt about the shapes."""
        self.current = OrderedInstance(self.current.instance, sequences)

    def run(
        self,
        *,
        until: Callable[[], bool],
        on_better: Callable[[OrderedInstance], None] | None = None,
    ) -> OrderedInstance:
        """Solve windows until told to stop or the bound is met; the best schedule seen."""
        best = self.current
        while not until() and best.value > self.bound:
            self.step()
            if self.current.value < best.value:
                best = self.current
                if on_better is not None:
                    on_better(best)
        return best

    def step(self) -> None:
        """Solve one window and take its schedule, which is never worse."""
        shape = self._choose_shape()
        before = self.deterministic_time
        begin, end, band = self._place(shape)
        sub, members = window(self.current, begin, end, band, kept=self.kept)
        gain = 0.0
        if len(members) > 1:
            gain = self._solve(sub, members)
        self.windows += 1
        self.deterministic_time += COST_PER_OP * len(members)
        cost = self.deterministic_time - before
        shape.spent += cost
        shape.gain = MEMORY * shape.gain + gain
        shape.cost = MEMORY * shape.cost + cost

    def _choose_shape(self) -> Shape:
        """Mostly the shape with the most gain for its cost, else the one least tried."""
        if self.random.random() < EXPLORATION:
            return min(self.shapes, key=lambda shape: shape.spent)
        return max(self.shapes, key=lambda s: (s.gain / (s.cost + 1e-3), -s.spent))

    def _place(self, shape: Shape) -> tuple[int, int, set[int]]:
        current, pick = self.current, self.random
        count = len(current.sequences)
        width = max(1, round(shape.share * count))
        first = pick.randrange(count - width + 1)
        ops = min(shape.ops * pick.uniform(0.6, 1.4) * count / width, MOST_OPS)
        length = max(1, int(ops / len(current.starts) * (max(current.starts) + 1)))
        band = range(first, first + width)
        idle = self._idle(band) if pick.random() < IDLE else []
        if idle:
            gap = pick.choices(idle, [len(gap) for gap in idle])[0]
            begin = pick.choice(gap) - pick.randrange(length + 1)
        else:
            begin = pick.randrange(-length // 2, max(1, max(current.starts) - length // 2 + 1))
        return begin, begin + length, set(band)

    def _idle(self, band: Iterable[int]) -> list[range]:
        """Times in which the resources of a band are idle."""
        starts, duration = self.current.starts, self.current.duration
        gaps = []
        for r in band:
            free_at = min(self.current.starts)
            for a in self.current.sequences[r]:
                gaps.append(range(free_at, starts[a]))
                free_at = starts[a] + duration[a]
            gaps.append(range(free_at, self.current.value))
        return [gap for gap in gaps if gap]

    def _solve(self, sub: Instance, members: list[int]) -> float:
        current = self.current
        model = OrderModel(sub, horizon=current.value, bound=self.bound)
        if model.size == 0 or model.precedence.contradiction:
            return 0.0
        model.build(spread=True)
        number = {a: w for w, a in enumerate(members)}
        starts = [current.starts[a] for a in members]
        model.hint(starts, [[number[a] for a in ops if a in number] for ops in current.sequences])
        outcome = model.solve(
            time_limit=min(SECONDS_PER_WINDOW, self.deadline - time.monotonic()),
            workers=self.workers,
            seed=self.random.randrange(2**30),
            deterministic_limit=DETERMINISTIC_TIME_PER_WINDOW,
        )
        self.deterministic_time += outcome.deterministic_time
        if outcome.sequences is None:
            return 0.0
        try:
            following = OrderedInstance(
                current.instance, _put_back(current, members, outcome.sequences)
            )
        except CircleError as error:
            self.faults.append(str(error))
            return 0.0
        if following.value > current.value:
            return 0.0
        gain = _spread(current) - _spread(following)
        self.current = following
        return max(0.0, float(gain))


def _spread(ordered: OrderedInstance) -> int:
    """Sum over the resources of the longest path through one of their ops."""
    duration = ordered.duration
    return sum(
        max(ordered.starts[a] + duration[a] + ordered.tails[a] for a in sequence)
        for sequence in ordered.sequences
        if sequence
    )


def _put_back(
    current: OrderedInstance, members: Sequence[int], sequences: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Orders with those of the window in the place of the old ones."""
    inside = set(members)
    result = []
    for old, new in zip(current.sequences, sequences, strict=True):
        first = next((k for k, a in enumerate(old) if a in inside), 0)
        result.append([*old[:first], *(members[w] for w in new), *old[first + len(new) :]])
    return result


def window(
    current: OrderedInstance, begin: int, end: int, band: set[int], *, kept: Repeat | None = None
) -> tuple[Instance, list[int]]:
    """The ops that start in [begin, end) as an instance of its own.

    Resources outside `band` keep their order. What is `kept` is left out, and what lies on the
    other side of it. Returns the instance and, per op of it, the op of the whole instance.
    """
    instance, starts, tails = current.instance, current.starts, current.tails
    duration = current.duration
    ranges = [_range(starts, sequence, begin, end) for sequence in current.sequences]
    if instance.has_choices:
        ranges = [
            _with_waivers(instance, sequence, low, high)
            for sequence, (low, high) in zip(current.sequences, ranges, strict=True)
        ]
    if kept is not None:
        ranges = _outside(kept, ranges)
    inside = {
        a
        for sequence, (low, high) in zip(current.sequences, ranges, strict=True)
        for a in sequence[low:high]
    }
    members = [a for a in current.topological if a in inside]
    number = {a: w for w, a in enumerate(members)}
    release = [current.release[a] for a in members]
    delivery = [current.delivery[a] for a in members]
    successors: list[list[tuple[int, int]]] = [[] for _ in members]
    predecessors: list[list[tuple[int, int]]] = [[] for _ in members]
    within: list[list[tuple[int, int]]] = [[] for _ in members]
    available = dict(instance.available)

    def connect(a: int, b: int, lag: int) -> None:
        successors[number[a]].append((number[b], lag))
        predecessors[number[b]].append((number[a], lag))

    for r, (low, high) in enumerate(ranges):
        sequence = current.sequences[r]
        for a in sequence[:low]:
            for use in instance.memory[a]:
                if use.device in available:
                    available[use.device] -= use.acquired - use.released
        for position in range(low, high):
            w = number[sequence[position]]
            if low:
                before = sequence[low - 1]
                release[w] = max(release[w], starts[before] + duration[before])
            if high < len(sequence):
                after = sequence[high]
                delivery[w] = max(delivery[w], duration[after] + tails[after])
            if r not in band and position > low:
                connect(sequence[position - 1], sequence[position], 0)
    for w, a in enumerate(members):
        for b, lag in instance.predecessors[a]:
            if b not in inside:
                release[w] = max(release[w], starts[b] + duration[b] + lag)
        for b, lag in instance.successors[a]:
            if b in inside:
                connect(a, b, lag)
            else:
                delivery[w] = max(delivery[w], lag + duration[b] + tails[b])
        within[w] += [(number[b], lag) for b, lag in instance.within_microbatch[a] if b in inside]
    waiver = [number.get(instance.waiver[a], -1) for a in members]
    sub = Instance(
        ops=tuple(instance.ops[a] for a in members),
        duration=tuple(
            instance.duration[a] if waiver[w] >= 0 else duration[a] for w, a in enumerate(members)
        ),
        surcharge=tuple(
            instance.surcharge[a] if waiver[w] >= 0 else 0 for w, a in enumerate(members)
        ),
        waiver=tuple(waiver),
        resource=tuple(instance.resource[a] for a in members),
        memory=tuple(instance.memory[a] for a in members),
        resources=instance.resources,
        successors=tuple(map(tuple, successors)),
        predecessors=tuple(map(tuple, predecessors)),
        within_microbatch=tuple(map(tuple, within)),
        release=tuple(release),
        delivery=tuple(delivery),
        available=available,
        step=instance.step,
        memory_step=instance.memory_step,
        exact=instance.exact,
        period=False,
    )
    return sub, members


def _range(starts: Sequence[int], sequence: Sequence[int], begin: int, end: int) -> tuple[int, int]:
    """Positions of the ops of a resource that start in [begin, end)."""
    key = starts.__getitem__
    return bisect_left(sequence, begin, key=key), bisect_left(sequence, end, key=key)


def _with_waivers(
    instance: Instance, sequence: Sequence[int], low: int, high: int
) -> tuple[int, int]:
    """A range moved so that no op is cut from the one that it directly follows and that waives it.

    Else the window could put something between them, and would not see what it costs.
    """

    def tied(position: int) -> bool:
        """Whether the op at a position follows its waiver."""
        if not 0 < position < len(sequence):
            return False
        return instance.waiver[sequence[position]] == sequence[position - 1]

    return low - tied(low), high + tied(high)


def _outside(kept: Repeat, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of positions cut to one side of what is kept: before it if any lies there."""
    if any(low < begin for (low, _), begin in zip(ranges, kept.begin, strict=True)):
        return [
            (min(low, begin), min(high, begin))
            for (low, high), begin in zip(ranges, kept.begin, strict=True)
        ]
    return [
        (max(low, end), max(high, end)) for (low, high), end in zip(ranges, kept.end, strict=True)
    ]
