"""Split backward: gradients of the weights are put into a queue by B and computed by W.

The layers that can be split run as an autograd function whose backward computes the gradient of
the input and keeps what the gradients of the weights need. W computes these and hands them to
the parameters as autograd would: their hooks run, and `.grad` is added to. Norms run as they are,
on stand-ins for their parameters, whose gradients are kept for W.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from schedopt.errors import SplitError
from schedopt.executor.layer_rules import LayerRule, Output, rule_for


class DeferredWeights:
    """The weight gradients of a module, computed when asked for and not in its backward.

    Handled are `Linear`, `Embedding`, `Conv1d`, `Conv2d`, `Conv3d`, and `LayerNorm`, `GroupNorm`
    and `RMSNorm`, which compute the gradients of their few parameters in B and keep them for W
    (`layer_rules` says why). All others compute and add the gradients of their parameters in B,
    and so does a handled layer whose weight is frozen.

    A queue holds the inputs of the layers and the gradients of their outputs as they are:
    neither may be overwritten before `run`, which matters for buffers that tensors are received
    in. What a checkpointed part of the module computes again during B belongs to a microbatch
    only if B, too, runs within `record`.

    Parameters
    ----------
    module
        One stage, or an `nn.ModuleList` of several.

    Attributes
    ----------
    handled
        Names of the submodules that are split.
    unsplit
        Names of all other submodules that have parameters of their own, each with the reason.

    Raises
    ------
    SplitError
        If the module or a part of it is compiled.

    Examples
    --------
    >>> layer = nn.Linear(2, 1)
    >>> deferred = DeferredWeights(layer)
    >>> deferred.convert()
    >>> with deferred.record(0):
    ...     output = layer(torch.ones(3, 2))
    >>> torch.autograd.backward(output, torch.ones(3, 1))  # B
    >>> layer.weight.grad is None, deferred.pending(0)
    (True, 1)
    >>> deferred.run(0)  # W
    >>> layer.weight.grad, deferred.pending(0)
    (tensor([[3., 3.]]), 0)
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._rules: dict[nn.Module, LayerRule | Output] = {}
        self._queues: defaultdict[Hashable, list[_Deferred | _Found]] = defaultdict(list)
        self._microbatch: Hashable = None
        self._recomputing = False
        handled, unsplit = [], []
        for name, layer in module.named_modules():
            if _is_compiled(layer):
                raise SplitError(f"{name or 'the module'} is compiled: {_COMPILED}")
            if next(layer.parameters(recurse=False), None) is None:
                continue
            rule = rule_for(layer)
            if isinstance(rule, str):
                unsplit.append((name, rule))
            else:
                handled.append(name)
                self._rules[layer] = rule
        self.handled = tuple(handled)
        self.unsplit = tuple(unsplit)

    def convert(self) -> None:
        """Replace the forwards of the handled layers; parameters and state stay as they are."""
        for layer, rule in self._rules.items():
            if "forward" not in vars(layer):
                if isinstance(rule, LayerRule):
                    layer.forward = partial(self._forward, layer, rule, layer.forward)
                else:
                    layer.forward = partial(self._forward_of_norm, layer, rule, layer.forward)

    def restore(self) -> None:
        """Give the layers their own forwards back."""
        for layer in self._rules:
            vars(layer).pop("forward", None)

    @contextmanager
    def record(self, microbatch: Hashable) -> Iterator[None]:
        """What is computed within belongs to this microbatch: an index, or any key but None.

        Outside, a layer computes the gradients of its weights in the backward.
        """
        before = self._microbatch
        self._microbatch = microbatch
        try:
            yield
        finally:
            self._microbatch = before

    def run(self, microbatch: Hashable) -> None:
        """Compute the queued gradients of a microbatch and add them to `.grad`.

        A parameter that is used several times gets one gradient, the sum.
        """
        self.take(microbatch)()

    def take(self, microbatch: Hashable) -> Callable[[], None]:
        """What `run` would do, for later: the queue of the microbatch is empty then."""
        return partial(_run, self._queues.pop(microbatch, []))

    def pending(self, microbatch: Hashable) -> int:
        """Number of entries in the queue: calls of layers, and parameters of calls of norms."""
        return len(self._queues.get(microbatch, ()))

    def bytes(self, microbatch: Hashable) -> int:
        """Memory that the queue of a microbatch holds, without parameters."""
        storages = [tensor.untyped_storage() for tensor in self.queued(microbatch)]
        held = {storage.data_ptr(): storage.nbytes() for storage in storages}
        for parameter in self._module.parameters() if held else ():
            held.pop(parameter.untyped_storage().data_ptr(), None)
        return sum(held.values())

    def queued(self, microbatch: Hashable) -> Iterator[Tensor]:
        """The tensors that the queue of a microbatch holds."""
        for queued in self._queues.get(microbatch, ()):
            yield from queued.tensors()

    def clear(self) -> None:
        """Forget everything that is queued."""
        self._queues.clear()

    def _forward(
        self,
        layer: Any,
        rule: LayerRule,
        original: Callable[[Tensor], Tensor],
        input: Tensor,  # the name that the layers themselves use
    ) -> Tensor:
        x = rule.prepare(input) if _is_split(layer) else None
        if x is None:
            return original(input)
        weight, bias = layer.weight, getattr(layer, "bias", None)
        parameters = (weight,) if bias is None else (weight, bias)
        dtype = _autocast_dtype(rule, x.device.type)
        x, weight, bias = (_cast(tensor, dtype) for tensor in (x, weight, bias))
        if self._microbatch is not None:
            # Autograd must not see the parameters: it would call their hooks without a gradient.
            weight = weight.detach().requires_grad_()
            bias = None if bias is None else bias.detach()
        if self._recomputing:
            _save(rule, x, weight)
        call = _Call(rule, parameters, self._microbatch, self._recomputing)
        return _split_layer(self, call, x, weight, bias)

    def _forward_of_norm(
        self, layer: Any, output: Output, original: Callable[[Tensor], Tensor], input: Tensor
    ) -> Tensor:
        microbatch = self._microbatch
        if microbatch is None or not _is_split(layer):
            return original(input)
        return output(
            input,
            self._stand_in(layer.weight, microbatch),
            self._stand_in(getattr(layer, "bias", None), microbatch),
        )

    def _stand_in(self, parameter: Any, microbatch: Hashable) -> Any:
        """A tensor with the values of a parameter, whose gradient goes into the queue."""
        if parameter is None or not parameter.requires_grad:
            return parameter
        stand_in = parameter.detach().requires_grad_()

        def keep(leaf: Tensor) -> None:
            _refuse_second_derivatives()
            if leaf.grad is not None:
                self._queues[microbatch].append(_Found(parameter, leaf.grad))
                leaf.grad = None

        stand_in.register_post_accumulate_grad_hook(keep)
        return stand_in

    def _saved(self, node: Any) -> tuple[Tensor, ...]:
        """What a node has saved; if it was checkpointed, this computes the part again."""
        self._recomputing = True
        try:
            saved: tuple[Tensor, ...] = node.saved_tensors
        finally:
            self._recomputing = False
        return saved

    def _keep(self, queued: _Deferred) -> None:
        self._queues[queued.call.microbatch].append(queued)


