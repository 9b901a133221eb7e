"""Reported and published situations in which a classic schedule has a known value."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from schedopt.classic import CLASSIC, dualpipe_v, gpipe, interleaved, one_f_one_b, zb_h1
from schedopt.classic.interleaved import warm_up_counts
from schedopt.graph import build_graph
from schedopt.memory import peak_memory
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.variants import refine_orders

DOCS = Path(__file__).parents[2] / "docs" / "classic-schedules.md"


def fused_problem(p: int, m: int, forward: float, backward: float, v: int = 1) -> Problem:
    return Problem(
        devices=p,
        stages=p * v,
        placement="interleaved",
        microbatches=m,
        durations={"F": forward, "BW": backward},
    )


def idle_share(schedule: Schedule) -> Fraction:
    problem = schedule.problem
    work = problem.microbatches * sum(sum(d.durations.values()) for d in problem.stage_data)
    return 1 - work / (problem.devices * schedule.makespan)


def test_one_microbatch_on_two_stages() -> None:
    """A03, A07: the gradient of the input is passed on before the weights have theirs."""
    problem = Problem.uniform(devices=2, microbatches=1)
    graph = build_graph(problem)
    for build in (gpipe, one_f_one_b):
        split = Schedule.from_order(graph, refine_orders(build(problem), graph))
        assert split.makespan == 5
        assert idle_share(split) == Fraction(2, 5)
        assert build(problem).makespan == 6
    assert zb_h1(problem).makespan == 5
    assert problem.warnings == (
        "microbatches = 1 is less than the 2 devices in use: some devices wait in every phase of "
        "the step",
    )


def test_no_buffer_too_many() -> None:
    """M03: p = 4, m = 8 needs 4 activations on the first stage, not 5."""
    schedule = one_f_one_b(fused_problem(4, 8, 1, 2))
    assert peak_memory(schedule) == (4, 3, 2, 1)
    assert schedule.makespan == 33


def test_both_readings_of_the_zb_h1_bubble() -> None:
    """N01: B is the gradient of the input in the one formula, the whole backward in the other."""
    schedule = zb_h1(Problem.uniform(devices=4, microbatches=8))
    assert schedule.makespan == 27
    assert schedule.makespan - 8 * 3 == 3
    F, B, W, BW = 1, 1, 1, 2
    assert 3 * (F + B - W) == 3 * (F + BW - 2 * W) == 3


def test_slowest_stage_times_m_leaves_out_fill_and_drain() -> None:
    """N07: 69 and not 60."""
    durations = {"F": [1, 1, 1, 5], "BW": [2, 2, 2, 10]}
    problem = Problem(devices=4, microbatches=4, durations=durations)
    assert one_f_one_b(problem).makespan == 69 == (3 + 3 + 3 + 15) + 3 * 15
    unused = Problem(devices=5, placement=[0, 1, 2, 3], microbatches=4, durations={"F": 1, "BW": 2})
    assert unused.warnings[0] == "device 4 has no stage and stays idle"


def test_warm_up_of_interleaved_1f1b() -> None:
    """N11: 2(p - r - 1) + (v - 1)p chunks, at most all of them."""
    assert warm_up_counts(4, 2, 8) == [10, 8, 6, 4]
    assert warm_up_counts(4, 2, 4) == [8, 8, 6, 4]
    problem = fused_problem(4, 8, 1, 2, v=2)
    leading = []
    for ops in interleaved(problem).orders.values():
        kinds = [op.kind for op in ops]
        leading.append(kinds.index("BW"))
    assert leading == [11, 9, 7, 5]  # and the forward of the first pair


def test_published_bubbles_of_dualpipe_and_its_rivals() -> None:
    """P10: B is the whole backward in that table, F and B overlapped take 3."""
    p, m, F, B, W, both = 8, 20, 1, 2, 1, 3
    problem = Problem.uniform(devices=p, microbatches=m)
    work = m * (F + B)
    assert one_f_one_b(problem).makespan - work == 21 == (p - 1) * (F + B)
    assert zb_h1(problem).makespan - work == 7 == (p - 1) * (F + B - 2 * W)
    assert (p // 2 - 1) * (both + B - 3 * W) == 6  # DualPipe, and DualPipeV on half the devices
    halved = dualpipe_v(Problem.uniform(devices=4, microbatches=10, placement="v"))
    assert halved.makespan - 10 * 2 * (F + B) == 3  # F first: the backward waits for F only


MEGATRON = {  # model: p, v, m
    "39B": (2, 1, 12),
    "76B": (4, 3, 28),
    "145B": (8, 2, 48),
    "310B": (16, 2, 144),
    "530B": (35, 3, 280),
    "1T": (64, 1, 512),
}
BUBBLES = {
    "39B": 0.0833,
    "76B": 0.0357,
    "145B": 0.0729,
    "310B": 0.0521,
    "530B": 0.0405,
    "1T": 0.123,
}


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, marks=[pytest.mark.slow] if model in ("530B", "1T") else [])
        for model in MEGATRON
    ],
)
def test_closed_form_of_published_configurations(model: str) -> None:
    """P11: bubble over work is (p - 1) / (v m), with a backward of three forwards."""
    p, v, m = MEGATRON[model]
    problem = fused_problem(p, m, 1, 3, v)
    schedule = one_f_one_b(problem) if v == 1 else interleaved(problem)
    work = m * v * 4
    bubble = (schedule.makespan - work) / work
    assert bubble == Fraction(p - 1, v * m)
    assert round(float(bubble), 3 if model == "1T" else 4) == BUBBLES[model]


@pytest.mark.parametrize(
    ("m", "f1b", "interleaved_v4", "h1"),
    [
        (12, 368, 236, 280),
        (24, 560, 428, 472),
        (36, 752, 620, 664),
        (48, 944, 812, 856),
        (60, 1136, 1004, 1048),
    ],
)
def test_175b_with_and_without_interleaving(m: int, f1b: int, interleaved_v4: int, h1: int) -> None:
    """P12: p = 12, eight layers per device of half a unit for F and W, one for B."""
    problem = Problem.uniform(devices=12, microbatches=m, F=4, B=8, W=4)
    assert one_f_one_b(problem).makespan == f1b
    assert zb_h1(problem).makespan == h1
    assert interleaved(fused_problem(12, m, 1, 3, v=4)).makespan == interleaved_v4


def test_gain_of_interleaving_shrinks_with_more_microbatches() -> None:
    """P12: 1.56x at m = 12, 1.13x at m = 60."""
    gains = []
    for m in (12, 60):
        plain = one_f_one_b(fused_problem(12, m, 4, 12)).makespan
        chunks = interleaved(fused_problem(12, m, 1, 3, v=4)).makespan
        gains.append(round(float(plain / chunks), 2))
    assert gains == [1.56, 1.13]


UNEVEN, EVEN = [21] + [24] * 14 + [23], [24] * 15 + [26]


@pytest.mark.parametrize(
    ("costs", "m", "f1b", "h1"),
    [
        (UNEVEN, 16, 2217, 1507),
        (UNEVEN, 32, 3369, 2659),
        (EVEN, 16, 2328, 1608),
        (EVEN, 32, 3576, 2856),
    ],
)
def test_405b_with_a_layer_less_at_both_ends(costs: list[int], m: int, f1b: int, h1: int) -> None:
    """P13: layers of 3 units, the head is 2; without the two layers the step is shorter."""
    durations = {"F": costs, "B": costs, "W": costs}
    problem = Problem(devices=16, microbatches=m, durations=durations)
    assert one_f_one_b(problem).makespan == f1b
    assert zb_h1(problem).makespan == h1


@pytest.mark.parametrize("p", [2, 4, 8, 16, 32])
def test_half_of_the_time_is_lost_with_p_minus_1_microbatches(p: int) -> None:
    """P16."""
    assert idle_share(one_f_one_b(Problem.uniform(devices=p, microbatches=p - 1))) == Fraction(1, 2)


def test_efficiency_from_one_node_to_two() -> None:
    """P16: 0.8205 with p = 8, 0.6809 with p = 16 and m = 32: 17 % less."""
    shares = [
        1 - idle_share(one_f_one_b(Problem.uniform(devices=p, microbatches=32))) for p in (8, 16)
    ]
    assert [round(float(share), 4) for share in shares] == [0.8205, 0.6809]
    assert round(float(1 - shares[1] / shares[0]), 2) == 0.17


def test_zb_h1_on_four_small_devices() -> None:
    """P19: later stages hold 0, 1, 2, 3 microbatches more than in 1F1B."""
    problem = Problem.uniform(devices=4, microbatches=16)
    plain, split = one_f_one_b(problem), zb_h1(problem)
    assert (plain.makespan, split.makespan) == (57, 51)
    assert round(float(plain.makespan / split.makespan), 3) == 1.118
    assert peak_memory(plain) == (4, 3, 2, 1)
    assert peak_memory(split) == (4, 4, 4, 4)


def test_the_documented_table_names_every_classic_schedule() -> None:
    text = DOCS.read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE)
    assert set(CLASSIC) <= set(rows)
