"""An instance with orders: its value is the objective of the schedule."""

import pytest

from schedopt import Problem, Schedule
from schedopt.graph import build_graph
from schedopt.op import Op, Resource
from schedopt.solvers.capacity import shortages, smallest_passages
from schedopt.solvers.instance import build_instance
from schedopt.solvers.ordered import OrderedInstance
from schedopt.solvers.portfolio import candidates
from tests.problems import random_problems


@pytest.mark.parametrize("objective", ["makespan", "period"])
def test_the_value_is_the_objective_of_the_schedule(objective):
    for problem in random_problems(40, seed=71, objective=objective):
        graph = build_graph(problem)
        instance = build_instance(graph)
        passages = smallest_passages(instance)
        if shortages(instance, passages):
            continue
        for candidate in candidates(graph, instance, passages):
            orders = candidate.build()
            if orders is not None:
                ordered = OrderedInstance(instance, instance.sequences(orders))
                schedule = Schedule.from_order(graph, orders)
                assert ordered.value * instance.step == schedule.objective


def test_every_longest_path_is_as_long_as_its_tail_says():
    problem = Problem.uniform(devices=3, microbatches=4, F=2, B=3, W=1, lag=1)
    instance = build_instance(build_graph(problem))
    ordered = OrderedInstance(instance, instance.ops_of_resource)
    paths = [
        start + duration + tail
        for start, duration, tail in zip(
            ordered.starts, instance.duration, ordered.tails, strict=True
        )
    ]
    assert max(paths) == ordered.value
    assert all(path >= 0 for path in paths)


def test_orders_that_wait_for_each_other_are_refused():
    problem = Problem.uniform(devices=1, microbatches=1)
    instance = build_instance(build_graph(problem))
    turned = instance.sequences(
        {Resource("compute", 0): [Op("W", 0, 0), Op("B", 0, 0), Op("F", 0, 0)]}
    )
    with pytest.raises(ValueError, match="circle"):
        OrderedInstance(instance, turned)
