"""Schedules written by hand, for tests of what is done with a schedule."""

from __future__ import annotations

from schedopt.graph import build_graph
from schedopt.op import Op, Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule


def schedule_of(problem: Problem, *rows: str, name: str = "by hand") -> Schedule:
    """Time the orders in `rows`: one text of ops for each device, "0F0 0F1 0B0 0W0"."""
    orders = {
        Resource("compute", device): [Op.parse(label) for label in row.split()]
        for device, row in enumerate(rows)
    }
    return Schedule.from_order(build_graph(problem), orders, name=name)


def two_by_two(**fields: object) -> Schedule:
    """Two devices, two microbatches, F = B = W = 1, no lag: makespan 7, and period 7.

    Device 0 is idle from 2 to 3, device 1 from 0 to 1. Both hold two activations at most.
    """
    problem = Problem.uniform(**{"devices": 2, "microbatches": 2, **fields})  # type: ignore[arg-type]
    return schedule_of(problem, "0F0 0F1 0B0 0W0 0B1 0W1", "1F0 1B0 1F1 1B1 1W0 1W1")
