"""Modulo schedules: valid when unrolled, and as short as the memory allows."""

from itertools import pairwise

import pytest

from schedopt import Problem, Schedule, check
from schedopt.graph import build_graph
from schedopt.solvers.instance import build_instance
from schedopt.solvers.periodic import PeriodicModel, shortest_periods, unrolled
from tests.solvers.test_solve import v_of_fifties


def solve_period(problem: Problem, period: int, *, group: int = 1):
    instance = build_instance(build_graph(problem))
    model = PeriodicModel(instance, group=group)
    steps = int(period * group / instance.step)
    return model.solve(steps, workers=1, seed=0, time_limit=60)


def test_the_shortest_period_of_a_v_of_four_devices_with_the_memory_of_v_min():
    assert solve_period(v_of_fifties(4, 8, 4), 300) is None
    assert solve_period(v_of_fifties(4, 8, 4), 340) is not None


@pytest.mark.parametrize(("chunks", "period"), [(4, 340), (6, 310), (8, 300)])
@pytest.mark.parametrize("microbatches", [1, 3, 11])
def test_a_steady_state_unrolled_is_a_valid_schedule_for_any_number_of_microbatches(
    chunks, period, microbatches
):
    steady = solve_period(v_of_fifties(4, 8, chunks), period)
    graph = build_graph(v_of_fifties(4, microbatches, chunks))
    instance = build_instance(graph)
    schedule = Schedule.from_order(graph, instance.orders(unrolled(instance, steady)))
    assert check(schedule) == ()


def test_each_further_microbatch_costs_no_more_than_the_period():
    steady = solve_period(v_of_fifties(4, 12, 4), 340)
    ends = []
    for microbatches in (12, 13, 14, 15):
        graph = build_graph(v_of_fifties(4, microbatches, 4))
        instance = build_instance(graph)
        orders = instance.orders(unrolled(instance, steady))
        ends.append(Schedule.from_order(graph, orders).makespan)
    assert all(later - earlier <= 340 for earlier, later in pairwise(ends))


def test_two_microbatches_per_period_can_repeat_faster_than_one():
    """One device, memory for three halves: W of one microbatch waits for the next."""
    problem = Problem.uniform(devices=2, microbatches=6, F=2, B=3, W=2, lag=1, capacity=1)
    one = min(s.period for s in _all_periods(problem, 1))
    two = min(s.period for s in _all_periods(problem, 2))
    assert two <= 2 * one


def _all_periods(problem: Problem, group: int):
    instance = build_instance(build_graph(problem))
    model = PeriodicModel(instance, group=group)
    longest = group * sum(instance.duration[a] for a in model.ops)
    found = list(shortest_periods(model, longest=longest, workers=1, seed=0, seconds=60))
    assert [s.period for s in found] == sorted((s.period for s in found), reverse=True)
    return found


def test_the_memory_of_one_microbatch_makes_the_period_its_whole_passage():
    problem = Problem.uniform(devices=3, microbatches=4, F=2, B=3, W=4, lag=1, capacity=1)
    # F and B of three stages and four transfers; W of the first stage ends the passage
    assert min(s.period for s in _all_periods(problem, 1)) == 3 * 2 + 3 * 3 + 4 * 1 + 4


def test_it_applies_only_to_equal_microbatches():
    equal = Problem.uniform(devices=2, microbatches=2)
    assert PeriodicModel.applies(build_instance(build_graph(equal)))
    unequal = equal.replace(microbatch_factors=[1, 2])
    assert not PeriodicModel.applies(build_instance(build_graph(unequal)))
