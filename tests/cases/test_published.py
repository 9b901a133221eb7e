"""Published measurements and configurations."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import pytest

from schedopt import Problem, check
from schedopt.analysis import compare, summary
from schedopt.bundled import load_bundled
from schedopt.classic import interleaved, one_f_one_b, zb_h1
from tests.cases.solving import checked, fused_pipeline, optimum, pipeline, proven

SLOW = pytest.mark.slow


# ---------------------------------------------------------------------- zero bubble, measured


class Row(NamedTuple):
    """A measured row: work of a device, least makespan with any memory, and the patterns'."""

    name: str
    work: int
    least: int
    f1b: int
    f1b_bubble: float
    h1: int
    h1_bubble: float


P01 = [
    Row("zb-1.5b-p8-m24", 1102680, 1236541, 1456749, 0.2431, 1310405, 0.1585),
    Row("zb-1.5b-p8-m32", 1469760, 1603733, 1833838, 0.1985, 1678164, 0.1242),
    Row("zb-1.5b-p8-m64", 2941696, 3076852, 3357932, 0.1240, 3154286, 0.0674),
]
P03 = [
    Row("zb-14.6b-p16-m48", 1474896, 1650756, 1980287, 0.2552, 1714461, 0.1397),
    Row("zb-14.6b-p16-m64", 1962368, 2137658, 2478390, 0.2082, 2202008, 0.1088),
    Row("zb-14.6b-p16-m128", 3934976, 4110521, 4497410, 0.1251, 4175516, 0.0576),
]
P04 = [
    Row("zb-28.3b-p32-m96", 2720736, 3056373, 3699675, 0.2646, 3171569, 0.1421),
    Row("zb-28.3b-p32-m128", 3624320, 3959616, 4627749, 0.2168, 4075091, 0.1106),
    Row("zb-28.3b-p32-m256", 7257088, 7593810, 8391636, 0.1352, 7715640, 0.0594),
]


def rows(table: list[Row], *slow: int) -> list[Any]:
    """Parameters of a test: a row each, some of them marked slow."""
    return [
        pytest.param(row, id=row.name, marks=[SLOW] if position in slow else [])
        for position, row in enumerate(table)
    ]


def assert_patterns(row: Row) -> None:
    """Makespan and bubble of 1F1B and ZB-H1, timed with the measured costs."""
    problem = load_bundled(row.name)
    for build, makespan, bubble in (
        (one_f_one_b, row.f1b, row.f1b_bubble),
        (zb_h1, row.h1, row.h1_bubble),
    ):
        facts = summary(build(problem))
        assert facts.makespan == makespan
        assert facts.makespan_bubble == 1 - Fraction(row.work, makespan)
        assert round(float(facts.makespan_bubble), 4) == bubble
        assert facts.fits


def with_twice_the_memory(row: Row) -> Problem:
    problem = load_bundled(row.name)
    assert problem.capacity[0] is not None
    return problem.with_capacity(2 * int(problem.capacity[0]))


@pytest.mark.parametrize("row", rows(P01))
def test_P01_patterns_of_the_1_5b_rows(row: Row) -> None:
    """Measured F, B, W and transfers of 8 equal stages."""
    assert_patterns(row)


@pytest.mark.parametrize("row", rows(P01))
def test_P01_zb_h1_is_optimal_with_the_memory_of_1f1b(row: Row) -> None:
    """At p activations nothing is shorter."""
    assert optimum(load_bundled(row.name)) == row.h1


@pytest.mark.parametrize("row", rows(P01))
def test_P01_twice_the_memory_reaches_the_bound_without_memory(row: Row) -> None:
    """Shorter than ZB-H1, as short as fill and drain alone allow."""
    assert optimum(with_twice_the_memory(row)) == row.least < row.h1


@pytest.mark.parametrize("row", rows(P03))
def test_P03_patterns_of_the_14_6b_rows(row: Row) -> None:
    """Measured as P01, 16 stages and up to 6144 ops."""
    assert_patterns(row)


@pytest.mark.parametrize("row", rows(P03, 2))
def test_P03_zb_h1_is_optimal_with_the_memory_of_1f1b(row: Row) -> None:
    """At p activations nothing is shorter."""
    assert optimum(load_bundled(row.name)) == row.h1


@pytest.mark.parametrize("row", rows(P03))
def test_P03_twice_the_memory_reaches_the_bound_without_memory(row: Row) -> None:
    """Shorter than ZB-H1, as short as fill and drain alone allow."""
    assert optimum(with_twice_the_memory(row)) == row.least < row.h1


