"""Ranks on one machine: results by rank, errors with their origin, and no process left."""

from __future__ import annotations

import os
import time

import pytest
import torch.distributed as dist

from schedopt.executor import ExecutorError
from schedopt.executor.local import LocalRanks


def double_of_rank(offset: int) -> int:
    return offset + 2 * dist.get_rank()


def raise_on_rank(rank: int) -> None:
    if dist.get_rank() == rank:
        raise KeyError("on this rank alone")


def test_results_come_by_rank(ranks: LocalRanks) -> None:
    assert ranks.run(double_of_rank, 10) == [10, 12, 14, 16]


def test_what_a_rank_raises_names_the_rank_and_leaves_the_ranks_in_use(ranks: LocalRanks) -> None:
    with pytest.raises(ExecutorError, match=r"(?s)^rank 2: Traceback.*on this rank alone"):
        ranks.run(raise_on_rank, 2)
    outcomes = ranks.outcomes(raise_on_rank, 1)
    assert [bool(outcome.error) for outcome in outcomes] == [False, True, False, False]
    assert ranks.run(double_of_rank, 0) == [0, 2, 4, 6]


def test_the_ranks_of_a_machine_are_ended_when_one_does_not_answer() -> None:
    ranks = LocalRanks(2, timeout=60)
    with pytest.raises(TimeoutError, match=r"ranks \[0, 1\] did not answer within 1 s"):
        ranks.run(time.sleep, 60, timeout=1)
    for pid in ranks.process_ids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    ranks.close()
