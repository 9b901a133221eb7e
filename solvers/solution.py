"""What a solve returns, and what it tells while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from schedopt.exact import to_json
from schedopt.problem import Problem
from schedopt.schedule import Schedule

Status = Literal["optimal", "feasible", "infeasible", "unknown"]


class Progress(NamedTuple):
    """State of a running solve, told whenever the best schedule or the bound changes.

    `elapsed` in seconds; objective and bound in the unit of the problem; `source` says what
    found the news.
    """

    elapsed: float
    objective: Fraction | None
    bound: Fraction | None
    gap: float | None
    source: str


class StageRecord(NamedTuple):
    """What one stage of the search contributed: the state after it."""

    name: str
    objective: Fraction | None
    bound: Fraction | None
    seconds: float
    detail: str


@dataclass(frozen=True)
class Solution:
    """Result of a solve.

    Attributes
    ----------
    problem
        The problem.
    schedule
        The best schedule found, checked; None only if the problem is infeasible.
    status
        "optimal": proven; "feasible": the gap is open; "infeasible": proven, see `reasons`;
        "unknown": nothing found before an interruption.
    objective, bound
        Value of the schedule and proven lower bound, in the time unit of the problem.
    bound_source, objective_source
        What proved the bound, and what found the schedule.
    stages
        What each stage of the search contributed.
    history
        Every improvement of objective or bound.
    reasons
        Why the problem is infeasible: device, needed, available.
    faults
        Faults of the solver that were caught; the schedule is not affected.
    interrupted
        Whether Ctrl-C ended the search.
    resolution_note
        How exact the numbers are.
    seed, workers, time_limit, deterministic_limit, seconds, versions
        What it ran with.
    memory_limit, peak_resident
        Bytes on the machine it ran on: what this process and its helpers might take, and the
        largest resident memory they had, counted from the start of each process. None if not
        known.
    """

    problem: Problem
    schedule: Schedule | None
    status: Status
    objective: Fraction | None
    bound: Fraction
    bound_source: str
    objective_source: str
    stages: tuple[StageRecord, ...]
    history: tuple[Progress, ...]
    reasons: tuple[str, ...]
    faults: tuple[str, ...]
    interrupted: bool
    resolution_note: str
    seed: int
    workers: int
    time_limit: float | None
    deterministic_limit: float | None
    seconds: float
    versions: Mapping[str, str]
    memory_limit: int | None = None
    peak_resident: int | None = None

    @property
    def gap(self) -> float | None:
        """(objective - bound) / objective; 0 if proven optimal."""
        return gap(self.objective, self.bound)

    def summary(self) -> dict[str, Any]:
        """The facts that a schedule carries with it in its file.

        In a reproducible solve, one with a deterministic limit, nothing is among them that
        depends on the machine, such as clock time: it writes the same file again.
        """
        return {
            "status": self.status,
            "objective_name": self.problem.objective,
            "objective": _number(self.objective),
            "bound": _number(self.bound),
            "gap": self.gap,
            "time_unit": self.problem.time_unit,
            "objective_source": self.objective_source,
            "bound_source": self.bound_source,
            "seed": self.seed,
            "workers": self.workers,
            "time_limit": self.time_limit,
            "deterministic_limit": self.deterministic_limit,
            "versions": dict(self.versions),
            "history": self._history(clock=self.deterministic_limit is None),
        }

    def to_dict(self) -> dict[str, Any]:
        """All facts but the schedule, ready for JSON."""
        return {
            **self.summary(),
            "seconds": round(self.seconds, 3),
            "memory_limit": self.memory_limit,
            "peak_resident": self.peak_resident,
            "stages": [
                {
                    "name": stage.name,
                    "objective": _number(stage.objective),
                    "bound": _number(stage.bound),
                    "seconds": round(stage.seconds, 3),
                    "detail": stage.detail,
                }
                for stage in self.stages
            ],
            "history": self._history(clock=True),
            "reasons": list(self.reasons),
            "faults": list(self.faults),
            "interrupted": self.interrupted,
            "resolution": self.resolution_note,
        }

    def _history(self, *, clock: bool) -> list[dict[str, Any]]:
        """Every improvement, with or without the time when it came."""
        return [
            {
                **({"elapsed": round(news.elapsed, 3)} if clock else {}),
                "objective": _number(news.objective),
                "bound": _number(news.bound),
                "source": news.source,
            }
            for news in self.history
        ]


def gap(objective: Fraction | None, bound: Fraction | None) -> float | None:
    """(objective - bound) / objective, None while one of them is missing."""
    if objective is None or bound is None:
        return None
    return float((objective - bound) / objective) if objective else 0.0


def _number(value: Fraction | None) -> int | float | str | None:
    return None if value is None else to_json(value)


ProgressCallback = Callable[[Progress], None]
