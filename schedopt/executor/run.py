"""One pass through the actions of a rank."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from schedopt.executor.batch import Batch
from schedopt.executor.failure import Watch
from schedopt.executor.held import HeldInStep, HeldStorages
from schedopt.executor.layouts import Layout, from_text, layout_of, require, to_text
from schedopt.executor.program import Action, Message, Program
from schedopt.executor.self_check import SelfCheck, digest_of, require_content
from schedopt.executor.slowness import OpTimes, wait_until
from schedopt.executor.stage import StageRunner, tensors_of
from schedopt.executor.trace import Recorder
from schedopt.executor.transport import Transport
from schedopt.op import Op

Tensors = list[torch.Tensor | None]
LossOf = Callable[[Any, int], torch.Tensor]
"""What the last stage returns, and the microbatch -> what its backward starts from."""


class Configuration:
    """A program, and what the ranks have agreed on to run it.

    Attributes
    ----------
    program
        What all ranks do.
    layouts
        Of the messages of this rank; complete when `learned`.
    agreed
        Whether the ranks have compared it.
    learned
        Whether a step has been run, so that all layouts are known at both ends.
    """

    def __init__(self, program: Program, key: str) -> None:
        self.program = program
        self.key = key
        self.layouts: dict[Message, Layout] = {}
        self.agreed = self.learned = False
        self.position = {
            message: place
            for listed in program.messages.values()
            for place, message in enumerate(listed)
        }


class Run:
    """One step of one rank.

    Parameters
    ----------
    rank
        This rank.
    configuration
        What is run; learns the layouts in its first run.
    stages
        Those of this rank.
    transport
        None if no other rank takes part.
    watch
        Joins the ranks.
    batch
        The microbatches.
    loss_of
        On the rank of the last stage; None without a loss.
    recorder
        Takes the times.
    held
        Counts activations; None if they are not counted.
    keep_outputs
        Whether what the last stage returns is wanted.
    check
        Compares the step with an unsplit run; None if it is not asked for.
    stage_is_done
        Told of each stage whose last backward op has run.
    device
        Of the tensors.
    slow_ops
        As for `PipelineExecutor`.
    """

    def __init__(
        self,
        rank: int,
        configuration: Configuration,
        stages: Mapping[int, StageRunner],
        transport: Transport | None,
        watch: Watch,
        batch: Batch,
        *,
        loss_of: LossOf | None,
        recorder: Recorder,
        held: HeldStorages | None,
        keep_outputs: bool,
        check: SelfCheck | None,
        stage_is_done: Callable[[int], None],
        device: torch.device,
        slow_ops: OpTimes,
    ) -> None:
        self._rank = rank
        self._configuration = configuration
        self._program = configuration.program
        self._layouts = configuration.layouts
        self._stages = stages
        self._transport = transport
        self._watch = watch
        self._batch = batch
        self._loss_of = loss_of
        self._recorder = recorder
        self._held = held
        self._keep_outputs = keep_outputs
        self._check = check
        self._stage_is_done = stage_is_done
        self._last_op = {op.stage: op for op in self._program.ops[rank]}
        self._device = device
        self._slow_ops = slow_ops
        self._last_stage = len(self._program.device_of) - 1
        self._messages: dict[Message, Tensors] = {}
        self._widths: dict[tuple[int, int], list[int]] = {}
        self._unposted = {
            direction[0]: list(listed)
            for direction, listed in self._program.messages.items()
            if direction[1] == rank
        }
        self._undrained: list[Action] = []
        self._digests: dict[Message, str] = {}
        self.outputs: dict[int, Any] = {}
        """Of the last stage, by microbatch."""
        self._ready = time.perf_counter()
        """When the device became free, or what it waited for arrived; for emulation."""
        self._held_microbatches = dict.fromkeys(stages, 0)
        self._activation_bytes = 0
        self._place = 0

    def execute(self) -> None:
        """Work through the actions.

        Raises
        ------
        PeerError
            If another rank fails.
        LayoutError
            If a boundary tensor is not what the ranks agreed on.
        """
        doings: dict[str, Callable[[Any, int], None]] = {
            "post": self._post if self._configuration.learned else self._post_later,
            "wait": self._wait,
            "run": self._run,
            "send": self._send,
            "release": self._release,
            "drain": self._release if self._configuration.learned else self._drain_later,
        }
        for place, (verb, what, peer) in enumerate(self._program.actions[self._rank]):
            self._place = place
            doings[verb](what, peer)
        for _, message, peer in self._undrained:
            self._release(message, peer)  # type: ignore[arg-type]
        self._configuration.learned = True
        self._recorder.end()

    # ------------------------------------------------------------------ messages

    def _post(self, message: Message, peer: int) -> None:
        layout, tag = self._layouts[message], self._configuration.position[message]
        if self._transport is not None and any(layout):
            post = self._transport.post
            self._watched("making room", message, peer, post, message, peer, tag, layout)

    def _post_later(self, message: Message, peer: int) -> None:
        """Before the layouts are known a message is posted when it is waited for."""

    def _wait(self, message: Message, peer: int) -> None:
        start = self._recorder.mark()
        if not self._configuration.learned:
            self._learn(message, peer)
        layout = self._layouts[message]
        if self._transport is None or not any(layout):
            self._messages[message] = [None] * len(layout or self._layouts[message.answered])
            return
        tensors: Tensors = self._watched("waiting", message, peer, self._transport.wait, message)
        self._recorder.received(message, start)
        if self._check is not None:
            require_content(message, tensors, self._digests[message])
        self._messages[message] = [
            t if t is None or part is None else t.requires_grad_(part.requires_grad)
            for t, part in zip(tensors, layout, strict=True)
        ]

    def _send(self, message: Message, peer: int) -> None:
        tensors = self._messages.pop(message)
        if message.is_gradient and not self._gradient_flows(message):
            self._layouts[message] = ()
            return
        found = layout_of(tensors)
        if not self._configuration.learned:
            self._layouts[message] = found
            digest = digest_of(tensors) if self._check is not None else ""
            self._watch.tell(self._key(message), f"{digest} {to_text(found)}")
        elif found != self._layouts[message]:
            tensors = _with_zeros(message, tensors, self._layouts[message], self._device)
        layout = self._layouts[message]
        if self._transport is not None and any(layout):
            tag, send = self._configuration.position[message], self._transport.send
            self._watched("sending", message, peer, send, message, peer, tag, tensors, layout)
            self._recorder.sent(message)

    def _release(self, message: Message, peer: int) -> None:
        if self._transport is None or not any(self._layouts[message]):
            return
        doing = "waiting for the end of sending"
        self._watched(doing, message, peer, self._transport.release, message)

    def _drain_later(self, message: Message, peer: int) -> None:
        """Nobody posts ahead before the layouts are known, so waiting for it could last forever."""
        self._undrained.append(Action("drain", message, peer))

    def _learn(self, message: Message, peer: int) -> None:
        """Hear what a message and those before it are, and post them in the agreed order."""
        unposted = self._unposted[peer]
        while message not in self._layouts:
            following = unposted.pop(0)
            if following.is_gradient and not self._gradient_flows(following):
                self._layouts[following] = ()
                continue
            key = self._key(following)
            text = self._watch.hear(key, lambda: self._text("waiting", message, peer), peer)
            self._digests[following], _, layout = text.partition(" ")
            self._layouts[following] = from_text(layout)
            self._watch.forget(key)
            self._post(following, peer)

    def _gradient_flows(self, message: Message) -> bool:
        """Whether anything of the activation that a gradient answers needs one."""
        answered = self._layouts[message.answered]
        return any(part is not None and part.requires_grad for part in answered)

    def _key(self, message: Message) -> str:
        return f"layout/{self._configuration.key}/" + "/".join(map(str, message))

    def _watched(
        self, doing: str, message: Message, peer: int, call: Callable[..., Any], *args: Any
    ) -> Any:
        """Whatever breaks a transfer is raised as what this rank was doing, and why it broke."""
        self._watch.waits(lambda: self._text(doing, message, peer), peer)
        try:
            result = call(*args)
        except RuntimeError as error:
            raise self._watch.lost(error) from error
        self._watch.goes_on()
        if doing == "waiting":
            self._ready = time.perf_counter()
        return result

    def _text(self, doing: str, message: Message, peer: int) -> str:
        way = "to" if self._program.device_of[message.source] == self._rank else "from"
        actions = self._program.actions[self._rank]
        ops = [action.what for action in actions[self._place :] if action.verb == "run"]
        place = f"before op {ops[0]}" if ops else "after the last op"
        return f"{doing} {place}: {message}, {way} rank {peer}"

    # ------------------------------------------------------------------ ops

    def _run(self, op: Op, peer: int) -> None:
        runner = self._stages[op.stage]
        start = self._recorder.mark()
        try:
            if op.kind == "F":
                self._forward(runner, op)
            elif op.kind == "R":
                with self._counting():
                    runner.recompute(op.microbatch)
            elif op.kind == "W":
                runner.weight(op.microbatch)
            else:
                self._backward(runner, op)
        except Exception as error:
            error.add_note(f"in op {op}: stage {op.stage}, microbatch {op.microbatch}")
            raise
        if self._slow_ops:
            start = self._recorder.at(self._ready, start)
            wait_until(self._ready + self._slow_ops.get((op.stage, op.kind), 0.0))
            self._ready = time.perf_counter()
        self._recorder.op(op, start)
        self._count(op.stage)
        if op == self._last_op[op.stage] and not self._program.forward_only:
            if self._check is not None:
                self._check.after_last_op(op.stage)
            self._stage_is_done(op.stage)

    def _forward(self, runner: StageRunner, op: Op) -> None:
        stage, microbatch = op.stage, op.microbatch
        links = self._program.links[stage]
        parts = [self._messages.pop(Message(s, stage, microbatch)) for s in links.sources]
        self._widths[stage, microbatch] = [len(part) for part in parts]
        inputs: tuple[Any, ...] = tuple(t for part in parts for t in part)
        if not links.sources:
            inputs = self._batch.args[microbatch]
        kwargs = self._batch.kwargs[microbatch]
        is_last = stage == self._last_stage
        if self._program.forward_only:
            returned = runner.evaluate(inputs, kwargs)
            outputs = tensors_of(returned, stage)
            if is_last and self._loss_of is not None:
                with torch.no_grad():
                    self._loss_of(returned, microbatch)
        else:
            loss = None
            if is_last and self._loss_of is not None:
                loss_of = self._loss_of

                def loss(returned: Any) -> torch.Tensor:
                    return loss_of(returned, microbatch)

            if self._check is not None:
                self._check.before_forward(stage, microbatch, inputs, kwargs, loss)
            again = (stage, microbatch) in self._program.recomputed
            forward = runner.forward_to_recompute if again else runner.forward
            with self._counting():
                outputs = forward(microbatch, inputs, kwargs, loss=loss)
        if is_last and self._keep_outputs:
            plain = tuple(t.detach() for t in outputs)
            self.outputs[microbatch] = plain if len(plain) > 1 else plain[0]
        for target in links.targets:
            # Each target has leaves of its own, so that gradients do not mix.
            self._messages[Message(stage, target, microbatch)] = [
                t.detach().requires_grad_(t.requires_grad) for t in outputs
            ]

    def _backward(self, runner: StageRunner, op: Op) -> None:
        stage, microbatch = op.stage, op.microbatch
        links = self._program.links[stage]
        parts = [self._messages.pop(Message(t, stage, microbatch)) for t in links.targets]
        given = [_sum(those) for those in zip(*parts, strict=True)]
        gradients = runner.backward(microbatch, given)
        if self._check is not None:
            self._check.after_backward(stage, microbatch, given, gradients)
        begin = 0
        for source, width in zip(links.sources, self._widths.pop((stage, microbatch)), strict=True):
            message = Message(stage, source, microbatch)
            self._messages[message] = list(gradients[begin : begin + width])
            begin += width

    def _counting(self) -> AbstractContextManager[object]:
        return nullcontext() if self._held is None else self._held.counting()

    def _count(self, stage: int) -> None:
        most = self._held_microbatches
        most[stage] = max(most[stage], self._stages[stage].held)
        if self._held is not None:
            self._activation_bytes = max(self._activation_bytes, self._bytes_of(self._held))

    def held(self) -> HeldInStep:
        """What was held at most, and is held now."""
        if self._held is None:
            return HeldInStep(None, None, self._held_microbatches)
        left = self._bytes_of(self._held)
        return HeldInStep(self._activation_bytes, left, self._held_microbatches)

    def _bytes_of(self, held: HeldStorages) -> int:
        deferred = [r.deferred for r in self._stages.values() if r.deferred is not None]
        microbatches = range(self._program.microbatches)
        queued = (t for d in deferred for i in microbatches for t in d.queued(i))
        waiting = (t for runner in self._stages.values() for t in runner.waiting())
        return held.bytes_with(itertools.chain(queued, waiting))


def _sum(gradients: tuple[torch.Tensor | None, ...]) -> torch.Tensor | None:
    """The gradient of an output that several stages use."""
    given = [gradient for gradient in gradients if gradient is not None]
    total = given[0] if given else None
    for gradient in given[1:]:
        total = gradient if total is None else total + gradient
    return total


def _with_zeros(
    message: Message, tensors: Tensors, agreed: Layout, device: torch.device
) -> Tensors:
    """A gradient that is nothing this time is sent as zeros; anything else that differs is not."""
    filled = [
        torch.zeros(part.shape, dtype=part.dtype, device=device)
        if t is None and part is not None
        else t
        for t, part in zip(tensors, agreed, strict=False)
    ]
    require(message, layout_of(filled if message.is_gradient else tensors), agreed)
    return filled
