"""Blocks of the V family, and the memory its schedules keep to."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from schedopt.check import check
from schedopt.classic import v_half, v_min, zb_v
from schedopt.classic.squeeze import peak_of_pattern
from schedopt.classic.v_shape import SQUEEZINGS, Block, _pattern, half_block, min_block
from schedopt.graph import build_graph
from schedopt.memory import peak_memory
from schedopt.problem import Problem

DEVICES = range(1, 14)


def v_problem(p: int, m: int, **fields: Any) -> Problem:
    memory = {"F": 1, "B": 0, "W": -1} | fields.pop("memory", {})
    return Problem.uniform(devices=p, microbatches=m, placement="v", memory=memory, **fields)


def peak(p: int, block: Block) -> int:
    """Peak of the periodic pattern in chunks."""
    graph = build_graph(v_problem(p, 3 * p))
    return max(peak_of_pattern(graph, ops) for ops in _pattern(graph, block).values())


def apart(p: int, block: Block) -> bool:
    """Whether no device has two ops in one slot, microbatch after microbatch."""
    return all(len({slot % 6 for slot in row}) == 4 for row in block.slots(p))


def test_slots_of_a_block_go_down_and_up_twice() -> None:
    assert Block(2, 1, (1, 4, 2)).slots(4) == [
        (0, 10, 14, 25),
        (2, 9, 16, 24),
        (4, 8, 18, 23),
        (6, 7, 20, 22),
    ]


@pytest.mark.parametrize("p", DEVICES)
def test_blocks_keep_all_slots_of_a_device_apart(p: int) -> None:
    for block in (Block(4, 2), half_block(p), min_block(p)):
        assert apart(p, block)


@pytest.mark.parametrize("p", [2, 3, 4, 5, 6, 9])
def test_turns_of_the_blocks_are_those_with_the_least_memory(p: int) -> None:
    for block in (half_block(p), min_block(p)):
        others = [block._replace(turns=turns) for turns in product((1, 2, 3, 4), repeat=3)]
        peaks = [peak(p, other) for other in others if apart(p, other)]
        assert peak(p, block) == min(peaks)


@pytest.mark.parametrize("p", DEVICES)
def test_patterns_need_the_documented_memory_before_they_are_squeezed(p: int) -> None:
    assert peak(p, Block(4, 2)) == 2 * p
    assert peak(p, half_block(p)) <= 2 * (p // 2 + 1)
    assert peak(p, min_block(p)) <= 2 * ((p + 4) // 3)


@pytest.mark.parametrize("m", [1, 2, 3, 7, 12])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 5])
def test_zb_v_takes_the_capacity_as_its_limit_down_to_one_microbatch(p: int, m: int) -> None:
    lengths = []
    for capacity in range(2, 2 * p + 4):
        schedule = zb_v(v_problem(p, m, lag=1, capacity=capacity))
        assert check(schedule) == ()
        lengths.append(schedule.makespan)
    assert lengths[0] == max(lengths)
    assert lengths[-1] == min(lengths)


def test_more_memory_makes_zb_v_faster() -> None:
    lengths = [
        zb_v(v_problem(8, 24, F=50, B=50, W=50, lag=10, capacity=capacity)).makespan
        for capacity in (2, 8, 10, 16, 24)
    ]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > 3 * lengths[-1]


def test_zb_v_does_not_deadlock_where_nothing_fits() -> None:
    schedule = zb_v(v_problem(3, 4, capacity=1))
    assert {violation.rule for violation in check(schedule)} == {"memory"}
    assert max(peak_memory(schedule)) == 2


def test_static_memory_is_not_available_to_zb_v() -> None:
    free = zb_v(v_problem(4, 8, lag=1, capacity=6))
    taken = zb_v(v_problem(4, 8, lag=1, capacity=106, memory={"static": 100}))
    assert free.makespan == taken.makespan
    assert max(peak_memory(taken)) == 106


def test_v_half_and_v_min_report_their_own_peak_where_the_capacity_is_less() -> None:
    assert max(peak_memory(v_half(v_problem(8, 24, capacity=5)))) == 10
    assert max(peak_memory(v_min(v_problem(8, 24, capacity=5)))) == 8


def test_a_capacity_above_the_pattern_changes_nothing() -> None:
    for build in (v_half, v_min):
        assert build(v_problem(6, 12)).orders == build(v_problem(6, 12, capacity=99)).orders


def test_unequal_chunks_need_no_more_than_the_pattern_of_the_larger_one() -> None:
    memory = {"F": [1, 2, 1, 3, 1, 2, 1, 3], "B": 0, "W": None}
    problem = v_problem(4, 12, memory=memory)
    graph = build_graph(problem)
    for build, block, count in ((v_half, half_block(4), 3), (v_min, min_block(4), 2)):
        for device, held in enumerate(peak_memory(build(problem))):
            pattern = {r.device: ops for r, ops in _pattern(graph, block).items()}
            own = peak_of_pattern(graph, pattern[device])
            activation = sum(problem.stage_data[s].memory["F"] for s in problem.stages_on[device])
            assert held <= max(own, count * activation)


def test_the_first_squeezing_keeps_the_published_costs() -> None:
    assert SQUEEZINGS[0].nominal
