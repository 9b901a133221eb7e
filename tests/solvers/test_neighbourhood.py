"""Windows: each is exact, and a walk of them ends at the optimum of small problems."""

from itertools import pairwise

import pytest

from schedopt import Problem, Schedule, check, classic
from schedopt.graph import build_graph
from schedopt.solvers.capacity import shortages, smallest_passages
from schedopt.solvers.instance import build_instance
from schedopt.solvers.list_schedule import list_schedule
from schedopt.solvers.neighbourhood import WindowSearch, window
from schedopt.solvers.order_model import OrderModel
from schedopt.solvers.ordered import OrderedInstance
from schedopt.solvers.portfolio import first_in_first_out, priorities
from schedopt.solvers.stretch import shortest_repeat
from tests.brute_force import brute_force
from tests.problems import random_problems
from tests.solvers.test_solve import v_of_fifties


def start_of(problem: Problem):
    """Graph, instance and a first schedule; None if infeasible."""
    graph = build_graph(problem)
    instance = build_instance(graph)
    passages = smallest_passages(instance)
    if shortages(instance, passages):
        return None
    rule = priorities(instance)["farthest from its end"]
    return graph, instance, list_schedule(instance, passages, rule).sequences


@pytest.mark.parametrize(("objective", "ops"), [("makespan", 18), ("period", 12)])
def test_a_walk_ends_at_the_optimum_of_tiny_problems(objective, ops):
    """For the period the first starts are kept in a window, so it may end above."""
    missed = 0
    for problem in random_problems(60, seed=81, ops=ops, objective=objective):
        start = start_of(problem)
        if start is None:
            continue
        graph, instance, sequences = start
        optimum = brute_force(problem)
        search = WindowSearch(instance, sequences, bound=0, seed=1)
        for _ in range(40):
            search.step()
        found = Schedule.from_order(graph, instance.orders(search.current.sequences))
        assert check(found) == ()
        assert found.objective >= optimum
        missed += found.objective > optimum
    assert missed <= (0 if objective == "makespan" else 6)


def test_every_step_keeps_a_valid_schedule_that_is_not_worse():
    problem = Problem.uniform(
        devices=4,
        microbatches=8,
        placement="v",
        F=5,
        B=4,
        W=3,
        lag=1,
        capacity=6,
        memory={"F": 1, "B": -0.5, "W": -0.5},
    )
    graph, instance, sequences = start_of(problem)
    search = WindowSearch(instance, sequences, bound=0, seed=3)
    values = [search.current.value]
    for _ in range(25):
        search.step()
        values.append(search.current.value)
        assert check(Schedule.from_order(graph, instance.orders(search.current.sequences))) == ()
    assert values == sorted(values, reverse=True)
    assert values[-1] < values[0]


def test_the_optimum_of_a_window_is_that_of_the_whole_with_the_rest_kept():
    problem = Problem.uniform(
        devices=3,
        microbatches=5,
        F=3,
        B=4,
        W=2,
        lag=1,
        capacity=4,
        memory={"F": 2, "B": -1, "W": -1},
    )
    _, instance, sequences = start_of(problem)
    current = OrderedInstance(instance, sequences)
    sub, members = window(current, 10, 30, {0, 1, 2})
    model = OrderModel(sub, horizon=current.value, bound=0)
    model.build()
    best_of_window = model.solve(time_limit=30, workers=1)
    # the whole problem, with the order of every pair that is not inside the window fixed
    inside = set(members)
    whole = OrderModel(instance, horizon=current.value, bound=0)
    whole.build()
    for ops in current.sequences:
        for k, a in enumerate(ops):
            for b in ops[k + 1 :]:
                if not (a in inside and b in inside):
                    whole.model.add(whole.starts[b] >= whole.starts[a] + instance.duration[a])
    for a, start in enumerate(current.starts):
        if start < 10:
            whole.model.add(whole.starts[a] == start)
    expected = whole.solve(time_limit=30, workers=1)
    assert best_of_window.status == expected.status == "optimal"
    reached = max(
        [best_of_window.bound]
        + [
            current.starts[a] + instance.duration[a] + current.tails[a]
            for a in range(len(instance.ops))
            if current.starts[a] < 10 and not _leads_into(instance, current, a, inside)
        ]
    )
    assert reached == expected.bound


def _leads_into(instance, current, a: int, inside: set[int]) -> bool:
    """Whether a path from `a` enters the window."""
    following = {x: y for ops in current.sequences for x, y in pairwise(ops)}
    seen, stack = set(), [a]
    while stack:
        x = stack.pop()
        if x in inside:
            return True
        if x not in seen:
            seen.add(x)
            stack += [y for y, _ in instance.successors[x]]
            stack += [following[x]] if x in following else []
    return False


def test_resources_outside_the_band_keep_their_order():
    problem = Problem.uniform(devices=3, microbatches=5, lag=1, capacity=3)
    _, instance, sequences = start_of(problem)
    current = OrderedInstance(instance, sequences)
    sub, members = window(current, 0, current.value, {1})
    model = OrderModel(sub, horizon=current.value, bound=0)
    model.build(spread=True)
    outcome = model.solve(time_limit=20, workers=1)
    for resource in (0, 2):
        assert tuple(members[w] for w in outcome.sequences[resource]) == sequences[resource]


def test_the_same_seed_takes_the_same_walk():
    problem = Problem.uniform(devices=4, microbatches=6, F=3, B=2, W=2, lag=1, capacity=3)
    _, instance, sequences = start_of(problem)

    def walk() -> tuple:
        search = WindowSearch(instance, sequences, bound=0, seed=5)
        for _ in range(15):
            search.step()
        return search.current.sequences, search.windows

    assert walk() == walk()


def test_what_is_kept_stays_and_the_rest_is_improved():
    problem = v_of_fifties(4, 12, 4)
    graph = build_graph(problem)
    instance = build_instance(graph)
    orders = first_in_first_out(classic.v_min(problem).orders, problem)
    sequences = instance.sequences(orders)
    repeat = shortest_repeat(OrderedInstance(instance, sequences), multiple_of=1)

    def kept() -> list[tuple[int, ...]]:
        return [
            ops[begin:end]
            for ops, begin, end in zip(
                search.current.sequences, repeat.begin, repeat.end, strict=True
            )
        ]

    search = WindowSearch(instance, sequences, bound=0, seed=2, kept=repeat)
    before, value = kept(), search.current.value
    for _ in range(15):
        search.step()
    assert kept() == before
    assert search.current.value < value
    assert check(Schedule.from_order(graph, instance.orders(search.current.sequences))) == ()


def test_idle_times_are_what_work_leaves_of_the_makespan():
    problem = v_of_fifties(3, 6, 6)
    _, instance, sequences = start_of(problem)
    search = WindowSearch(instance, sequences, bound=0, seed=0)
    for band in ({0}, {1, 2}, {0, 1, 2}):
        gaps = search._idle(band)
        work = sum(
            d for d, r in zip(instance.duration, instance.resource, strict=True) if r in band
        )
        assert sum(map(len, gaps)) == len(band) * search.current.value - work
