"""Everything exact in the search against a second exact solver (`tests.milp`).

Both are given random problems of up to three devices and four microbatches. The other solver
does not keep equal microbatches in order and sees memory differently, so that a mistake of one
is hardly one of the other.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import pytest

from schedopt import Problem, Schedule, check, solve
from schedopt.graph import build_graph
from schedopt.solvers.capacity import shortages, smallest_passages
from schedopt.solvers.instance import Instance, build_instance
from schedopt.solvers.neighbourhood import WindowSearch, window
from schedopt.solvers.order_model import OrderModel, Outcome
from schedopt.solvers.ordered import OrderedInstance
from schedopt.solvers.periodic import PeriodicModel
from tests.milp import milp_optimum, shortest_modulo_period
from tests.problems import random_problems
from tests.solvers.test_neighbourhood import start_of

SETS = {"makespan": (202, 24), "period": (204, 18)}
"""Seed and most ops, of problems that HiGHS solves in a second each."""
every_set = pytest.mark.parametrize("objective", SETS)


@cache
def optima(objective: str) -> list[tuple[Problem, Fraction | None]]:
    """Problems with their optimum by the other solver."""
    seed, ops = SETS[objective]
    problems = random_problems(25, seed=seed, ops=ops, most=4, objective=objective)
    return [(problem, milp_optimum(problem)) for problem in problems]


def optimum_of_order_model(instance: Instance) -> Outcome:
    """The order model alone, which knows no schedule and no bound."""
    lags = sum(lag for after in instance.successors for _, lag in after)
    model = OrderModel(instance, horizon=sum(instance.duration) + lags, bound=0)
    model.build()
    return model.solve(time_limit=60, workers=1)


def test_the_problems_are_of_every_kind() -> None:
    found = [problem for objective in SETS for problem, _ in optima(objective)]
    stages = [data for problem in found for data in problem.stage_data]
    assert {problem.placement_name for problem in found} >= {"linear", "v"}
    assert {problem.devices for problem in found} == {1, 2, 3}
    assert {problem.microbatches for problem in found} == {1, 2, 3, 4}
    assert {data.backward for data in stages} == {"B", "BW"}
    assert any(len({str(data.durations) for data in p.stage_data}) > 1 for p in found)
    assert any(len({str(data.memory) for data in p.stage_data}) > 1 for p in found)
    assert any(len(set(p.factors)) > 1 for p in found)
    assert any(optimum is None for objective in SETS for _, optimum in optima(objective))


@every_set
def test_the_order_model_has_the_optimum_of_the_other_solver(objective: str) -> None:
    for problem, optimum in optima(objective):
        instance = build_instance(build_graph(problem))
        outcome = optimum_of_order_model(instance)
        assert outcome.status == ("infeasible" if optimum is None else "optimal"), problem.name
        if outcome.starts is not None:
            assert instance.objective(outcome.starts) * instance.step == optimum, problem.name


@every_set
def test_the_whole_search_has_the_optimum_of_the_other_solver(objective: str) -> None:
    for problem, optimum in optima(objective):
        solution = solve(problem, workers=1, deterministic_limit=1)
        assert solution.status == ("infeasible" if optimum is None else "optimal"), problem.name
        assert solution.objective == optimum, problem.name
        assert solution.faults == ()


def test_a_window_over_everything_has_the_optimum_of_the_other_solver() -> None:
    for problem, optimum in optima("makespan"):
        start = start_of(problem)
        if start is None:
            assert optimum is None
            continue
        _, instance, sequences = start
        current = OrderedInstance(instance, sequences)
        sub, members = window(current, -1, current.value + 1, set(range(len(sequences))))
        assert len(members) == len(instance.ops)
        model = OrderModel(sub, horizon=current.value, bound=0)
        model.build()
        outcome = model.solve(time_limit=60, workers=1)
        assert outcome.status == "optimal"
        assert outcome.bound * instance.step == optimum, problem.name


@every_set
def test_windows_are_never_worse_than_their_start_nor_below_the_optimum(objective: str) -> None:
    for problem, optimum in optima(objective):
        start = start_of(problem)
        if start is None:
            continue
        graph, instance, sequences = start
        search = WindowSearch(instance, sequences, bound=0, seed=2)
        value = search.current.value
        for _ in range(10):
            search.step()
            assert search.current.value <= value
            value = search.current.value
        found = Schedule.from_order(graph, instance.orders(search.current.sequences))
        assert check(found) == ()
        assert found.objective >= optimum, problem.name
        assert search.faults == []


def shortest_by_model(instance: Instance) -> int | None:
    """The smallest period that the periodic model can do, tried one after the other."""
    model = PeriodicModel(instance)
    passage = sum(
        instance.duration[a] + sum(lag for _, lag in instance.within_microbatch[a])
        for a in model.ops
    )
    for period in range(model.least, passage + 1):
        if model.solve(period, workers=1, seed=0, time_limit=60) is not None:
            return period
    return None


def test_the_shortest_steady_state_is_that_of_the_other_solver() -> None:
    compared = 0
    for problem in random_problems(60, seed=7, most=2):
        durations = [d for data in problem.stage_data for d in data.durations.values()]
        instance = build_instance(build_graph(problem))
        if (
            not all(durations)
            or not PeriodicModel.applies(instance)
            or shortages(instance, smallest_passages(instance))
        ):
            continue
        period = shortest_by_model(instance)
        assert period is not None
        assert period * instance.step == shortest_modulo_period(problem), problem.name
        compared += 1
    assert compared >= 10


@pytest.mark.parametrize("lag", [1, 8, 20])
def test_a_steady_state_may_have_many_microbatches_on_their_way(lag: int) -> None:
    problem = Problem.uniform(devices=2, microbatches=4, lag=lag)
    instance = build_instance(build_graph(problem))
    assert shortest_by_model(instance) == shortest_modulo_period(problem) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "ops"), [("makespan", 24), ("period", 21)])
def test_many_more_problems_have_the_optimum_of_the_other_solver(objective: str, ops: int) -> None:
    for problem in random_problems(100, seed=100, ops=ops, most=4, objective=objective):
        optimum = milp_optimum(problem)
        solution = solve(problem, workers=1, deterministic_limit=10)
        assert solution.status == ("infeasible" if optimum is None else "optimal"), problem.name
        assert solution.objective == optimum, problem.name
