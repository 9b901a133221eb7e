"""Slow links and ops: a message is there, and an op over, when its time has passed; not before."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from schedopt.classic import CLASSIC
from schedopt.executor import PipelineExecutor
from schedopt.executor.emulate import emulated
from schedopt.executor.local import LocalRanks
from schedopt.executor.slowness import SlowLinks
from schedopt.executor.transport import connect
from schedopt.problem import Problem
from tests.executor.steps import group_of

LAG = 0.03


class Instant:
    """A backend in one process whose messages are there at once."""

    def __init__(self) -> None:
        self.messages: dict[tuple[int, int], Any] = {}
        self.sent = 0

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Instant:
        self.messages[peer, tag] = tensors[0].clone()
        self.sent += 1
        return self

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Instant:
        # The peer of a receive is the sender; there are only the ranks 0 and 1 here.
        tensors[0].copy_(self.messages[1 - peer, tag])
        return self

    def wait(self, timeout: Any = None) -> bool:
        return True


def pass_on(links: dict[tuple[int, int], float]) -> tuple[float, torch.Tensor, int]:
    backend = Instant()
    start = time.perf_counter()
    SlowLinks(backend, 0, links).send([torch.ones(3)], 1, 5).wait()
    received = torch.zeros(3)
    SlowLinks(backend, 1, links).recv([received], 0, 5).wait()
    return time.perf_counter() - start, received, backend.sent


def test_a_message_over_a_slow_link_takes_at_least_its_time() -> None:
    took, received, _ = pass_on({(0, 1): LAG})
    assert took >= LAG
    assert received.tolist() == [1, 1, 1]


def test_other_links_send_nothing_more_than_the_message() -> None:
    _, received, sent = pass_on({(1, 0): LAG})
    assert sent == 1
    assert received.tolist() == [1, 1, 1]


def waits(problem: Problem) -> list[tuple[Any, bool, float, float]] | None:
    """Messages of a step on this rank: what, whether it was sent, and when, on a common clock."""
    group = group_of(problem.devices)
    if group is None:
        return None
    model = emulated(problem, unit_seconds=1e-6, boundary_bytes=64)
    rank = dist.get_rank()
    executor = PipelineExecutor(
        {rank: model.build(rank)},
        CLASSIC["1F1B"](problem),
        loss_fn=model.loss_fn,
        group=group,
        slow_links={(0, 1): LAG},
    )
    inputs, target = model.inputs(problem.microbatches), model.target(problem.microbatches)
    for _ in range(2):
        executor.step(*inputs, target=target)
    trace = executor.last_trace()
    executor.close()
    return [
        (m.message, m.is_sent, trace.began + m.start, trace.began + m.end) for m in trace.messages
    ]


def test_the_messages_of_a_step_take_at_least_the_time_of_their_link(ranks: LocalRanks) -> None:
    results = ranks.run(waits, Problem.uniform(devices=2, microbatches=3))
    sent = {what: start for what, is_sent, start, _ in results[0] if is_sent}
    got = {what: end for what, is_sent, _, end in results[1] if not is_sent}
    assert len(sent) == 3
    # The traces are laid side by side by the clock of the day, which may be set a little meanwhile.
    assert all(got[what] - sent[what] >= 0.9 * LAG for what in sent)


def test_an_op_lasts_at_least_as_long_as_it_is_told() -> None:
    problem = Problem.uniform(devices=1, microbatches=2)
    model = emulated(problem, unit_seconds=1.0, boundary_bytes=64, stages_wait=False)
    executor = PipelineExecutor(
        {0: model.build(0)},
        CLASSIC["1F1B"](problem),
        loss_fn=model.loss_fn,
        slow_ops={(0, "BW"): LAG},
    )
    executor.step(*model.inputs(2), target=model.target(2))
    times = {op.op: op.end - op.start for op in executor.last_trace().ops}
    executor.close()
    assert [op.kind for op in times] == ["F", "BW", "F", "BW"]
    assert all(seconds >= LAG for op, seconds in times.items() if op.kind == "BW")


def test_links_over_nccl_can_not_be_made_slow() -> None:
    with pytest.raises(ValueError, match="slow over gloo only, not over NCCL"):
        connect(
            dist.HashStore(),  # type: ignore[attr-defined]
            0,
            2,
            [],
            is_nccl=True,
            timeout=1.0,
            device=torch.device("cpu"),
            slow_links={(0, 1): 1.0},
        )
