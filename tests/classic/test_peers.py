"""The classic schedules against the results of the published schedulers."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from schedopt.check import check
from schedopt.classic import CLASSIC
from schedopt.memory import peak_memory
from tests.classic.peers import Row, problem_of, rows

FIXED, V = "peers_fixed_patterns.json", "peers_v_placement.json"


def parameters(found: Iterable[Row], *, quick: int) -> list[object]:
    """Rows as parameters of a test; those with more than `quick` chunks of work are slow."""
    return [
        pytest.param(
            row, id=str(row), marks=[pytest.mark.slow] if row.p * row.v * row.m > quick else []
        )
        for row in found
    ]


@pytest.mark.parametrize("row", parameters(rows(FIXED, "1F1B", "ZB-H1", "ZB-H2"), quick=1100))
def test_linear_patterns_equal_the_published_ones(row: Row) -> None:
    schedule = CLASSIC[row.algorithm](problem_of(row, "linear"))
    assert schedule.makespan == row.makespan
    assert schedule.period == row.max_stage_span
    assert max(peak_memory(schedule)) == row.peak_mem_max


@pytest.mark.parametrize("row", parameters(rows(FIXED, "1F1B-I"), quick=1100))
def test_interleaved_with_two_chunks_equals_the_published_one(row: Row) -> None:
    schedule = CLASSIC["Interleaved 1F1B"](problem_of(row, "interleaved"))
    assert schedule.makespan == row.makespan
    assert schedule.period == row.max_stage_span
    assert max(peak_memory(schedule)) == row.peak_mem_max


@pytest.mark.parametrize("row", parameters(rows(FIXED, "1F1B-I efficiency.py"), quick=2400))
def test_interleaved_is_p_lags_longer_where_waiting_for_the_last_device_is_not_ignored(
    row: Row,
) -> None:
    schedule = CLASSIC["Interleaved 1F1B"](problem_of(row, "interleaved"))
    assert float(schedule.makespan) == pytest.approx(row.makespan + row.p * row.C, abs=1e-3)


def at_equal_memory(row: Row, name: str) -> None:
    """The schedule is not longer than the published one and needs no more memory."""
    limit = row.peak_mem_max if row.mem_limit is None else row.mem_limit
    schedule = CLASSIC[name](problem_of(row, "v", capacity=limit))
    assert check(schedule) == ()
    assert max(peak_memory(schedule)) <= limit
    assert schedule.makespan <= row.makespan


@pytest.mark.parametrize("row", parameters(rows(V, "ZB-V", "V-Half", "V-Min"), quick=400))
def test_v_schedules_meet_the_published_ones_at_equal_memory(row: Row) -> None:
    at_equal_memory(row, row.algorithm)


@pytest.mark.parametrize("row", parameters(rows(V, "1F1B-V"), quick=400))
def test_v_half_meets_1f1b_on_the_v_placement_at_equal_memory(row: Row) -> None:
    at_equal_memory(row, "V-Half")


@pytest.mark.parametrize("row", parameters(rows(V, "Grouped interleaved 1F1B"), quick=400))
def test_zb_v_meets_grouped_interleaved_1f1b_at_equal_memory(row: Row) -> None:
    at_equal_memory(row, "ZB-V")


# The adaptive scheduler searches over blocks; with a lag its blocks for little memory are better
# than those of V-Half and V-Min by these amounts.
BETTER_BLOCKS = {
    (4, 8, 2): 20,
    (4, 8, 3): 20,
    (4, 12, 2): 20,
    (4, 12, 3): 20,
    (8, 24, 5): 40,
    (8, 32, 5): 40,
}


@pytest.mark.parametrize("row", parameters(rows(V, "V adaptive"), quick=400))
def test_zb_v_meets_the_adaptive_search_but_for_little_memory_with_a_lag(row: Row) -> None:
    short = BETTER_BLOCKS.get((row.p, row.m, int(row.mem_limit or 0)), 0) if row.C else 0
    if short:
        problem = problem_of(row, "v", capacity=row.mem_limit)
        assert CLASSIC["ZB-V"](problem).makespan == row.makespan + short
    else:
        at_equal_memory(row, "ZB-V")
