"""Bounds in closed form: never above the optimum, and tight where the literature has the value."""

import pytest

from schedopt import Problem
from schedopt.bundled import bundled_names, load_bundled
from schedopt.classic import zb_h1
from schedopt.graph import build_graph
from schedopt.memory import peak_memory
from schedopt.solvers.bounds import closed_form_bound, closed_form_bounds
from schedopt.solvers.instance import build_instance
from tests.brute_force import brute_force
from tests.problems import random_problems


def bounds_of(problem: Problem) -> dict[str, int]:
    instance = build_instance(build_graph(problem))
    return {bound.source: bound.value * instance.step for bound in closed_form_bounds(instance)}


@pytest.mark.parametrize(
    ("objective", "ops", "count"), [("makespan", 18, 300), ("period", 12, 120)]
)
def test_no_bound_is_above_the_optimum(objective, ops, count):
    for problem in random_problems(count, seed=41, ops=ops, objective=objective):
        optimum = brute_force(problem)
        if optimum is not None:
            for source, value in bounds_of(problem).items():
                assert value <= optimum, (problem.name, source)


ZERO_BUBBLE = [name for name in bundled_names() if name.startswith("zb-") and "profile" not in name]


@pytest.mark.parametrize("objective", ["makespan", "period"])
@pytest.mark.parametrize("name", ZERO_BUBBLE)
def test_zb_h1_is_optimal_with_the_memory_of_1f1b_on_the_published_rows(name, objective):
    problem = load_bundled(name).replace(objective=objective)
    instance = build_instance(build_graph(problem))
    bound = closed_form_bound(instance)
    schedule = zb_h1(problem)
    assert all(
        peak <= capacity
        for peak, capacity in zip(peak_memory(schedule), problem.capacity, strict=True)
    )
    assert bound.value * instance.step == schedule.objective
    assert bound.source == "fill and drain of compute 0"


def test_there_are_twelve_published_rows():
    assert len(ZERO_BUBBLE) == 12


def test_memory_held_over_time_bounds_a_tight_pipeline():
    # 32 microbatches, 4 at a time, each held for 8 F, 8 B and one W
    bounds = bounds_of(Problem.uniform(devices=8, microbatches=32, capacity=4))
    assert bounds["memory held over time on device 0"] == 32 / 4 * 17


def test_fill_and_drain_is_tight_with_the_memory_of_1f1b():
    problem = Problem.uniform(
        devices=8,
        microbatches=24,
        F=100,
        B=100,
        W=100,
        lag=10,
        memory={"F": 2, "B": -1, "W": -1},
        capacity=16,
    )
    assert bounds_of(problem)["fill and drain of compute 0"] == 8180


def test_heads_and_tails_count_stages_before_and_after():
    problem = Problem(devices=4, microbatches=4, durations={"F": [1, 1, 1, 5], "BW": [2, 2, 2, 10]})
    bounds = bounds_of(problem)
    assert bounds["heads, work and tails of compute 3"] == 3 + 60 + 6
    assert bounds["work of compute 3"] == 60


def test_the_period_counts_only_one_device():
    problem = Problem.uniform(devices=4, microbatches=8, capacity=7, objective="period")
    assert max(bounds_of(problem).values()) == 24
    assert max(bounds_of(problem.with_capacity(5)).values()) == 26
