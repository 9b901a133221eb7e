"""Relaxations bound the whole problem from below."""

import pytest

from schedopt import Problem
from schedopt.graph import build_graph
from schedopt.solvers.instance import build_instance
from schedopt.solvers.order_model import OrderModel
from schedopt.solvers.relaxation import growing, relaxed
from tests.brute_force import brute_force
from tests.problems import random_problems


def optimum_of(instance, horizon: int) -> int:
    model = OrderModel(instance, horizon=horizon, bound=0)
    model.build()
    outcome = model.solve(time_limit=60, workers=1)
    assert outcome.status == "optimal"
    return outcome.bound


@pytest.mark.parametrize(("objective", "ops"), [("makespan", 18), ("period", 12)])
def test_no_relaxation_is_above_the_optimum_and_that_to_all_devices_is_it(objective, ops):
    for problem in random_problems(40, seed=91, ops=ops, objective=objective):
        optimum = brute_force(problem)
        if optimum is None:
            continue
        instance = build_instance(build_graph(problem))
        horizon = int(optimum / instance.step)
        every = range(problem.devices)
        assert optimum_of(relaxed(instance, every), horizon) == horizon
        for device in every:
            assert optimum_of(relaxed(instance, [device]), horizon) <= horizon


def test_the_first_device_alone_shows_what_its_memory_costs():
    problem = Problem.uniform(
        devices=4,
        microbatches=8,
        F=100,
        B=100,
        W=100,
        lag=10,
        memory={"F": 2, "B": -1, "W": -1},
        capacity=8,
    )
    instance = build_instance(build_graph(problem))
    assert optimum_of(relaxed(instance, [0]), 400) * instance.step == 2820
    free = build_instance(build_graph(problem.with_capacity(None)))
    assert optimum_of(relaxed(free, [0]), 400) * free.step < 2820


def sets_of(devices, bounds: dict[frozenset[int], int]) -> list[set[int]]:
    """The sets that are tried when each gives its bound, else 0."""
    subsets = growing(devices)
    tried = []
    kept = next(subsets, None)
    while kept is not None:
        tried.append(set(kept))
        try:
            kept = subsets.send(bounds.get(kept, 0))
        except StopIteration:
            kept = None
    return tried


def test_sets_grow_from_the_best_one_while_that_improves_the_bound():
    better = {frozenset((0,)): 5, frozenset((0, 2)): 7}
    tried = sets_of(range(4), better)
    assert tried[:3] == [{0}, {3}, {2}]
    assert tried[3:6] == [{0, 3}, {0, 1}, {0, 2}]
    assert tried[6:] == [{0, 2, 3}, {0, 1, 2}]


def test_no_set_holds_all_devices():
    rising = {frozenset(range(k)): k for k in range(1, 5)}
    assert sets_of([0], rising) == []
    assert sets_of([0, 1], rising) == [{0}, {1}]
    assert max(map(len, sets_of(range(4), rising))) == 3
