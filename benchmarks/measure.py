"""Solving one problem of a set: what was reached, how fast, and against what."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchmarks.instances import Instance
from benchmarks.peers import Figure, best_peer
from schedopt.classic import CLASSIC
from schedopt.errors import NotApplicableError
from schedopt.exact import exact, to_json
from schedopt.memory import peak_memory
from schedopt.problem import Problem
from schedopt.solvers import Solution, solve
from schedopt.variants import uniform_choices

Verdict = Literal["better", "equal", "worse"]

TOLERANCE = Fraction(1, 10**9)
"""Relative difference up to which two values are equal: published ones are rounded."""


@dataclass(frozen=True)
class Settings:
    """How every problem is solved: seconds, threads and processes, seed."""

    time_limit: float = 60.0
    workers: int | None = None
    seed: int = 0

    def solve(self, problem: Problem, time_limit: float | None = None) -> Solution:
        """Solve a problem, within the time limit of the settings or another one."""
        seconds = self.time_limit if time_limit is None else time_limit
        return solve(problem, time_limit=seconds, workers=self.workers, seed=self.seed)


@dataclass(frozen=True)
class Result:
    """What a solve reached, with the best classic schedule that fits and the best peer."""

    set_name: str
    instance: Instance
    solution: Solution
    classic: Figure | None = None
    peer: Figure | None = None

    @property
    def key(self) -> Key:
        """What the result is about."""
        return Key(self.set_name, self.instance.name, self.instance.problem.objective)

    @property
    def seconds_to_best(self) -> float | None:
        """Seconds after which the best value was known."""
        best = self.solution.objective
        if best is None:
            return None
        times = (n.elapsed for n in self.solution.history if _reached(n.objective, best))
        return next(times, self.solution.seconds)

    @property
    def seconds_to_proof(self) -> float | None:
        """Seconds after which the best value was known and proven; None if it is not."""
        best = self.solution.objective
        if best is None or self.solution.status != "optimal":
            return None
        times = (
            news.elapsed
            for news in self.solution.history
            if _reached(news.objective, best) and news.bound is not None and news.bound >= best
        )
        return next(times, self.solution.seconds)

    @property
    def ratio(self) -> float | None:
        """Objective over that of the best peer; below 1 is better."""
        if self.peer is None or self.solution.objective is None:
            return None
        return float(self.solution.objective / self.peer.value)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the schedule, ready for JSON."""
        return {
            **self.key._asdict(),
            **self.solution.to_dict(),
            "seconds_to_best": _rounded(self.seconds_to_best),
            "seconds_to_proof": _rounded(self.seconds_to_proof),
            "classic": _figure_to_json(self.classic),
            "peer": _figure_to_json(self.peer),
            "ratio": self.ratio,
        }


class Key(NamedTuple):
    """What a result is about."""

    set_name: str
    instance: str
    objective_name: str


class Earlier(NamedTuple):
    """What an earlier run reached."""

    objective: Fraction | None
    gap: float | None
    status: str


def measure(instance: Instance, set_name: str, settings: Settings) -> Result:
    """Solve one problem and look up what else is known about it."""
    return Result(
        set_name,
        instance,
        settings.solve(instance.problem),
        best_classic(instance.problem),
        best_peer(instance.problem),
    )


def best_classic(problem: Problem) -> Figure | None:
    """The best classic schedule for the placement of a problem that is within its capacity.

    Where recomputation is decided, with nothing or with everything recomputed.
    """
    found = []
    for (label, variant), (name, build) in product(
        uniform_choices(problem).items(), CLASSIC.items()
    ):
        try:
            schedule = build(variant)
        except NotApplicableError:
            continue
        peaks = zip(peak_memory(schedule), problem.capacity, strict=True)
        if all(limit is None or peak <= limit for peak, limit in peaks):
            found.append(Figure(name + label, schedule.objective))
    return min(found, key=lambda figure: figure.value, default=None)


def verdict(value: Fraction | None, other: Fraction) -> Verdict:
    """Whether a value is better (smaller) than another; None is no schedule at all."""
    if value is None or value > other * (1 + TOLERANCE):
        return "worse"
    return "better" if value < other * (1 - TOLERANCE) else "equal"


def save(path: Path, results: Iterable[Mapping[str, Any]], settings: Settings) -> None:
    """Write results with what they depend on."""
    data = {
        "format": "schedopt.benchmark/1",
        "versions": {name: version(name) for name in ("schedopt", "ortools")},
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
        "settings": vars(settings),
        "results": list(results),
    }
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> dict[Key, Earlier]:
    """Results of an earlier run.

    Raises
    ------
    OSError, ValueError
        If the file can not be read, or has no results in it.
    """
    try:
        results = json.loads(path.read_text(encoding="utf-8"))["results"]
        return {
            Key(*(result[name] for name in Key._fields)): Earlier(
                _number(result["objective"]), result["gap"], result["status"]
            )
            for result in results
        }
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a file that --json wrote") from error


def _reached(value: Fraction | None, best: Fraction) -> bool:
    return value is not None and value <= best


def _number(value: float | str | None) -> Fraction | None:
    if isinstance(value, str):
        return Fraction(value)
    return None if value is None else exact(value)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _figure_to_json(figure: Figure | None) -> dict[str, Any] | None:
    return None if figure is None else {"name": figure.name, "value": to_json(figure.value)}
