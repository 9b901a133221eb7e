"""Optimal schedules for pipeline-parallel training."""

from schedopt.starting import QuietStart

with QuietStart():
    from schedopt import classic
    from schedopt.bundled import bundled_names, load_bundled
    from schedopt.check import Violation, check
    from schedopt.errors import DeadlockError, NotApplicableError, ProblemError, ScheduleError
    from schedopt.partition import from_layers, from_layout
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
    "bundled_names",
    "check",
    "classic",
    "from_layers",
    "from_layout",
    "load_bundled",
    "solve",
]
