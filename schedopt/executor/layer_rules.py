"""How the layers that can be split compute: output, input gradient, weight gradients.

One rule per kind of layer. The arithmetic is that of the unsplit layer: where torch has one
kernel for all gradients of a layer, it is called twice and told each time which ones to compute
(`torch.ops.aten`, the core operators of torch's documented IR).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional


class LayerRule(ABC):
    """What one layer computes, read from its module at each call.

    `saved` is what `forward` returns besides the output, for use by both gradients; `gradient`
    is that of the output.
    """

    holds_weight: ClassVar[bool] = False
    """Whether the weight gradients need the weight itself."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def autocast_dtype(self, device_type: str) -> torch.dtype | None:
        """Type to which torch.autocast converts input and parameters; None if it does not."""
        return None

    def prepare(self, x: Tensor) -> Tensor | None:
        """Ordinary differentiable steps before the layer; None if this input can not be split."""
        return x

    @abstractmethod
    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Output and `saved`."""

    @abstractmethod
    def input_gradient(
        self, gradient: Tensor, x: Tensor, weight: Tensor, saved: Sequence[Tensor]
    ) -> Tensor:
        """Gradient of the input, of its shape."""

    @abstractmethod
    def weight_gradients(
        self, gradient: Tensor, x: Tensor, weight: Tensor | None, saved: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Gradients of the weight and, if the layer has one, of the bias.

        The weight is given if `holds_weight`.
        """


