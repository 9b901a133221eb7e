"""Data parallelism: replicas of the pipeline, each with its part of the batch.

A gradient is averaged over the replicas, begun when the last backward op of its stage is done
and waited for at the end of the step. Averages can be taken again: when gradients are
accumulated over several steps, what is averaged already stays as it is. The weight of a replica
is therefore a factor of its loss:

    mean over replicas of (replicas x rows of the replica / rows of all) x gradient of its mean
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from schedopt.executor.collectives import Collectives, Started

BUCKET_BYTES = 25 * 2**20
"""Gradients are averaged together up to this size."""


class _Bucket(NamedTuple):
    """Gradients on their way, one after the other, and then for each whether there is one."""

    parameters: list[nn.Parameter]
    flat: Tensor
    started: Started


class Replicas:
    """What one rank does with the ranks that run the same stages in other replicas.

    Parameters
    ----------
    collectives
        Of these ranks.
    modules
        Of this rank, by stage.
    apart
        Parameters that are not averaged with their stages.
    """

    def __init__(
        self,
        collectives: Collectives,
        modules: Mapping[int, nn.Module],
        *,
        apart: Collection[nn.Parameter] = (),
    ) -> None:
        self.count = collectives.size
        self._collectives = collectives
        self._stages: dict[nn.Parameter, set[int]] = {}
        for stage, module in modules.items():
            for parameter in set(module.parameters()).difference(apart):
                self._stages.setdefault(parameter, set()).add(stage)
        self._modules = modules
        self._done: set[int] = set()
        self._buckets: list[_Bucket] = []
        self._rows: tuple[int, Tensor, Started] | None = None
        self._factor: float | None = None

    def equalise(self) -> None:
        """Give all replicas the parameters of the first one."""
        every = (
            parameter for module in self._modules.values() for parameter in module.parameters()
        )
        for parameter in dict.fromkeys(every):
            self._collectives.copy_from_first(parameter, "the parameters of the first replica")

    # ------------------------------------------------------------------ the loss

    def count_rows(self, rows: int, device: torch.device) -> None:
        """Begin to add up the rows of the batch over the replicas."""
        total = torch.tensor([rows], dtype=torch.int64, device=device)
        started = self._collectives.start_sum(total, "the length of the batch of the replicas")
        self._rows = rows, total, started

    def loss_factor(self) -> float:
        """What makes the average of the gradients that of the whole batch, if a loss is a mean."""
        if self._rows is None:
            return 1.0
        if self._factor is None:
            rows, total, started = self._rows
            self._collectives.finish(started)
            self._factor = self.count * rows / int(total)
        return self._factor

    # ------------------------------------------------------------------ gradients

    def begin(self) -> None:
        """A step begins."""
        self._done.clear()
        self._buckets, self._rows, self._factor = [], None, None

    def stage_is_done(self, stage: int) -> None:
        """Begin to average the gradients that get nothing more in this step."""
        self._done.add(stage)
        ready = [
            parameter
            for parameter in self._modules[stage].parameters()
            if parameter.requires_grad
            and parameter in self._stages
            and self._stages[parameter] <= self._done
        ]
        for parameters in _buckets(ready):
            flat = flat_with_flags([parameter.grad for parameter in parameters], parameters)
            what = f"the gradients of stage {stage} of the other replicas"
            self._buckets.append(_Bucket(parameters, flat, self.start_average(flat, what)))

    def start_average(self, tensor: Tensor, what: str) -> Started:
        """Begin to replace a tensor by its average over the replicas."""
        return self._collectives.start_sum(tensor.div_(self.count), what)

    def wait(self, started: Started) -> None:
        """Wait for an average."""
        self._collectives.finish(started)

    def finish(self) -> None:
        """Wait for all averages and put them into ``.grad``.

        A parameter that has no gradient on any replica keeps none.
        """
        while self._buckets:
            parameters, flat, started = self._buckets.pop(0)
            self.wait(started)
            gradients = gradients_in(flat, parameters, [p.grad is None for p in parameters])
            for parameter, gradient in zip(parameters, gradients, strict=True):
                if gradient is None:
                    continue
                if parameter.grad is None:
                    parameter.grad = gradient.clone()
                else:
                    parameter.grad.detach().copy_(gradient)


def _buckets(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """In their order, of one type and device each, and not above the size together."""
    buckets: list[list[nn.Parameter]] = []
    kind, size = None, 0
    for parameter in parameters:
        if (parameter.dtype, parameter.device) != kind or size + parameter.nbytes > BUCKET_BYTES:
            buckets.append([])
            kind, size = (parameter.dtype, parameter.device), 0
        buckets[-1].append(parameter)
        size += parameter.nbytes
    return buckets


def flat_with_flags(gradients: Sequence[Tensor | None], like: Sequence[Tensor]) -> Tensor:
    """A copy of gradients, with zeros for those that are None, and a 1 or 0 for each at the end.

    Parameters
    ----------
    gradients
        To be joined.
    like
        Tensors of the same shapes, of one type and device.
    """
    given = [like[0].new_tensor([gradient is not None for gradient in gradients])]
    parts = [torch.zeros_like(t) if g is None else g for g, t in zip(gradients, like, strict=True)]
    with torch.no_grad():
        return torch.cat([part.reshape(-1) for part in parts] + given)


def gradients_in(
    flat: Tensor, like: Sequence[Tensor], unknown: Sequence[bool]
) -> list[Tensor | None]:
    """Inverse of `flat_with_flags` after a sum: None where no rank has a gradient.

    Parameters
    ----------
    flat, like
        What came of the sum, and tensors of the shapes.
    unknown
        Which may be None. If none may, the flags are not read: on a GPU the host would have to
        wait for them.
    """
    *parts, flags = torch.split(flat, [*(tensor.numel() for tensor in like), len(like)])
    given = (flags > 0).tolist() if any(unknown) else [True] * len(like)
    shaped = [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]
    return [part if is_given else None for part, is_given in zip(shaped, given, strict=True)]