ACCUMULATED_TOGETHER = 32 * 2**20
"""Bytes of gradients that W gathers before it hands them to the parameters."""


def _is_split(layer: Any) -> bool:
    """Whether a call that begins now is to be split."""
    if torch.compiler.is_compiling():
        raise SplitError(_COMPILED)
    return torch.is_grad_enabled() and bool(layer.weight.requires_grad)


def _is_compiled(module: nn.Module) -> bool:
    """By torch.compile(module) or module.compile(); torch has no function that tells."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


_COMPILED = "a compiled backward can not be split, run this stage as BW"


class _Call(NamedTuple):
    """One call of a layer, for a microbatch or outside of any (None)."""

    rule: LayerRule
    parameters: tuple[nn.Parameter, ...]
    microbatch: Hashable
    inputs_are_saved: bool


class _Deferred(NamedTuple):
    """What the weight gradients of one call need."""

    call: _Call
    gradient: Tensor
    x: Tensor
    weight: Tensor | None

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        return self.call.parameters

    def tensors(self) -> tuple[Tensor, ...]:
        """All that is held."""
        return (self.gradient, self.x, *(() if self.weight is None else (self.weight,)))

    def gradients(self) -> Iterable[tuple[nn.Parameter, Tensor]]:
        """Of the parameters, computed now."""
        with torch.no_grad():
            found = self.call.rule.weight_gradients(self.gradient, self.x, self.weight)
        pairs = zip(self.parameters, found, strict=True)
        return [(parameter, gradient.to(parameter.dtype)) for parameter, gradient in pairs]


class _Found(NamedTuple):
    """A gradient that is there already."""

    parameter: nn.Parameter
    gradient: Tensor

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        return (self.parameter,)

    def tensors(self) -> tuple[Tensor, ...]:
        """All that is held."""
        return (self.gradient,)

    def gradients(self) -> Iterable[tuple[nn.Parameter, Tensor]]:
        """Of the parameter."""
        return [(self.parameter, self.gradient)]


class _SplitLayer(torch.autograd.Function):
    """A layer whose backward queues what the gradients of its weights need."""

    @staticmethod
    def forward(
        ctx: Any,
        deferred: DeferredWeights,
        call: _Call,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        output = call.rule.forward(x, weight, bias)
        ctx.deferred, ctx.call = deferred, call
        if not call.inputs_are_saved:
            needed = _needed(call.rule, x, weight, x_needs_gradient=ctx.needs_input_grad[2])
            ctx.save_for_backward(*needed)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_second_derivatives()
        call: _Call = ctx.call
        x, weight = ctx.deferred._saved(ctx)
        of_input = None
        if ctx.needs_input_grad[2]:
            of_input = call.rule.input_gradient(gradient, x, weight)
        if call.microbatch is None:
            of_weight, *of_bias = call.rule.weight_gradients(gradient, x, weight)
            return None, None, of_input, of_weight, of_bias[0] if of_bias else None
        held = weight.detach() if call.rule.holds_weight else None
        ctx.deferred._keep(_Deferred(call, gradient, x.detach(), held))
        return None, None, of_input, None, None


def _refuse_second_derivatives() -> None:
    """In a backward, gradients are enabled only with create_graph."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "create_graph=True: a split backward has no second derivative; "
            "restore() the module before such a backward"
        )


