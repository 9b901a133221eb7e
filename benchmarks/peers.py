"""What published schedulers reach, row by row, as problems (benchmarks/data/peers.json)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from schedopt.core import is_core
from schedopt.exact import Number, exact, text
from schedopt.problem import Problem
from schedopt.variants import recut

DATA = Path(__file__).parent / "data" / "peers.json"
FORMULA = "Interleaved 1F1B (formula)"
"""A published calculation, not a schedule: a pattern can be slower than it says."""

Objective = Literal["makespan", "period"]
PerDevice = Number | tuple[Number, ...]


class Figure(NamedTuple):
    """A value of the objective, in the unit of the problem, and what reached it."""

    name: str
    value: Fraction


class PeerRow(NamedTuple):
    """What one scheduler reaches on one problem; the data file describes the fields."""

    group: str
    algorithm: str
    model: str | None
    placement: str
    chunks: int
    devices: int
    microbatches: int
    F: PerDevice
    B: PerDevice
    W: PerDevice
    lag: Number
    forward_memory: PerDevice
    backward_memory: PerDevice
    capacity: PerDevice | None
    peak: Number
    makespan: Number
    period: Number | None

    @property
    def memory(self) -> PerDevice:
        """The memory of the row: its capacity, or its peak where the pattern decides."""
        return self.peak if self.capacity is None else self.capacity

    @property
    def name(self) -> str:
        """Name of the problem: rows with one name are about one problem."""
        parts = [self.model or "", f"p={self.devices} m={self.microbatches}"]
        if self.placement != "linear":
            parts.append(self.placement if self.placement == "v" else f"interleaved-{self.chunks}")
        parts.append(f"lag={text(self.lag)}")
        if self.model is None:
            parts.append(memory_text(_one(self.forward_memory), _one(self.backward_memory)))
        activation = max(_list(self.forward_memory, self.devices))
        amounts = sorted({exact(amount) / exact(activation) for amount in self._memory_list()})
        return " ".join(filter(None, [*parts, "at", "-".join(map(text, amounts))]))

    def value(self, objective: Objective) -> Fraction | None:
        """Makespan or period of the row; None if it is not known."""
        value = self.makespan if objective == "makespan" else self.period
        return None if value is None else exact(value)

    def problem(self, objective: Objective = "makespan") -> Problem:
        """The problem of the row at its own memory; a chunk has 1/chunks of the costs."""
        return _problem_of(self, objective)

    def fits(self, capacity: Sequence[Fraction | None], *, scale: Fraction = Fraction(1)) -> bool:
        """Whether the schedule of the row, its memory times `scale`, is within a capacity."""
        return all(
            limit is None or scale * min(exact(own), exact(self.peak)) <= limit
            for own, limit in zip(self._memory_list(), capacity, strict=True)
        )

    def _memory_list(self) -> tuple[Number, ...]:
        return _list(self.memory, self.devices)


def memory_text(forward: Number, backward: Number) -> str:
    """Memory change of F, B and W: 2/-1/-1."""
    change_W = -exact(forward) - exact(backward)
    return "/".join(text(exact(change)) for change in (forward, backward, change_W))


@cache
def read_rows() -> tuple[PeerRow, ...]:
    """All rows of the data file."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    return tuple(_row(dict(zip(data["columns"], row, strict=True))) for row in data["rows"])


def best_peer(problem: Problem) -> Figure | None:
    """The best published value for a problem, of those whose schedules are valid for it.

    Placement, times and number of microbatches are those of the problem, and the schedule is
    within its capacity. A row whose microbatches release memory later than those of the problem
    counts as well: its schedule needs no more here than there. Recomputation, links and what ends a
    step have no peers.
    """
    found = []
    for row in read_rows() if is_core(problem) else ():
        size = row.devices, row.chunks * row.devices, row.microbatches
        if size != (problem.devices, problem.stage_count, problem.microbatches):
            continue
        value = row.value(problem.objective)
        if value is None or row.algorithm == FORMULA or not _same_times(row.problem(), problem):
            continue
        scale = _memory_scale(row.problem(), problem)
        if scale is not None and row.fits(problem.capacity, scale=scale):
            found.append(Figure(row.algorithm, value))
    return min(found, key=lambda figure: figure.value, default=None)


@cache
def _problem_of(row: PeerRow, objective: Objective) -> Problem:
    linear = Problem(
        name=row.name,
        devices=row.devices,
        microbatches=row.microbatches,
        durations={"F": row.F, "B": row.B, "W": row.W},
        lag=row.lag,
        memory={"F": row.forward_memory, "B": row.backward_memory, "capacity": row.memory},
        objective=objective,
    )
    return recut(linear, row.placement, row.chunks)


def _same_times(one: Problem, other: Problem) -> bool:
    def times(problem: Problem) -> object:
        durations = [data.durations for data in problem.stage_data]
        return problem.device_of, durations, problem.lag, problem.factors

    return times(one) == times(other)


def _memory_scale(row: Problem, problem: Problem) -> Fraction | None:
    """Activation in the problem over that of a row; None if a row releases memory earlier."""
    scales = set()
    for theirs, ours in zip(row.stage_data, problem.stage_data, strict=True):
        scale = ours.memory["F"] / theirs.memory["F"]
        if ours.memory["B"] > scale * theirs.memory["B"]:
            return None
        scales.add(scale)
    return scales.pop() if len(scales) == 1 else None


def _row(fields: dict[str, Any]) -> PeerRow:
    lists_as_tuples = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }
    return PeerRow(**lists_as_tuples)


def _list(value: PerDevice, devices: int) -> tuple[Number, ...]:
    return value if isinstance(value, tuple) else (value,) * devices


def _one(value: PerDevice) -> Number:
    return value[0] if isinstance(value, tuple) else value
