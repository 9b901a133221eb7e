"""Rounds of interleaved 1F1B."""

from __future__ import annotations

import pytest

from schedopt.check import check
from schedopt.classic import interleaved, one_f_one_b
from schedopt.problem import Problem


def chunked(p: int, v: int, m: int, **fields: object) -> Problem:
    durations = {"F": 1, "BW": 2}
    return Problem(
        devices=p, stages=p * v, placement="interleaved", microbatches=m, durations=durations
    )


def test_a_round_goes_through_the_first_chunk_and_then_through_the_next() -> None:
    orders = [" ".join(map(str, ops)) for ops in interleaved(chunked(2, 2, 4)).orders.values()]
    assert orders == [
        "0F0 0F1 2F0 2F1 0F2 2BW0 0F3 2BW1 2F2 0BW0 2F3 0BW1 2BW2 2BW3 0BW2 0BW3",
        "1F0 1F1 3F0 3BW0 3F1 3BW1 1F2 1BW0 1F3 1BW1 3F2 3BW2 3F3 3BW3 1BW2 1BW3",
    ]


@pytest.mark.parametrize("m", range(1, 14))
@pytest.mark.parametrize(("p", "v"), [(2, 2), (3, 2), (4, 2), (4, 3), (5, 4)])
def test_a_last_round_of_any_length_has_no_deadlock(p: int, v: int, m: int) -> None:
    schedule = interleaved(chunked(p, v, m))
    assert check(schedule) == ()
    full = interleaved(chunked(p, v, -(-m // p) * p))
    assert schedule.makespan <= full.makespan


def test_a_short_last_round_is_the_full_one_without_the_ops_that_do_not_exist() -> None:
    short, full = interleaved(chunked(3, 2, 4)), interleaved(chunked(3, 2, 6))
    for resource, ops in full.orders.items():
        assert short.orders[resource] == tuple(op for op in ops if op.microbatch < 4)


def test_one_chunk_needs_no_longer_than_1f1b() -> None:
    problem = chunked(4, 1, 8)
    assert interleaved(problem).makespan == one_f_one_b(problem).makespan == 33
