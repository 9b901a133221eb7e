"""The optimizer step of a rank: without waiting for the others, and checked afterwards.

The norm of all gradients, for clipping, and whether all of them are finite is known only when
every rank is done. A rank that waited for it could not go on with the next step: a barrier. So it
takes its step at once, as if nothing had to be clipped, and goes on; the sum over the ranks is
under way meanwhile. At the end of the next step it has long arrived. If it says that gradients
had to be clipped, or the step to be left out, then parameters and optimizer state are put back
exactly, the step is done as it should have been, and the one that followed is run again.

This is the post-validation of "Zero Bubble Pipeline Parallelism" (Qi et al., ICLR 2024, section
4), with copies in the place of an inverse of the optimizer, so that it is exact for any of them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from schedopt.executor.clipping import own_part, scale_by
from schedopt.executor.errors import ExecutorError
from schedopt.executor.exchange import GradientExchange, Total
from schedopt.executor.recompute import RandomState

EPSILON = 1e-6
"""As `torch.nn.utils.clip_grad_norm_` adds it to the norm."""


class Verdict(NamedTuple):
    """What all gradients together say.

    Attributes
    ----------
    norm
        Their 2-norm over all stages, before clipping; infinite if one is not finite.
    factor
        What they are multiplied with; 1.0 if nothing has to be clipped.
    is_finite
        Whether all are; if not, the step is left out.
    """

    norm: float
    factor: float
    is_finite: bool

    @property
    def is_plain(self) -> bool:
        """Whether the step is to be done with the gradients as they are."""
        return self.is_finite and self.factor == 1.0


class _Before(NamedTuple):
    """All that a step changes, and its gradients."""

    parameters: list[Tensor]
    state: dict[Tensor, dict[str, Any]]
    options: list[dict[str, Any]]
    gradients: list[Tensor | None]
    total: Total


class OptimizerStep:
    """The optimizer of a rank.

    Parameters
    ----------
    optimizer
        Of the parameters of this rank.
    max_norm
        Gradients of all stages are clipped to this norm; None: never.
    post_validation
        Step at once and check afterwards; else wait for the sum over all ranks before each step.
    exchange
        Joins the ranks.
    device
        Of the tensors.

    Attributes
    ----------
    verdicts
        Of each step that is settled, in their order.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        max_norm: float | None,
        post_validation: bool,
        exchange: GradientExchange,
        device: torch.device,
    ) -> None:
        self.optimizer = optimizer
        self.verdicts: list[Verdict] = []
        self._max_norm = max_norm
        self._post_validation = post_validation
        self._exchange = exchange
        self._device = device
        self._pending: _Before | None = None
        every = (p for group in optimizer.param_groups for p in group["params"])
        self._parameters: list[nn.Parameter] = list(dict.fromkeys(every))

    def settle(self) -> bool:
        """Wait for the verdict on the last step; False if it had to be done again.

        What was computed with its parameters is wrong then.
        """
        before = self._pending
        if before is None:
            return True
        self._pending = None
        verdict = self._verdict(before.total)
        if verdict.is_plain:
            return True
        now = [self._options(group) for group in self.optimizer.param_groups]
        self._put_back(before)
        for parameter, gradient in zip(self._parameters, before.gradients, strict=True):
            parameter.grad = gradient
        self._do(verdict)
        for group, options in zip(self.optimizer.param_groups, now, strict=True):
            group.update(options)
        self.optimizer.zero_grad()
        return False

    def step(self) -> None:
        """The step with the gradients that are there; they are gone afterwards.

        The last one has to be settled.
        """
        total = self._exchange.start_total(self._part(), self._device)
        if not self._post_validation:
            self._do(self._verdict(total))
        else:
            gradients = [None if p.grad is None else p.grad.clone() for p in self._parameters]
            self._pending = _Before(
                [p.detach().clone() for p in self._parameters],
                {p: _copied(state) for p, state in self.optimizer.state.items()},
                [self._options(group) for group in self.optimizer.param_groups],
                gradients,
                total,
            )
            self.optimizer.step()
        self.optimizer.zero_grad()

    # ------------------------------------------------------------------ parts

    def _part(self) -> Tensor:
        """Of this rank: sum of squares of the gradients, and how many are not finite."""
        counted = self._exchange.counted_elsewhere()
        gradients = {p: p.grad for p in self._parameters if p.grad is not None}
        own = [gradient for p, gradient in gradients.items() if p not in counted]
        squares = own_part(own, 2.0, self._device)
        finite = [gradient.isfinite().all().to(self._device) for gradient in own]
        wrong = (~torch.stack(finite)).sum().double() if finite else torch.zeros_like(squares)
        return torch.stack([squares, wrong])

    def _verdict(self, total: Total) -> Verdict:
        squares, wrong = self._exchange.finish_total(total).tolist()
        norm = math.inf if wrong else squares**0.5
        factor = 1.0
        if self._max_norm is not None and not wrong:
            factor = min(1.0, self._max_norm / (norm + EPSILON))
        verdict = Verdict(norm, factor, not wrong)
        self.verdicts.append(verdict)
        return verdict

    def _do(self, verdict: Verdict) -> None:
        if not verdict.is_finite:
            return
        if verdict.factor != 1.0:
            scale_by(self._parameters, verdict.factor)
        self.optimizer.step()

    def _put_back(self, before: _Before) -> None:
        with torch.no_grad():
            for parameter, value in zip(self._parameters, before.parameters, strict=True):
                parameter.copy_(value)
        self.optimizer.state.clear()
        self.optimizer.state.update(before.state)
        for group, options in zip(self.optimizer.param_groups, before.options, strict=True):
            group.update(options)

    @staticmethod
    def _options(group: Mapping[str, Any]) -> dict[str, Any]:
        """Learning rate and the like, which a scheduler may have changed since."""
        return {name: copy.deepcopy(v) for name, v in group.items() if name != "params"}


