"""Optimal schedules for pipeline-parallel training."""

from schedopt.problem import Problem
from schedopt.schedule import Schedule

__all__ = ["Problem", "Schedule"]
