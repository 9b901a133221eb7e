"""Schedules in the runtime of torch.distributed.pipelining, with our split backward inside.

Its runtime of tables of actions is private and can change with any version; all of its private
names that are used stand in this file.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.nn.parallel import DistributedDataParallel

from schedopt.check import check
from schedopt.errors import Fault, ScheduleError, SplitError
from schedopt.executor.errors import ExecutorError
from schedopt.executor.ranks import Stages, device_of, require_ranks, stages_of
from schedopt.executor.split import DeferredWeights
from schedopt.schedule import Schedule
from schedopt.torch_limits import require_torch

TESTED = ("2.13",)
"""Versions of torch that the tests of this file have passed with."""

_RANGE = f"tested with torch {', '.join(TESTED)}"

try:
    from torch.distributed.pipelining.schedules import (
        _Action,
        _ComputationType,
        _PipelineScheduleRuntime,
    )
except ImportError as error:
    raise ImportError(
        f"torch {torch.__version__} has no runtime of tables of actions under the names known "
        f"here: {error}; {_RANGE}"
    ) from None

_COMPUTATION = {
    "F": _ComputationType.FORWARD,
    "B": _ComputationType.BACKWARD_INPUT,
    "W": _ComputationType.BACKWARD_WEIGHT,
    "BW": _ComputationType.FULL_BACKWARD,
}
_CURRENT = "the microbatch whose B has just run"


def build(
    schedule: Schedule,
    stages: Stages,
    loss_fn: Callable[[Any, Any], torch.Tensor] | None,
    *,
    group: dist.ProcessGroup | None = None,
    device: torch.device | str | None = None,
    **options: Any,
) -> Any:
    """A runtime of torch.distributed.pipelining that runs the ops of a schedule in its order.

    Its `step` and `eval` are those of `torch.distributed.pipelining`: the rank of stage 0 is given
    the arguments of a batch, that of the last stage its target. Stages with B and W queue the
    gradients of their weights in B and compute them in W (`schedopt.executor.split`): what can not
    wait is computed in B.

    Parameters
    ----------
    schedule
        For the ranks of the group, one for each device.
    stages
        The modules of this rank, by stage or in their order.
    loss_fn
        Of what the last stage returns and a part of the target; a mean, unless `scale_grads` is
        False.
    group
        All ranks if None.
    device
        Of the tensors; that of the first parameter if None.
    options
        Further ones of the runtime, such as ``scale_grads``.

    Raises
    ------
    ScheduleError
        If the schedule breaks a rule of its problem.
    NotApplicableError
        If torch can not run it: `schedopt.torch_limits.require_torch`.
    ExecutorError
        If there are not as many ranks as devices, or a rank has other stages than the schedule.
    SplitError
        If a stage with B and W is compiled, or wrapped by DistributedDataParallel.
    """
    _warn_if_untested()
    violations = check(schedule)
    if violations:
        raise ScheduleError([Fault("schedule", "", str(violation)) for violation in violations])
    require_torch(schedule)
    problem = schedule.problem
    require_ranks(dist.get_world_size(group), problem.devices)
    where = device_of(stages, device)
    own = stages_of(stages, problem.stages_on, dist.get_rank(group))
    deferred: list[DeferredWeights] = []
    built = []
    for stage, module in own.items():
        dw_builder = None
        if problem.stage_data[stage].backward == "B":
            deferred.append(_deferred(stage, module))
            dw_builder = partial(deferred[-1].take, _CURRENT)
        built.append(
            PipelineStage(
                module, stage, problem.stage_count, where, group=group, dw_builder=dw_builder
            )
        )
    for each in deferred:
        each.convert()
    runtime: Any = _Runtime(built, problem.microbatches, loss_fn=loss_fn, **options)  # type: ignore[no-untyped-call]
    runtime.deferred = tuple(deferred)
    runtime.pipeline_order = {
        rank: [
            _Action(t.op.stage, _COMPUTATION[t.op.kind], t.op.microbatch)
            for t in schedule.by_device[rank]
        ]
        for rank in range(problem.devices)
    }
    runtime._prepare_schedule_with_comms(runtime.pipeline_order)
    return runtime


def runtime_of_table(
    table: str | Path,
    form: Literal["compute_only", "compute_comms"],
    stages: Sequence[PipelineStage],
    microbatches: int,
    loss_fn: Callable[[Any, Any], torch.Tensor] | None,
    **options: Any,
) -> Any:
    """The runtime of torch as it is, with a table of actions from a file.

    What its loader does not check, `schedopt.formats.torch_csv` and
    `schedopt.formats.torch_comms` do.
    """
    _warn_if_untested()
    runtime: Any = _PipelineScheduleRuntime(  # type: ignore[no-untyped-call]
        list(stages), microbatches, loss_fn=loss_fn, **options
    )
    runtime._load_csv(str(table), format=form)
    return runtime


class _Runtime(_PipelineScheduleRuntime):
    """Records whose weight gradients are queued, and keeps the queues free of all else."""

    deferred: tuple[DeferredWeights, ...] = ()

    def _initialize_stages(self, *args: Any, **kwargs: Any) -> None:
        super()._initialize_stages(*args, **kwargs)
        # To learn shapes, torch may have run all stages, and a failed step may have left some.
        for each in self.deferred:
            each.clear()

    def _step_microbatches(self, *args: Any, **kwargs: Any) -> None:
        if self._has_backward and self.scale_grads and self._n_microbatches > 1:
            self._require_no_gradients()
        with ExitStack() as recording:
            for each in self.deferred:
                # torch calls the builder of W right after B: the queue is then that of one
                # microbatch, whatever its number.
                recording.enter_context(each.record(_CURRENT))
            super()._step_microbatches(*args, **kwargs)

    def _require_no_gradients(self) -> None:
        """Gradients of an earlier step would be divided by the number of microbatches again."""
        for stage in self._stages:
            for name, parameter in stage.submod.named_parameters():
                if parameter.grad is not None and bool(parameter.grad.any()):
                    raise ExecutorError(
                        f"stage {stage.stage_index}: {name} has a gradient already, and torch "
                        f"would divide it by {self._n_microbatches} once more: set gradients to "
                        "zero before each step, or accumulate with scale_grads=False and a loss "
                        f"that is divided by {self._n_microbatches}"
                    )


def _deferred(stage: int, module: nn.Module) -> DeferredWeights:
    if any(isinstance(part, DistributedDataParallel) for part in module.modules()):
        raise SplitError(
            f"stage {stage} is wrapped by DistributedDataParallel, whose averages begin in a "
            "backward that torch announces to it, and W is none: replicas would train apart; "
            "solve the problem with BW for this stage, shard it by FSDP, or use "
            "schedopt.executor.PipelineExecutor with replicas"
        )
    try:
        return DeferredWeights(module)
    except SplitError as error:
        raise SplitError(f"stage {stage}: {error}") from None


def _warn_if_untested() -> None:
    version = re.match(r"\d+\.\d+", torch.__version__)
    if version is None or version[0] not in TESTED:
        warnings.warn(
            f"torch {torch.__version__} is untried, this is {_RANGE}: check gradients against "
            "those of one process",
            RuntimeWarning,
            stacklevel=3,
        )
