"""What a model costs, measured: the ops of its stages, and the links between ranks.

Everything runs in processes of its own that are started as the ranks of `schedopt.executor.local`
are, so that what is measured is what a rank would need.
"""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from schedopt.errors import Fault, InputError
from schedopt.exact import Number
from schedopt.executor.factory import ModelError
from schedopt.executor.link import SIZES, Link, measure_link
from schedopt.executor.local import LocalRanks, device_of_rank, require_device
from schedopt.executor.models import model_of
from schedopt.executor.stage_costs import (
    Boundary,
    FormCosts,
    StageCosts,
    Timing,
    first_boundary,
    measure_stage,
)
from schedopt.op import KINDS
from schedopt.problem import Problem

__all__ = ["Link", "Profile", "measure_link", "profile_model"]

OPTIMIZER_FACTOR = 2.0
"""Bytes of optimizer state for each byte of trained parameters: those of Adam."""

WARM_UP, REPEATS = 5, 20
"""Ops of each kind that are run before, and timed."""


@dataclass(frozen=True)
class Profile:
    """What was measured of a model.

    Attributes
    ----------
    model
        MODULE:FACTORY.
    options
        Of the factory.
    stages
        Costs of each stage.
    links
        From a rank to another and back; None if they were not measured.
    device
        What it was measured on.
    ranks
        Processes that measured at the same time.
    repeats
        Ops of each kind that were timed.
    """

    model: str
    options: Mapping[str, Any]
    stages: tuple[StageCosts, ...]
    links: tuple[Link, Link] | None
    device: str
    ranks: int
    repeats: int
    versions: Mapping[str, str] = field(
        default_factory=lambda: {"schedopt": version("schedopt"), "torch": torch.__version__}
    )

    def form(self, stage: int, *, split: bool) -> FormCosts:
        """The costs of a stage with B and W if that is asked for and possible, or with BW."""
        costs = self.stages[stage]
        return costs.split if split and costs.split is not None else costs.fused

    def static_bytes(self, stage: int, *, optimizer_factor: Number = OPTIMIZER_FACTOR) -> int:
        """Parameters, buffers, gradients and optimizer state of a stage."""
        costs = self.stages[stage]
        state = round(costs.gradient_bytes * optimizer_factor)
        return costs.parameter_bytes + costs.buffer_bytes + costs.gradient_bytes + state

    def lags_us(self) -> tuple[list[float], list[float]]:
        """Lag over each boundary between stages, forward and backward; 0 without links."""
        if self.links is None:
            nothing = [0.0] * (len(self.stages) - 1)
            return nothing, nothing
        there, back = self.links
        return (
            [there.lag_us(costs.output_bytes) for costs in self.stages[:-1]],
            [back.lag_us(costs.input_gradient_bytes) for costs in self.stages[1:]],
        )

    def problem(
        self,
        layout: Problem,
        *,
        split: bool = True,
        optimizer_factor: Number = OPTIMIZER_FACTOR,
    ) -> Problem:
        """The problem of a step of the model; times in us, memory in bytes.

        Parameters
        ----------
        layout
            Any problem with the devices, the placement, the microbatches and, in bytes, the
            capacity that are wanted.
        split
            With B and W, for the stages that can be split.
        optimizer_factor
            Bytes of optimizer state for each byte of trained parameters.
        """
        forms = [self.form(stage, split=split) for stage in range(len(self.stages))]
        static = [0] * layout.devices
        for stage, device in enumerate(layout.device_of):
            static[device] += self.static_bytes(stage, optimizer_factor=optimizer_factor)
        forward, backward = self.lags_us()
        return layout.replace(
            name=self.model.partition(":")[2],
            source=self.source(),
            stages=len(forms),
            durations=_columns([_durations(form) for form in forms]),
            lag={"forward": _tenths(forward), "backward": _tenths(backward)}
            if self.links and forward
            else 0,
            memory={
                **_columns([_memory(form) for form in forms]),
                "transient": _columns([_some(form.transient_bytes) for form in forms], missing=0),
                "static": static,
                "capacity": layout.memory.capacity,
            },
            time_unit="us",
            memory_unit="bytes",
        )

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON; a rate of bytes that has no limit is null."""
        links = [
            {
                "latency_us": link.latency_us,
                "bytes_per_us": link.bytes_per_us if math.isfinite(link.bytes_per_us) else None,
            }
            for link in self.links or ()
        ]
        return {
            "model": self.model,
            "options": {key: str(value) for key, value in self.options.items()},
            "device": self.device,
            "ranks": self.ranks,
            "repeats": self.repeats,
            "versions": dict(self.versions),
            "links": links,
            "stages": [_costs_to_dict(costs) for costs in self.stages],
        }

    def source(self) -> str:
        """Where the numbers come from, in a line."""
        options = "".join(f" {key}={value}" for key, value in self.options.items())
        links = "links between 2 ranks of one machine" if self.links else "no links: lags are 0"
        versions = ", ".join(f"{name} {value}" for name, value in self.versions.items())
        return (
            f"schedopt profile {self.model}{options}: medians of {self.repeats} ops, measured by "
            f"{self.ranks} process(es) at a time on {self.device}; {links}; {versions}"
        )


def _costs_to_dict(costs: StageCosts) -> dict[str, Any]:
    forms = {"split": costs.split, "fused": costs.fused}
    return {
        **costs._asdict(),
        **{
            name: None
            if form is None
            else {
                "timings": {kind: timing._asdict() for kind, timing in form.timings.items()},
                "held_bytes": form.held_bytes,
                "transient_bytes": form.transient_bytes,
            }
            for name, form in forms.items()
        },
        "unsplit": [list(each) for each in costs.unsplit],
    }


def _durations(form: FormCosts) -> dict[str, Number]:
    return dict(zip(form.timings, _tenths(t.median_us for t in form.timings.values()), strict=True))


def _memory(form: FormCosts) -> dict[str, Number]:
    """Change of memory by each kind: what is held after it, less what was held before."""
    levels = [0, *(form.held_bytes[kind] for kind in form.held_bytes), 0]
    return {kind: levels[i + 1] - levels[i] for i, kind in enumerate(form.timings)}


def _some(amounts: Mapping[str, int]) -> dict[str, Number]:
    return {kind: amount for kind, amount in amounts.items() if amount}


def _columns(
    rows: Sequence[Mapping[str, Number]], *, missing: Number | None = None
) -> dict[str, list[Number | None]]:
    """For each kind of op that any stage has, its value for each stage."""
    kinds = [kind for kind in KINDS if any(kind in row for row in rows)]
    return {kind: [row.get(kind, missing) for row in rows] for kind in kinds}


def _tenths(times: Iterable[float]) -> list[Number]:
    """Times in us, rounded to tenths; nothing takes no time."""
    return [max(0.1, round(t, 1)) for t in times]


# ---------------------------------------------------------------------- measuring it


class _Faults(NamedTuple):
    """What a rank has found to be wrong with the model."""

    faults: tuple[Fault, ...]
    source: str


def profile_model(
    model: str,
    stages: int,
    *,
    options: Mapping[str, Any] | None = None,
    device: str = "cpu",
    ranks: int = 1,
    links: bool = True,
    warm_up: int = WARM_UP,
    repeats: int = REPEATS,
    timeout: float = 600.0,
    progress: Callable[[str], object] | None = None,
    local: LocalRanks | None = None,
) -> Profile:
    """Measure a model, stage by stage, and the links between two ranks of this machine.

    Parameters
    ----------
    model
        MODULE:FACTORY.
    stages
        Number of stages.
    options
        Of the factory.
    device
        "cpu" or "cuda". Each process takes one thread, or a GPU, in turn if there are fewer.
    ranks
        Processes that measure at the same time, as ranks do that share a machine; the median of
        theirs counts.
    links
        Measure them.
    warm_up, repeats
        Ops of each kind that are run before, and timed.
    timeout
        Seconds for a stage.
    progress
        Is told of each step.
    local
        Processes that are there already, as many as are needed.

    Raises
    ------
    ModelError
        If the model can not be made, or one of its stages raises.
    InputError
        If there is no such device.
    """
    say = progress or (lambda step: None)
    require_device(device)
    options = dict(options or {})
    model_of(model, stages, device=device, **options)  # before anything is started
    say("starting ranks")
    started = LocalRanks(max(ranks, 2 if links else 1)) if local is None else nullcontext(local)
    with started as processes:
        costs, inputs = [], None
        for stage in range(stages):
            say(f"stage {stage} of {stages}")
            arguments = (model, options, stages, stage, inputs, device, ranks, warm_up, repeats)
            found = processes.run(_measure, *arguments, timeout=timeout)
            for each in found:
                if isinstance(each, _Faults):
                    raise ModelError(*each)
            inputs = found[0][1]
            costs.append(_median_costs([each[0] for each in found if each is not None]))
        between = None
        if links:
            say("links")
            sizes = sorted({b for c in costs for b in (c.output_bytes, c.input_gradient_bytes)})
            between = processes.run(_measure_link, device, (*SIZES, *sizes))[0]
    where = _device_name(device)
    return Profile(model, options, tuple(costs), between, where, ranks, repeats)


def _measure(
    name: str,
    options: dict[str, Any],
    stages: int,
    stage: int,
    inputs: Boundary | None,
    device: str,
    ranks: int,
    warm_up: int,
    repeats: int,
) -> tuple[StageCosts, Boundary] | _Faults | None:
    """On each rank: the costs of a stage, and the inputs of the next one."""
    if dist.get_rank() >= ranks:
        return None
    own = device_of_rank(device, dist.get_rank())
    try:
        model = model_of(name, stages, device=own, **options)
        if inputs is None:
            inputs = first_boundary(name, model)
        return measure_stage(
            name, model, stage, inputs, device=own, warm_up=warm_up, repeats=repeats
        )
    except InputError as error:
        return _Faults(error.faults, error.source)


def _measure_link(device: str, sizes: Sequence[int]) -> tuple[Link, Link] | None:
    rank = dist.get_rank()
    if rank > 1:
        return None
    return measure_link(
        0,
        1,
        device=device_of_rank(device, rank),
        sizes=sizes,
        over_nccl=device == "cuda" and torch.cuda.device_count() > 1,
    )


def _median_costs(found: Sequence[StageCosts]) -> StageCosts:
    """Times in the median over the ranks, the largest spread; all else is the same on each."""
    first = found[0]
    splits = [costs.split for costs in found if costs.split is not None]
    return first._replace(
        split=_median_form(splits) if splits else None,
        fused=_median_form([costs.fused for costs in found]),
    )


def _median_form(found: Sequence[FormCosts]) -> FormCosts:
    timings = {
        kind: Timing(
            statistics.median(form.timings[kind].median_us for form in found),
            max(form.timings[kind].spread for form in found),
        )
        for kind in found[0].timings
    }
    return found[0]._replace(timings=timings)


def _device_name(device: str) -> str:
    if device == "cuda":
        return str(torch.cuda.get_device_name())
    return f"{platform.machine()} CPU, 1 thread"