@pytest.mark.parametrize("row", rows(P04, 1, 2))
def test_P04_patterns_of_the_28_3b_rows(row: Row) -> None:
    """Measured as P01, 32 stages and up to 24,576 ops."""
    assert_patterns(row)


@pytest.mark.parametrize("row", rows(P04, 1, 2))
def test_P04_zb_h1_is_optimal_with_the_memory_of_1f1b(row: Row) -> None:
    """At p activations nothing is shorter, whatever the size."""
    assert optimum(load_bundled(row.name)) == row.h1


@pytest.mark.parametrize("row", rows(P04, 1, 2))
def test_P04_twice_the_memory_reaches_the_bound_without_memory(row: Row) -> None:
    """Shorter than ZB-H1, as short as fill and drain alone allow."""
    assert optimum(with_twice_the_memory(row)) == row.least < row.h1


def test_P04_a_large_problem_has_a_schedule_when_time_is_over() -> None:
    """32 stages: no search is needed for a schedule as good as the best pattern that fits."""
    solution = checked(load_bundled("zb-28.3b-p32-m96"), time_limit=0.01)
    assert solution.objective is not None
    assert 3056373 <= solution.bound <= solution.objective <= 3171569


# ---------------------------------------------------------------------- unequal stages, measured


@pytest.mark.parametrize(
    ("microbatches", "activations", "makespan"),
    [(32, 16, 3831880), (32, 8, 3831880), (8, 8, 1114072), (8, 4, 1253973)],
)
def test_P06_a_slow_last_stage_bounds_the_step(
    microbatches: int, activations: int, makespan: int
) -> None:
    """Start of the last stage and its work; with memory for four microbatches more than that."""
    problem = load_bundled("zb-profile-p8-m32").replace(microbatches=microbatches)
    assert optimum(problem.with_capacity(activations * 1240)) == makespan


@pytest.mark.parametrize("microbatches", [8, 32])
def test_P06_zb_h1_of_unequal_stages_is_optimal_where_it_fits(microbatches: int) -> None:
    """It fits memory for eight microbatches, and not for four."""
    problem = load_bundled("zb-profile-p8-m32").replace(microbatches=microbatches)
    facts = summary(zb_h1(problem))
    assert facts.makespan == {8: 1114072, 32: 3831880}[microbatches]
    assert facts.fits
    assert not summary(zb_h1(problem.with_capacity(4 * 1240))).fits


def test_P06_little_memory_is_better_than_repeating_a_short_step() -> None:
    """The optimum for 8 microbatches, four times over, takes 5015892; a plain model took twice."""
    solution = checked(load_bundled("zb-profile-p8-m32").with_capacity(4 * 1240), time_limit=2)
    assert solution.objective is not None
    assert 3831880 <= solution.bound <= solution.objective <= 5015892


# ---------------------------------------------------------------------- planners and their tests

HALVES = {"F": 2, "B": -1, "W": -1}


@pytest.mark.parametrize(
    ("costs", "lag", "capacity", "makespan"),
    [
        ((5, 6, 4), 0, 10, 195),
        ((5, 6, 4), 0, 14, 195),
        ((5, 6, 4), 0, 8, 201),
        ((5478, 5806, 3534), 200, 32, 194850),
        ((5478, 5806, 3534), 200, 8, 203466),
    ],
)
def test_P07_toy_instances_of_a_planner(
    costs: tuple[int, int, int], lag: int, capacity: int, makespan: int
) -> None:
    """p = 4, m = 12; half of the memory is released by B, half by W."""
    problem = pipeline(4, 12, *costs, lag=lag, capacity=capacity, memory=HALVES)
    assert optimum(problem) == makespan


def test_P07_fewer_microbatches_than_stages_in_a_planner() -> None:
    """p = 32, m = 16: the trivial bound is 31 + 48 = 79; device 0 waits 47 for its first B."""
    assert optimum(pipeline(32, 16, capacity=64, memory=HALVES)) == 47 + 48


GRID = {
    (4, 4): 15,
    (4, 8): 27,
    (4, 16): 51,
    (2, 2): 7,
    (2, 4): 13,
    (8, 4): 23,
    (8, 8): 31,
    (8, 16): 55,
}


@pytest.mark.parametrize(("devices", "microbatches"), GRID)
def test_P08_a_grid_of_sizes_with_the_memory_of_1f1b(devices: int, microbatches: int) -> None:
    """The sizes a scheduler is tested with."""
    makespan = GRID[devices, microbatches]
    assert optimum(pipeline(devices, microbatches, capacity=devices)) == makespan


