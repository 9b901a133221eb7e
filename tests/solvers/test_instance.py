"""The graph as arrays."""

from schedopt.graph import build_graph
from schedopt.problem import Problem
from schedopt.solvers.instance import MAX_HORIZON, Instance, build_instance
from tests.problems import random_problems


def instance_of(**fields) -> Instance:
    return build_instance(build_graph(Problem.uniform(devices=3, microbatches=4, **fields)))


def test_all_times_ten_times_as_long_are_the_same_instance_with_another_step():
    small = instance_of(F=2, B=3, W=4, lag=1, capacity=2)
    large = instance_of(F=20, B=30, W=40, lag=10, capacity=2)
    assert large.step == 10 * small.step
    assert (large.duration, large.successors) == (small.duration, small.successors)


def test_memory_in_another_unit_is_the_same_instance():
    small = instance_of(capacity=2)
    large = instance_of(capacity=2000, memory={"F": 1000})
    assert (large.memory, large.available) == (small.memory, small.available)
    assert large.memory_step == 1000 * small.memory_step


def test_tenths_are_counted_exactly():
    instance = instance_of(F=0.1, B=0.2, W=0.3, lag=0.7)
    assert instance.exact
    assert sorted(set(instance.duration)) == [1, 2, 3]


def test_a_range_too_wide_for_the_search_is_rounded_down_and_said_so():
    instance = instance_of(F=10**18, B=10**18 + 1, W=1)
    assert not instance.exact
    assert sum(instance.duration) <= MAX_HORIZON
    assert all(
        d * instance.step <= {"F": 10**18, "B": 10**18 + 1, "W": 1}[op.kind]
        for op, d in zip(instance.ops, instance.duration, strict=True)
    )


def test_ops_are_in_topological_order():
    for problem in random_problems(30, seed=5):
        instance = build_instance(build_graph(problem))
        assert all(a < b for a, after in enumerate(instance.successors) for b, _ in after)


def test_turning_time_twice_changes_nothing():
    for problem in random_problems(30, seed=6):
        instance = build_instance(build_graph(problem))
        twice = instance.reversed().reversed()
        assert twice.ops == instance.ops
        assert twice.memory == instance.memory
        assert [sorted(arcs) for arcs in twice.successors] == [
            sorted(arcs) for arcs in instance.successors
        ]
        assert [sorted(arcs) for arcs in twice.within_microbatch] == [
            sorted(arcs) for arcs in instance.within_microbatch
        ]


def test_heads_of_the_turned_instance_are_the_tails():
    for problem in random_problems(30, seed=7):
        instance = build_instance(build_graph(problem))
        assert instance.reversed().heads() == instance.tails()[::-1]


def test_orders_and_sequences_are_inverse():
    instance = instance_of()
    sequences = instance.ops_of_resource
    assert instance.sequences(instance.orders(sequences)) == sequences
