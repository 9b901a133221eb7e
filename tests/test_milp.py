"""The programs for HiGHS themselves, against brute force and against what is known by hand."""

from __future__ import annotations

import pytest

from schedopt.problem import Problem
from tests.brute_force import brute_force
from tests.milp import milp_optimum, shortest_modulo_period
from tests.problems import random_problems


@pytest.mark.parametrize(("objective", "ops"), [("makespan", 18), ("period", 12)])
def test_the_optimum_of_a_tiny_problem_is_that_of_all_orders(objective: str, ops: int) -> None:
    for problem in random_problems(15, seed=5, ops=ops, objective=objective):
        assert milp_optimum(problem) == brute_force(problem), problem.name


def test_ops_that_take_no_time_can_not_stand_in_a_circle() -> None:
    """All at one moment: each of three F could have the release of the next one before it."""
    problem = Problem.uniform(
        devices=1, microbatches=3, F=0, B=0, W=0, microbatch_factors=[1, 1.1, 1.2]
    )
    assert milp_optimum(problem.with_capacity(0.5)) is None
    assert milp_optimum(problem.with_capacity(1.2)) == 0


def test_equal_microbatches_may_overtake_each_other_but_unequal_ones_are_told_apart() -> None:
    fields = {"devices": 2, "microbatches": 2, "F": [1, 3], "B": 0, "W": 0}
    assert milp_optimum(Problem.uniform(**fields, microbatch_factors=[2, 1])) == 1 + 3 + 6
    assert milp_optimum(Problem.uniform(**fields, microbatch_factors=[2, 2])) == 2 + 6 + 6


@pytest.mark.parametrize(("lag", "capacity", "period"), [(0, None, 9), (1, None, 9), (1, 1, 23)])
def test_the_shortest_steady_state_of_three_devices(
    lag: int, capacity: int | None, period: int
) -> None:
    """The work of a device, or with memory for one microbatch its whole passage."""
    problem = Problem.uniform(devices=3, microbatches=4, F=2, B=3, W=4, lag=lag, capacity=capacity)
    assert shortest_modulo_period(problem) == period


def test_a_steady_state_without_memory_for_one_microbatch_does_not_exist() -> None:
    assert shortest_modulo_period(Problem.uniform(devices=2, microbatches=2, capacity=0.5)) is None