class _OneKernel(LayerRule):
    """A layer for which torch has one kernel, told which of three gradients are wanted."""

    holds_weight = True

    @abstractmethod
    def gradients(
        self,
        gradient: Tensor,
        x: Tensor,
        weight: Tensor,
        saved: Sequence[Tensor],
        wanted: list[bool],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of input, weight and bias, as far as wanted."""

    def input_gradient(
        self, gradient: Tensor, x: Tensor, weight: Tensor, saved: Sequence[Tensor]
    ) -> Tensor:
        return self.gradients(gradient, x, weight, saved, [True, False, False])[0]

    def weight_gradients(
        self, gradient: Tensor, x: Tensor, weight: Tensor | None, saved: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        if weight is None:
            raise TypeError("the kernel needs the weight")
        if self.module.bias is None:
            return self.gradients(gradient, x, weight, saved, [False, True, False])[1:2]
        return self.gradients(gradient, x, weight, saved, [False, True, True])[1:]


class _Linear(LayerRule):
    def autocast_dtype(self, device_type: str) -> torch.dtype | None:
        return torch.get_autocast_dtype(device_type)

    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        return functional.linear(x, weight, bias), ()

    def input_gradient(
        self, gradient: Tensor, x: Tensor, weight: Tensor, saved: Sequence[Tensor]
    ) -> Tensor:
        return gradient @ weight

    def weight_gradients(
        self, gradient: Tensor, x: Tensor, weight: Tensor | None, saved: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        rows = gradient.reshape(-1, gradient.shape[-1])
        of_weight = rows.t() @ x.reshape(-1, x.shape[-1])
        return (of_weight,) if self.module.bias is None else (of_weight, rows.sum(0))


class _Embedding(LayerRule):
    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        return functional.embedding(x, weight), ()

    def input_gradient(
        self, gradient: Tensor, x: Tensor, weight: Tensor, saved: Sequence[Tensor]
    ) -> Tensor:
        raise TypeError("indices have no gradient")

    def weight_gradients(
        self, gradient: Tensor, x: Tensor, weight: Tensor | None, saved: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        padding = -1 if self.module.padding_idx is None else self.module.padding_idx
        of_weight: Tensor = torch.ops.aten.embedding_dense_backward(
            gradient, x, self.module.num_embeddings, padding, self.module.scale_grad_by_freq
        )
        return (of_weight,)


class _Convolution(_OneKernel):
    def autocast_dtype(self, device_type: str) -> torch.dtype | None:
        return torch.get_autocast_dtype(device_type)

    def prepare(self, x: Tensor) -> Tensor | None:
        """Pads as the convolution itself can not; an input without a batch can not be split."""
        if x.dim() != len(self.module.kernel_size) + 2:
            return None
        if self._pads_itself():
            return x
        mode = self.module.padding_mode
        # functional.pad counts dimensions from the last one.
        widths = [width for pair in reversed(self._paddings()) for width in pair]
        return functional.pad(x, widths, mode="constant" if mode == "zeros" else mode)

    def _paddings(self) -> list[tuple[int, int]]:
        """Padding before and after, per dimension."""
        padding, sizes = self.module.padding, self.module.kernel_size
        if padding == "valid":
            return [(0, 0)] * len(sizes)
        if padding == "same":
            steps = zip(sizes, self.module.dilation, strict=True)
            totals = [dilation * (size - 1) for size, dilation in steps]
            return [(total // 2, total - total // 2) for total in totals]
        return [(width, width) for width in padding]

    def _pads_itself(self) -> bool:
        even = all(before == after for before, after in self._paddings())
        return even and self.module.padding_mode == "zeros"

    def _arguments(self) -> tuple[Any, ...]:
        """Stride, padding, dilation, transposed, padding of the output, groups."""
        module, size = self.module, len(self.module.kernel_size)
        within = [before for before, _ in self._paddings()] if self._pads_itself() else [0] * size
        return module.stride, within, module.dilation, False, [0] * size, module.groups

    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        return torch.convolution(x, weight, bias, *self._arguments()), ()

    def gradients(
        self,
        gradient: Tensor,
        x: Tensor,
        weight: Tensor,
        saved: Sequence[Tensor],
        wanted: list[bool],
    ) -> tuple[Tensor, Tensor, Tensor]:
        found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
            gradient, x, weight, [weight.shape[0]], *self._arguments(), wanted
        )
        return found


def _norm_dtype(device_type: str) -> torch.dtype | None:
    """Autocast runs norms in float32, but on CPUs as they are."""
    return None if device_type == "cpu" else torch.float32


class _LayerNorm(_OneKernel):
    def autocast_dtype(self, device_type: str) -> torch.dtype | None:
        return _norm_dtype(device_type)

    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        shape, eps = self.module.normalized_shape, self.module.eps
        output, *saved = torch.native_layer_norm(x, shape, weight, bias, eps)
        return output, tuple(saved)

    def gradients(
        self,
        gradient: Tensor,
        x: Tensor,
        weight: Tensor,
        saved: Sequence[Tensor],
        wanted: list[bool],
    ) -> tuple[Tensor, Tensor, Tensor]:
        # Of the bias, which looks like the weight, the kernel reads only shape and type.
        found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_layer_norm_backward(
            gradient, x, self.module.normalized_shape, *saved, weight, weight, wanted
        )
        return found


class _GroupNorm(_OneKernel):
    def autocast_dtype(self, device_type: str) -> torch.dtype | None:
        return _norm_dtype(device_type)

    def prepare(self, x: Tensor) -> Tensor | None:
        return x.contiguous()

    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        groups, eps = self.module.num_groups, self.module.eps
        output, *saved = torch.native_group_norm(x, weight, bias, *_extents(x), groups, eps)
        return output, tuple(saved)

    def gradients(
        self,
        gradient: Tensor,
        x: Tensor,
        weight: Tensor,
        saved: Sequence[Tensor],
        wanted: list[bool],
    ) -> tuple[Tensor, Tensor, Tensor]:
        found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_group_norm_backward(
            gradient.contiguous(), x, *saved, weight, *_extents(x), self.module.num_groups, wanted
        )
        return found


def _extents(x: Tensor) -> tuple[int, int, int]:
    """Batch, channels, and elements per channel."""
    return x.shape[0], x.shape[1], x.shape[2:].numel()


class _RMSNorm(LayerRule):
    """By autograd: B and W each compute the layer again and derive one side of it.

    Torch has no public kernel for this backward, and its default of eps differs by version.
    """

    holds_weight = True

    def autocast_dtype(self, device_type: str) -> torch.dtype | None:
        return _norm_dtype(device_type)

    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self._output(x, weight), ()

    def input_gradient(
        self, gradient: Tensor, x: Tensor, weight: Tensor, saved: Sequence[Tensor]
    ) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            output = self._output(x, weight.detach())
        return torch.autograd.grad(output, x, gradient)[0]

    def weight_gradients(
        self, gradient: Tensor, x: Tensor, weight: Tensor | None, saved: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        if weight is None:
            raise TypeError("the derivative needs the weight")
        with torch.enable_grad():
            weight = weight.detach().requires_grad_()
            output = self._output(x.detach(), weight)
        return torch.autograd.grad(output, weight, gradient)

    def _output(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, self.module.normalized_shape, weight, self.module.eps)


_RULES: dict[type[nn.Module], type[LayerRule]] = {
    nn.Linear: _Linear,
    nn.Embedding: _Embedding,
    nn.Conv1d: _Convolution,
    nn.Conv2d: _Convolution,
    nn.Conv3d: _Convolution,
    nn.LayerNorm: _LayerNorm,
    nn.GroupNorm: _GroupNorm,
    nn.RMSNorm: _RMSNorm,
}


def rule_for(module: nn.Module) -> LayerRule | str:
    """The rule of a layer, or why it can not be split.

    Parameters
    ----------
    module
        One that has parameters of its own.
    """
    # A subclass may compute something else, or use the parameters without calling the layer.
    rule = _RULES.get(type(module))
    if rule is None:
        return f"no rule for {type(module).__name__}"
    if "forward" in vars(module):
        return "its forward is replaced already"
    for name, parameter in module.named_parameters(recurse=False):
        if type(parameter) is not nn.Parameter:
            return f"{name} is a {type(parameter).__name__}"
    if isinstance(module, nn.Embedding) and module.sparse:
        return "its gradient is sparse"
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        return "max_norm changes its weight in the forward"
    return rule(module)
