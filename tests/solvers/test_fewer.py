"""Solving a problem of fewer microbatches in place of the whole."""

import pytest

from schedopt import Problem, Schedule, check, classic, solve
from schedopt.graph import build_graph
from schedopt.solvers import engine, windows
from schedopt.solvers.fewer import Extension, enough_microbatches
from schedopt.solvers.instance import build_instance
from schedopt.solvers.portfolio import first_in_first_out
from tests.solvers.test_solve import v_of_fifties


def instance_of(problem: Problem):
    return build_instance(build_graph(problem))


@pytest.mark.parametrize("microbatches", [56, 63, 400])
def test_the_shorter_problem_differs_by_a_multiple_of_the_devices(microbatches: int):
    count = enough_microbatches(instance_of(Problem.uniform(devices=4, microbatches=microbatches)))
    assert 8 < count < microbatches / 2
    assert (microbatches - count) % 4 == 0


def test_it_applies_only_to_many_equal_microbatches():
    assert enough_microbatches(instance_of(Problem.uniform(devices=4, microbatches=20))) is None
    unequal = Problem.uniform(devices=2, microbatches=60, microbatch_factors=[1, 2] * 30)
    assert enough_microbatches(instance_of(unequal)) is None


def test_a_schedule_above_the_capacity_is_not_stretched():
    problem = v_of_fifties(4, 16, 4)
    extension = Extension(instance_of(problem), 20)
    for name in ("DualPipeV", "V-Half"):
        orders = first_in_first_out(classic.CLASSIC[name](problem).orders, problem)
        assert not extension.consider(name, extension.instance.sequences(orders))
    orders = classic.v_min(problem).orders
    assert extension.consider("V-Min", extension.instance.sequences(orders))
    assert extension.covered == {"DualPipeV", "V-Half", "V-Min"}
    best = extension.best
    longer = extension.orders(best.ordered.sequences, best.repeat)
    schedule = Schedule.from_order(build_graph(problem.replace(microbatches=36)), longer)
    assert check(schedule) == ()
    assert schedule.makespan == best.value * extension.instance.step


def test_a_large_problem_is_solved_by_a_shorter_one(monkeypatch):
    """A V with the memory of V-Min, where windows shorten the fill and the drain."""
    monkeypatch.setattr(engine, "LARGE", 100)
    monkeypatch.setattr(windows, "MOST_OPS", 1000)
    problem = v_of_fifties(4, 60, 4)
    solution = solve(problem, workers=1, deterministic_limit=0.5)
    assert "stretched from" in solution.objective_source
    assert not solution.faults
    assert check(solution.schedule) == ()
    fitting = (classic.zb_v(problem), classic.v_min(problem))
    assert solution.objective < min(schedule.makespan for schedule in fitting)


def test_a_large_problem_that_a_pattern_solves_needs_no_search(monkeypatch):
    monkeypatch.setattr(engine, "LARGE", 100)
    problem = Problem.uniform(devices=4, microbatches=64, F=3, B=2, W=2, lag=1, capacity=4)
    solution = solve(problem, workers=1, deterministic_limit=1.0)
    assert solution.status == "optimal"
    assert solution.objective == classic.zb_h1(problem).makespan
    assert [stage.name for stage in solution.stages][-2:] == ["fewer microbatches", "portfolio"]
