"""One stage on its rank: its module, and what is kept of each microbatch until when.

======  =====================================================================================
F       runs the module; keeps the inputs that need a gradient and where the outputs come from;
        if it is to be recomputed, keeps the inputs alone, and the state of random numbers
R       runs the module once more, with the same random numbers, and keeps what F keeps otherwise
B       gradients of the inputs; weight gradients that can be deferred are queued
W       the queued weight gradients
BW      all gradients at once
======  =====================================================================================

Gradients of weights are added to ``.grad``. The outputs themselves are not kept: to go back,
autograd needs only the place in its graph where they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from schedopt.errors import SplitError
from schedopt.executor.errors import ExecutorError
from schedopt.executor.recompute import Forward, RandomState, UpdatedBuffers
from schedopt.executor.split import DeferredWeights

Loss = Callable[[Any], torch.Tensor]
"""What the last stage returns -> what its backward starts from."""

UNSPLIT = "no layer of it can defer its weight gradient"


class _Kept(NamedTuple):
    """What a microbatch leaves between F and B."""

    inputs: tuple[Any, ...]
    roots: tuple[GradientEdge | None, ...]
    is_loss: bool


def _may_need_gradient(output: torch.Tensor, *, below: bool) -> bool:
    """Whether an output of a forward that records nothing gets a gradient later."""
    return below and (output.is_floating_point() or output.is_complex())


class StageRunner:
    """Runs the ops of one stage.

    Parameters
    ----------
    stage
        Number of the stage.
    module
        Takes the outputs of its sources, or the arguments of the step if it has none; returns a
        tensor or a tuple of tensors.
    split
        Whether the schedule has B and W for it.

    Attributes
    ----------
    deferred
        Defers weight gradients; None if the schedule does not ask for it or the stage can not be
        split: then B is the whole backward, and W does nothing.
    unsplit
        What computes its weight gradients in B although the schedule has a W: names of the parts
        with the reasons, "" for the whole stage.
    """

    def __init__(self, stage: int, module: torch.nn.Module, *, split: bool) -> None:
        self.stage = stage
        self.module = module
        self.deferred: DeferredWeights | None = None
        self.unsplit: tuple[tuple[str, str], ...] = ()
        if split:
            self._split()
        self._kept: dict[int, _Kept] = {}
        self._again: dict[int, Forward] = {}
        self._buffers = UpdatedBuffers(module)

    def _split(self) -> None:
        try:
            deferred = DeferredWeights(self.module)
        except SplitError as error:
            self.unsplit = (("", str(error)),)
            return
        self.unsplit = deferred.unsplit
        if deferred.handled:
            deferred.convert()
            self.deferred = deferred
        elif any(True for _ in self.module.parameters()):
            self.unsplit = (("", UNSPLIT), *deferred.unsplit)

    @property
    def is_fused(self) -> bool:
        """Whether B is the whole backward although the schedule has a W."""
        return any(not name for name, _ in self.unsplit)

    @property
    def held(self) -> int:
        """Microbatches between F and B; those to be recomputed between R and B."""
        return len(self._kept)

    def waiting(self) -> Iterator[torch.Tensor]:
        """The inputs of microbatches that are to be recomputed."""
        for forward in self._again.values():
            yield from (t for t in forward.inputs if isinstance(t, torch.Tensor))

    def forward(
        self,
        microbatch: int,
        inputs: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        loss: Loss | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """F: the outputs, without their graph; ``requires_grad`` tells which need a gradient.

        Parameters
        ----------
        microbatch
            Its number.
        inputs
            Leaves that require a gradient get it in B.
        kwargs
            For the module.
        loss
            On the last stage.

        Raises
        ------
        ExecutorError
            If the module returns something else than tensors.
        """
        outputs = self._record(microbatch, inputs, kwargs, loss)
        return tuple(t.detach().requires_grad_(t.requires_grad) for t in outputs)

    def forward_to_recompute(
        self,
        microbatch: int,
        inputs: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        loss: Loss | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """F of a microbatch that `recompute` runs again; parameters as for `forward`.

        Every floating-point output counts as one that needs a gradient, if an input or a parameter
        of the stage does.
        """
        tensors = [t for t in inputs if isinstance(t, torch.Tensor)]
        parameters = list(self.module.parameters())
        random = RandomState.now({t.device for t in [*tensors, *parameters]})
        self._again[microbatch] = Forward(tuple(inputs), kwargs, loss, random)
        with torch.no_grad(), self._buffers.watched():
            returned = self.module(*inputs, **kwargs)
            outputs = tensors_of(returned, self.stage)
            if loss is not None:
                loss(returned)
        below = any(t.requires_grad for t in [*tensors, *parameters])
        return tuple(t.detach().requires_grad_(_may_need_gradient(t, below=below)) for t in outputs)

    def recompute(self, microbatch: int) -> None:
        """R: the forward once more, for the backward; random numbers go on as if it was not."""
        again = self._again.pop(microbatch)
        now = RandomState.now(torch.device("cuda", index) for index in again.random.gpus)
        again.random.restore()
        try:
            with self._buffers.kept():
                self._record(microbatch, again.inputs, again.kwargs, again.loss)
        finally:
            now.restore()

    def _record(
        self,
        microbatch: int,
        inputs: Sequence[Any],
        kwargs: Mapping[str, Any],
        loss: Loss | None,
    ) -> tuple[torch.Tensor, ...]:
        with self._recording(microbatch):
            returned = self.module(*inputs, **kwargs)
            outputs = tensors_of(returned, self.stage)
            roots = outputs if loss is None else (loss(returned),)
        edges = tuple(get_gradient_edge(t) if t.requires_grad else None for t in roots)
        self._kept[microbatch] = _Kept(tuple(inputs), edges, loss is not None)
        return outputs

    def evaluate(self, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Forward only: what the module returns; nothing is kept."""
        with torch.no_grad():
            return self.module(*inputs, **kwargs)

    def backward(
        self, microbatch: int, gradients: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor | None, ...]:
        """B or BW: the gradient of each input, None where there is none.

        Parameters
        ----------
        microbatch
            Its number.
        gradients
            One for each output, None where there is none; nothing on the last stage.
        """
        inputs, edges, is_loss = self._kept.pop(microbatch)
        given = [None] if is_loss else gradients
        roots = [
            (edge, gradient)
            for edge, gradient in zip(edges, given, strict=True)
            if edge is not None and (is_loss or gradient is not None)
        ]
        if roots:
            # What a checkpoint computes again belongs to this microbatch as well.
            with self._recording(microbatch):
                torch.autograd.backward([edge for edge, _ in roots], [g for _, g in roots])
        return tuple(t.grad if isinstance(t, torch.Tensor) and t.is_leaf else None for t in inputs)

    def weight(self, microbatch: int) -> None:
        """W: the deferred gradients of the weights."""
        if self.deferred is not None:
            self.deferred.run(microbatch)

    def clear(self) -> None:
        """Forget all microbatches, after a failure."""
        self._kept.clear()
        self._again.clear()
        if self.deferred is not None:
            self.deferred.clear()

    def restore(self) -> None:
        """Give the module its own forwards back."""
        if self.deferred is not None:
            self.deferred.restore()

    def _recording(self, microbatch: int) -> AbstractContextManager[None]:
        return nullcontext() if self.deferred is None else self.deferred.record(microbatch)


def tensors_of(returned: Any, stage: int) -> tuple[torch.Tensor, ...]:
    """What a stage returns as a tuple of tensors."""
    outputs = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
    for output in outputs:
        if not isinstance(output, torch.Tensor):
            raise ExecutorError(
                f"stage {stage} returned {type(output).__name__}; a stage returns a tensor or a "
                "tuple of tensors"
            )
    return outputs
