"""The gradients of a step against an unsplit run of every stage.

Each rank keeps what its stages were given in the step, runs every stage again, microbatch by
microbatch with an ordinary backward, and compares: the gradients of the parameters, and the
gradients that went to the stages before. The messages of the step carry a digest of their content,
which the receiver compares as well. So each stage computed what it should of what it was given, and
was given what the stage before it made: together that is the gradient of the whole model. It says
nothing about whether the stages are the model that was meant, or about the loss function.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from schedopt.executor.errors import ExecutorError
from schedopt.executor.program import Message
from schedopt.executor.stage import Loss, StageRunner, tensors_of


class _Seen(NamedTuple):
    """What a stage was given for a microbatch, and the state of the random numbers."""

    inputs: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    loss: Loss | None
    random: tuple[Tensor, ...]


class SelfCheck:
    """Compares one step of the stages of a rank; made before the step.

    Parameters
    ----------
    stages
        Those of the rank.
    device
        Of the tensors.
    """

    def __init__(self, stages: Mapping[int, StageRunner], device: torch.device) -> None:
        self._stages = stages
        self._device = device
        self._seen: dict[tuple[int, int], _Seen] = {}
        self._passed_back: dict[tuple[int, int], tuple[Sequence[Any], Sequence[Any]]] = {}
        self._parameters = {s: dict(r.module.named_parameters()) for s, r in stages.items()}
        every = {p for named in self._parameters.values() for p in named.values()}
        self._expected = {p: None if p.grad is None else p.grad.clone() for p in every}
        self._unchecked = set(stages)

    def before_forward(
        self,
        stage: int,
        microbatch: int,
        inputs: Sequence[Any],
        kwargs: Mapping[str, Any],
        loss: Loss | None,
    ) -> None:
        """Keep what F is given."""
        kept = tuple(_copy(each) for each in inputs)
        self._seen[stage, microbatch] = _Seen(kept, dict(kwargs), loss, self._random())

    def after_backward(
        self,
        stage: int,
        microbatch: int,
        given: Sequence[Tensor | None],
        found: Sequence[Tensor | None],
    ) -> None:
        """Keep what B was given and has found; nothing changes these tensors any more."""
        self._passed_back[stage, microbatch] = given, found

    def after_last_op(self, stage: int) -> None:
        """Run a stage again and compare.

        Raises
        ------
        ExecutorError
            Naming the stage and what differs.
        """
        runner = self._stages[stage]
        buffers = [(b, b.clone()) for b in runner.module.buffers()]
        now = self._random()
        runner.restore()
        try:
            for microbatch in sorted(i for s, i in self._seen if s == stage):
                self._run_again(stage, microbatch)
        finally:
            if runner.deferred is not None:
                runner.deferred.convert()
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)
            self._set_random(now)
        self._unchecked.discard(stage)
        elsewhere = {p for s in self._unchecked for p in self._parameters[s].values()}
        for name, parameter in self._parameters[stage].items():
            if parameter not in elsewhere:  # else the other stage still adds to it
                what = f"stage {stage}: the gradient of {name}"
                _require_equal(what, parameter.grad, self._expected[parameter])

    def _run_again(self, stage: int, microbatch: int) -> None:
        seen = self._seen.pop((stage, microbatch))
        given, found = self._passed_back.pop((stage, microbatch))
        self._set_random(seen.random)
        returned = self._stages[stage].module(*seen.inputs, **seen.kwargs)
        outputs = tensors_of(returned, stage)
        roots: list[tuple[Tensor, Tensor | None]] = [
            (output, gradient)
            for output, gradient in zip(outputs, given, strict=False)
            if output.requires_grad and gradient is not None
        ]
        if seen.loss is not None:
            roots = [(seen.loss(returned), None)]
        parameters = [p for p in self._parameters[stage].values() if p.requires_grad]
        wanted = [t for t in seen.inputs if isinstance(t, Tensor) and t.requires_grad]
        if not roots or not (parameters or wanted):
            return
        gradients = torch.autograd.grad(
            [root for root, _ in roots],
            [*wanted, *parameters],
            [gradient for _, gradient in roots],
            allow_unused=True,
        )
        of_inputs = dict(zip(map(id, wanted), gradients, strict=False))
        for place, (each, ours) in enumerate(zip(seen.inputs, found, strict=True)):
            if id(each) in of_inputs and ours is not None:
                what = f"stage {stage}: the gradient of input {place}, microbatch {microbatch}"
                _require_equal(what, ours, of_inputs[id(each)])
        for parameter, gradient in zip(parameters, gradients[len(wanted) :], strict=True):
            so_far = self._expected[parameter]
            if gradient is not None:
                self._expected[parameter] = gradient if so_far is None else so_far + gradient

    def _random(self) -> tuple[Tensor, ...]:
        if self._device.type != "cuda":
            return (torch.get_rng_state(),)
        return torch.get_rng_state(), torch.cuda.get_rng_state(self._device)

    def _set_random(self, state: tuple[Tensor, ...]) -> None:
        torch.set_rng_state(state[0])
        if len(state) > 1:
            torch.cuda.set_rng_state(state[1], self._device)


def digest_of(tensors: Iterable[Tensor | None]) -> str:
    """A digest of the bytes of tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        if tensor is not None:
            flat = tensor.detach().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()[:32]


def require_content(message: Message, tensors: Iterable[Tensor | None], digest: str) -> None:
    """Raise an ExecutorError unless a message is what its sender has sent."""
    if digest_of(tensors) != digest:
        raise ExecutorError(f"self-check: {message}: what arrived is not what was sent")


def _copy(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def _require_equal(what: str, found: Tensor | None, expected: Tensor | None) -> None:
    """Equal but for the order of additions: within the square root of the precision."""
    if found is None or expected is None:
        if found is expected:
            return
        missing = "is missing" if found is None else "should not be there"
        raise ExecutorError(f"self-check: {what} {missing}")
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    worst = float((found - expected).abs().max()) if expected.numel() else 0.0
    limit = torch.finfo(expected.dtype).eps ** 0.5 * scale
    if not worst <= limit:
        raise ExecutorError(
            f"self-check: {what} differs by {worst:.3g} from that of an unsplit run, whose "
            f"largest entry is {scale:.3g}"
        )
