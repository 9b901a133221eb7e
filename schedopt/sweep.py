"""A grid of variants of one problem, solved one after the other: memory against time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from schedopt.analysis import compare, summary
from schedopt.cache.key import problem_key
from schedopt.errors import Fault, InputError
from schedopt.exact import to_json
from schedopt.fields import Exact
from schedopt.front import Mark
from schedopt.grid import Point
from schedopt.problem import Problem
from schedopt.reading import read_data
from schedopt.solvers.solution import Solution, Status
from schedopt.validation import faults_of
from schedopt.variants import with_microbatches

FORMAT = "schedopt.sweep/1"


@dataclass(frozen=True)
class Result:
    """What was found for a point: times and memory exact, in the units of the problem.

    Attributes
    ----------
    key
        Of its problem (`schedopt.cache.key`).
    placement, microbatches, capacity
        Of the point.
    status, objective, bound
        Of the solution; the objective is None if there is no schedule.
    memory
        Peak of the fullest device, None if there is no schedule.
    limit
        Seconds, or deterministic time, that the search could take.
    """

    key: str
    placement: str
    microbatches: int
    capacity: str
    status: Status
    objective: Fraction | None
    bound: Fraction
    memory: Fraction | None
    limit: float | None

    @property
    def mark(self) -> Mark | None:
        """As a point of the picture."""
        if self.objective is None or self.memory is None:
            return None
        time = self.objective / self.microbatches
        return Mark("solved", self.placement, self.microbatches, self.memory, time, solved=True)

    def serves(self, limit: float | None) -> bool:
        """Whether a search with this limit need not be made again."""
        if self.status in ("optimal", "infeasible"):
            return True
        return limit is not None and self.limit is not None and self.limit >= limit

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {
            name: to_json(value) if isinstance(value, Fraction) else value
            for name, value in asdict(self).items()
        }


def sweep(
    points: Iterable[Point],
    solve_one: Callable[[Point], Solution],
    *,
    limit: float | None = None,
    known: Iterable[Result] = (),
) -> Iterator[Result]:
    """Solve the points in turn, and give what was found for each.

    Parameters
    ----------
    points
        From `schedopt.grid.grid`.
    solve_one
        Solves the problem of a point. After an interrupted solution nothing more is given.
    limit
        What its search can take, in seconds or deterministic time.
    known
        Earlier results, which are given again if they are final or had no smaller limit.
    """
    found = {result.key: result for result in known if result.serves(limit)}
    for point in points:
        key = problem_key(point.problem)
        if key not in found:
            solution = solve_one(point)
            if solution.interrupted:
                return
            schedule = solution.schedule
            found[key] = Result(
                key,
                point.placement,
                point.microbatches,
                point.capacity,
                solution.status,
                solution.objective,
                solution.bound,
                None if schedule is None else summary(schedule).peak,
                limit,
            )
        yield found[key]


def classic_marks(problem: Problem, microbatches: Iterable[int]) -> list[Mark]:
    """The classic schedules without any capacity, for each number of microbatches."""
    marks = []
    for count in microbatches:
        given = with_microbatches(problem.with_capacity(None), count)
        for row in compare(given):
            if row.schedule is not None and row.summary is not None:
                time = row.schedule.objective / count
                place = row.placement
                marks.append(Mark(row.name, place, count, row.summary.peak, time, solved=False))
    return marks


# ---------------------------------------------------------------------- results file


def save(path: str | Path, problem: Problem, results: Iterable[Result]) -> None:
    """Write results at once, so that an interruption leaves the old file or the new one.

    Raises
    ------
    OSError
        If it can not be written.
    """
    data = {
        "format": FORMAT,
        "problem": problem.to_dict(),
        "results": [result.to_dict() for result in results],
    }
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def load(path: str | Path) -> tuple[Result, ...]:
    """Read the results that `save` wrote; which problem they are for their keys tell.

    Raises
    ------
    InputError
        If the file can not be read, or is no such file.
    """
    try:
        data = _File.model_validate(read_data(path))
    except InputError as error:
        raise InputError("results of a sweep", error.faults, str(path)) from None
    except ValidationError as error:
        raise InputError("results of a sweep", faults_of(error, _File), str(path)) from None
    if data.format != FORMAT:
        fault = Fault("format", data.format, f"must be {FORMAT}")
        raise InputError("results of a sweep", [fault], str(path))
    return tuple(Result(**dict(entry)) for entry in data.results)


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: str
    placement: str
    microbatches: int
    capacity: str
    status: Status
    objective: Exact | None
    bound: Exact
    memory: Exact | None
    limit: float | None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: str
    problem: Mapping[str, Any]
    results: list[_Entry]
