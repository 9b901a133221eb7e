"""The yardstick itself, against optima known by hand or from published situations."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given

from schedopt.check import check
from schedopt.problem import Problem
from tests.brute_force import best_order, brute_force
from tests.problems import best_schedule, problems, random_problems


def uniform(devices: int, microbatches: int, **fields: Any) -> Problem:
    return Problem.uniform(devices=devices, microbatches=microbatches, **fields)


@pytest.mark.parametrize("microbatches", [1, 2, 5])
def test_one_device_without_pause_takes_its_work(microbatches: int) -> None:
    assert brute_force(uniform(1, microbatches, F=2, B=3, W=4)) == 9 * microbatches


@pytest.mark.parametrize(("devices", "best"), [(1, 3), (2, 5), (3, 7), (8, 17)])
def test_one_microbatch_goes_down_and_up_and_ends_with_one_weight_gradient(
    devices: int, best: int
) -> None:
    assert brute_force(uniform(devices, 1, capacity=1)) == best


def test_lags_count_on_the_way_down_and_on_the_way_up() -> None:
    lag = {"forward": [1, 2], "backward": [10, 20]}
    assert brute_force(uniform(3, 1, lag=lag)) == 7 + 33


@pytest.mark.parametrize(("capacity", "best"), [(1, 27), (2, 18), (3, 13)])
def test_four_stages_three_microbatches(capacity: int, best: int) -> None:
    assert brute_force(uniform(4, 3, capacity=capacity)) == best


def test_four_stages_two_microbatches_with_a_longer_backward() -> None:
    assert brute_force(uniform(4, 2, B=2)) == 16


@pytest.mark.parametrize(("capacity", "best"), [(2, None), (3, 21), (5, 14), (7, 12), (9, 11)])
def test_a_backward_that_needs_more_memory(capacity: int, best: int | None) -> None:
    memory = {"F": 2, "B": 1, "W": -3}
    assert brute_force(uniform(3, 3, capacity=capacity, memory=memory)) == best


def test_a_skip_connection_on_the_critical_path() -> None:
    assert brute_force(uniform(3, 3)) == 11
    assert brute_force(uniform(3, 3, edges=[{"from": 0, "to": 2, "lag": 6}])) == 21


def test_two_interleaved_devices() -> None:
    assert brute_force(uniform(2, 2, placement="interleaved")) == 13


def test_a_stage_without_work() -> None:
    durations = {kind: [2, 0, 2] for kind in "FBW"}
    assert brute_force(Problem(devices=3, microbatches=3, durations=durations)) == 20


def test_transient_and_static_memory_decide_what_is_possible() -> None:
    memory = {"F": 2, "transient": {"F": 3}, "static": 5}
    one_by_one = brute_force(uniform(2, 2, memory=memory, capacity=10))
    assert one_by_one == 10
    assert brute_force(uniform(2, 2, memory=memory, capacity=9)) is None
    assert brute_force(uniform(2, 2, memory=memory, capacity=12)) == 7


def test_index_order_loses_where_the_second_microbatch_is_shorter() -> None:
    problem = uniform(2, 2, F=[1, 3], B=0, W=0, microbatch_factors=[2, 1])
    assert brute_force(problem) == 1 + 3 + 6
    assert brute_force(problem, fifo=True) == 2 + 6 + 3


def test_decimals_are_exact() -> None:
    assert brute_force(uniform(2, 1, F=0.1, B=0.2, W=0, lag=0.05)) == Fraction(7, 10)


@pytest.mark.parametrize(
    ("fields", "makespan", "period"),
    [
        ({"F": 1, "B": 1, "W": 1}, 7, 7),
        ({"F": 1, "B": 1, "W": 1, "lag": 5}, 17, 17),
        ({"F": [1, 3], "B": [1, 3], "W": [1, 3]}, 19, 18),
        ({"F": 1, "B": 1, "W": 0, "placement": [1, 0]}, 6, 6),
    ],
)
def test_period_of_two_stages_and_two_microbatches(
    fields: dict[str, Any], makespan: int, period: int
) -> None:
    problem = uniform(2, 2, **fields)
    assert brute_force(problem) == makespan
    assert brute_force(problem.replace(objective="period")) == period


def test_the_period_is_never_more_than_the_makespan_nor_less_than_the_work() -> None:
    for problem in random_problems(60, seed=4, ops=12):
        makespan = brute_force(problem)
        period = brute_force(problem.replace(objective="period"))
        if makespan is None or period is None:
            assert makespan is period is None
            continue
        work = [Fraction(0)] * problem.devices
        for stage in problem.stage_data:
            work[stage.device] += sum(stage.durations.values()) * sum(problem.factors)
        assert max(work) <= period <= makespan


def test_equal_microbatches_lose_nothing_first_in_first_out() -> None:
    compared = 0
    for problem in random_problems(120, seed=2, ops=27):
        if problem.microbatches > 1 and len(set(problem.factors)) == 1:
            assert brute_force(problem) == brute_force(problem, fifo=True), problem.name
            compared += 1
    assert compared > 40


def test_the_same_seed_gives_the_same_problems() -> None:
    one, same = (list(random_problems(20, seed=7)) for _ in range(2))
    assert one == same
    assert one != list(random_problems(20, seed=8))


def test_random_problems_are_of_every_kind() -> None:
    many = list(random_problems(200, seed=0))
    stages = [data for problem in many for data in problem.stage_data]
    assert {problem.devices for problem in many} == {1, 2, 3}
    assert {problem.microbatches for problem in many} == {1, 2, 3}
    assert {problem.placement_name for problem in many} >= {"linear", "interleaved", "v", None}
    assert {data.backward for data in stages} == {"B", "BW"}
    assert any(data.memory.get("B", 0) > 0 for data in stages)
    assert any(data.memory.get("B", 0) < 0 for data in stages)
    assert any(any(data.transient.values()) for data in stages)
    assert any(problem.edges for problem in many)
    assert any(len(set(problem.factors)) > 1 for problem in many)
    assert any(problem.time_resolution < 1 for problem in many)
    tight = sum(brute_force(p) != brute_force(p.with_capacity(None)) for p in many)
    impossible = sum(brute_force(p) is None for p in many)
    assert tight - impossible >= 20
    assert impossible >= 2


@given(problems())
def test_the_best_order_is_a_valid_schedule_of_that_makespan(problem: Problem) -> None:
    best = best_order(problem)
    if best is None:
        return
    schedule = best_schedule(problem)
    assert check(schedule) == ()
    assert schedule.makespan == best[0]
