"""Shapes and types of boundary tensors, which both ends of a message know before it is sent.

In the first step of a configuration the sender of each message says through the store what it
is; from then on both ends know, receives are posted ahead, and a message that is not what was
said is refused by its sender.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch

from schedopt.executor.errors import LayoutError
from schedopt.executor.program import Message


class TensorLayout(NamedTuple):
    """What a boundary tensor is; `requires_grad`: whether a gradient comes back for it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        grad = "with gradient" if self.requires_grad else "without gradient"
        return f"{shape} {str(self.dtype).removeprefix('torch.')} {grad}"


Layout = tuple[TensorLayout | None, ...]
"""A message: its tensors; None where a stage gives no gradient for one of its inputs."""


def layout_of(tensors: Iterable[torch.Tensor | None]) -> Layout:
    """The layout of tensors."""
    return tuple(
        None if t is None else TensorLayout(tuple(t.shape), t.dtype, t.requires_grad)
        for t in tensors
    )


@lru_cache(maxsize=4096)
def bytes_of(layout: Layout) -> int:
    """Size of a message in memory."""
    parts = [part for part in layout if part is not None]
    return sum(torch.Size(part.shape).numel() * part.dtype.itemsize for part in parts)


def shown(layout: Sequence[TensorLayout | None]) -> str:
    """A layout as text."""
    return "[" + ", ".join("nothing" if part is None else str(part) for part in layout) + "]"


def to_text(layout: Layout) -> str:
    """For the store; the inverse of `from_text`."""
    return json.dumps(
        [
            None if t is None else [t.shape, str(t.dtype).removeprefix("torch."), t.requires_grad]
            for t in layout
        ]
    )


def from_text(text: str) -> Layout:
    """Inverse of `to_text`."""
    return tuple(
        None if part is None else TensorLayout(tuple(part[0]), getattr(torch, part[1]), part[2])
        for part in json.loads(text)
    )


def require(message: Message, found: Layout, agreed: Layout) -> None:
    """Refuse a message that is not what was agreed.

    Raises
    ------
    LayoutError
        With both layouts.
    """
    if found != agreed:
        raise LayoutError(
            f"{message}: is {shown(found)}, was {shown(agreed)} in the first step, which the "
            "other ranks expect; it was not sent. `forget_layouts()` on all ranks lets the next "
            "step have other shapes"
        )
