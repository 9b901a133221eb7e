"""Steps of a schedule with a model, on processes of this machine or as a rank of torchrun."""

from __future__ import annotations

import os
import shlex
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist

from schedopt.choices import recomputed_in
from schedopt.executor.chrome import side_by_side
from schedopt.executor.errors import ExecutorError
from schedopt.executor.factory import ModelError
from schedopt.executor.launch_rank import Failure, RankRun, Request, for_host, guarded, run_steps
from schedopt.executor.local import LocalRanks, Outcome
from schedopt.executor.one_process import LIMIT
from schedopt.executor.prediction import with_fused_stages
from schedopt.graph import build_graph
from schedopt.memory import peak_memory
from schedopt.schedule import Schedule
from schedopt.units import BYTES, SECONDS

LONGEST = 24 * 3600.0
"""Seconds for all steps. A rank that waits gives up by itself; this is for one that does not."""


@dataclass(frozen=True)
class Report:
    """What all ranks did.

    Attributes
    ----------
    request
        What was run.
    ranks
        By rank.
    """

    request: Request
    ranks: tuple[RankRun, ...]

    @property
    def seconds(self) -> list[float]:
        """Of each step: until the last rank has ended."""
        return [max(each) for each in zip(*(rank.seconds for rank in self.ranks), strict=True)]

    @property
    def losses(self) -> list[float]:
        """Of each step."""
        return next((list(rank.losses) for rank in self.ranks if rank.losses), [])

    @property
    def measured(self) -> float:
        """Median of the steps in seconds, without the first one if there are more."""
        return statistics.median(self.seconds[1:] or self.seconds)

    @cached_property
    def expected(self) -> Schedule:
        """The schedule as early as possible, with BW for stages that could not be split."""
        fused = {stage for rank in self.ranks for stage in rank.fused}
        schedule = with_fused_stages(self.request.schedule, fused)
        problem = schedule.problem.replace(objective="makespan")
        graph = build_graph(problem, recomputed=recomputed_in(schedule.orders))
        return Schedule.from_order(graph, schedule.orders, name=schedule.name, info=schedule.info)

    @property
    def unit_seconds(self) -> float | None:
        """Seconds of the time unit of the problem; None if its name is no unit of time."""
        unit = SECONDS.get(self.request.schedule.problem.time_unit)
        return None if unit is None else float(unit)

    @property
    def predicted(self) -> float | None:
        """Makespan in seconds; None if the time unit of the problem is none."""
        unit = self.unit_seconds
        return None if unit is None else float(self.expected.makespan) * unit

    @property
    def difference(self) -> float | None:
        """Largest difference of a gradient from one process; None if it was not asked for."""
        found = [rank.difference for rank in self.ranks if rank.difference is not None]
        return max(found, default=None)

    @property
    def is_right(self) -> bool:
        """Whether gradients are those of one process, as far as that was asked for."""
        return self.difference is None or self.difference <= LIMIT

    @property
    def planned_bytes(self) -> list[int | None]:
        """Activation bytes of each rank by the plan; None if the memory unit is no size."""
        unit = BYTES.get(self.request.schedule.problem.memory_unit)
        problem = self.expected.problem
        peaks = zip(peak_memory(self.expected), problem.static, strict=True)
        return [None if unit is None else int((peak - static) * unit) for peak, static in peaks]

    def trace(self) -> dict[str, Any]:
        """A Chrome trace of the last step, measured beside predicted.

        Without a unit of time the prediction is as long as what was measured.
        """
        unit = self.unit_seconds or self.measured / float(self.expected.makespan)
        traces = [rank.trace for rank in self.ranks]
        name = self.request.schedule.name or "schedule"
        events = list(side_by_side(0, name, self.expected, traces, unit_us=1e6 * unit))
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def to_dict(self) -> dict[str, Any]:
        """All of it but the ops, ready for JSON."""
        problem = self.request.schedule.problem
        return {
            "schedule": self.request.schedule.name,
            "model": self.request.model,
            "devices": problem.devices,
            "stages": problem.stage_count,
            "microbatches": problem.microbatches,
            "losses": self.losses,
            "seconds": self.seconds,
            "measured_seconds": self.measured,
            "predicted_seconds": self.predicted,
            "gradient_difference": self.difference,
            "gradient_limit": None if self.difference is None else LIMIT,
            "ranks": [
                {
                    "rank": rank,
                    "stages": list(problem.stages_on[rank]),
                    "fused_stages": list(run.fused),
                    "held_microbatches": list(run.memory.held_microbatches.values()),
                    "planned_microbatches": list(run.memory.planned_microbatches.values()),
                    "activation_bytes": run.memory.activation_bytes,
                    "planned_activation_bytes": planned,
                    "boundary_messages": run.memory.boundary_messages,
                    "planned_boundary_messages": run.memory.planned_boundary_messages,
                    "boundary_bytes": run.memory.boundary_bytes,
                    "allocated_bytes": run.memory.allocated_bytes,
                }
                for rank, (run, planned) in enumerate(
                    zip(self.ranks, self.planned_bytes, strict=True)
                )
            ],
        }


