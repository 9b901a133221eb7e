"""Ranks that fail, disagree or do not answer: all stop, and say why."""

from __future__ import annotations

import os
from random import Random

import pytest

from schedopt import Problem
from schedopt.classic import one_f_one_b, zb_h1, zb_v
from schedopt.executor.local import LocalRanks
from tests.executor import failing

SECONDS = 8.0
"""Until all have stopped; the timeouts of the executors are far longer."""

TWO = Problem.uniform(devices=2, microbatches=4)
FOUR = zb_h1(Problem.uniform(devices=4, microbatches=6))


def test_X28_ranks_with_different_numbers_of_microbatches_are_told_both(ranks: LocalRanks) -> None:
    schedules = [one_f_one_b(TWO), one_f_one_b(TWO.replace(microbatches=3))]
    for kind, text, seconds in ranks.run(failing.construct, schedules)[:2]:
        assert kind == "MismatchError"
        assert "m: 4 on rank 0, 3 on rank 1" in text
        assert seconds < SECONDS


def test_ranks_with_different_orders_are_told_both(ranks: LocalRanks) -> None:
    schedules = [one_f_one_b(TWO), zb_h1(TWO)]
    for kind, text, _ in ranks.run(failing.construct, schedules)[:2]:
        assert kind == "MismatchError"
        assert "schedule: 1F1B on rank 0, ZB-H1 on rank 1" in text


def test_X17_a_model_with_another_number_of_stages_is_refused_on_every_rank(
    ranks: LocalRanks,
) -> None:
    schedules = [one_f_one_b(TWO)] * 2
    own = ranks.run(failing.construct, schedules, [[0], [1, 3]])
    assert own[1][0] == "ExecutorError"
    assert "has the stages [1] on this device, the model was cut for [1, 3]" in own[1][1]
    assert own[0][0] == "PeerError"
    assert own[1][1] in own[0][1]
    assert own[0][2] < SECONDS


def test_X10_a_model_cut_for_a_loop_is_refused_by_the_schedule_of_a_v(ranks: LocalRanks) -> None:
    schedule = zb_v(Problem.uniform(devices=4, microbatches=8, placement="v"))
    loop = [[0, 4], [1, 5], [2, 6], [3, 7]]
    for rank, (kind, text, _) in enumerate(ranks.run(failing.construct, [schedule] * 4, loop)):
        own = f"rank {rank}: the schedule has the stages [{rank}, {7 - rank}] on this device"
        assert kind in ("ExecutorError", "PeerError")
        assert "all stages by device: [[0, 7], [1, 6], [2, 5], [3, 4]]" in text
        assert own in text or kind == "PeerError"


def test_X32_ranks_in_different_calls_are_told_both(ranks: LocalRanks) -> None:
    for kind, text, seconds in ranks.run(failing.different_calls, one_f_one_b(TWO))[:2]:
        assert kind == "MismatchError"
        assert "training" in text
        assert "forward only" in text
        assert seconds < SECONDS


def test_X09_a_later_batch_of_another_length_is_refused_with_both_shapes(ranks: LocalRanks) -> None:
    results = ranks.run(failing.other_shapes, one_f_one_b(TWO))
    (exact, refused), (exact_too, stopped) = results[:2]
    assert exact[0] == exact_too[0] == ""  # after forget_layouts() on all ranks
    assert refused[0] == "LayoutError"
    assert "is [3x6 float64" in refused[1]
    assert "was [2x6 float64" in refused[1]
    assert stopped[0] == "PeerError"
    assert "was [2x6 float64" in stopped[1]


def test_a_rank_that_raises_stops_the_others_with_its_reason(ranks: LocalRanks) -> None:
    results = ranks.run(failing.step_with_a_failure, FOUR, 2, "raise", 8, 60.0)
    assert results[2][:2] == ("ValueError", "no more data")
    for rank in (0, 1, 3):
        kind, text, _ = results[rank]
        assert kind == "PeerError"
        assert "rank 2: ValueError: no more data, in op 2F1: stage 2, microbatch 1" in text
    assert (
        "before op 3F1: output of stage 2 for stage 3, microbatch 1, from rank 2" in results[3][1]
    )


def test_X35_a_rank_that_does_not_answer_is_named_after_the_timeout(ranks: LocalRanks) -> None:
    results = ranks.run(failing.step_with_a_failure, FOUR, 1, "hang", 8, 3.0)
    for rank in (0, 2, 3):
        kind, text, _ = results[rank]
        assert kind == "PeerError"
        assert "did not answer within 3 s" in text
    assert results[1][0] == "PeerError"  # when it wakes up


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("number", [1, 2])
def test_failures_leave_no_thread_behind(ranks: LocalRanks, number: int, close: bool) -> None:
    ranks.run(failing.step_with_a_failure, FOUR, 0, "raise", number, 60.0, close)
    assert ranks.run(failing.threads) == [["MainThread"]] * 4


def require_all_stop_when_one_is_killed(rank: int, number: int) -> None:
    with LocalRanks(4, timeout=60) as ranks:
        outcomes = ranks.outcomes(failing.step_with_a_failure, FOUR, rank, "kill", number, 30.0)
        assert "exit code -9" in outcomes[rank].error
        for other in {0, 1, 2, 3} - {rank}:
            kind, text, _ = outcomes[other].value
            assert kind == "PeerError", (rank, number, other, outcomes[other])
            assert "microbatch" in text
            assert "rank" in text
        pids = ranks.process_ids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(("rank", "number"), [(0, 3), (2, 8)])
def test_a_killed_rank_stops_the_others_and_leaves_no_process(rank: int, number: int) -> None:
    """In the first step, and in a later one."""
    require_all_stop_when_one_is_killed(rank, number)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_a_rank_killed_anywhere_stops_the_others(seed: int) -> None:
    random = Random(seed)
    require_all_stop_when_one_is_killed(random.randrange(4), random.randint(1, 12))
