"""The loss of a microbatch, weighed as a part of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch

from schedopt.executor.batch import Batch
from schedopt.executor.errors import ExecutorError
from schedopt.executor.stage import tensors_of

LossFunction = Callable[[Any, Any], torch.Tensor]
"""What the last stage returns, and the target of a microbatch -> the loss."""

Reduction = Literal["mean", "sum"]


class MicrobatchLoss:
    """What the backward of each microbatch of a step starts from.

    Parameters
    ----------
    loss_fn
        Of a microbatch.
    batch
        The microbatches.
    reduction
        "mean": weighed by the part of the batch that the microbatch is. "sum": as it is.
    scale
        Applied last.

    Attributes
    ----------
    found
        The losses of the microbatches so far, as `loss_fn` gave them.
    """

    def __init__(
        self,
        loss_fn: LossFunction,
        batch: Batch,
        *,
        reduction: Reduction,
        scale: Callable[[torch.Tensor], torch.Tensor] | None,
    ) -> None:
        self._loss_fn = loss_fn
        self._batch = batch
        self._reduction = reduction
        self._scale = scale
        self._lengths: set[int] = set()
        self.found: dict[int, torch.Tensor] = {}

    def __call__(self, returned: Any, microbatch: int) -> torch.Tensor:
        """From what the last stage returned.

        Raises
        ------
        ExecutorError
            If the parts of the batch are not known and not equal.
        """
        loss = self._loss_fn(returned, self._batch.targets[microbatch])
        # A copy: the storage of a mean can be as large as what it is the mean of (`mse_loss`).
        self.found[microbatch] = loss.detach().clone()
        if self._reduction == "mean":
            if self._batch.length is None:
                self._require_equal(returned)
            loss = loss * self._batch.shares[microbatch]
        return loss if self._scale is None else self._scale(loss)

    def in_order(self) -> list[torch.Tensor]:
        """The losses in the order of the microbatches."""
        return [self.found[microbatch] for microbatch in sorted(self.found)]

    def _require_equal(self, returned: Any) -> None:
        """Without a target this rank knows only how long each microbatch is, one by one."""
        first = tensors_of(returned, -1)[0]
        self._lengths.add(len(first) if first.dim() else 1)
        if len(self._lengths) > 1:
            raise ExecutorError(
                f"microbatches of different lengths {sorted(self._lengths)} and no target: their "
                'parts of the mean are not known; give a target, or use loss_reduction="sum"'
            )