def torchrun_line(arguments: Sequence[str], nproc: int) -> str:
    """What to type on each of several machines; HOST is to be replaced by the name of one.

    Parameters
    ----------
    arguments
        The command with its arguments.
    nproc
        Number of ranks.

    Examples
    --------
    >>> torchrun_line(["schedopt", "run", "best.json"], 4)  # doctest: +ELLIPSIS
    'torchrun --nnodes 2 --nproc-per-node 2 ... --no-python schedopt run best.json'
    """
    machines = 2 if nproc % 2 == 0 else nproc
    start = f"torchrun --nnodes {machines} --nproc-per-node {nproc // machines}"
    meeting = "--rdzv-backend c10d --rdzv-endpoint HOST:29500"
    return f"{start} {meeting} --no-python {shlex.join(arguments)}"


# ---------------------------------------------------------------------- starting it


def run_here(
    request: Request,
    *,
    progress: Callable[[str], object] | None = None,
    ranks: LocalRanks | None = None,
) -> Report:
    """Run on processes of this machine, one for each device.

    Parameters
    ----------
    request
        What is run.
    progress
        Is told of each step.
    ranks
        Processes that are there already.

    Raises
    ------
    InputError
        If model and schedule do not belong together, or the code of the model raises.
    ExecutorError
        If a rank fails.
    TimeoutError
        If the ranks do not come to an end.
    """
    say = progress or (lambda step: None)
    say("starting ranks")
    if ranks is None:
        count = request.schedule.problem.devices
        enough = request.device == "cuda" and torch.cuda.device_count() >= count
        with LocalRanks(count, backend=_backend(request.device) if enough else "gloo") as started:
            say("running steps")
            outcomes = started.outcomes(guarded, request, timeout=LONGEST)
    else:
        outcomes = ranks.outcomes(guarded, request, timeout=LONGEST)
    return Report(request, tuple(answers(outcomes)))


def answers(outcomes: Sequence[Outcome]) -> list[Any]:
    """What the ranks returned, by rank.

    Raises
    ------
    InputError
        If a rank found a fault of the model.
    ExecutorError
        If a rank failed; the one that is not a consequence of another.
    """
    found: list[Any] = []
    failures: dict[int, Failure] = {}
    for rank, outcome in enumerate(outcomes):
        answer = Failure(outcome.error) if outcome.error else outcome.value
        if isinstance(answer, Failure):
            failures[rank] = answer
        else:
            found.append(answer)
    for failure in failures.values():
        if failure.faults:
            raise ModelError(failure.faults, failure.source)
    if failures:
        rank = min(failures, key=lambda rank: (failures[rank].is_consequence, rank))
        raise ExecutorError(f"rank {rank}: {failures[rank].text}")
    return found


def is_under_torchrun() -> bool:
    """Whether this process is a rank that torchrun has started."""
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()


def ranks_of_torchrun() -> int:
    """Number of ranks that torchrun has started."""
    return int(os.environ["WORLD_SIZE"])


def run_as_rank(request: Request) -> Report | None:
    """Be one of the ranks that torchrun has started; the report on rank 0.

    Raises
    ------
    InputError
        If the code of the model raises on this rank.
    ExecutorError
        If a rank fails.
    """
    dist.init_process_group(_backend(request.device))
    try:
        own = run_steps(request)
        everyone: list[Any] | None = [None] * dist.get_world_size() if not dist.get_rank() else None
        dist.gather_object(own, everyone, group=for_host())
        return None if everyone is None else Report(request, tuple(everyone))
    finally:
        dist.destroy_process_group()


def _backend(device: str) -> str:
    return "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