def _copied(state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.clone() if isinstance(value, Tensor) else copy.deepcopy(value)
        for name, value in state.items()
    }


class Start(NamedTuple):
    """What a step changes besides gradients, so that it can be run again: a place to go back to."""

    random: RandomState
    buffers: dict[Tensor, Tensor]

    @classmethod
    def of(cls, modules: Sequence[nn.Module]) -> Start:
        """Random numbers and buffers of these modules as they are."""
        buffers = {buffer: buffer.clone() for module in modules for buffer in module.buffers()}
        tensors = [*buffers, *(p for module in modules for p in module.parameters())]
        return cls(RandomState.now({tensor.device for tensor in tensors}), buffers)

    def restore(self) -> None:
        """Go back."""
        self.random.restore()
        for buffer, copied in self.buffers.items():
            buffer.data.copy_(copied)


def describe(
    optimizer: torch.optim.Optimizer | None, max_norm: float | None, *, post_validation: bool
) -> str:
    """What follows the last backward, the same on all ranks."""
    if optimizer is None:
        return "gradients"
    checked = "checked afterwards" if post_validation else "checked before"
    clipped = "" if max_norm is None else f", clipped to {max_norm:g}"
    return f"{type(optimizer).__name__}{clipped}, {checked}"


def require_own_parameters(optimizer: torch.optim.Optimizer, own: Sequence[nn.Parameter]) -> None:
    """Raise an error unless an optimizer is that of a rank with these parameters.

    Raises
    ------
    ExecutorError
        If it has others, or lacks one that is trained.
    """
    theirs = {p for group in optimizer.param_groups for p in group["params"]}
    foreign = len(theirs - set(own))
    missing = sum(p.requires_grad and p not in theirs for p in own)
    faults = []
    if foreign:
        faults.append(f"it has {foreign} parameters that are of no stage of this rank")
    if missing:
        faults.append(f"it lacks {missing} trained parameters of the stages of this rank")
    if faults:
        raise ExecutorError(f"optimizer: {'; '.join(faults)}")
