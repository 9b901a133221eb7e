"""Lag and bandwidth between two ranks."""

from __future__ import annotations

import math

import pytest
import torch

from schedopt.executor import link
from schedopt.executor.link import Link, fit, measure_link
from schedopt.executor.local import LocalRanks


def _measured(rank: int) -> tuple[Link, Link] | None:
    """Twice between the ranks 1 and 3 of four, the others do something else."""
    if rank not in (1, 3):
        return None
    measure_link(1, 3, sizes=(4096,), repeats=2)
    return measure_link(1, 3, sizes=(4096, 65536), repeats=3)


def measured() -> tuple[Link, Link] | None:
    return _measured(torch.distributed.get_rank())


def test_both_ranks_get_the_links_of_both_directions(ranks: LocalRanks) -> None:
    found = ranks.run(measured)
    assert found[0] is found[2] is None
    assert found[1] == found[3]
    for way in found[1]:
        assert 0 < way.latency_us < math.inf
        assert way.bytes_per_us > 0


def test_a_lag_is_the_latency_and_the_time_for_the_bytes() -> None:
    assert Link(10.0, 200.0).lag_us(1000) == 15.0
    assert Link(10.0, math.inf).lag_us(1000) == 10.0


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({4: 12.0, 1004: 17.0, 2004: 22.0}, Link(11.98, 200.0)),
        ({4: 20.0, 1004: 20.0}, Link(20.0, math.inf)),
        ({0: 20.0, 1000: 10.0}, Link(12.0, math.inf)),  # falls: the weighted mean
        ({1000: 1.0, 2000: 3.0}, Link(0.0, 1000 * 13 / 15)),  # would start at -1
    ],
    ids=["a line", "constant", "falls", "starts below 0"],
)
def test_the_line_is_the_nearest_that_a_link_can_have(
    times: dict[int, float], expected: Link
) -> None:
    assert tuple(fit(times)) == pytest.approx(tuple(expected))


def test_a_link_is_measured_by_its_own_two_ranks() -> None:
    with pytest.raises(ValueError, match="1 and 2, not 0"):
        link.measure_link(1, 2)
