from __future__ import annotations

from itertools import pairwise
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedopt.errors import DeadlockError
from schedopt.graph import build_graph
from schedopt.op import Op, Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.timing import earliest_starts, shortest_period_starts
from tests.brute_force import best_order, period_of_orders
from tests.problems import orders_of, problems, random_orders

SPLIT = {"F": 1, "B": 1, "W": 1}


def parsed(orders: dict[int, str]) -> dict[Resource, list[Op]]:
    """Orders written as one text per device."""
    return {
        Resource("compute", device): [Op.parse(label) for label in labels.split()]
        for device, labels in orders.items()
    }


def starts(
    problem: Problem, orders: dict[int, str], timing: Any = earliest_starts
) -> dict[str, int]:
    result = timing(build_graph(problem), parsed(orders))
    return {str(op): start for op, start in result.items()}


ORDERS = {0: "0F0 0F1 0B0 0W0 0B1 0W1", 1: "1F0 1B0 1F1 1B1 1W0 1W1"}


def test_every_op_starts_as_early_as_lags_and_orders_allow() -> None:
    problem = Problem(
        devices=2,
        microbatches=2,
        durations={"F": [1, 2], "B": [1, 3], "W": [2, 1]},
        lag={"forward": 1, "backward": 2},
    )
    assert starts(problem, ORDERS) == {
        "0F0": 0,
        "0F1": 1,
        "1F0": 2,
        "1B0": 4,
        "1F1": 7,
        "1B1": 9,
        "1W0": 12,
        "1W1": 13,
        "0B0": 9,
        "0W0": 10,
        "0B1": 14,
        "0W1": 15,
    }


def test_first_in_first_out_is_no_rule_for_the_timing() -> None:
    orders = {0: "0F1 0F0 0B0 0B1 0W1 0W0"}
    problem = Problem(devices=1, microbatches=2, durations=SPLIT)
    assert starts(problem, orders) == {
        "0F1": 0,
        "0F0": 1,
        "0B0": 2,
        "0B1": 3,
        "0W1": 4,
        "0W0": 5,
    }


def test_times_are_in_steps_of_the_resolution() -> None:
    problem = Problem(devices=1, microbatches=1, durations={"F": 0.3, "B": 0.5, "W": 1})
    assert starts(problem, {0: "0F0 0B0 0W0"}) == {"0F0": 0, "0B0": 3, "0W0": 8}


@pytest.mark.parametrize("timing", [earliest_starts, shortest_period_starts])
def test_orders_that_wait_for_each_other_name_the_ops_of_the_circle(timing: Any) -> None:
    problem = Problem(devices=2, microbatches=2, durations={"F": 1, "BW": 1})
    orders = {0: "0F0 0BW0 0F1 0BW1", 1: "1F0 1F1 1BW0 1BW1"}
    with pytest.raises(DeadlockError) as caught:
        starts(problem, orders, timing)
    circle = [str(op) for op in caught.value.cycle]
    first = circle.index("0BW0")
    assert circle[first:] + circle[:first] == ["0BW0", "0F1", "1F1", "1BW0"]
    assert str(caught.value) == ("deadlock: these ops wait for each other: " + " -> ".join(circle))


def test_a_device_starts_later_where_that_makes_its_span_shorter() -> None:
    # device 1 could run 1F0 at 10, and would then wait for 1F1 until 20
    problem = Problem(
        devices=2,
        microbatches=2,
        durations={"F": [10, 1], "B": 1, "W": [0, 10]},
        objective="period",
    )
    orders = {0: "0F0 0F1 0B0 0B1 0W0 0W1", 1: "1F0 1F1 1B0 1B1 1W0 1W1"}
    schedule = Schedule.from_order(build_graph(problem), parsed(orders))
    assert starts(problem, orders)["1F0"] == 10
    assert starts(problem, orders, shortest_period_starts)["1F0"] == 19
    assert schedule.period == schedule.objective == 24
    assert schedule.makespan == 43


