"""Where the search starts from."""

from schedopt import Problem, Schedule, check, classic
from schedopt.graph import build_graph
from schedopt.op import Op, Resource
from schedopt.solvers.capacity import smallest_passages
from schedopt.solvers.instance import build_instance
from schedopt.solvers.portfolio import candidates, first_in_first_out


def test_renaming_keeps_times_and_memory_and_gives_each_kind_its_order():
    problem = Problem.uniform(devices=1, microbatches=3)
    device = Resource("compute", 0)
    backwards = [Op("F", 0, i) for i in range(3)]
    backwards += [Op(kind, 0, i) for i in (2, 1, 0) for kind in ("B", "W")]
    renamed = first_in_first_out({device: backwards}, problem)[device]
    assert renamed == (
        *(Op("F", 0, i) for i in range(3)),
        *(Op(kind, 0, i) for i in range(3) for kind in ("B", "W")),
    )


def test_unequal_microbatches_are_renamed_only_among_equals():
    problem = Problem.uniform(devices=1, microbatches=3, microbatch_factors=[1, 2, 1])
    device = Resource("compute", 0)
    order = [Op(kind, 0, i) for i in (2, 1, 0) for kind in ("F", "B", "W")]
    renamed = first_in_first_out({device: order}, problem)[device]
    assert [op.microbatch for op in renamed if op.kind == "F"] == [0, 1, 2]


def test_every_classic_schedule_of_the_placement_is_a_candidate():
    problem = Problem.uniform(devices=4, microbatches=6, capacity=4)
    graph = build_graph(problem)
    instance = build_instance(graph)
    built = {
        candidate.name: candidate.build()
        for candidate in candidates(graph, instance, smallest_passages(instance))
        if candidate.classic
    }
    applicable = {name for name, orders in built.items() if orders is not None}
    assert applicable >= {"GPipe", "1F1B", "ZB-H1", "ZB-H2"}


def test_a_fused_classic_schedule_is_no_later_on_the_split_problem():
    problem = Problem.uniform(devices=4, microbatches=6, F=3, B=2, W=4, lag=1)
    graph = build_graph(problem)
    instance = build_instance(graph)
    found = {c.name: c for c in candidates(graph, instance, smallest_passages(instance))}
    split = Schedule.from_order(graph, found["1F1B"].build())
    assert check(split) == ()
    assert split.makespan <= classic.one_f_one_b(problem).makespan
