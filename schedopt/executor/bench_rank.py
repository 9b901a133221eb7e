"""What a rank does in a benchmark: steps of several schedules in turn, each one timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from schedopt.executor.distributed import place_in
from schedopt.executor.emulate import BOUNDARY_BYTES, emulated, emulated_links, emulated_ops
from schedopt.executor.factory import naming
from schedopt.executor.held import MemoryStats
from schedopt.executor.link import Link, measure_link
from schedopt.executor.local import device_of_rank
from schedopt.executor.models import PipelineModel, batch_of, build_stages, model_of
from schedopt.executor.pipeline import PipelineExecutor
from schedopt.executor.slowness import Links, OpTimes, wait_until
from schedopt.executor.torch_baseline import TorchSteps
from schedopt.executor.trace import Trace
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.units import SECONDS

EMULATED_UNIT_SECONDS = 1e-3
"""What one time unit of another name takes in emulated stages."""

WARM_UP = 2
"""Steps before the timed ones: one that learns the layouts, one that posts ahead."""

_START_AFTER = 0.002
"""Seconds from the agreement on a start to the start, so that every rank is there."""


@dataclass(frozen=True)
class Source:
    """Where the modules come from: a factory, or the durations of the problem.

    Attributes
    ----------
    factory
        MODULE:FACTORY; "" for emulated stages.
    options
        Of the factory.
    device
        "cpu" or "cuda".
    unit_seconds
        Seconds that one time unit of a problem takes; None to go by its name.
    boundary_bytes
        Of the tensors between emulated stages.
    stages_wait
        Whether emulated stages wait by themselves, in any runtime; else the executor lets its ops
        last as long as they should.
    """

    factory: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    unit_seconds: float | None = None
    boundary_bytes: int = BOUNDARY_BYTES
    stages_wait: bool = False

    @property
    def is_emulated(self) -> bool:
        """Whether stages wait instead of computing."""
        return not self.factory

    def seconds_per_unit(self, problem: Problem) -> float | None:
        """Seconds that one time unit of a problem takes; None if that is not known."""
        if self.unit_seconds is not None:
            return self.unit_seconds
        if problem.time_unit in SECONDS:
            return float(SECONDS[problem.time_unit])
        return None if self.factory else EMULATED_UNIT_SECONDS

    def model(self, problem: Problem, device: torch.device | str) -> PipelineModel:
        """The model, cut into the stages of a problem.

        Raises
        ------
        InputError
            If the problem can not be emulated, or the factory gives no such model.
        """
        if self.factory:
            return model_of(self.factory, problem.stage_count, device=device, **self.options)
        unit = self.seconds_per_unit(problem) or 0.0
        return emulated(
            problem,
            unit_seconds=unit,
            boundary_bytes=self.boundary_bytes,
            stages_wait=self.stages_wait,
        )

    def ops(self, problem: Problem) -> OpTimes:
        """How long the executor lets ops last at least: as they take, for a factory."""
        if self.factory or self.stages_wait:
            return {}
        return emulated_ops(problem, unit_seconds=self.seconds_per_unit(problem) or 0.0)

    def links(self, problem: Problem) -> Links:
        """The links that are slow: none for a factory.

        Raises
        ------
        InputError
            If the lags can not be emulated.
        """
        if self.factory:
            return {}
        return emulated_links(problem, unit_seconds=self.seconds_per_unit(problem) or 0.0)


class Entry(NamedTuple):
    """A schedule to be run by this project, or the problem of one that torch is to run."""

    schedule: Schedule
    by_torch: bool = False


class Step(NamedTuple):
    """One step on one rank.

    Attributes
    ----------
    seconds
        From the common start to the end of the step on this rank.
    cpu_seconds
        Of all threads of the process.
    losses
        Of the microbatches, on the rank of the last stage.
    trace
        None for torch.
    """

    seconds: float
    cpu_seconds: float
    losses: tuple[float, ...]
    trace: Trace | None


class RankReport(NamedTuple):
    """What a rank has measured.

    Attributes
    ----------
    links
        From rank 0 to rank 1 and back, on these two ranks; else empty.
    steps
        By entry and round.
    memory
        By entry; None for torch.
    fused
        By entry: stages of this rank that could not be split.
    """

    links: tuple[Link, ...]
    steps: tuple[tuple[Step, ...], ...]
    memory: tuple[MemoryStats | None, ...]
    fused: tuple[tuple[int, ...], ...]


def measure(entries: Sequence[Entry], source: Source, rounds: int) -> RankReport:
    """Run every schedule once in each round; to be called on every rank alike."""
    rank, size, _ = place_in(None)
    links: tuple[Link, ...] = ()
    if size > 1:
        first = rank // 2 * 2
        if first + 1 < size:  # all pairs at a time: as in a step, they share the cores
            device = device_of_rank(source.device, rank)
            links = measure_link(first, first + 1, device=device)
        dist.barrier()
    memory = tuple(_memory(entry, source, rank) for entry in entries)
    lanes = [Lane(entry, source, rank) for entry in entries]
    for lane in lanes:
        for _ in range(WARM_UP):
            lane.step()
    steps: list[list[Step]] = [[] for _ in lanes]
    for number in range(rounds):
        # Each other round backwards, so that no schedule always follows the same one.
        order = range(len(lanes))[:: -1 if number % 2 else 1]
        for place in order:
            steps[place].append(lanes[place].step())
    fused = tuple(lane.fused for lane in lanes)
    for lane in lanes:
        lane.close()
    return RankReport(links, tuple(map(tuple, steps)), memory, fused)


class Lane:
    """One schedule with modules of its own."""

    def __init__(
        self, entry: Entry, source: Source, rank: int, *, count_activations: bool = False
    ) -> None:
        problem = entry.schedule.problem
        self._device = device_of_rank(source.device, rank)
        model = source.model(problem, self._device)
        name = self._name = source.factory or "emulated stages"
        self.modules = build_stages(name, model, problem.stages_on[rank])
        self._inputs, self._target = batch_of(name, model, problem.microbatches)
        self.executor: PipelineExecutor | None = None
        links = source.links(problem)
        self._step: Callable[..., Any]
        if entry.by_torch:
            self._step = TorchSteps(
                self.modules, problem, loss_fn=model.loss_fn, links=links, device=self._device
            ).step
        else:
            self.executor = PipelineExecutor(
                self.modules,
                entry.schedule,
                loss_fn=model.loss_fn,
                shared=model.shared,
                count_activations=count_activations,
                device=self._device,
                slow_links=links,
                slow_ops=source.ops(problem),
            )
            self._step = self.executor.step

    @property
    def fused(self) -> tuple[int, ...]:
        """Stages of this rank whose B is the whole backward although they have a W."""
        unsplit = {} if self.executor is None else self.executor.unsplit
        return tuple(s for s, parts in unsplit.items() if any(not name for name, _ in parts))

    def step(self) -> Step:
        """One step, which begins on all ranks at once."""
        for module in self.modules.values():
            module.zero_grad()
        losses: list[Tensor] = []
        self._synchronize()
        start = _common_start()
        cpu = time.process_time()
        with naming(self._name, "a step"):
            self._step(*self._inputs, target=self._target, losses=losses)
        self._synchronize()
        end = time.perf_counter()
        return Step(
            end - start,
            time.process_time() - cpu,
            tuple(float(loss.detach()) for loss in losses),
            None if self.executor is None else self.executor.last_trace(),
        )

    def close(self) -> None:
        """Leave the other ranks in good order."""
        if self.executor is not None:
            self.executor.close()

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _memory(entry: Entry, source: Source, rank: int) -> MemoryStats | None:
    """What a step holds; measured apart, because counting takes time."""
    if entry.by_torch:
        return None
    lane = Lane(entry, source, rank, count_activations=True)
    for _ in range(WARM_UP):
        lane.step()
    stats = None if lane.executor is None else lane.executor.memory_stats()
    lane.close()
    return stats


def _common_start() -> float:
    """Wait for a time at which all ranks start; they have one clock, being on one machine."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return time.perf_counter()
    start = torch.zeros(1, dtype=torch.float64)
    dist.barrier()
    if dist.get_rank() == 0:
        start[0] = time.perf_counter() + _START_AFTER
    dist.broadcast(start, 0)
    wait_until(float(start))
    return float(start)
