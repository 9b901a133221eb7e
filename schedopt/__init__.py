"""Optimal schedules for pipeline-parallel training."""

from schedopt import classic
from schedopt.check import Violation, check
from schedopt.errors import DeadlockError, NotApplicableError, ProblemError, ScheduleError
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.solvers import Solution, solve

__all__ = [
    "DeadlockError",
    "NotApplicableError",
    "Problem",
    "ProblemError",
    "Schedule",
    "ScheduleError",
    "Solution",
    "Violation",
    "check",
    "classic",
    "solve",
]
