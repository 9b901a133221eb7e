"""The batch of a step, cut into microbatches along its first dimension."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Batch:
    """What a rank was given for a step, one entry for each microbatch.

    Attributes
    ----------
    args, kwargs
        Arguments of the stages.
    targets
        Second argument of the loss; None if there is none.
    shares
        Part of the batch that each microbatch is; they sum to 1.
    length
        First dimension of the tensors; None if there are none, and the shares are equal.
    """

    args: tuple[tuple[Any, ...], ...]
    kwargs: tuple[dict[str, Any], ...]
    targets: tuple[Any, ...]
    shares: tuple[float, ...]
    length: int | None

    def tensors(self) -> Iterator[torch.Tensor]:
        """All tensors."""
        for value in (*self.args, *self.kwargs, *self.targets):
            yield from _tensors(value)


def cut(args: Sequence[Any], kwargs: Mapping[str, Any], target: Any, microbatches: int) -> Batch:
    """Cut every tensor into microbatches; what is no tensor goes to each of them.

    Tensors are looked for in tuples, lists and dicts as well. The first microbatches are one
    longer where the length is no multiple, as in `torch.tensor_split`.

    Raises
    ------
    ValueError
        If a tensor is shorter than the number of microbatches, or two have different lengths.
    """
    named = [(f"argument {place}", value) for place, value in enumerate(args)]
    named += [(f"argument {key!r}", value) for key, value in kwargs.items()]
    tensors = [(name, t) for name, value in [*named, ("target", target)] for t in _tensors(value)]
    faults = [
        f"{name} has the shape {tuple(tensor.shape)}: its first dimension is cut into "
        f"{microbatches} microbatches and has to be at least {microbatches}"
        for name, tensor in tensors
        if tensor.dim() == 0 or len(tensor) < microbatches
    ]
    lengths = {len(tensor): name for name, tensor in tensors if tensor.dim()}
    if len(lengths) > 1:
        shown = ", ".join(f"{length} ({name})" for length, name in sorted(lengths.items()))
        faults.append(f"the first dimensions differ: {shown}; all are the length of the batch")
    if faults:
        raise ValueError("the batch can not be cut: " + "; ".join(faults))
    length = next(iter(lengths), None)
    return _cut(args, kwargs, target, microbatches, length)


def _cut(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    target: Any,
    microbatches: int,
    known_length: int | None,
) -> Batch:
    length = known_length or microbatches
    sizes = [length // microbatches + (i < length % microbatches) for i in range(microbatches)]
    starts = [sum(sizes[:i]) for i in range(microbatches)]
    spans = list(zip(starts, sizes, strict=True))
    return Batch(
        tuple(tuple(_piece(value, *span) for value in args) for span in spans),
        tuple({key: _piece(value, *span) for key, value in kwargs.items()} for span in spans),
        tuple(_piece(target, *span) for span in spans),
        tuple(size / length for size in sizes),
        known_length,
    )


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _piece(value: Any, start: int, size: int) -> Any:
    # One view for each microbatch: views of one split would share a node of the graph, which can
    # not be passed backwards twice.
    if isinstance(value, torch.Tensor):
        return value.narrow(0, start, size)
    if isinstance(value, (tuple, list)):
        return type(value)(_piece(part, start, size) for part in value)
    if isinstance(value, dict):
        return {key: _piece(part, start, size) for key, part in value.items()}
    return value


def joined(outputs: Mapping[int, Any]) -> Any:
    """The outputs by microbatch as one, joined along their first dimension; None if none."""
    if not outputs:
        return None
    return _joined([outputs[microbatch] for microbatch in sorted(outputs)])


def _joined(outputs: Sequence[Any]) -> Any:
    first = outputs[0]
    if isinstance(first, (tuple, list)):
        return tuple(_joined(parts) for parts in zip(*outputs, strict=True))
    if first.dim() == 0:
        return torch.stack(list(outputs))
    return torch.cat(list(outputs))
