"""Stretching: what is repeated, and that longer schedules are valid and cost what is said."""

import pytest

from schedopt import Problem, Schedule, check, classic
from schedopt.graph import build_graph
from schedopt.solvers.instance import build_instance
from schedopt.solvers.ordered import OrderedInstance
from schedopt.solvers.portfolio import first_in_first_out
from schedopt.solvers.stretch import shortest_repeat, stretched
from schedopt.variants import refine_orders
from tests.solvers.test_solve import v_of_fifties


def ordered(problem: Problem, name: str) -> OrderedInstance:
    graph = build_graph(problem)
    instance = build_instance(graph)
    orders = first_in_first_out(refine_orders(classic.CLASSIC[name](problem), graph), problem)
    return OrderedInstance(instance, instance.sequences(orders))


def longer(current: OrderedInstance, problem: Problem, more: int) -> Schedule:
    """The schedule of a problem with more microbatches."""
    repeat = shortest_repeat(current, multiple_of=more)
    orders = current.instance.orders(current.sequences)
    graph = build_graph(problem.replace(microbatches=problem.microbatches + more))
    new = stretched(list(orders.values()), repeat, more)
    return Schedule.from_order(graph, dict(zip(orders, new, strict=True)))


@pytest.mark.parametrize("name", ["ZB-V", "V-Half", "V-Min", "DualPipeV"])
@pytest.mark.parametrize("more", [1, 2, 15])
def test_a_stretched_pattern_is_valid_and_grows_as_it_did(name: str, more: int):
    problem = v_of_fifties(4, 16, 16)
    current = ordered(problem, name)
    schedule = longer(current, problem, more)
    assert check(schedule) == ()
    growth = shortest_repeat(current, multiple_of=more).growth * current.instance.step
    assert schedule.makespan == current.value * current.instance.step + growth * more


def test_stretching_a_pattern_gives_the_pattern_of_the_longer_problem():
    problem = Problem.uniform(devices=4, microbatches=12, F=3, B=2, W=2, lag=1, capacity=4)
    whole = problem.replace(microbatches=20)
    assert longer(ordered(problem, "ZB-H1"), problem, 8).orders == classic.zb_h1(whole).orders


def test_the_memory_of_a_stretched_schedule_is_that_of_the_short_one():
    problem = v_of_fifties(4, 16, 6)
    schedule = longer(ordered(problem, "ZB-V"), problem, 9)
    assert check(schedule) == ()
    assert max(filter(None, schedule.problem.capacity)) == max(filter(None, problem.capacity))


def test_all_forwards_before_all_backwards_do_not_repeat():
    problem = Problem.uniform(devices=3, microbatches=12)
    assert shortest_repeat(ordered(problem, "GPipe")) is None


def test_the_group_of_what_is_repeated_divides_the_microbatches_that_are_added():
    problem = Problem.uniform(devices=2, microbatches=12, placement="interleaved", stages=4)
    current = ordered(problem, "Interleaved 1F1B")
    assert shortest_repeat(current, multiple_of=6).group == 2  # rounds of p microbatches
    assert shortest_repeat(current, multiple_of=5) is None
