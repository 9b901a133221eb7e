"""How a case is written down, solved and checked."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from schedopt import Problem, Schedule, Solution, check, solve


def pipeline(
    devices: int,
    microbatches: int,
    F: Any = 1,
    B: Any = 1,
    W: Any = 1,
    *,
    lag: Any = 0,
    capacity: Any = None,
    memory: dict[str, Any] | None = None,
    **fields: Any,
) -> Problem:
    """A problem with B and W apart: a number, or a list with one for each stage or device."""
    return Problem(
        devices=devices,
        microbatches=microbatches,
        durations={"F": F, "B": B, "W": W},
        lag=lag,
        memory={**(memory or {}), "capacity": capacity},
        **fields,
    )


def fused_pipeline(
    devices: int, microbatches: int, F: Any, BW: Any, *, capacity: Any = None, **fields: Any
) -> Problem:
    """A problem with a fused backward."""
    return Problem(
        devices=devices,
        microbatches=microbatches,
        durations={"F": F, "BW": BW},
        memory={"capacity": capacity},
        **fields,
    )


def checked(problem: Problem, **options: Any) -> Solution:
    """Solve, and take nothing of what the solution says on trust but its bound."""
    solution = solve(problem, **{"workers": 2, "time_limit": 60, **options})
    schedule = solution.schedule
    assert schedule is not None, solution.reasons
    assert solution.faults == ()
    assert solution.objective == schedule.objective >= solution.bound
    assert check(schedule) == ()
    return solution


def proven(problem: Problem, **options: Any) -> Solution:
    """Solve to proven optimality."""
    solution = checked(problem, **options)
    assert (solution.status, solution.objective) == ("optimal", solution.bound)
    return solution


def optimum(problem: Problem) -> Fraction:
    """The proven optimum of a problem."""
    return proven(problem).bound


def optimal_schedule(problem: Problem) -> Schedule:
    """A schedule that is proven optimal."""
    schedule = proven(problem).schedule
    assert schedule is not None
    return schedule


def why_infeasible(problem: Problem) -> list[str]:
    """The reasons for which a problem is proven infeasible."""
    solution = solve(problem, workers=2, time_limit=60)
    assert (solution.status, solution.schedule, solution.faults) == ("infeasible", None, ())
    return list(solution.reasons)
