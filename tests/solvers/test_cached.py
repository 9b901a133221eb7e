"""Solving again with a cache."""

from fractions import Fraction

import pytest

from schedopt.cache import Cache, Entry
from schedopt.problem import Problem
from schedopt.solvers import engine, solve
from tests.schedules import schedule_of

PROBLEM = Problem.uniform(devices=2, microbatches=3, F=1, B=1, W=1)
SLOW = schedule_of(
    PROBLEM, "0F0 0B0 0W0 0F1 0B1 0W1 0F2 0B2 0W2", "1F0 1B0 1W0 1F1 1B1 1W1 1F2 1B2 1W2"
)


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache")


def test_a_solved_problem_is_answered_from_the_cache(cache):
    first = solve(PROBLEM, workers=1, cache=cache)
    second = solve(PROBLEM.replace(name="again"), workers=1, cache=cache)
    assert (first.status, second.status) == ("optimal", "optimal")
    assert second.objective == first.objective == 10
    assert second.objective_source == f"cache: {first.objective_source}"
    assert second.schedule.problem.name == "again"
    assert second.schedule.name == "solved"
    assert [stage.name for stage in second.stages] == ["bounds", "cache", "portfolio"]
    assert cache.notes == []


def test_what_is_better_than_the_cache_is_stored_without_its_prefix(cache):
    cache.store(Entry(SLOW, Fraction(0), "nothing", "by hand"))
    found = solve(PROBLEM, workers=1, cache=cache)
    assert found.objective == 10
    kept = cache.load(PROBLEM)
    assert kept.objective == 10
    assert kept.status == "optimal"
    assert "cache" not in kept.objective_source + kept.bound_source


def test_a_false_bound_in_the_cache_is_a_fault_and_not_used(cache):
    cache.store(Entry(SLOW, Fraction(12), "a lie", "by hand"))
    found = solve(PROBLEM, workers=1, cache=cache)
    assert found.objective == 10
    assert found.bound <= found.objective
    assert found.faults == (
        "cache: a lie: the bound 12 is above a valid schedule of 10; it is not used any more",
    )
    assert cache.load(PROBLEM).bound_source != "a lie"


def test_an_infeasible_problem_stores_nothing(cache):
    assert solve(PROBLEM.with_capacity(0.5), workers=1, cache=cache).status == "infeasible"
    assert cache.size() == 0


def test_an_interrupted_search_stores_what_it_found(cache, monkeypatch):
    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine.Search, "_improve", interrupt)
    tight = PROBLEM.with_capacity(1)
    found = solve(tight, workers=1, cache=cache)
    assert found.interrupted
    assert cache.load(tight).objective == found.objective


def test_index_order_does_not_take_a_schedule_that_breaks_it(cache):
    unequal = PROBLEM.replace(microbatch_factors=[1, 2, 3])
    turned = schedule_of(
        unequal, "0F2 0F1 0F0 0B2 0W2 0B1 0W1 0B0 0W0", "1F2 1B2 1W2 1F1 1B1 1W1 1F0 1B0 1W0"
    )
    cache.store(Entry(turned, Fraction(0), "nothing", "by hand"))
    found = solve(unequal, workers=1, index_order=True, time_limit=2, cache=cache)
    for ops in found.schedule.orders.values():
        forward = [op.microbatch for op in ops if op.kind == "F"]
        assert forward == sorted(forward)
