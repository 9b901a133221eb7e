"""The self-check of the first step: agrees with what is right, finds what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from schedopt import Schedule
from schedopt.executor import ExecutorError, PipelineExecutor
from schedopt.executor.local import LocalRanks
from schedopt.executor.program import Message
from schedopt.executor.self_check import digest_of, require_content
from schedopt.executor.split import DeferredWeights
from tests.executor import features, steps
from tests.executor.test_features import EXACT, SKIP, fused, one_stage, zb

CHECKED: list[tuple[str, Schedule, dict[str, Any]]] = [
    (name, schedule, {"self_check": True})
    for name, schedule in (
        *(("dropout", each) for each in (zb(2, 2), fused(2, 2))),
        *((name, zb(2, 2)) for name in ("several outputs", "arguments", "frozen first")),
        ("skip", SKIP),
    )
]


def test_the_self_check_agrees_with_what_is_right(ranks: LocalRanks) -> None:
    """Also where random numbers are drawn; it leaves gradients and random numbers alone."""
    for results in ranks.run(features.run_features, CHECKED):
        for (name, schedule, _), result in zip(CHECKED, results, strict=True):
            if result is not None:
                assert result["error"] == "", (name, schedule.name)
                assert result["gradients"] <= EXACT or name == "dropout"


def test_the_self_check_finds_a_weight_gradient_that_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run_once_more(self: DeferredWeights, microbatch: int) -> None:
        queued = list(self._queues[microbatch])
        original(self, microbatch)
        self._queues[microbatch] = queued[:1]
        original(self, microbatch)

    original = DeferredWeights.run
    x, y = steps.numbers(6)
    model = steps.mlp(1)
    executor = PipelineExecutor(model, one_stage(3), loss_fn=steps.loss_fn, self_check=True)
    executor.step(x, target=y)
    executor.close()
    monkeypatch.setattr(DeferredWeights, "run", run_once_more)
    executor = PipelineExecutor(model, one_stage(3), loss_fn=steps.loss_fn, self_check=True)
    with pytest.raises(ExecutorError, match=r"stage 0: the gradient of \d.\w+ differs by"):
        executor.step(x, target=y)
    executor.close()


def test_the_self_check_finds_a_message_that_is_not_what_was_sent() -> None:
    x, message = torch.arange(6.0), Message(0, 1, 3)
    require_content(message, [x.clone(), None], digest_of([x, None]))
    with pytest.raises(ExecutorError, match="stage 0 for stage 1, microbatch 3: what arrived"):
        require_content(message, [x + 1, None], digest_of([x, None]))
