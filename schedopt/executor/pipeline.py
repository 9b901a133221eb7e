"""PipelineExecutor: runs the training steps of a schedule."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from schedopt.executor.agreement import OF_THIS_RANK, agree, fingerprint
from schedopt.executor.batch import Batch, cut, joined
from schedopt.executor.clipping import clip, spread_overflow
from schedopt.executor.distributed import Group, is_over_nccl, own_store, process_group
from schedopt.executor.errors import ExecutorError, MismatchError
from schedopt.executor.exchange import GradientExchange
from schedopt.executor.failure import Watch
from schedopt.executor.held import (
    HeldInStep,
    HeldStorages,
    MemoryStats,
    memory_stats,
    reset_allocator,
)
from schedopt.executor.loss import LossFunction, MicrobatchLoss, Reduction
from schedopt.executor.optimizing import (
    OptimizerStep,
    Start,
    Verdict,
    describe,
    require_own_parameters,
)
from schedopt.executor.prediction import with_fused_stages
from schedopt.executor.program import forward_program, training_program
from schedopt.executor.ranks import Stages, device_of, require_ranks, stages_of
from schedopt.executor.run import Configuration, Run
from schedopt.executor.self_check import SelfCheck
from schedopt.executor.shared import Places
from schedopt.executor.slowness import Links, OpTimes
from schedopt.executor.stage import StageRunner
from schedopt.executor.trace import Recorder, Trace
from schedopt.executor.transport import Transport, connect
from schedopt.schedule import Schedule

Result = TypeVar("Result")


class PipelineExecutor:
    """Runs any schedule with PyTorch: one rank of a process group for each device.

    Every rank makes its executor at the same time, with the same schedule and its own stages.
    With one device no process group is needed.

    Parameters
    ----------
    stages
        The modules of this rank by the number of their stage, or a list of them in the order of
        their stages. The first stage takes the arguments of `step`, every other one the outputs
        of the stages before it; a stage returns a tensor or a tuple of tensors.
    schedule
        Rank d runs the ops of device d.
    loss_fn
        Of what the last stage returns and the target of a microbatch; a scalar. Needed on the
        rank of the last stage.
    group
        The ranks of the pipeline, as many as the schedule has devices; all ranks by default. As
        a process group, or as a mesh of one dimension.
    replicas
        The ranks that run the same stages on other parts of the batch: their gradients are
        averaged, so that they are those of the whole batch. When the executor is made, all
        replicas get the parameters of the first one. As `group`.
    shared
        Parameters that stand in several stages, on all ranks alike: for each its places, (stage,
        name). All copies get the sum of their gradients. When the executor is made, they get the
        values of the first place.
    loss_reduction
        "mean": the losses of the microbatches are weighed by their part of the batch, so that a
        loss that is a mean over the batch has the same gradients for every number of
        microbatches. "sum": they are added, for a loss that is a sum.
    scale_loss
        Applied to each loss before its backward, as by `torch.amp.GradScaler.scale`.
    optimizer
        Of all trained parameters of this rank. `step` then ends with its step, and sets the
        gradients to None: there is nothing to accumulate.
    max_norm
        With an optimizer: clip the gradients of all stages together to this 2-norm.
    post_validation
        With an optimizer: no rank waits for the others at the end of a step. Whether gradients had
        to be clipped, or one was not finite and the step has to be left out, is checked at the end
        of the next step, which is run again if so (`schedopt.executor.optimizing`); `settle` ends
        the last one. Parameters are bit for bit those of False, where each step waits for all.
    timeout
        Seconds that a rank waits for another one.
    count_activations
        Count the bytes that autograd holds for `memory_stats`; costs time.
    self_check
        Compare the gradients of the first step with an unsplit run of every stage, and every
        message with what was sent (`self_check`); takes the time and memory of a second step.
    device
        Of the tensors; by default that of the first parameter.
    slow_links
        To emulate them over gloo on one machine: (from rank, to rank) -> seconds that a message
        takes at least. On all ranks alike.
    slow_ops
        To emulate them: (stage, kind) -> seconds that an op takes at least, from when its device
        was free and what it waited for had arrived. What the executor does meanwhile is hidden in
        this time, as on a GPU whose host works ahead.

    Attributes
    ----------
    schedule
        What is to be expected: as given, but for stages that can not be split. Their B takes the
        time of B and W, and their W none.
    unsplit
        By stage of this rank: what computes its weight gradients in B, and why.
    verdicts
        With an optimizer, of each step that is settled: norm, factor of clipping, whether all
        gradients were finite.

    Raises
    ------
    ScheduleError
        If the schedule breaks a rule of its problem.
    ExecutorError
        If stages or ranks are not those of the schedule.
    MismatchError
        If the ranks have different schedules; on every rank.
    """

    def __init__(
        self,
        stages: Stages,
        schedule: Schedule,
        *,
        loss_fn: LossFunction | None = None,
        group: Group | None = None,
        replicas: Group | None = None,
        shared: Sequence[Places] = (),
        loss_reduction: Reduction = "mean",
        scale_loss: Callable[[torch.Tensor], torch.Tensor] | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        max_norm: float | None = None,
        post_validation: bool = True,
        timeout: float = 60.0,
        count_activations: bool = False,
        self_check: bool = False,
        device: torch.device | str | None = None,
        slow_links: Links | None = None,
        slow_ops: OpTimes | None = None,
    ) -> None:
        if loss_reduction not in ("mean", "sum"):
            raise ValueError(f'loss_reduction = {loss_reduction!r}: must be "mean" or "sum"')
        if optimizer is None and max_norm is not None:
            raise ValueError("max_norm needs an optimizer; without one call clip_grad_norm")
        if optimizer is not None and scale_loss is not None:
            raise ValueError(
                "scale_loss needs a GradScaler around the optimizer's step: call that after step, "
                "and give no optimizer here"
            )
        self._loss_fn = loss_fn
        self._loss_reduction = loss_reduction
        self._scale_loss = scale_loss
        if scale_loss is not None:
            # A GradScaler comes to be when it first scales, and every rank needs its own.
            scale_loss(torch.zeros((), device=device_of(stages, device)))
        self._group = process_group(group)
        self._count_activations = count_activations
        self._self_check = self_check
        self._slow_ops = slow_ops or {}
        problem = schedule.problem
        self._rank, size, store = own_store(group)
        self._device = device_of(stages, device)
        # Not the executor itself: nothing that outlives it may keep it alive.
        links: list[Transport | GradientExchange] = []
        self._watch = Watch(
            store,
            self._rank,
            size,
            timeout=timeout,
            abort=lambda: [link.abort() for link in links],
        )
        is_nccl = is_over_nccl(self._group, self._device)
        self._exchange = GradientExchange(self._watch, store, replicas, over_nccl=is_nccl)
        links.append(self._exchange)
        self._runners: dict[int, StageRunner] = {}
        self.close = weakref.finalize(
            self, _leave, self._watch, self._runners, links, self._exchange
        )
        self._transport: Transport | None = None
        try:
            program = training_program(schedule)
            require_ranks(size, problem.devices)
            last = {op.stage: op.kind for op in program.ops[self._rank]}
            self._ends = describe(optimizer, max_norm, post_validation=post_validation)
            for stage, module in stages_of(stages, problem.stages_on, self._rank).items():
                self._runners[stage] = StageRunner(stage, module, split=last[stage] == "W")
            kind = "forward only" if program.forward_only else "training"
            self._training = Configuration(program, f"{kind}, m = {problem.microbatches}")
            self._forward: dict[int, Configuration] = {}
            if program.forward_only:
                self._forward[problem.microbatches] = self._training
            self._agreements = 0
            fused = self._agree(self._training, schedule)
            self.schedule = with_fused_stages(schedule, fused)
            if size > 1:
                self._transport = connect(
                    store,
                    self._rank,
                    size,
                    program.messages,
                    is_nccl=is_nccl,
                    timeout=timeout,
                    device=self._device,
                    slow_links=slow_links,
                )
                links.append(self._transport)
            modules = {stage: runner.module for stage, runner in self._runners.items()}
            own = fingerprint(program, name=schedule.name)
            self._exchange.join(modules, shared, program.device_of, own)
            self._optimizer: OptimizerStep | None = None
            if optimizer is not None:
                require_own_parameters(optimizer, list(self.parameters()))
                self._optimizer = OptimizerStep(
                    optimizer,
                    max_norm=max_norm,
                    post_validation=post_validation,
                    exchange=self._exchange,
                    device=self._device,
                )
        except BaseException as error:
            self._fail(error)
            self.close()
            raise
        self.unsplit = {stage: r.unsplit for stage, r in self._runners.items() if r.unsplit}
        step = self.schedule.resolution
        self._planned = {
            timed.op: (float(timed.start * step), float(timed.end * step))
            for timed in self.schedule.by_device[self._rank]
        }
        self._recorder: Recorder | None = None
        self._last_step: tuple[Configuration, HeldInStep] | None = None

    # ------------------------------------------------------------------ steps

    def step(
        self,
        *args: Any,
        target: Any = None,
        losses: list[torch.Tensor] | None = None,
        return_outputs: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Forward and backward of a batch; gradients are added to ``.grad``.

        Every tensor is cut along its first dimension into the microbatches of the schedule;
        what is no tensor goes to each of them.

        Parameters
        ----------
        args
            For the first stage, on its rank; not looked at on other ranks.
        target
            For the loss, on the rank of the last stage; not looked at on other ranks.
        losses
            Is filled with the losses of the microbatches on the rank of the last stage.
        return_outputs
            Return what the last stage returned.
        kwargs
            For every stage of this rank.

        Returns
        -------
        The outputs of the whole batch on the rank of the last stage if asked for, else None.

        Raises
        ------
        PeerError
            If another rank failed, was lost or did not answer.
        LayoutError
            If tensors between stages are not what they were in the first step.
        ValueError
            If the batch can not be cut.
        """
        if not torch.is_grad_enabled():
            raise ExecutorError("step needs gradients: it was called without; use eval")
        if self._training.program.forward_only:
            raise ExecutorError("this schedule is forward only: it has no backward; use eval")
        modules = [runner.module for runner in self._runners.values()]
        start = None if self._optimizer is None else Start.of(modules)
        arguments = args, kwargs, target, losses
        run = self._run(self._training, *arguments, keep_outputs=return_outputs)
        if self._optimizer is not None and start is not None:
            if not self.settle():  # the parameters of this step were not right
                start.restore()
                run = self._run(self._training, *arguments, keep_outputs=return_outputs)
            self._or_fail(self._optimizer.step)
        return joined(run.outputs)

    def settle(self) -> bool:
        """Wait until the last step is final: its parameters are those to save or to look at.

        Every rank calls it. `eval` does so by itself; without an optimizer or post-validation there
        is nothing to wait for.

        Returns
        -------
        False if the optimizer step had to be done again, because gradients had to be clipped, or
        were not finite.
        """
        return True if self._optimizer is None else self._or_fail(self._optimizer.settle)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What the gradients of each settled step said; none without an optimizer."""
        return () if self._optimizer is None else tuple(self._optimizer.verdicts)

    def eval(
        self,
        *args: Any,
        target: Any = None,
        losses: list[torch.Tensor] | None = None,
        microbatches: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Forward only, with the arguments of `step`.

        Parameters
        ----------
        args, target, losses, kwargs
            As in `step`; there are losses if there is a target, or a list for them.
        microbatches
            Their number, on all ranks alike; that of the schedule by default.

        Returns
        -------
        What the last stage returned for the whole batch on its rank, else None.
        """
        self.settle()
        count = self._training.program.microbatches if microbatches is None else microbatches
        if count < 1:
            raise ValueError(f"microbatches = {count}: must be at least 1")
        if count not in self._forward:
            program = forward_program(self.schedule.problem, count)
            self._forward[count] = Configuration(program, f"forward only/{count}")
        run = self._run(self._forward[count], args, kwargs, target, losses, keep_outputs=True)
        return joined(run.outputs)

    def _run(
        self,
        configuration: Configuration,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: Any,
        losses: list[torch.Tensor] | None,
        *,
        keep_outputs: bool,
    ) -> Run:
        if self._watch.reason:
            raise ExecutorError(f"this executor has failed: {self._watch.reason}")
        is_last = len(configuration.program.device_of) - 1 in self._runners
        try:
            self._watch.begin(configuration.key)
            if not configuration.agreed:
                self._agree(configuration, self.schedule)
            links = configuration.program.links
            batch = cut(
                args if any(not links[stage].sources for stage in self._runners) else (),
                kwargs,
                target if is_last else None,
                configuration.program.microbatches,
            )
            loss_of = None
            if is_last and not (configuration.program.forward_only and target is losses is None):
                loss_of = self._loss_of(batch)
            trains = not configuration.program.forward_only
            if trains:
                rows = batch.length or configuration.program.microbatches
                self._exchange.begin(rows if is_last else None, self._device)
            check = None
            if trains and self._self_check and not configuration.learned:
                check = SelfCheck(self._runners, self._device)
            held = None
            if self._count_activations:
                held = HeldStorages([*self.parameters(), *batch.tensors()])
                reset_allocator(self._device)
            if self._transport is not None:
                self._transport.reset_count()
            self._recorder = Recorder(self._device)
            run = Run(
                self._rank,
                configuration,
                self._runners,
                self._transport,
                self._watch,
                batch,
                loss_of=loss_of,
                recorder=self._recorder,
                held=held,
                keep_outputs=keep_outputs,
                check=check,
                slow_ops=self._slow_ops,
                stage_is_done=self._exchange.stage_is_done,
                device=self._device,
            )
            run.execute()
            if trains:
                self._exchange.finish()
                self._recorder.end()
        except BaseException as error:
            self._fail(error)
            raise
        if losses is not None:
            losses[:] = loss_of.in_order() if loss_of else []
        self._last_step = configuration, run.held()
        return run

    def _loss_of(self, batch: Batch) -> MicrobatchLoss:
        if self._loss_fn is None:
            raise ExecutorError("the rank of the last stage needs a loss_fn, none was given")
        return MicrobatchLoss(
            self._loss_fn, batch, reduction=self._loss_reduction, scale=self._scaled
        )

    def _scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """The part of a loss in the gradients, with what it counts among the replicas."""
        factor = self._exchange.loss_factor(is_mean=self._loss_reduction == "mean")
        loss = loss if factor == 1.0 else loss * factor
        return loss if self._scale_loss is None else self._scale_loss(loss)

    # ------------------------------------------------------------------ after a step

    def last_trace(self) -> Trace:
        """When the ops of this rank and its messages happened in the last step.

        Raises
        ------
        ExecutorError
            If there was none.
        """
        if self._recorder is None:
            raise ExecutorError("there is no trace before the first step")
        nothing = (float("nan"), float("nan"))
        return self._recorder.trace(self._rank, lambda op: self._planned.get(op, nothing))

    def memory_stats(self) -> MemoryStats:
        """What this rank held in the last step.

        Raises
        ------
        ExecutorError
            If there was none.
        """
        if self._last_step is None:
            raise ExecutorError("there are no memory statistics before the first step")
        configuration, held = self._last_step
        return memory_stats(
            held, configuration.program, self._rank, self._transport, device=self._device
        )

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters of the stages of this rank, each once."""
        return iter({p: None for r in self._runners.values() for p in r.module.parameters()})

    def clip_grad_norm(self, max_norm: float, *, norm_type: float = 2.0) -> torch.Tensor:
        """Scale the gradients of all stages so that their norm is at most `max_norm`.

        Every rank calls it, also one without parameters. A shared parameter counts once.

        Returns
        -------
        The norm over all stages before that, in float64.
        """
        elsewhere = self._exchange.counted_elsewhere()
        return clip(
            list(self.parameters()),
            elsewhere,
            max_norm,
            norm_type,
            self._device,
            self._exchange.over_ranks,
        )

    def spread_overflow(self) -> None:
        """If a gradient of any rank is not finite, make one of each rank so.

        Then the `torch.amp.GradScaler` of every rank skips the step, or none does. To be called
        on every rank after the step, before the scaler unscales.
        """
        spread_overflow(list(self.parameters()), self._device, self._exchange.over_ranks)

    def forget_layouts(self) -> None:
        """Let boundary tensors have other shapes in the next step; on all ranks alike."""
        for configuration in {self._training: None, **dict.fromkeys(self._forward.values())}:
            configuration.layouts.clear()
            configuration.learned = False

    # ------------------------------------------------------------------ parts

    def _agree(self, configuration: Configuration, schedule: Schedule) -> set[int]:
        """Compare with the other ranks; the stages whose B is the whole backward."""
        own = fingerprint(configuration.program, name=schedule.name) | {"end of a step": self._ends}
        fused = [stage for stage, runner in self._runners.items() if runner.is_fused]
        everyone = agree(self._watch, self._agreements, {**own, OF_THIS_RANK: fused})
        self._agreements += 1
        configuration.agreed = True
        return {stage for theirs in everyone for stage in theirs[OF_THIS_RANK]}

    def _or_fail(self, action: Callable[[], Result]) -> Result:
        try:
            return action()
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        """Stop the other ranks, and this executor for good."""
        notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
        reason = f"rank {self._rank}: {type(error).__name__}: {error}{notes}"
        # Each rank finds by itself that the ranks do not agree.
        self._watch.fail(reason, tell=not isinstance(error, MismatchError))
        self._exchange.fail(reason)
        for runner in self._runners.values():
            runner.clear()


def _leave(
    watch: Watch,
    runners: dict[int, StageRunner],
    links: list[Transport | GradientExchange],
    exchange: GradientExchange,
) -> None:
    """Give the modules their forwards back, and the connections once nobody needs them."""
    for runner in runners.values():
        runner.restore()
    exchange.close()
    watch.close()
    links.clear()
