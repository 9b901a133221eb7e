"""Which schedule of torch.distributed.pipelining a problem is compared with."""

from __future__ import annotations

from typing import Any

import pytest

from schedopt.errors import NotApplicableError
from schedopt.executor.torch_baseline import counterpart
from schedopt.problem import Problem


def problem(**fields: Any) -> Problem:
    return Problem.uniform(**{"devices": 2, "microbatches": 4, **fields})


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "1F1B"),
        ({"stages": 4, "placement": "interleaved"}, "Interleaved 1F1B"),
        ({"stages": 4, "placement": [0, 1, 1, 0]}, "ZB-V"),
    ],
)
def test_torch_has_a_schedule_for_each_of_three_placements(
    fields: dict[str, Any], name: str
) -> None:
    assert counterpart(problem(**fields)) == name


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"stages": 4, "placement": [0, 0, 1, 1]}, r"not for \[0, 0, 1, 1\] on 2"),
        ({"devices": 1}, r"not for \[0\] on 1"),
        (
            {"devices": 3, "edges": [{"from": 0, "to": 2}]},
            "on several devices without skip connections",
        ),
        (
            {"stages": 4, "placement": "interleaved", "microbatches": 3},
            "a multiple of 2 microbatches, not 3",
        ),
    ],
)
def test_what_torch_can_not_run_is_named(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotApplicableError, match=reason):
        counterpart(problem(**fields))
