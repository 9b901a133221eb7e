"""The capacity test decides infeasibility, and nothing else does."""

from schedopt import Problem, solve
from schedopt.graph import build_graph
from schedopt.solvers.capacity import shortages, smallest_passages
from schedopt.solvers.instance import build_instance
from tests.brute_force import brute_force
from tests.problems import random_problems


def shortages_of(problem: Problem):
    instance = build_instance(build_graph(problem))
    return shortages(instance, smallest_passages(instance))


def test_a_problem_is_infeasible_exactly_if_the_test_finds_a_shortage():
    infeasible = 0
    for problem in random_problems(150, seed=11, ops=12):
        short = bool(shortages_of(problem))
        assert short == (brute_force(problem) is None), problem.name
        infeasible += short
    assert infeasible >= 3  # the seed does contain such problems


def test_the_reason_names_device_need_and_capacity():
    problem = Problem(
        devices=4,
        microbatches=6,
        durations={"F": 2, "B": 2, "W": 2},
        memory={"F": [4, 2, 2, 3], "B": [-2, -1, -1, -1], "capacity": [3, 8, 8, 6]},
    )
    solution = solve(problem)
    assert solution.status == "infeasible"
    assert solution.reasons == (
        "device 0 needs 4 activations (0 static + 4 for one microbatch), its capacity is 3",
    )
    assert solution.schedule is None


def test_all_devices_that_are_too_small_are_named():
    problem = Problem.uniform(devices=4, microbatches=2, memory={"static": [6, 0, 0, 6]})
    reasons = solve(problem.with_capacity(6)).reasons
    assert [reason.split(" needs")[0] for reason in reasons] == ["device 0", "device 3"]


def test_memory_that_the_input_gradient_acquires_counts():
    fields = {"devices": 3, "microbatches": 3, "memory": {"F": 2, "B": 1, "W": -3}}
    assert solve(Problem.uniform(**fields, capacity=2)).status == "infeasible"
    assert solve(Problem.uniform(**fields, capacity=3)).status == "optimal"


def test_the_best_order_of_one_microbatch_is_found_not_just_any():
    # W of the second stage holds 5 while it runs: it fits after B of the first stage only
    problem = Problem(
        devices=1,
        placement=[0, 0],
        microbatches=1,
        durations={"F": 1, "B": 1, "W": 1},
        memory={
            "F": 4,
            "B": -3,
            "W": -1,
            "transient": {"W": [0, 5]},
            "capacity": 8,
        },
    )
    assert shortages_of(problem) == []
    assert shortages_of(problem.with_capacity(7))[0].needed == 8
    assert solve(problem).status == "optimal"


def test_static_memory_above_the_capacity_is_a_shortage_without_any_op():
    problem = Problem.uniform(devices=2, microbatches=1, memory={"static": 3, "F": 0})
    assert solve(problem.with_capacity(2)).status == "infeasible"


def test_the_longest_microbatch_decides():
    problem = Problem.uniform(devices=2, microbatches=2, microbatch_factors=[1, 3])
    assert solve(problem.with_capacity(2)).reasons[0] == (
        "device 0 needs 3 activations (0 static + 3 for one microbatch (microbatch 1)), "
        "its capacity is 2"
    )
