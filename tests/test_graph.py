from __future__ import annotations

from fractions import Fraction
from typing import Any

import networkx as nx
import pytest
from hypothesis import given

from schedopt.graph import FIFO, attribute, build_graph
from schedopt.op import MemoryUse, Op, Resource
from schedopt.problem import Problem
from tests.brute_force import tasks_of
from tests.problems import problems

SPLIT = {"F": 1, "B": 1, "W": 1}


def graph_of(**fields: Any) -> nx.DiGraph[Op]:
    return build_graph(Problem(**{"devices": 2, "microbatches": 1, "durations": SPLIT, **fields}))


def edges(graph: nx.DiGraph[Op]) -> dict[str, tuple[int, str]]:
    """Edges that are not first-in-first-out: "0F0 1F0" -> (lag, reason)."""
    return {
        f"{tail} {head}": (data["lag"], data["reason"])
        for tail, head, data in graph.edges(data=True)
        if data["reason"] != FIFO
    }


def test_a_split_pipeline_has_these_edges() -> None:
    assert edges(graph_of(lag=3)) == {
        "0F0 0B0": (0, "data"),
        "0B0 0W0": (0, "data"),
        "1F0 1B0": (0, "data"),
        "1B0 1W0": (0, "data"),
        "0F0 1F0": (3, "activation"),
        "1B0 0B0": (3, "gradient"),
    }


def test_a_fused_stage_passes_its_gradient_on_at_the_end_of_the_fused_op() -> None:
    durations = {"F": 1, "B": [2, None, 2], "W": [2, None, 2], "BW": [None, 4, None]}
    graph = graph_of(devices=3, durations=durations, lag={"forward": 1, "backward": [2, 3]})
    assert edges(graph) == {
        "0F0 0B0": (0, "data"),
        "0B0 0W0": (0, "data"),
        "1F0 1BW0": (0, "data"),
        "2F0 2B0": (0, "data"),
        "2B0 2W0": (0, "data"),
        "0F0 1F0": (1, "activation"),
        "1F0 2F0": (1, "activation"),
        "2B0 1BW0": (3, "gradient"),
        "1BW0 0B0": (2, "gradient"),
    }


def test_a_skip_connection_has_an_edge_each_way_with_its_own_lag_or_that_of_the_devices() -> None:
    skips = [{"from": 0, "to": 2, "lag": 7}, {"from": 1, "to": 3}]
    graph = graph_of(devices=4, edges=skips, lag={"forward": 1, "backward": [2, 3, 4]})
    assert {name: edge for name, edge in edges(graph).items() if name[0] != name[4]} == {
        "0F0 1F0": (1, "activation"),
        "1F0 2F0": (1, "activation"),
        "2F0 3F0": (1, "activation"),
        "3B0 2B0": (4, "gradient"),
        "2B0 1B0": (3, "gradient"),
        "1B0 0B0": (2, "gradient"),
        "0F0 2F0": (7, "activation"),
        "2B0 0B0": (7, "gradient"),
        "1F0 3F0": (1, "activation"),
        "3B0 1B0": (7, "gradient"),
    }


def test_of_two_edges_between_the_same_ops_the_larger_lag_counts() -> None:
    skips = [{"from": 0, "to": 1, "lag": 5}, {"from": 0, "to": 1, "lag": 2}]
    assert edges(graph_of(lag=3, edges=skips))["0F0 1F0"] == (5, "activation")
    assert edges(graph_of(lag=9, edges=skips))["1B0 0B0"] == (9, "gradient")


def test_stages_on_one_device_have_no_lag_between_them() -> None:
    graph = graph_of(placement="v", lag=4)
    assert edges(graph)["1F0 2F0"] == (0, "activation")
    assert edges(graph)["2B0 1B0"] == (0, "gradient")
    assert edges(graph)["0F0 1F0"] == (4, "activation")


def test_ops_have_their_duration_resource_and_memory_in_whole_steps() -> None:
    graph = graph_of(
        durations={"F": 0.5, "B": [2, 1], "W": 1},
        memory={
            "F": 1.5,
            "B": [0.5, -0.5],
            "transient": {"B": 0.25},
            "static": [0, 3],
            "capacity": [4, None],
        },
    )
    assert graph.graph["resolution"] == Fraction(1, 2)
    assert graph.graph["memory_resolution"] == Fraction(1, 4)
    assert graph.graph["capacity"] == {0: 16, 1: None}
    assert graph.graph["static"] == {0: 0, 1: 12}
    assert {str(op): data["duration"] for op, data in graph.nodes.items()} == {
        "0F0": 1,
        "0B0": 4,
        "0W0": 2,
        "1F0": 1,
        "1B0": 2,
        "1W0": 2,
    }
    assert {str(op): use for op, use in attribute(graph, "memory").items()} == {
        "0F0": (MemoryUse(0, acquired=6, released=0, transient=0),),
        "0B0": (MemoryUse(0, acquired=2, released=0, transient=1),),
        "0W0": (MemoryUse(0, acquired=0, released=8, transient=0),),
        "1F0": (MemoryUse(1, acquired=6, released=0, transient=0),),
        "1B0": (MemoryUse(1, acquired=0, released=2, transient=1),),
        "1W0": (MemoryUse(1, acquired=0, released=4, transient=0),),
    }
    assert set(attribute(graph, "resource").values()) == {
        Resource("compute", 0),
        Resource("compute", 1),
    }


