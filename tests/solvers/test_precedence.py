"""What time and memory decide before the search is true of every good schedule."""

from schedopt import Problem, solve
from schedopt.graph import build_graph
from schedopt.op import Op
from schedopt.solvers.instance import build_instance
from schedopt.solvers.precedence import Precedence
from tests.brute_force import brute_force
from tests.problems import random_problems


def precedence_of(problem: Problem, horizon: int | None):
    instance = build_instance(build_graph(problem))
    return instance, Precedence(instance, horizon)


def holds(instance, precedence, before: Op, after: Op) -> bool:
    number = {op: a for a, op in enumerate(instance.ops)}
    return bool(precedence.after[number[before]] >> number[after] & 1)


def test_room_for_four_microbatches_lets_the_fifth_wait_for_the_first():
    instance, precedence = precedence_of(
        Problem.uniform(devices=2, microbatches=8, capacity=4), None
    )
    for stage in (0, 1):
        for i in range(4):
            assert holds(instance, precedence, Op("W", stage, i), Op("F", stage, i + 4))
        assert not holds(instance, precedence, Op("W", stage, 1), Op("F", stage, 4))


def test_memory_that_b_releases_decides_only_what_it_must():
    # capacity 3 halves: the third F needs both halves of the first, or one of two microbatches
    instance, precedence = precedence_of(
        Problem.uniform(devices=1, microbatches=3, memory={"F": 2, "B": -1, "W": -1}, capacity=3),
        None,
    )
    assert holds(instance, precedence, Op("B", 0, 0), Op("F", 0, 1))
    assert not holds(instance, precedence, Op("W", 0, 0), Op("F", 0, 1))
    assert holds(instance, precedence, Op("W", 0, 0), Op("F", 0, 2))


def test_the_optimum_is_never_cut_off():
    for problem in random_problems(150, seed=31):
        optimum = brute_force(problem)
        if optimum is None:
            continue
        instance = build_instance(build_graph(problem))
        horizon = int(optimum / instance.step)
        assert not Precedence(instance, horizon).contradiction, problem.name


def test_an_optimal_schedule_agrees_with_all_that_was_decided():
    problem = Problem.uniform(devices=3, microbatches=5, capacity=2, F=3, B=4, W=2, lag=1)
    solution = solve(problem, workers=1)
    instance, precedence = precedence_of(problem, int(solution.objective))
    assert precedence.arcs
    position = {op: k for ops in solution.schedule.orders.values() for k, op in enumerate(ops)}
    ends = {t.op: (t.start, t.end) for ops in solution.schedule.timeline.values() for t in ops}
    for a, b in precedence.arcs:
        first, second = instance.ops[a], instance.ops[b]
        assert position[first] < position[second]
        assert ends[first][1] <= ends[second][0]


def test_a_horizon_below_the_longest_path_is_a_contradiction():
    problem = Problem.uniform(devices=3, microbatches=1)
    assert Precedence(build_instance(build_graph(problem)), 6).contradiction
    assert not Precedence(build_instance(build_graph(problem)), 7).contradiction


def test_heads_count_the_work_that_must_come_first_on_the_resource():
    instance, precedence = precedence_of(
        Problem.uniform(devices=1, microbatches=3, capacity=1), None
    )
    number = {op: a for a, op in enumerate(instance.ops)}
    assert precedence.frames[0].head[number[Op("F", 0, 2)]] == 6
