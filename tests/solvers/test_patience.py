"""The search of patience finds short periods, and only valid schedules."""

import pytest

from schedopt import Schedule, check
from schedopt.bundled import load_bundled
from schedopt.graph import build_graph
from schedopt.solvers.bounds import closed_form_bound
from schedopt.solvers.capacity import shortages, smallest_passages
from schedopt.solvers.instance import build_instance
from schedopt.solvers.patience import PATIENCES, TARGETS, PatienceSearch
from schedopt.solvers.portfolio import PATIENT_RULE, priorities
from tests.problems import random_problems


def searched(problem, *, schedules: int, seed: int = 0):
    graph = build_graph(problem)
    instance = build_instance(graph)
    passages = smallest_passages(instance)
    if shortages(instance, passages):
        return None
    search = PatienceSearch(
        instance,
        passages,
        priorities(instance)[PATIENT_RULE],
        bound=closed_form_bound(instance).value,
        best=10 * sum(instance.duration),
        seed=seed,
    )
    found = []
    search.run(until=lambda: search.schedules >= schedules, on_better=found.append)
    return [Schedule.from_order(graph, instance.orders(one.sequences)) for one in found], search


def at(share: float, name: str):
    problem = load_bundled(name).replace(objective="period")
    return problem.with_capacity(problem.capacity[0] * share)


@pytest.mark.parametrize(
    ("name", "period"),
    [
        ("zb-1.5b-p8-m32", 1531074),  # published: 1539958
        ("zb-1.5b-p8-m64", 3004859),  # published: 3023213
        ("zb-6.2b-p8-m24", 1992750),
    ],
)
def test_it_finds_optimal_periods_at_one_and_a_half_times_the_memory_of_1f1b(name, period):
    schedules, _ = searched(at(1.5, name), schedules=len(PATIENCES) * len(TARGETS))
    assert schedules[-1].objective == period  # the bound is met, so it stopped
    assert not check(schedules[-1])


def test_every_schedule_is_valid_and_better_than_the_one_before():
    for problem in random_problems(40, seed=77, objective="period"):
        result = searched(problem, schedules=90)
        if result is None:
            continue
        schedules, _ = result
        assert schedules
        assert [violation for one in schedules for violation in check(one)] == []
        values = [one.objective for one in schedules]
        assert values == sorted(set(values), reverse=True)


def test_the_same_seed_walks_the_same_way():
    problem = at(2, "zb-1.5b-p8-m24")
    runs = [searched(problem, schedules=90, seed=5) for _ in range(2)]
    assert [one.orders for one in runs[0][0]] == [one.orders for one in runs[1][0]]
    assert runs[0][1].deterministic_time == runs[1][1].deterministic_time > 0