def test_the_start_of_each_device_is_the_earliest_for_the_shortest_period() -> None:
    problem = Problem(devices=2, microbatches=2, durations=SPLIT, objective="period")
    assert starts(problem, ORDERS, shortest_period_starts)["0F0"] == 0
    assert starts(problem, ORDERS, shortest_period_starts)["1F0"] == 1


def crossing(lag: int, other_lag: int) -> nx.DiGraph[Op]:
    """Two devices whose last op each waits for the first op of the other; all ops take 1."""
    graph: nx.DiGraph[Op] = nx.DiGraph()
    for label in ("0F0", "0F1", "1F0", "1F1"):
        graph.add_node(Op.parse(label), duration=1)
    graph.add_edge(Op("F", 0, 0), Op("F", 1, 1), lag=lag, reason="data")
    graph.add_edge(Op("F", 1, 0), Op("F", 0, 1), lag=other_lag, reason="data")
    return graph


@pytest.mark.parametrize(
    ("lags", "period"),
    [((10, 10), 12), ((10, 14), 14), ((10, 11), 13), ((0, 0), 2)],
)
def test_devices_that_wait_for_each_other_share_the_wait_in_whole_steps(
    lags: tuple[int, int], period: int
) -> None:
    # spans of 1 + lag + 1 from the first start of the other device: their mean, rounded up
    orders = parsed({0: "0F0 0F1", 1: "1F0 1F1"})
    found = shortest_period_starts(crossing(*lags), orders)
    spans = [found[ops[-1]] + 1 - found[ops[0]] for ops in orders.values()]
    assert max(spans) == period
    assert min(found.values()) == 0


def test_devices_that_need_not_wait_for_each_other_start_at_zero() -> None:
    problem = Problem(devices=2, placement=[0, 1], microbatches=1, durations=SPLIT, lag=5)
    result = starts(problem, {0: "0F0 0B0 0W0", 1: "1F0 1B0 1W0"}, shortest_period_starts)
    assert result["0F0"] == 0
    assert result["1F0"] == 6
    assert result["0B0"] == 13


def test_without_ops_on_a_device_the_others_count() -> None:
    problem = Problem(devices=3, placement=[2, 0], microbatches=1, durations=SPLIT)
    orders = {0: "1F0 1B0 1W0", 1: "", 2: "0F0 0B0 0W0"}
    for timing in (earliest_starts, shortest_period_starts):
        assert starts(problem, orders, timing)["0W0"] == 4


@given(problems(), st.data())
def test_no_op_can_start_earlier(problem: Problem, data: st.DataObject) -> None:
    orders = random_orders(problem, lambda low, high: data.draw(st.integers(low, high)))
    if orders is None:
        return
    graph = build_graph(problem)
    found = earliest_starts(graph, orders)
    end = {op: start + graph.nodes[op]["duration"] for op, start in found.items()}
    before = {op: a for ops in orders.values() for a, op in pairwise(ops)}
    for op, start in found.items():
        reasons = [0]
        for source, _, edge in graph.in_edges(op, data=True):
            if edge["reason"] != "fifo":
                reasons.append(end[source] + edge["lag"])
        if op in before:
            reasons.append(end[before[op]])
        assert start == max(reasons)


@settings(max_examples=150)
@given(problems(), st.data())
def test_the_period_of_given_orders_is_the_shortest_there_is(
    problem: Problem, data: st.DataObject
) -> None:
    def per_stage(longest: int) -> list[int]:
        return [data.draw(st.integers(0, longest)) for _ in problem.stage_data]

    free = problem.with_capacity(None).replace(
        objective="period",
        durations={"F": per_stage(9), "B": per_stage(5), "W": per_stage(20)},
        memory={},
    )
    orders = random_orders(free, lambda low, high: data.draw(st.integers(low, high)))
    assert orders is not None
    schedule = Schedule.from_order(build_graph(free), orders)
    shortest = period_of_orders(free, {r.device: order for r, order in orders.items()})
    assert schedule.period == shortest


@given(problems())
def test_the_best_order_timed_early_has_the_best_makespan(problem: Problem) -> None:
    best = best_order(problem)
    if best is not None:
        schedule = Schedule.from_order(build_graph(problem), orders_of(problem, best[1]))
        assert schedule.makespan == best[0]
