"""List schedules are always complete and always within memory."""

import pytest

from schedopt import Problem, Schedule, check
from schedopt.graph import build_graph
from schedopt.solvers.capacity import shortages, smallest_passages
from schedopt.solvers.instance import build_instance
from schedopt.solvers.list_schedule import list_schedule
from schedopt.solvers.portfolio import candidates, justified, priorities
from tests.problems import random_problems


def violations_of_all_rules(problem: Problem) -> list:
    graph = build_graph(problem)
    instance = build_instance(graph)
    passages = smallest_passages(instance)
    if shortages(instance, passages):
        return []
    found = []
    for candidate in candidates(graph, instance, passages):
        if not candidate.classic:
            found += check(Schedule.from_order(graph, candidate.build()))
    first = list_schedule(instance, passages, priorities(instance)["longest path"])
    for turned in justified(instance, passages, first.starts):
        found += check(Schedule.from_order(graph, instance.orders(turned.sequences)))
    return found


def test_every_rule_gives_a_valid_schedule_of_random_problems():
    for problem in random_problems(150, seed=21):
        assert violations_of_all_rules(problem) == [], problem.name


@pytest.mark.parametrize(
    ("placement", "stages", "least"),
    [("linear", 4, 1), ("v", 8, 2), ("interleaved", 12, 3), ("wave", 16, 4)],
)
@pytest.mark.parametrize("spare", [0, 1, 2.5])
def test_many_microbatches_never_get_stuck_in_the_least_memory(placement, stages, least, spare):
    problem = Problem.uniform(
        devices=4,
        microbatches=13,
        placement=placement,
        stages=stages,
        memory={"F": 1, "B": -0.5, "W": -0.5},
        capacity=least + spare,
        lag=0.3,
    )
    assert violations_of_all_rules(problem) == []


def test_patience_holds_an_op_back_for_a_better_one():
    # at time 2 device 0 can run W (10 long) or wait one unit for B
    problem = Problem(
        devices=2,
        microbatches=2,
        durations={"F": 1, "B": 1, "W": [10, 1]},
        memory={"F": 1, "capacity": None},
    )
    instance = build_instance(build_graph(problem))
    passages = smallest_passages(instance)
    rule = priorities(instance)["nearest to its end"]
    ends = [
        max(
            start + duration
            for start, duration, op in zip(
                list_schedule(instance, passages, rule, patience=patience).starts,
                instance.duration,
                instance.ops,
                strict=True,
            )
            if op.kind == "B" and op.stage == 0
        )
        for patience in (0.0, 0.5)
    ]
    assert ends[1] < ends[0]


def test_the_starts_are_what_the_orders_give_or_later():
    for problem in random_problems(40, seed=23):
        graph = build_graph(problem)
        instance = build_instance(graph)
        passages = smallest_passages(instance)
        if shortages(instance, passages):
            continue
        found = list_schedule(instance, passages, priorities(instance)["longest path"])
        schedule = Schedule.from_order(graph, instance.orders(found.sequences))
        assert schedule.makespan <= instance.objective(found.starts) * instance.step


def test_a_resource_that_may_not_idle_starts_what_it_has():
    problem = Problem(
        devices=2,
        microbatches=2,
        durations={"F": 1, "B": 1, "W": [10, 1]},
        memory={"F": 1, "capacity": None},
    )
    instance = build_instance(build_graph(problem))
    passages = smallest_passages(instance)
    rule = priorities(instance)["nearest to its end"]
    waits = list_schedule(instance, passages, rule, patience=1.0)
    works = list_schedule(instance, passages, rule, patience=1.0, may_idle=[0, 0])
    names = [
        [f"{instance.ops[a].kind}{instance.ops[a].microbatch}" for a in found.sequences[0]]
        for found in (waits, works)
    ]
    assert names[0].index("B1") < names[0].index("W0")
    assert names[1].index("W0") < names[1].index("B1")
