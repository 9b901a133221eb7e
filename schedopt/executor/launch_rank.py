"""What a rank does when a schedule is run with a model: check, steps, and a count of memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from schedopt.errors import Fault, InputError
from schedopt.executor.distributed import place_in
from schedopt.executor.errors import ExecutorError, PeerError
from schedopt.executor.factory import naming
from schedopt.executor.held import MemoryStats
from schedopt.executor.local import device_of_rank, require_device
from schedopt.executor.models import PipelineModel, batch_of, build_stages, model_of
from schedopt.executor.one_process import largest_difference
from schedopt.executor.pipeline import PipelineExecutor
from schedopt.executor.program import training_program
from schedopt.executor.trace import Trace
from schedopt.schedule import Schedule

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Request:
    """What is to be run.

    Attributes
    ----------
    schedule
        Its problem has devices, placement, stages and microbatches.
    model
        MODULE:FACTORY.
    options
        Of the factory.
    steps
        Their number, at least 1.
    check
        Compare gradients with one process before.
    device
        "cpu" or "cuda".
    learning_rate
        Of the plain gradient descent between the steps.
    timeout
        Seconds that a rank waits for another one.
    """

    schedule: Schedule
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 3
    check: bool = False
    device: str = "cpu"
    learning_rate: float = 0.01
    timeout: float = 60.0

    def make_model(self, device: torch.device | str) -> PipelineModel:
        """The model, with as many stages as the problem.

        Raises
        ------
        ModelError
            If the factory gives none.
        """
        stages = self.schedule.problem.stage_count
        return model_of(self.model, stages, device=device, **self.options)

    def require_valid(self, nproc: int) -> None:
        """Find what is wrong before any process is started.

        Raises
        ------
        InputError
            If schedule, model, device and number of processes do not belong together.
        DeadlockError
            If the ranks would wait for each other.
        """
        devices = self.schedule.problem.devices
        if nproc != devices:
            valid = f"must be {devices}, one process for each device of the schedule"
            raise InputError("run", [Fault("nproc", str(nproc), valid)])
        require_device(self.device)
        training_program(self.schedule)
        self.make_model(self.device)


class RankRun(NamedTuple):
    """What one rank did.

    Attributes
    ----------
    seconds
        Of each step, from when all ranks were ready for it.
    losses
        Of each step, on the rank of the last stage; else empty.
    trace
        Of the last step.
    memory
        Of one more step, in which bytes were counted.
    fused
        Stages of this rank that could not be split.
    difference
        From one process; None if it was not asked for.
    """

    seconds: tuple[float, ...]
    losses: tuple[float, ...]
    trace: Trace
    memory: MemoryStats
    fused: tuple[int, ...]
    difference: float | None


class Failure(NamedTuple):
    """Why a rank has no result; with faults, what is wrong with the model."""

    text: str
    faults: tuple[Fault, ...] = ()
    source: str = ""
    is_consequence: bool = False


def guarded(request: Request) -> RankRun | Failure:
    """`run_steps`, with what went wrong as a value that can be sent to another process."""
    return answer_of(run_steps, request)


def answer_of(function: Callable[..., Answer], *args: Any) -> Answer | Failure:
    """What a function returns; or what went wrong, as a value that can be sent."""
    try:
        return function(*args)
    except InputError as error:
        return Failure(str(error), error.faults, error.source)
    except ExecutorError as error:
        return Failure(
            f"{type(error).__name__}: {error}", is_consequence=isinstance(error, PeerError)
        )


def run_steps(request: Request) -> RankRun:
    """Run the steps; to be called on every rank of the process group.

    Raises
    ------
    InputError
        If the code of the model raises on this rank.
    ExecutorError
        If a rank fails.
    """
    rank, _, _ = place_in(None)
    device = device_of_rank(request.device, int(os.environ.get("LOCAL_RANK", rank)))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    host = for_host()
    model, modules, batch = _together(host, lambda: _prepared(request, rank, device))
    difference = None
    if request.check:
        difference = _together(
            host,
            lambda: largest_difference(
                request.model, model, request.schedule, rank, device=device, timeout=request.timeout
            ),
        )
    run = _steps(request, model, modules, batch, device, host)
    return run._replace(difference=difference)


def _together(host: Any, work: Callable[[], Answer]) -> Answer:
    """Do something, and go on only if all ranks could do it.

    Raises
    ------
    PeerError
        If another rank could not, for which this one would wait.
    """
    result, error = None, None
    try:
        result = work()
    except Exception as raised:
        error = raised
    failed: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(failed, error is not None, group=host)
    if error is not None:
        raise error
    if any(failed):
        others = ", ".join(str(rank) for rank, has_failed in enumerate(failed) if has_failed)
        raise PeerError("getting ready", f"rank {others} could not make or check its stages")
    return cast("Answer", result)


def _prepared(request: Request, rank: int, device: torch.device) -> tuple[PipelineModel, Any, Any]:
    """The model, the modules of this rank, and the batch."""
    model, problem = request.make_model(device), request.schedule.problem
    modules = build_stages(request.model, model, problem.stages_on[rank])
    return model, modules, batch_of(request.model, model, problem.microbatches)


def _steps(
    request: Request,
    model: PipelineModel,
    modules: Mapping[int, nn.Module],
    batch: tuple[tuple[Tensor, ...], Tensor],
    device: torch.device,
    host: Any,
) -> RankRun:
    inputs, target = batch

    def executor(*, count: bool) -> PipelineExecutor:
        return PipelineExecutor(
            modules,
            request.schedule,
            loss_fn=model.loss_fn,
            shared=model.shared,
            timeout=request.timeout,
            count_activations=count,
            device=device,
        )

    running = executor(count=False)
    seconds, means = [], []
    for _ in range(request.steps):
        losses: list[Tensor] = []
        dist.barrier(group=host)
        start = time.perf_counter()
        with naming(request.model, "a step"):
            running.step(*inputs, target=target, losses=losses)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
        means += [float(torch.stack(losses).mean())] if losses else []
        _descend(running, request.learning_rate)
    trace, unsplit = running.last_trace(), running.unsplit
    running.close()
    counting = executor(count=True)  # apart from the timed steps, because counting takes time
    for _ in range(2):  # only from the second step on messages are posted as planned
        counting.step(*inputs, target=target)
    memory = counting.memory_stats()
    counting.close()
    fused = tuple(stage for stage, parts in unsplit.items() if any(not name for name, _ in parts))
    return RankRun(tuple(seconds), tuple(means), trace, memory, fused, None)


def _descend(executor: PipelineExecutor, learning_rate: float) -> None:
    with torch.no_grad():
        for parameter in executor.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=learning_rate)
            parameter.grad = None


def for_host() -> Any:
    """The group of all ranks over gloo, for what is not on a GPU; to be called on all of them."""
    if dist.get_backend() == "gloo":
        return None
    return dist.new_group(backend="gloo")
