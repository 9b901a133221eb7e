"""What torch can not run is refused, with the reason."""

from __future__ import annotations

import pytest

from schedopt.classic import gpipe
from schedopt.errors import NotApplicableError
from schedopt.problem import Problem
from schedopt.torch_limits import require_torch
from tests.schedules import schedule_of, two_by_two


def test_what_torch_can_run_passes() -> None:
    require_torch(two_by_two())


def test_skip_connections_and_devices_without_a_stage_are_refused() -> None:
    problem = Problem.uniform(
        devices=4, microbatches=1, placement=[0, 1, 2], edges=[{"from": 0, "to": 2}]
    )
    with pytest.raises(NotApplicableError) as caught:
        require_torch(gpipe(problem))
    assert str(caught.value) == (
        "torch.distributed.pipelining can not run this schedule: stage 2 needs the output of stage "
        "0, and only neighbouring stages send to each other there; device 3 has no stage, and "
        "every rank needs one there"
    )


def test_the_last_stage_needs_its_forwards_in_the_order_of_the_microbatches() -> None:
    problem = Problem.uniform(devices=2, microbatches=2)
    swapped = schedule_of(problem, "0F1 0F0 0B1 0W1 0B0 0W0", "1F1 1B1 1F0 1B0 1W1 1W0")
    with pytest.raises(NotApplicableError, match=r"stage 1 has the forwards .* \[1, 0\] in this"):
        require_torch(swapped)
    first = schedule_of(problem, "0F1 0F0 0B0 0W0 0B1 0W1", "1F0 1B0 1F1 1B1 1W0 1W1")
    require_torch(first)
