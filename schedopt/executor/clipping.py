"""What is decided by the gradients of all stages together: clipping, and overflow."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn


class OverRanks(Protocol):
    """Sum or maximum of a number over the ranks of a pipeline."""

    def __call__(self, value: Tensor, *, is_max: bool) -> Tensor: ...


def clip(
    parameters: Sequence[nn.Parameter],
    counted_elsewhere: Collection[nn.Parameter],
    max_norm: float,
    norm_type: float,
    device: torch.device,
    over_ranks: OverRanks,
) -> Tensor:
    """Scale the gradients of this rank so that the norm over all ranks is at most `max_norm`.

    Parameters
    ----------
    parameters
        Of this rank.
    counted_elsewhere
        Those that another rank counts.
    max_norm, norm_type
        As for `torch.nn.utils.clip_grad_norm_`.
    device
        Of the tensors.
    over_ranks
        Joins the ranks.

    Returns
    -------
    The norm before that, in float64 on every rank.
    """
    gradients = {p: p.grad for p in parameters if p.grad is not None}
    is_max = norm_type == float("inf")
    counted = [g for parameter, g in gradients.items() if parameter not in counted_elsewhere]
    own = own_part(counted, norm_type, device)
    total = over_ranks(own, is_max=is_max)
    norm = total if is_max else total ** (1 / norm_type)
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for gradient in gradients.values():
        gradient.mul_(factor.to(gradient.device, gradient.dtype))
    return norm


def own_part(gradients: Sequence[Tensor], norm_type: float, device: torch.device) -> Tensor:
    """What gradients add to a norm: the sum of their powers, or their largest; in float64."""
    own = torch.zeros((), dtype=torch.float64, device=device)
    for gradient in gradients:
        wide = torch.promote_types(gradient.dtype, torch.float32)
        part = torch.linalg.vector_norm(gradient, norm_type, dtype=wide).double().to(device)
        is_max = norm_type == float("inf")
        own = torch.maximum(own, part) if is_max else own + part**norm_type
    return own


def scale_by(parameters: Sequence[nn.Parameter], factor: float) -> None:
    """Multiply the gradients of parameters."""
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(factor)


def spread_overflow(
    parameters: Sequence[nn.Parameter], device: torch.device, over_ranks: OverRanks
) -> None:
    """If a gradient of any rank is not finite, make the first one of this rank so.

    Parameters
    ----------
    parameters
        Of this rank.
    device
        Of the tensors.
    over_ranks
        Joins the ranks.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    finite = [gradient.isfinite().all().to(device) for gradient in gradients]
    own = torch.zeros((), dtype=torch.float64, device=device)
    if finite:
        own = (~torch.stack(finite).all()).double()
    found = over_ranks(own, is_max=True)
    for gradient in gradients[:1]:
        nothing = torch.zeros_like(found)
        gradient += torch.where(found > 0, nothing / nothing, nothing).to(gradient.dtype)