def test_an_op_without_memory_has_no_use_of_it() -> None:
    assert attribute(graph_of(), "memory")[Op("B", 0, 0)] == ()


def test_a_factor_multiplies_durations_and_memory_but_not_lags() -> None:
    graph = graph_of(
        microbatches=2,
        durations={"F": 2, "BW": 4},
        lag=1,
        memory={"F": 2, "transient": {"F": 1}},
        microbatch_factors=[1, 1.5],
    )
    assert graph.nodes[Op("F", 0, 0)]["duration"] == 2
    assert graph.nodes[Op("F", 0, 1)]["duration"] == 3
    assert graph.nodes[Op("BW", 0, 1)]["duration"] == 6
    step = graph.graph["memory_resolution"]
    (use,) = graph.nodes[Op("F", 1, 1)]["memory"]
    assert (use.acquired * step, use.transient * step) == (3, Fraction(3, 2))
    assert edges(graph)["0F1 1F1"] == (1, "activation")


def fifo_pairs(graph: nx.DiGraph[Op]) -> set[str]:
    return {f"{a} {b}" for a, b, reason in graph.edges(data="reason") if reason == FIFO}


def test_equal_microbatches_are_first_in_first_out_in_each_stage_and_kind() -> None:
    assert fifo_pairs(graph_of(devices=1, microbatches=3)) == {
        "0F0 0F1",
        "0F1 0F2",
        "0B0 0B1",
        "0B1 0B2",
        "0W0 0W1",
        "0W1 0W2",
    }


def test_unequal_microbatches_keep_their_order_only_among_equal_ones() -> None:
    fields = {"devices": 1, "microbatches": 4, "durations": {"F": 1, "BW": 1}}
    fields["microbatch_factors"] = [1, 2, 1, 2]
    assert fifo_pairs(graph_of(**fields)) == {"0F0 0F2", "0F1 0F3", "0BW0 0BW2", "0BW1 0BW3"}
    everything = build_graph(Problem(**fields), index_order=True)
    assert fifo_pairs(everything) == {
        *("0F0 0F1", "0F1 0F2", "0F2 0F3"),
        *("0BW0 0BW1", "0BW1 0BW2", "0BW2 0BW3"),
    }


def test_a_graph_of_empty_edges_has_only_its_stage() -> None:
    graph = graph_of(devices=1, microbatches=1)
    assert sorted(map(str, graph)) == ["0B0", "0F0", "0W0"]
    assert sorted(edges(graph)) == ["0B0 0W0", "0F0 0B0"]


@given(problems())
def test_the_graph_holds_what_the_rules_of_the_problem_say(problem: Problem) -> None:
    graph = build_graph(problem)
    step, memory_step = graph.graph["resolution"], graph.graph["memory_resolution"]
    tasks, task_step = tasks_of(problem)
    assert nx.is_directed_acyclic_graph(graph)
    assert {tuple(op) for op in graph} == {task.name for task in tasks}
    for task in tasks:
        op = Op(*task.name)
        data = graph.nodes[op]
        assert data["duration"] * step == task.duration * task_step
        assert data["resource"] == Resource("compute", task.device)
        uses = data["memory"]
        taken = sum(use.acquired + use.transient for use in uses) * memory_step
        change = sum(use.acquired - use.released for use in uses) * memory_step
        assert (taken, change) == (task.taken, task.change)
        assert {
            tuple(source): graph.edges[source, op]["lag"] * step
            for source in graph.predecessors(op)
            if graph.edges[source, op]["reason"] != FIFO
        } == {tasks[other].name: lag * task_step for other, lag in task.needs}


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_size_of_a_uniform_graph(count: int) -> None:
    graph = build_graph(Problem.uniform(devices=4, microbatches=count))
    assert graph.number_of_nodes() == 12 * count
    # in a stage 2, between neighbours 2, first in first out 1 for each of 12 kinds
    assert graph.number_of_edges() == (4 * 2 + 3 * 2) * count + 12 * (count - 1)