class _Save(torch.autograd.Function):
    """Saves what a layer saves, but before it computes.

    Checkpointing stops computing again as soon as everything is saved again. A torch layer saves
    its input before it computes and a function after, so that the last layer of a checkpointed
    part would be computed for nothing.
    """

    @staticmethod
    def forward(ctx: Any, rule: LayerRule, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(*_needed(rule, x, weight, x_needs_gradient=ctx.needs_input_grad[1]))
        return x.new_empty(0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:
        return None, None, None


def _needed(
    rule: LayerRule, x: Tensor, weight: Tensor, *, x_needs_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """What the backward of a layer needs of its input and its weight."""
    return x, weight if rule.holds_weight or x_needs_gradient else None


_split_layer: Callable[[DeferredWeights, _Call, Tensor, Tensor, Tensor | None], Tensor]
_split_layer = _SplitLayer.apply
_save: Callable[[LayerRule, Tensor, Tensor], Tensor] = _Save.apply


def _run(queue: list[_Deferred | _Found]) -> None:
    """Compute the gradients of a queue and add them; the queue is used up."""
    uses = Counter(parameter for queued in queue for parameter in queued.parameters)
    sums: dict[nn.Parameter, Tensor] = {}
    complete: dict[nn.Parameter, Tensor] = {}
    size = 0
    queue.reverse()
    while queue:
        # Nothing of a call is held once its gradients are there.
        for parameter, gradient in queue.pop().gradients():
            sums[parameter] = sums[parameter] + gradient if parameter in sums else gradient
            uses[parameter] -= 1
            if not uses[parameter]:
                complete[parameter] = sums.pop(parameter)
                size += parameter.nbytes
        if size > ACCUMULATED_TOGETHER or not queue:
            _accumulate(complete)
            complete, size = {}, 0


def _accumulate(gradients: dict[nn.Parameter, Tensor]) -> None:
    """Add to `.grad`, with all that autograd does then."""
    wanted = {each: gradient for each, gradient in gradients.items() if each.requires_grad}
    if wanted:
        torch.autograd.backward(tuple(wanted), tuple(wanted.values()))


def _autocast_dtype(rule: LayerRule, device_type: str) -> torch.dtype | None:
    if not torch.is_autocast_enabled(device_type):
        return None
    return rule.autocast_dtype(device_type)


def _cast(tensor: Tensor | None, dtype: torch.dtype | None) -> Any:
    """As autocast does: floating point, but float64 stays."""
    if tensor is None or dtype is None or not tensor.is_floating_point():
        return tensor
    return tensor if tensor.dtype == torch.float64 else tensor.to(dtype)
