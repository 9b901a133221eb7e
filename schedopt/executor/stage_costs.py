"""What the ops of one stage cost: time, memory that is held after them, bytes that are sent.

Times are taken as steps run: the F of the next microbatch comes before the backward of one, so
that what an op finds in the caches is not what itself has just left there. Memory is counted
apart from them, since counting takes time.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor

from schedopt.executor.factory import naming
from schedopt.executor.held import HeldStorages
from schedopt.executor.models import PipelineModel, batch_of, build_stages
from schedopt.executor.stage import Loss, StageRunner

SPLIT, FUSED = ("F", "B", "W"), ("F", "BW")


class Timing(NamedTuple):
    """Times of one kind of op.

    Attributes
    ----------
    median_us
        Median in us.
    spread
        Distance of the quartiles, as a part of the median.
    """

    median_us: float
    spread: float


class FormCosts(NamedTuple):
    """The costs of a stage in one form: with F, B and W, or with F and BW.

    Attributes
    ----------
    timings
        Of each kind.
    held_bytes
        Activation bytes of one microbatch that are held after each kind but the last, after which
        none are: what autograd and the queues of weight gradients hold, and the inputs.
    transient_bytes
        Bytes held more while an op runs; 0 on a CPU, whose allocator does not tell.
    """

    timings: dict[str, Timing]
    held_bytes: dict[str, int]
    transient_bytes: dict[str, int]


class StageCosts(NamedTuple):
    """The costs of one stage.

    Attributes
    ----------
    stage
        Its number.
    split
        With F, B and W; None if the stage can not be split.
    fused
        With F and BW.
    parameter_bytes, gradient_bytes, buffer_bytes
        Of its module; gradients of the parameters that are not frozen.
    output_bytes
        Of what is sent to the next stage for one microbatch; 0 after the last stage.
    input_gradient_bytes
        Of what is sent to the stage before; 0 before the first stage.
    unsplit
        What computes its weight gradients in B, with the reasons (`StageRunner.unsplit`).
    """

    stage: int
    split: FormCosts | None
    fused: FormCosts
    parameter_bytes: int
    gradient_bytes: int
    buffer_bytes: int
    output_bytes: int
    input_gradient_bytes: int
    unsplit: tuple[tuple[str, str], ...]


class Boundary(NamedTuple):
    """The inputs of a stage for one microbatch, and which of them need a gradient."""

    tensors: tuple[Tensor, ...]
    require_gradient: tuple[bool, ...]


def first_boundary(name: str, model: PipelineModel) -> Boundary:
    """The arguments of the first stage for a microbatch.

    Raises
    ------
    ModelError
        If the model `name` raises.
    """
    given, _ = batch_of(name, model, 1)
    return Boundary(given, tuple(t.requires_grad for t in given))


def measure_stage(
    name: str,
    model: PipelineModel,
    stage: int,
    inputs: Boundary,
    *,
    device: torch.device,
    warm_up: int,
    repeats: int,
) -> tuple[StageCosts, Boundary]:
    """The costs of a stage, and the inputs of the next one.

    Parameters
    ----------
    name
        Of the model, for errors.
    model
        Has the stage.
    stage
        Its number.
    inputs
        From `first_boundary`, or from the stage before.
    device
        Where it runs.
    warm_up, repeats
        Ops of each kind that are run before, and timed.

    Raises
    ------
    ModelError
        If the code of the model raises; names the stage and the op.
    """
    module = build_stages(name, model, [stage])[stage]
    loss: Loss | None = None
    batch: list[Tensor] = []
    if stage == model.stages - 1:
        _, target = batch_of(name, model, 1)
        batch = [target]

        def loss(returned: object) -> Tensor:
            return model.loss_fn(returned, target)

    given = [t.to(device) for t in inputs.tensors]
    static = [*module.parameters(), *module.buffers(), *batch]
    if stage == 0:
        static += given
    forms: dict[tuple[str, ...], FormCosts] = {}
    unsplit: tuple[tuple[str, str], ...] = ()
    for kinds in (SPLIT, FUSED):
        runner = StageRunner(stage, module, split=kinds == SPLIT)
        unsplit = unsplit or runner.unsplit
        if runner.is_fused:
            continue
        trial = _Trial(name, runner, kinds, given, inputs.require_gradient, loss, device)
        try:
            trial.run(warm_up, timed=False)
            forms[kinds] = FormCosts(trial.run(repeats, timed=True), *trial.memory(static))
        finally:
            runner.clear()
            runner.restore()
    frozen = [p for p in module.parameters() if not p.requires_grad]
    parameter_bytes = _bytes(module.parameters())
    answered = [t for t, needs in zip(given, inputs.require_gradient, strict=True) if needs]
    costs = StageCosts(
        stage,
        forms.get(SPLIT),
        forms[FUSED],
        parameter_bytes=parameter_bytes,
        gradient_bytes=parameter_bytes - _bytes(frozen),
        buffer_bytes=_bytes(module.buffers()),
        output_bytes=_bytes(trial.outputs) if loss is None else 0,
        input_gradient_bytes=_bytes(answered) if stage else 0,
        unsplit=unsplit,
    )
    return costs, Boundary(
        tuple(t.detach().cpu() for t in trial.outputs),
        tuple(t.requires_grad for t in trial.outputs),
    )


class _Trial:
    """Runs the ops of a stage in one form.

    Attributes
    ----------
    outputs
        What the stage gave for the first microbatch of the last `run`.
    """

    def __init__(
        self,
        name: str,
        runner: StageRunner,
        kinds: Sequence[str],
        inputs: Sequence[Tensor],
        require_gradient: Sequence[bool],
        loss: Loss | None,
        device: torch.device,
    ) -> None:
        self._name = name
        self._runner = runner
        self._kinds = kinds
        self._inputs, self._require_gradient = inputs, require_gradient
        self._loss = loss
        self._device = device
        self.outputs: tuple[Tensor, ...] = ()

    def run(self, count: int, *, timed: bool) -> dict[str, Timing]:
        """Each op for so many microbatches; their times."""
        times: dict[str, list[float]] = {kind: [] for kind in self._kinds}
        gc.collect()
        self.outputs = self._forward(0)
        gradients = self._gradients()
        for microbatch in range(count):
            for kind in self._kinds:
                self._synchronise()
                start = time.perf_counter()
                if kind == "F":
                    self._forward(microbatch + 1)
                else:
                    self._backward(kind, microbatch, gradients)
                self._synchronise()
                times[kind].append((time.perf_counter() - start) * 1e6)
        for kind in self._kinds[1:]:
            self._backward(kind, count, gradients)
        return {kind: _timing(t) for kind, t in times.items()} if timed else {}

    def memory(self, static: Sequence[Tensor]) -> tuple[dict[str, int], dict[str, int]]:
        """Bytes that are held after each op but the last, and while each runs (`FormCosts`)."""
        if self._device.type == "cuda":
            return self._memory_of_allocator(static)
        counted = HeldStorages(static)
        with counted.counting():
            self._forward(0)
        held = {"F": counted.bytes_with(self._inputs)}
        for kind in self._kinds[1:]:
            self._backward(kind, 0, self._gradients())
            deferred = self._runner.deferred
            held[kind] = counted.bytes_with([] if deferred is None else deferred.queued(0))
        del held[self._kinds[-1]]
        return held, dict.fromkeys(self._kinds, 0)

    def _memory_of_allocator(
        self, static: Sequence[Tensor]
    ) -> tuple[dict[str, int], dict[str, int]]:
        is_batch = any(t is given for t in static for given in self._inputs)
        before = self._allocated()
        levels, peaks = [before], []
        for kind in self._kinds:
            torch.cuda.reset_peak_memory_stats(self._device)
            if kind == "F":
                self._forward(0, copy=not is_batch)
            else:
                self._backward(kind, 0, [] if kind == "W" else self._gradients())
            peaks.append(torch.cuda.max_memory_allocated(self._device))
            levels.append(self._allocated())
        # What F, and a B that adds to it, take, they have from their start on.
        transient = {
            kind: max(0, peaks[i] - max(levels[i], levels[i + 1]))
            for i, kind in enumerate(self._kinds)
        }
        held = {
            kind: max(0, level - before)
            for kind, level in zip(self._kinds, levels[1:], strict=True)
        }
        del held[self._kinds[-1]]
        return held, transient

    def _forward(self, microbatch: int, *, copy: bool = False) -> tuple[Tensor, ...]:
        given = [t.clone() for t in self._inputs] if copy else self._inputs
        pairs = zip(given, self._require_gradient, strict=True)
        leaves = [t.detach().requires_grad_(needs) for t, needs in pairs]
        del given
        with self._naming("F"):
            return self._runner.forward(microbatch, leaves, {}, loss=self._loss)

    def _backward(self, kind: str, microbatch: int, gradients: Sequence[Tensor | None]) -> None:
        with self._naming(kind):
            if kind == "W":
                self._runner.weight(microbatch)
            else:
                self._runner.backward(microbatch, gradients)

    def _naming(self, kind: str) -> AbstractContextManager[None]:
        return naming(self._name, f"stage {self._runner.stage}, op {kind}")

    def _gradients(self) -> list[Tensor | None]:
        """As they come from the next stage."""
        return [torch.ones_like(t) if t.requires_grad else None for t in self.outputs]

    def _allocated(self) -> int:
        self._synchronise()
        return torch.cuda.memory_allocated(self._device)

    def _synchronise(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _timing(times: Sequence[float]) -> Timing:
    median = statistics.median(times)
    low, high = times[0], times[0]
    if len(times) > 1:
        low, _, high = statistics.quantiles(times, n=4, method="inclusive")
    return Timing(median, (high - low) / median if median else 0.0)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(t.nbytes for t in tensors)
