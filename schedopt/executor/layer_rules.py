"""How the layers that can be split compute: output, input gradient, weight gradients.

One rule per kind of layer. The arithmetic is that of the unsplit layer: where torch has one
kernel for all gradients of a layer, it is called twice and told each time which ones to compute
(`torch.ops.aten`, the core operators of torch's documented IR).

Norms have no rule of this kind. The gradient of their weight is small and comes with that of the
input from one kernel, while what it is computed from is as large as an activation: B computes it,
and only adding it to `.grad` waits for W.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

Output = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""Input, weight and bias -> output, by ordinary torch functions."""


class LayerRule(ABC):
    """What one layer computes, read from its module at each call.

    `gradient` is that of the output.
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
    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The output."""

    @abstractmethod
    def input_gradient(self, gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Gradient of the input, of its shape."""

    @abstractmethod
    def weight_gradients(
        self, gradient: Tensor, x: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Gradients of the weight and, if the layer has one, of the bias.

        The weight is given if `holds_weight`.
        """


class _Linear(LayerRule):
    def autocast_dtype(self, device_type: str) -> torch.dtype | None:
        return torch.get_autocast_dtype(device_type)

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(x, weight, bias)

    def input_gradient(self, gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        return gradient @ weight

    def weight_gradients(
        self, gradient: Tensor, x: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, ...]:
        rows = gradient.reshape(-1, gradient.shape[-1])
        of_weight = rows.t() @ x.reshape(-1, x.shape[-1])
        return (of_weight,) if self.module.bias is None else (of_weight, rows.sum(0))


class _Embedding(LayerRule):
    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.embedding(x, weight)

    def input_gradient(self, gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        raise TypeError("indices have no gradient")

    def weight_gradients(
        self, gradient: Tensor, x: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, ...]:
        padding = -1 if self.module.padding_idx is None else self.module.padding_idx
        of_weight: Tensor = torch.ops.aten.embedding_dense_backward(
            gradient, x, self.module.num_embeddings, padding, self.module.scale_grad_by_freq
        )
        return (of_weight,)


class _Convolution(LayerRule):
    holds_weight = True

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

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return torch.convolution(x, weight, bias, *self._arguments())

    def input_gradient(self, gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        return self._gradients(gradient, x, weight, [True, False, False])[0]

    def weight_gradients(
        self, gradient: Tensor, x: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, ...]:
        if weight is None:
            raise TypeError("the kernel needs the weight")
        has_bias = self.module.bias is not None
        of_weights = self._gradients(gradient, x, weight, [False, True, has_bias])[1:]
        return of_weights if has_bias else of_weights[:1]

    def _gradients(
        self, gradient: Tensor, x: Tensor, weight: Tensor, wanted: list[bool]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Of input, weight and bias, as far as wanted."""
        found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
            gradient, x, weight, [weight.shape[0]], *self._arguments(), wanted
        )
        return found


def _layer_norm(module: nn.LayerNorm) -> Output:
    return lambda x, weight, bias: functional.layer_norm(
        x, module.normalized_shape, weight, bias, module.eps
    )


def _group_norm(module: nn.GroupNorm) -> Output:
    return lambda x, weight, bias: functional.group_norm(
        x, module.num_groups, weight, bias, module.eps
    )


def _rms_norm(module: nn.RMSNorm) -> Output:
    return lambda x, weight, bias: functional.rms_norm(
        x, list(module.normalized_shape), weight, module.eps
    )


_RULES: dict[type[nn.Module], type[LayerRule]] = {
    nn.Linear: _Linear,
    nn.Embedding: _Embedding,
    nn.Conv1d: _Convolution,
    nn.Conv2d: _Convolution,
    nn.Conv3d: _Convolution,
}
_NORMS: dict[type[nn.Module], Callable[..., Output]] = {
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
    nn.RMSNorm: _rms_norm,
}


def rule_for(module: nn.Module) -> LayerRule | Output | str:
    """The rule of a layer, the output of a norm, or why the module can not be split.

    Parameters
    ----------
    module
        One that has parameters of its own.
    """
    # A subclass may compute something else, or use the parameters without calling the layer.
    kind = type(module)
    if kind not in _RULES and kind not in _NORMS:
        return f"no rule for {kind.__name__}"
    if "forward" in vars(module):
        return "its forward is replaced already"
    for name, parameter in module.named_parameters(recurse=False):
        if type(parameter) is not nn.Parameter:
            return f"{name} is a {type(parameter).__name__}"
    if isinstance(module, nn.Embedding) and module.sparse:
        return "its gradient is sparse"
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        return "max_norm changes its weight in the forward"
    return _RULES[kind](module) if kind in _RULES else _NORMS[kind](module)
