"""Squeezing a pattern: what may pass what."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedopt.check import check
from schedopt.classic.squeeze import (
    DRAIN,
    EVERYWHERE,
    FILL,
    STEADY,
    PatternOp,
    Squeezing,
    peak_of_pattern,
    squeeze,
)
from schedopt.graph import build_graph
from schedopt.memory import peak_memory
from schedopt.op import Op, Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from tests.problems import problems

REAL = Squeezing(nominal=False)
ONE = Resource("compute", 0)


def squeezed(
    problem: Problem, rows: list[str], how: Squeezing, limit: int, phase: int = FILL
) -> list[str]:
    pattern = {
        Resource("compute", device): [PatternOp(Op.parse(label), phase) for label in row.split()]
        for device, row in enumerate(rows)
    }
    limits = dict.fromkeys(range(problem.devices), limit)
    (orders,) = squeeze(build_graph(problem), pattern, limits, [how])
    return [" ".join(map(str, ops)) for ops in orders.values()]


def two(**fields: object) -> Problem:
    return Problem.uniform(devices=2, microbatches=3, **fields)  # type: ignore[arg-type]


SERIAL = [
    "0F0 0B0 0W0 0F1 0B1 0W1 0F2 0B2 0W2",
    "1F0 1B0 1W0 1F1 1B1 1W1 1F2 1B2 1W2",
]


def test_later_microbatches_start_as_early_as_memory_allows() -> None:
    assert squeezed(two(), SERIAL, REAL, 1)[0] == SERIAL[0]
    assert squeezed(two(), SERIAL, REAL, 2)[0] == "0F0 0F1 0B0 0W0 0B1 0F2 0W1 0B2 0W2"
    assert squeezed(two(), SERIAL, REAL, 3)[0] == "0F0 0F1 0F2 0B0 0W0 0B1 0W1 0B2 0W2"


def test_a_pattern_that_needs_more_than_the_limit_keeps_its_own_peak() -> None:
    rows = ["0F0 0F1 0F2 0B0 0B1 0B2 0W0 0W1 0W2", SERIAL[1]]
    problem = two()
    graph = build_graph(problem)
    assert peak_of_pattern(graph, [PatternOp(Op.parse(t), FILL) for t in rows[0].split()]) == 3
    assert squeezed(problem, rows, REAL, 1)[0].startswith("0F0 0F1 0F2")


def test_reserving_leaves_room_for_all_earlier_ops_that_acquire_memory() -> None:
    """With a limit of 4, 0F2 leaves room for 2F0, and for 2F1 only because of 2W0 between them."""
    problem = Problem(
        devices=2,
        placement=[0, 1, 0],
        microbatches=3,
        durations={"F": 1, "B": 1, "W": 1},
        lag=9,
    )
    rows = [
        " ".join(f"0F{i} 2F{i} 2B{i} 2W{i} 0B{i} 0W{i}" for i in range(3)),
        " ".join(f"1F{i} 1B{i} 1W{i}" for i in range(3)),
    ]
    greedy = squeezed(problem, rows, REAL, 4)[0]
    assert greedy.startswith("0F0 0F1 0F2 2F0 2B0 2W0 2F1")
    patient = squeezed(problem, rows, REAL._replace(reserving=True), 4)[0]
    assert patient.startswith("0F0 0F1 2F0 2B0 2F1 2B1 2W0 0F2")


def test_f_and_b_keep_their_order_in_phases_that_are_not_free() -> None:
    strict = Squeezing(nominal=False, free=frozenset({FILL, DRAIN}))
    order = squeezed(two(), SERIAL, strict, 3, STEADY)[0]
    assert [label for label in order.split() if "W" not in label] == [
        "0F0", "0B0", "0F1", "0B1", "0F2", "0B2",
    ]  # fmt: skip


def test_w_keeps_its_place_in_phases_that_are_not_lazy() -> None:
    eager = Squeezing(nominal=False, free=frozenset(), lazy=frozenset())
    assert squeezed(two(), SERIAL, eager, 3) == SERIAL


def test_lazy_w_fills_the_wait_for_the_next_device() -> None:
    order = squeezed(two(lag=3), SERIAL, REAL, 2)[0]
    assert order == "0F0 0F1 0B0 0W0 0B1 0F2 0W1 0B2 0W2"


@pytest.mark.parametrize(("weights", "first"), [(3, "0W0"), (5, "0B1")])
def test_a_gap_takes_a_w_of_which_more_than_half_fits(weights: int, first: str) -> None:
    """Device 0 waits 2 for 0B1: more than half of 3 and less than half of 5."""
    problem = Problem(
        devices=2,
        microbatches=2,
        durations={"F": [1, 1], "B": [2, 3], "W": [weights, 0]},
    )
    rows = ["0F0 0F1 0B0 0B1 0W0 0W1", "1F0 1B0 1F1 1B1 1W0 1W1"]
    strict = Squeezing(nominal=False, free=frozenset())
    order = squeezed(problem, rows, strict, 9)[0].split()
    assert order[order.index("0B0") + 1] == first


def test_nominal_costs_leave_real_ones_out_of_the_order() -> None:
    slow = two(F=4)
    nominal = Squeezing(nominal=True)
    assert squeezed(slow, SERIAL, nominal, 2) == squeezed(two(), SERIAL, nominal, 2)
    assert squeezed(slow, SERIAL, REAL, 2) != squeezed(slow, SERIAL, nominal, 2)


@settings(max_examples=60)
@given(
    problems(ops=36),
    st.booleans(),
    st.sets(st.sampled_from(sorted(EVERYWHERE))),
    st.sets(st.sampled_from(sorted(EVERYWHERE))),
    st.booleans(),
    st.booleans(),
    st.integers(0, 6),
)
def test_any_squeezing_of_any_problem_is_valid_and_keeps_the_limit(
    problem: Problem,
    nominal: bool,
    free: set[int],
    lazy: set[int],
    balanced: bool,
    reserving: bool,
    limit: int,
) -> None:
    graph = build_graph(problem)
    there = sorted((op for op in graph), key=lambda op: _serial(problem, op))
    pattern: dict[Resource, list[PatternOp]] = {}
    for op in there:
        items = pattern.setdefault(graph.nodes[op]["resource"], [])
        items.append(PatternOp(op, min(2, op.microbatch)))
    limits = dict.fromkeys(range(problem.devices), limit)
    how = Squeezing(nominal, frozenset(free), frozenset(lazy), balanced, reserving)
    (orders,) = squeeze(graph, pattern, limits, [how])
    schedule = Schedule.from_order(graph, orders)
    assert {violation.rule for violation in check(schedule)} <= {"memory"}
    step = graph.graph["memory_resolution"]
    for resource, ops in pattern.items():
        most = max(limit, peak_of_pattern(graph, ops)) * step
        held = peak_memory(schedule)[resource.device] - problem.static[resource.device]
        assert held <= most


def _serial(problem: Problem, op: Op) -> tuple[int, int, int]:
    """One microbatch after another."""
    if op.kind == "F":
        return op.microbatch, op.stage, 0
    return op.microbatch, 2 * problem.stage_count - op.stage, int(op.kind == "W")
