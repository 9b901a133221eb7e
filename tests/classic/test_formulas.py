"""The formulas of docs/classic-schedules.md against simulation.

Bubble is the time a device is idle, per step; B alone means the gradient of the input, BW the
whole backward. All are for equal stages and no transfers, costs of a whole device.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest

from schedopt.classic import CLASSIC
from schedopt.memory import peak_memory
from schedopt.placement import default_chunks
from schedopt.problem import Problem
from schedopt.schedule import Schedule

PLACEMENT = {
    "GPipe": "linear",
    "1F1B": "linear",
    "Interleaved 1F1B": "interleaved",
    "ZB-H1": "linear",
    "ZB-H2": "linear",
    "ZB-V": "v",
    "V-Half": "v",
    "V-Min": "v",
    "DualPipeV": "v",
    "Wave": "wave",
}
F, B, W = 3, 4, 2
DEVICES = (1, 2, 3, 4, 7, 8)


def build(
    name: str,
    p: int,
    m: int,
    *,
    v: int | None = None,
    costs: tuple[int, int, int] = (F, B, W),
    memory: tuple[int, int] = (1, 0),
) -> Schedule:
    """A classic schedule; costs and memory are those of a device, in units of v."""
    v = v or default_chunks(PLACEMENT[name])
    forward, backward, weights = costs
    return CLASSIC[name](
        Problem(
            devices=p,
            stages=p * v,
            placement=PLACEMENT[name],
            microbatches=m,
            durations={"F": forward, "B": backward, "W": weights},
            memory={"F": memory[0], "B": memory[1]},
        )
    )


def bubble(schedule: Schedule, *, period: bool = False) -> Fraction:
    """Idle time of a device; costs of a whole device."""
    problem = schedule.problem
    work = sum(sum(data.durations.values()) for data in problem.stage_data) / problem.devices
    length = schedule.period if period else schedule.makespan
    return length - problem.microbatches * work


def share(schedule: Schedule) -> Fraction:
    return bubble(schedule) / schedule.makespan


def chunks_of(schedule: Schedule) -> int:
    return schedule.problem.stage_count // schedule.problem.devices


# ---------------------------------------------------------------------- bubbles


@pytest.mark.parametrize("name", ["GPipe", "1F1B"])
@pytest.mark.parametrize("p", DEVICES)
def test_bubble_of_gpipe_and_1f1b(name: str, p: int) -> None:
    for m in (1, p, 2 * p + 1):
        schedule = build(name, p, m)
        assert bubble(schedule) == bubble(schedule, period=True) == (p - 1) * (F + B + W)
        assert share(schedule) == Fraction(p - 1, m + p - 1)


@pytest.mark.parametrize("p", DEVICES)
@pytest.mark.parametrize("v", [1, 2, 3, 4])
def test_bubble_of_interleaved_is_1_of_v_that_of_1f1b_for_whole_rounds(p: int, v: int) -> None:
    for rounds in (1, 2, 3):
        schedule = build("Interleaved 1F1B", p, rounds * p, v=v)
        assert bubble(schedule) == (p - 1) * (F + B + W)  # of a chunk
        assert share(schedule) == Fraction(p - 1, v * rounds * p + p - 1)


@pytest.mark.parametrize(
    ("p", "m", "percent"), [(4, 8, (27.3, 15.8, 8.6)), (8, 8, (46.7, 30.4, 17.9))]
)
def test_bubble_shares_of_one_two_and_four_chunks(
    p: int, m: int, percent: tuple[float, ...]
) -> None:
    schedules = [build("Interleaved 1F1B", p, m, v=v) for v in (1, 2, 4)]
    assert tuple(round(100 * float(share(schedule)), 1) for schedule in schedules) == percent


def test_textbook_interleaved_bubble_is_exact_only_for_one_chunk() -> None:
    """(1/v)(p-1)/(m+p-1) divides the bubble, but leaves it out of the step it is a share of."""
    for p, m, v in ((4, 8, 1), (4, 8, 2), (8, 8, 4)):
        textbook = Fraction(p - 1, v * (m + p - 1))
        exact = share(build("Interleaved 1F1B", p, m, v=v))
        assert exact == Fraction(p - 1, v * m + p - 1)
        assert (textbook < exact) if v > 1 else (textbook == exact)


@pytest.mark.parametrize("p", DEVICES)
def test_bubble_of_zb_h1(p: int) -> None:
    for costs in product((1, 2, 3), repeat=3):
        forward, backward, weights = costs
        if weights <= min(forward, backward):
            schedule = build("ZB-H1", p, 2 * p, costs=costs)
            expected = (p - 1) * (forward + backward - weights)
            assert bubble(schedule) == bubble(schedule, period=True) == expected


@pytest.mark.parametrize("p", DEVICES)
def test_bubble_of_zb_h2(p: int) -> None:
    for costs in product((1, 2, 3), repeat=3):
        forward, backward, weights = costs
        if weights <= forward:
            schedule = build("ZB-H2", p, 2 * p, costs=costs)
            rest = max(0, forward + backward - 2 * weights)
            assert bubble(schedule, period=True) == (p - 1) * rest
            assert bubble(schedule) == (p - 1) * max(forward, rest)


UNIT = (1, 1, 1)


@pytest.mark.parametrize("p", DEVICES)
def test_bubbles_of_the_v_family_for_unit_chunks(p: int) -> None:
    for m in (2 * p, 3 * p + 1):
        zb_v = build("ZB-V", p, m, costs=UNIT)
        assert bubble(zb_v, period=True) == 0
        assert bubble(zb_v) == p - 1
        half = {1: 0, 2: 1}.get(p, 3 * p - 4 if p % 2 else 3 * p - 7)
        assert bubble(build("V-Half", p, m, costs=UNIT)) == half
        least = {1: 0}.get(p, 4 * p - 5 if p % 3 else 4 * p - 7)
        assert bubble(build("V-Min", p, m, costs=UNIT)) == least


@pytest.mark.parametrize("p", DEVICES)
def test_bubble_of_dualpipe_v_with_pairs_in_sequence(p: int) -> None:
    for forward, backward, weights in ((1, 1, 1), (3, 3, 1), (5, 4, 3)):
        schedule = build("DualPipeV", p, 2 * p + 3, costs=(forward, backward, weights))
        assert bubble(schedule) == (p - 1) * (forward + backward - weights)
        overlapped = forward + 2 * (backward + weights) - 3 * weights
        assert bubble(schedule) <= (p - 1) * overlapped  # (F&B + BW - 3W) of the paper


@pytest.mark.parametrize("p", DEVICES)
@pytest.mark.parametrize("v", [2, 3, 4, 6])
def test_bubble_of_wave_with_p_microbatches(p: int, v: int) -> None:
    for forward, backward in ((1, 2), (1, 3), (2, 2), (3, 4)):
        schedule = build("Wave", p, p, v=v, costs=(forward, backward - 1, 1))
        assert bubble(schedule) == 2 * (p - 1) * backward  # BW of a chunk
    waves = Fraction(v, 2)
    schedule = build("Wave", p, p, v=v, costs=(1, 1, 1))  # BW = 2F
    assert share(schedule) == (2 * p - 2) / (3 * p * waves + 2 * p - 2)
    assert share(schedule) <= (2 * p - 2) / (3 * p * waves + p - 1)  # as in the paper


# ---------------------------------------------------------------------- peaks


def activations(schedule: Schedule) -> list[Fraction]:
    """Peaks in activations of a whole device."""
    return [peak / chunks_of(schedule) for peak in peak_memory(schedule)]


def test_peak_of_gpipe_is_m() -> None:
    for p, m in product(DEVICES, (1, 3, 8)):
        assert activations(build("GPipe", p, m)) == [m] * p


def test_peak_of_1f1b_is_p_minus_s_on_stage_s() -> None:
    for p, m in product(DEVICES, (1, 3, 16)):
        assert activations(build("1F1B", p, m)) == [min(m, p - s) for s in range(p)]


def test_peak_of_interleaved() -> None:
    for p, v, rounds in product(DEVICES, (1, 2, 3, 4), (1, 2, 3)):
        m = rounds * p
        peaks = activations(build("Interleaved 1F1B", p, m, v=v))
        held = [2 * (p - d - 1) + (v - 1) * p + 1 for d in range(p)]
        assert peaks == [Fraction(min(chunks, m * v), v) for chunks in held]
        if m >= 2 * p:
            assert peaks[0] == p * (1 + Fraction(p - 1, p * v))


def test_textbook_peak_of_1f1b_summed_over_stages() -> None:
    """p(p+1)/2 for all stages together; the first one has p of them, not the average."""
    for p in DEVICES:
        peaks = activations(build("1F1B", p, 2 * p))
        assert sum(peaks) == Fraction(p * (p + 1), 2)
        assert peaks[0] == p


def test_peaks_of_zb_h1_and_zb_h2_are_p_and_2p_minus_1_on_every_stage() -> None:
    for p in DEVICES:
        assert activations(build("ZB-H1", p, 2 * p)) == [p] * p
        assert activations(build("ZB-H2", p, 2 * p)) == [2 * p - 1] * p


@pytest.mark.parametrize("memory", [(1, 0), (2, -1)])
def test_peaks_of_the_v_family(memory: tuple[int, int]) -> None:
    for p in DEVICES:
        for name, most in (("ZB-V", p), ("V-Half", p // 2 + 1), ("V-Min", (p + 4) // 3)):
            schedule = build(name, p, 3 * p, memory=memory)
            assert max(activations(schedule)) <= most * memory[0]
            if memory == (1, 0):
                assert max(activations(schedule)) == most


def test_peak_of_dualpipe_v_is_p_and_a_half() -> None:
    for p in DEVICES:
        assert max(activations(build("DualPipeV", p, 2 * p))) == p + Fraction(1, 2)


def test_peak_of_wave_is_p() -> None:
    for p, v in product(DEVICES, (1, 2, 3, 4)):
        assert max(activations(build("Wave", p, p, v=v))) == p
        assert max(activations(build("Wave", p, 2 * p + 1, v=v))) <= p


# ---------------------------------------------------------------------- notes


def test_recomputation_adds_a_third_of_the_step_where_a_backward_takes_two_forwards() -> None:
    """With BW = 2F, running each forward again makes 4F of 3F; the bubble grows likewise."""
    for name in ("GPipe", "1F1B"):
        plain = build(name, 4, 8, costs=(1, 1, 1))
        again = build(name, 4, 8, costs=(1, 2, 1))
        assert again.makespan == plain.makespan * Fraction(4, 3)


def test_split_problems_are_scheduled_with_the_fused_backward_by_the_older_patterns() -> None:
    for name in ("GPipe", "1F1B", "Interleaved 1F1B", "Wave"):
        schedule = build(name, 2, 2)
        assert {timed.op.kind for ops in schedule.timeline.values() for timed in ops} == {"F", "BW"}
    for name in ("ZB-H1", "ZB-H2", "ZB-V", "V-Half", "V-Min", "DualPipeV"):
        schedule = build(name, 2, 2)
        kinds = {timed.op.kind for ops in schedule.timeline.values() for timed in ops}
        assert kinds == {"F", "B", "W"}
