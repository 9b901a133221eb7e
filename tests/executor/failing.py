"""What ranks do in tests of failures: each returns what it raised, and after how long."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from schedopt.executor import PipelineExecutor
from schedopt.schedule import Schedule
from tests.executor import steps


def outcome_of(action: Callable[[], Any]) -> tuple[str, str, float]:
    """Name of the exception, its text, seconds until then."""
    start = time.monotonic()
    try:
        action()
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - start
    return "", "", time.monotonic() - start


class Acts(nn.Module):
    """Does something in a forward chosen by its number, counted over all steps."""

    def __init__(self, module: nn.Module, number: int, act: Callable[[], None]) -> None:
        super().__init__()
        self.module, self.number, self.act, self.count = module, number, act, 0

    def forward(self, x: Tensor) -> Any:
        self.count += 1
        if self.count == self.number:
            self.act()
        return self.module(x)


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def raise_error() -> None:
    raise ValueError("no more data")


def hang() -> None:
    time.sleep(8)


ACTS = {"kill": kill_myself, "raise": raise_error, "hang": hang}


def step_with_a_failure(
    schedule: Schedule,
    rank_that_fails: int,
    act: str,
    number: int,
    timeout: float,
    close: bool = True,
) -> tuple[str, str, float]:
    """Two steps, in which one rank does `act` in its forward `number`."""
    problem = schedule.problem
    rank = dist.get_rank()
    modules = steps.mlp(problem.stage_count)
    own = {stage: modules[stage] for stage in problem.stages_on[rank]}
    if rank == rank_that_fails:
        first = min(own)
        own[first] = Acts(own[first], number, ACTS[act])
    x, y = steps.numbers(2 * problem.microbatches)
    executor = PipelineExecutor(own, schedule, loss_fn=steps.loss_fn, timeout=timeout)

    def act_now() -> None:
        for _ in range(2):
            executor.step(x, target=y)

    result = outcome_of(act_now)
    if close:
        executor.close()
    return result


def construct(
    schedules: list[Schedule], stages: list[list[int]] | None = None
) -> tuple[str, str, float]:
    """Each rank with a schedule of its own, and perhaps other stages than it says."""
    rank = dist.get_rank()
    group = steps.group_of(len(schedules))
    if group is None:
        return "", "", 0.0
    problem = schedules[rank].problem
    modules = steps.mlp(max(8, problem.stage_count))
    own = problem.stages_on[rank] if stages is None else stages[rank]
    named: Any = {stage: modules[stage] for stage in own}

    def act() -> None:
        PipelineExecutor(named, schedules[rank], loss_fn=steps.loss_fn, group=group, timeout=20)

    return outcome_of(act)


def threads(within: float = 20.0) -> list[str]:
    """Names of the threads that are left, once those that are about to end have ended.

    Executors of earlier steps that nobody closed are collected first.
    """
    gc.collect()
    end = time.monotonic() + within
    while threading.active_count() > 1 and time.monotonic() < end:
        time.sleep(0.01)
    return [thread.name for thread in threading.enumerate()]


def different_calls(schedule: Schedule) -> tuple[str, str, float]:
    """After a step and an evaluation rank 0 trains, and rank 1 evaluates."""
    group = steps.group_of(2)
    if group is None:
        return "", "", 0.0
    rank = dist.get_rank()
    modules = steps.mlp(2)
    executor = PipelineExecutor(
        {rank: modules[rank]}, schedule, loss_fn=steps.loss_fn, group=group, timeout=30
    )
    x, y = steps.numbers(8)
    executor.step(x, target=y)
    executor.eval(x, target=y)
    call = executor.step if rank == 0 else executor.eval
    result = outcome_of(lambda: call(x, target=y))
    executor.close()
    return result


def other_shapes(schedule: Schedule) -> list[tuple[str, str, float]]:
    """A step with 8 rows of 6, one with rows of another number, one after forgetting the first."""
    group = steps.group_of(2)
    if group is None:
        return []
    rank = dist.get_rank()
    results = []
    for forget in (True, False):
        modules = steps.mlp(2)
        executor = PipelineExecutor(
            {rank: modules[rank]}, schedule, loss_fn=steps.loss_fn, group=group, timeout=30
        )
        x, y = steps.numbers(8)
        executor.step(x, target=y)
        if forget:
            executor.forget_layouts()
        x, y = steps.numbers(12)
        results.append(outcome_of(lambda e=executor, x=x, y=y: e.step(x, target=y)))  # type: ignore[misc]
        executor.close()
    return results


__all__ = [
    "construct",
    "different_calls",
    "other_shapes",
    "step_with_a_failure",
    "threads",
    "torch",
]
