"""Placements that a classic schedule needs, and what it says where they are missing."""

from __future__ import annotations

import pytest

from schedopt.classic import CLASSIC, interleaved, one_f_one_b, wave, zb_h1, zb_v
from schedopt.classic.pattern import best_of, one_forward_one_backward
from schedopt.errors import NotApplicableError
from schedopt.op import Op
from schedopt.problem import Problem
from tests.schedules import two_by_two


def placed(*devices: int, count: int | None = None) -> Problem:
    return Problem.uniform(
        devices=count or max(devices) + 1, microbatches=2, placement=list(devices)
    )


def test_an_error_says_what_is_needed_and_what_is_there() -> None:
    with pytest.raises(NotApplicableError) as error:
        one_f_one_b(placed(0, 1, 1, 0))
    assert str(error.value) == (
        "1F1B needs the placement 'linear' (one stage on each device, stage s on device s); this "
        "problem has 'v': 4 stages on devices 0, 1, 1, 0"
    )


@pytest.mark.parametrize("name", [name for name in CLASSIC if name != "GPipe"])
@pytest.mark.parametrize(
    "problem",
    [
        placed(0, 1, count=3),  # an unused device
        placed(0, 0, 1, 1),  # consecutive stages on a device
        placed(1, 0),  # another order
        placed(0, 1, 0),  # unequal numbers of stages
    ],
    ids=["unused", "consecutive", "order", "unequal"],
)
def test_other_placements_are_not_applicable(name: str, problem: Problem) -> None:
    with pytest.raises(NotApplicableError, match=f"{name} needs the placement"):
        CLASSIC[name](problem)


def test_a_long_placement_is_shortened() -> None:
    problem = placed(*range(40), *range(40))
    with pytest.raises(NotApplicableError, match=r"'interleaved': 80 stages .* 30, 31, \.\.\.$"):
        zb_v(problem)


def test_linear_is_interleaved_and_wave_with_one_chunk() -> None:
    problem = Problem.uniform(devices=3, microbatches=4)
    assert interleaved(problem).makespan == one_f_one_b(problem).makespan
    assert wave(problem).name == "Wave"


def test_schedules_mix_split_and_fused_stages() -> None:
    durations = {"F": 1, "B": [1, None], "W": [1, None], "BW": [None, 2]}
    problem = Problem(devices=2, microbatches=2, durations=durations)
    orders = [" ".join(map(str, ops)) for ops in zb_h1(problem).orders.values()]
    assert orders == ["0F0 0F1 0B0 0W0 0B1 0W1", "1F0 1BW0 1F1 1BW1"]


def test_one_forward_one_backward_stops_its_forwards_when_there_are_no_more() -> None:
    forwards = [Op("F", 0, i) for i in range(3)]
    backwards = [Op("B", 0, i) for i in range(3)]
    for warm_up, text in (
        (0, "0F0 0B0 0F1 0B1 0F2 0B2"),
        (2, "0F0 0F1 0F2 0B0 0B1 0B2"),
        (9, "0F0 0F1 0F2 0B0 0B1 0B2"),
    ):
        ops = one_forward_one_backward(forwards, backwards, warm_up)
        assert " ".join(map(str, ops)) == text


def test_of_equal_objectives_the_shorter_period_is_best() -> None:
    schedule = two_by_two()
    late = two_by_two(objective="period")
    assert best_of([schedule, late]) is schedule