@pytest.mark.parametrize(("devices", "microbatches"), GRID)
def test_P08_every_pattern_exists_for_the_grid(devices: int, microbatches: int) -> None:
    """1F1B, zero bubble, V, V-Half, V-Min and the others; m < p included."""
    for row in compare(pipeline(devices, microbatches)):
        assert row.schedule is not None, row.note
        assert check(row.schedule) == ()


# ---------------------------------------------------------------------- configurations


@SLOW
@pytest.mark.parametrize("capacity", [None, 64])
def test_P11_64_stages_and_512_microbatches_are_proven(capacity: int | None) -> None:
    """65,536 ops: the bound in closed form equals 1F1B, and no model is built."""
    solution = proven(fused_pipeline(64, 512, 1, 3, capacity=capacity))
    assert solution.objective == (512 + 63) * 4
    assert [stage.name for stage in solution.stages] == ["bounds", "portfolio"]


@pytest.mark.parametrize(
    ("microbatches", "least", "h1"),
    [(12, 236, 280), (24, 428, 472), (36, 620, 664), (48, 812, 856), (60, 1004, 1048)],
)
def test_P12_one_stage_per_device_of_the_175b_model(microbatches: int, least: int, h1: int) -> None:
    """Heads and work allow 44 less than ZB-H1; with m > p and unlimited memory that is reached."""
    problem = pipeline(12, microbatches, 4, 8, 4)
    assert least == 11 * 4 + 16 * microbatches
    assert optimum(problem) == (h1 if microbatches == 12 else least)
    assert optimum(problem.with_capacity(12)) == h1


@pytest.mark.parametrize(("microbatches", "f1b_interleaved"), [(12, 236), (36, 620), (60, 1004)])
def test_P12_four_chunks_per_device_are_shorter_than_the_pattern(
    microbatches: int, f1b_interleaved: int
) -> None:
    """Split backward and any order: less than interleaved 1F1B needs."""
    problem = pipeline(12, microbatches, 1, 2, 1, placement="interleaved", stages=48)
    assert interleaved(problem).makespan == f1b_interleaved
    solution = checked(problem, time_limit=0.01)
    assert solution.objective is not None
    assert 16 * microbatches < solution.bound <= solution.objective < f1b_interleaved


UNEVEN, EVEN = [21] + [24] * 14 + [23], [24] * 15 + [26]


@pytest.mark.parametrize(
    ("work", "microbatches", "least"),
    [(UNEVEN, 16, 1485), (UNEVEN, 32, 2637), (EVEN, 32, 15 * 24 + 32 * 78)],
)
def test_P13_the_bound_of_the_405b_model_is_reached(
    work: list[int], microbatches: int, least: int
) -> None:
    """126 layers as 7, 14 x 8, 7 with the head on the last stage; against 128 even layers."""
    assert optimum(pipeline(16, microbatches, work, work, work)) == least


HEAVY_HEAD, SPREAD = [4] * 7 + [11], [5] * 7 + [4]


def test_P18_a_large_vocabulary_on_the_last_stage_bounds_the_step() -> None:
    """Head as large as 7 layers: 28 until the last stage starts, and 128 times its 33."""
    solution = proven(pipeline(8, 128, HEAVY_HEAD, HEAVY_HEAD, HEAVY_HEAD))
    assert solution.objective == 4252 == 7 * 4 + 128 * 33
    assert solution.schedule is not None
    assert [device.device for device in summary(solution.schedule).busiest] == [7]


def test_P18_the_vocabulary_is_an_extra_of_the_last_stage() -> None:
    """The bundled problem, with 32 microbatches: the surplus of the last stage bounds the step."""
    problem = load_bundled("vocabulary-p8-m32")
    solution = proven(problem)
    assert solution.objective == 7 * 4 + 32 * 33
    assert solution.schedule is not None
    assert [device.device for device in summary(solution.schedule).busiest] == [7]
    assert optimum(problem.replace(extras=[])) == 32 * 12 + 7 * 4


def test_P18_spreading_the_vocabulary_gains_what_the_mean_allows() -> None:
    """(28 + 11) / 8 = 4.9 against 11: never less than the mean work of a device."""
    assert sum(SPREAD) == sum(HEAVY_HEAD) == 39
    spread = optimum(pipeline(8, 128, SPREAD, SPREAD, SPREAD))
    assert spread == 1950
    assert Fraction(128 * 3 * 39, 8) < spread < 4252


def test_P19_zb_h1_on_four_small_devices_is_optimal() -> None:
    """Measured 3.17 s against 2.75 s; the model has 57 against 51."""
    assert optimum(pipeline(4, 16, capacity=4)) == 51
    assert optimum(fused_pipeline(4, 16, 1, 2, capacity=4)) == 57
