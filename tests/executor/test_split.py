"""Split backward: the gradients of the unsplit module, the weights' ones when asked for."""

from __future__ import annotations

import copy
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from schedopt.errors import SplitError
from schedopt.executor import split
from schedopt.executor.split import DeferredWeights

SPLIT_LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(6, 5), (4, 6)),
    "linear of three dimensions": (lambda: nn.Linear(6, 5), (2, 3, 6)),
    "linear of one dimension": (lambda: nn.Linear(6, 5), (6,)),
    "linear without bias": (lambda: nn.Linear(6, 5, bias=False), (2, 3, 6)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1), (2, 4, 9)),
    "conv2d": (lambda: nn.Conv2d(4, 6, (3, 2), padding=(1, 0), groups=2), (2, 4, 5, 6)),
    "conv2d without bias": (lambda: nn.Conv2d(4, 6, 3, dilation=2, bias=False), (2, 4, 7, 7)),
    "conv2d same": (lambda: nn.Conv2d(4, 6, 3, padding="same"), (2, 4, 5, 6)),
    "conv2d valid": (lambda: nn.Conv2d(4, 6, 3, padding="valid"), (2, 4, 5, 6)),
    "conv2d circular": (
        lambda: nn.Conv2d(4, 6, 3, padding=(1, 2), padding_mode="circular"),
        (2, 4, 5, 6),
    ),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2, padding=1), (2, 2, 3, 4, 3)),
    "layer norm": (lambda: nn.LayerNorm(6), (2, 3, 6)),
    "layer norm of two dimensions": (lambda: nn.LayerNorm((3, 6)), (2, 3, 6)),
    "layer norm without bias": (lambda: nn.LayerNorm(6, bias=False), (2, 3, 6)),
    "group norm": (lambda: nn.GroupNorm(2, 6), (2, 6, 3, 4)),
    "rms norm": (lambda: nn.RMSNorm(6), (2, 3, 6)),
    "rms norm of two dimensions": (lambda: nn.RMSNorm((3, 6), eps=0.1), (2, 3, 6)),
}
"""Layers whose split gradients are those of the unsplit layer to the last bit."""


def unsplit_gradients(
    module: nn.Module, inputs: Sequence[Tensor], gradients: Sequence[Tensor]
) -> tuple[dict[str, Tensor | None], list[Tensor | None]]:
    """Of the parameters after all microbatches, and of each input; the module is left alone."""
    module = copy.deepcopy(module)
    inputs = [x.detach().requires_grad_(x.requires_grad) for x in inputs]
    for x, gradient in zip(inputs, gradients, strict=True):
        torch.autograd.backward(module(x), gradient)
    return gradients_of(module), [x.grad for x in inputs]


def split_gradients(
    module: nn.Module, inputs: Sequence[Tensor], gradients: Sequence[Tensor]
) -> tuple[dict[str, Tensor | None], list[Tensor | None]]:
    """The same by F of all microbatches, B of all, W of all."""
    deferred = DeferredWeights(module)
    deferred.convert()
    inputs = [x.detach().requires_grad_(x.requires_grad) for x in inputs]
    outputs = []
    for index, x in enumerate(inputs):
        with deferred.record(index):
            outputs.append(module(x))
    for index, (output, gradient) in enumerate(zip(outputs, gradients, strict=True)):
        with deferred.record(index):
            torch.autograd.backward(output, gradient)
    for index in range(len(inputs)):
        deferred.run(index)
    deferred.restore()
    return gradients_of(module), [x.grad for x in inputs]


def gradients_of(module: nn.Module) -> dict[str, Tensor | None]:
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def assert_same(one: Any, other: Any, *, exactly: bool = True) -> None:
    """Equal to the last bit, or to 1e-12 of the value in float64."""
    limits = {"rtol": 0.0, "atol": 0.0} if exactly else {"rtol": 1e-12, "atol": 1e-13}
    torch.testing.assert_close(one, other, **limits)


def example(
    shape: tuple[int, ...], module: nn.Module, *, microbatches: int = 3, seed: int = 0
) -> tuple[list[Tensor], list[Tensor]]:
    """Inputs that need gradients, and gradients of the outputs."""
    torch.manual_seed(seed)
    dtype = next(module.parameters()).dtype
    inputs = [torch.randn(shape, dtype=dtype).requires_grad_() for _ in range(microbatches)]
    return inputs, [torch.randn_like(module(x.detach())) for x in inputs]


def build(make: Callable[[], nn.Module], dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(1)
    return make().to(dtype)


def transformer_like() -> nn.Module:
    return nn.Sequential(
        nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 11)
    )


@contextmanager
def products() -> Iterator[Counter[str]]:
    """Counts the matrix products that are computed within."""
    count: Counter[str] = Counter()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        yield count
    for event in profile.key_averages():
        if event.key in ("aten::mm", "aten::addmm"):
            count[event.key.removeprefix("aten::")] += event.count


# --- layers


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", SPLIT_LAYERS)
def test_a_split_layer_has_the_gradients_of_the_layer(name: str, dtype: torch.dtype) -> None:
    make, shape = SPLIT_LAYERS[name]
    module = build(make, dtype)
    assert DeferredWeights(module).handled == ("",)
    inputs, gradients = example(shape, module)
    expected = unsplit_gradients(module, inputs, gradients)
    assert_same(split_gradients(module, inputs, gradients), expected)


@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
@pytest.mark.parametrize(
    "make",
    [lambda: nn.Conv2d(4, 6, (2, 4), padding="same"), lambda: nn.Conv1d(4, 6, 2, padding="same")],
)
def test_padding_that_differs_at_the_two_ends_is_split(make: Callable[[], nn.Module]) -> None:
    module = build(make)
    inputs, gradients = example((2, 4, 5, 6)[: 2 + len(module.kernel_size)], module)
    expected = unsplit_gradients(module, inputs, gradients)
    assert_same(split_gradients(module, inputs, gradients), expected, exactly=False)


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"scale_grad_by_freq": True}], ids=str)
def test_an_embedding_is_split(options: dict[str, Any]) -> None:
    module = build(lambda: nn.Embedding(7, 4, **options))
    inputs = [torch.tensor([[0, 2, 2], [5, 0, 2]]), torch.tensor([[6, 6, 1]])]
    gradients = [torch.randn_like(module(x)) for x in inputs]
    expected = unsplit_gradients(module, inputs, gradients)
    assert_same(split_gradients(module, inputs, gradients), expected)


def test_a_convolution_without_a_batch_computes_its_gradients_in_its_backward() -> None:
    module = build(lambda: nn.Conv1d(4, 6, 3))
    inputs, gradients = example((4, 9), module)
    expected = unsplit_gradients(module, inputs, gradients)
    deferred = DeferredWeights(module)
    deferred.convert()
    with deferred.record(0):
        torch.autograd.backward(module(inputs[0]), gradients[0])
    assert deferred.pending(0) == 0
    deferred.restore()
    module.zero_grad()
    inputs[0].grad = None
    assert_same(split_gradients(module, inputs, gradients), expected)


@pytest.mark.parametrize("name", ["linear", "conv2d", "layer norm", "group norm", "rms norm"])
def test_bfloat16_is_split(name: str) -> None:
    make, shape = SPLIT_LAYERS[name]
    module = build(make, torch.bfloat16)
    inputs, gradients = example(shape, module)
    expected = unsplit_gradients(module, inputs, gradients)
    assert_same(split_gradients(module, inputs, gradients), expected)


LAYERS = ("linear", "layer norm", "rms norm", "activation", "same linear", "frozen linear")


@settings(max_examples=25)
@given(st.lists(st.sampled_from(LAYERS), min_size=1, max_size=7), st.booleans(), st.booleans())
def test_any_stack_has_the_gradients_of_the_stack(
    names: list[str], input_needs_gradient: bool, checkpointed: bool
) -> None:
    torch.manual_seed(0)
    same = nn.Linear(5, 5)
    layers: list[nn.Module] = [nn.Linear(5, 5)]
    for name in names:
        layers.append(
            {
                "linear": lambda: nn.Linear(5, 5),
                "layer norm": lambda: nn.LayerNorm(5),
                "rms norm": lambda: nn.RMSNorm(5),
                "activation": nn.Tanh,
                "same linear": lambda: same,
                "frozen linear": lambda: nn.Linear(5, 5).requires_grad_(False),
            }[name]()
        )
    module = nn.Sequential(*layers).double()
    if checkpointed:
        module = nn.Sequential(module[0], Checkpointed(module[1:], reentrant=False))
    inputs, gradients = example((3, 5), module)
    inputs = [x.detach().requires_grad_(input_needs_gradient) for x in inputs]
    expected = unsplit_gradients(module, inputs, gradients)
    assert_same(split_gradients(module, inputs, gradients), expected, exactly=False)


# --- what is split, and conversion


def test_b_leaves_the_weights_alone_and_w_the_inputs() -> None:
    module = build(transformer_like)
    deferred = DeferredWeights(module)
    deferred.convert()
    with deferred.record(0):
        output = module(torch.tensor([[1, 2, 3]]))
    output.sum().backward()
    assert set(gradients_of(module).values()) == {None}
    assert deferred.pending(0) == 5  # embedding, two linear layers, two parameters of the norm
    deferred.run(0)
    assert None not in gradients_of(module).values()
    assert deferred.pending(0) == 0


class Doubled(nn.Linear):
    """A subclass, which computes something else."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(input, 2 * self.weight, self.bias)


class Scale(nn.Module):
    """A module with a parameter and no rule."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((4,), 1.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


class Attention(nn.Module):
    """Attention that returns its output only."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return output


def mixed_stage() -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 4),
        Doubled(4, 4),
        Scale(),
        nn.LayerNorm(4, elementwise_affine=False),
        Attention(),
        nn.BatchNorm1d(3),
        parametrizations.weight_norm(nn.Linear(4, 4)),
        nn.Linear(4, 4),
    )


def test_what_has_no_rule_is_named_with_the_reason() -> None:
    deferred = DeferredWeights(mixed_stage())
    assert deferred.handled == ("0", "7")
    assert dict(deferred.unsplit) == {
        "1": "no rule for Doubled",
        "2": "no rule for Scale",
        "4.attention": "no rule for MultiheadAttention",
        "4.attention.out_proj": "no rule for NonDynamicallyQuantizableLinear",
        "5": "no rule for BatchNorm1d",
        "6": "no rule for ParametrizedLinear",
        "6.parametrizations.weight": "no rule for ParametrizationList",
    }


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.Embedding(4, 2, sparse=True), "its gradient is sparse"),
        (nn.Embedding(4, 2, max_norm=1.0), "max_norm changes its weight in the forward"),
    ],
)
def test_embeddings_that_can_not_be_split_say_why(layer: nn.Module, reason: str) -> None:
    assert DeferredWeights(layer).unsplit == (("", reason),)


def test_what_has_no_rule_computes_its_gradients_in_b() -> None:
    module = build(mixed_stage)
    inputs, gradients = example((2, 3, 4), module)
    expected = unsplit_gradients(module, inputs, gradients)
    deferred = DeferredWeights(copy.deepcopy(module))
    assert_same(split_gradients(module, inputs, gradients), expected)

    module = deferred._module
    deferred.convert()
    with deferred.record(0):
        output = module(inputs[0])
    torch.autograd.backward(output, gradients[0])
    undone = {name for name, gradient in gradients_of(module).items() if gradient is None}
    assert undone == {"0.weight", "0.bias", "7.weight", "7.bias"}


def test_conversion_changes_nothing_but_forwards_and_is_taken_back() -> None:
    module = build(transformer_like)
    state, parameters = module.state_dict(), dict(module.named_parameters())
    attributes = [set(vars(layer)) for layer in module.modules()]
    deferred = DeferredWeights(module)
    deferred.convert()
    deferred.convert()
    assert_same(module.state_dict(), state)
    assert all(parameters[name] is each for name, each in module.named_parameters())
    assert [set(vars(layer)) for layer in module.modules()] != attributes
    deferred.restore()
    deferred.restore()
    assert [set(vars(layer)) for layer in module.modules()] == attributes


def test_a_module_converted_twice_is_split_by_the_first_and_stays_right() -> None:
    module = build(lambda: nn.Linear(3, 2))
    first = DeferredWeights(module)
    first.convert()
    second = DeferredWeights(module)
    assert second.unsplit == (("", "its forward is replaced already"),)
    second.convert()
    second.restore()
    with first.record(0):
        module(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
    assert first.pending(0) == 1


@pytest.mark.parametrize("compiled_in_place", [True, False])
def test_compiled_modules_are_refused(compiled_in_place: bool) -> None:
    inner = nn.Linear(2, 2)
    if compiled_in_place:
        inner.compile(backend="eager")
    else:
        inner = torch.compile(inner, backend="eager")
    with pytest.raises(SplitError, match=r"^1 is compiled: .* run this stage as BW$"):
        DeferredWeights(nn.Sequential(nn.ReLU(), inner))


def test_code_compiled_around_a_converted_module_runs_its_layers_as_they_are() -> None:
    module = build(lambda: nn.Linear(4, 2))
    inputs, gradients = example((3, 4), module, microbatches=1)
    expected, _ = unsplit_gradients(module, inputs, gradients)
    deferred = DeferredWeights(module)
    deferred.convert()

    @torch.compile(backend="eager")
    def compiled(x: Tensor) -> Tensor:
        output: Tensor = module(x)
        return output

    with deferred.record(0):
        output = compiled(inputs[0])
    torch.autograd.backward(output, gradients[0])
    assert deferred.pending(0) == 1
    deferred.run(0)
    assert_same(gradients_of(module), expected)


@pytest.mark.parametrize("make", [lambda: nn.Linear(2, 2), lambda: nn.LayerNorm(2)])
def test_second_derivatives_are_refused(make: Callable[[], nn.Module]) -> None:
    module = build(make)
    deferred = DeferredWeights(module)
    deferred.convert()
    x = torch.ones(1, 2, dtype=torch.float64, requires_grad=True)
    with deferred.record(0):
        output = module(x).square().sum()
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.backward(output, create_graph=True)


# --- parameters


class Tied(nn.Module):
    """One parameter in the embedding, in the head, and once more used directly."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.inner = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.inner(self.inner(self.embedding(tokens)))
        return self.head(x) + functional.linear(x, self.embedding.weight)


def test_gradients_of_shared_parameters_and_of_repeated_calls_add_up() -> None:
    module = build(Tied)
    inputs = [torch.tensor([[1, 2, 2]]), torch.tensor([[0, 6, 1]])]
    gradients = [torch.randn_like(module(x)) for x in inputs]
    expected = unsplit_gradients(module, inputs, gradients)
    assert_same(split_gradients(module, inputs, gradients), expected, exactly=False)


def test_X22_hooks_of_a_parameter_see_each_accumulated_gradient_once() -> None:
    def seen_by_hooks(run: Callable[..., Any], module: nn.Module) -> list[tuple[str, Tensor]]:
        seen: list[tuple[str, Tensor]] = []
        module[0].weight.register_hook(lambda gradient: seen.append(("hook", gradient.clone())))
        module[0].weight.register_post_accumulate_grad_hook(
            lambda parameter: seen.append(("after", parameter.grad.clone()))
        )
        run(module, inputs, gradients)
        return seen

    # The layer is called twice per microbatch: autograd accumulates the sum, once.
    layer = build(lambda: nn.Linear(4, 4))
    inputs, gradients = example((3, 4), layer)

    def unsplit(module: nn.Module, inputs: list[Tensor], gradients: list[Tensor]) -> None:
        for x, gradient in zip(inputs, gradients, strict=True):
            torch.autograd.backward(module(x), gradient)

    twice = [nn.Sequential(each, nn.Tanh(), each) for each in (layer, copy.deepcopy(layer))]
    expected = seen_by_hooks(unsplit, twice[0])
    assert [name for name, _ in expected] == ["hook", "after"] * 3
    found = seen_by_hooks(split_gradients, twice[1])
    assert [name for name, _ in found] == [name for name, _ in expected]
    assert_same([seen for _, seen in found], [seen for _, seen in expected])


def test_a_hook_can_change_the_gradient() -> None:
    module = build(lambda: nn.Linear(4, 4))
    inputs, gradients = example((3, 4), module)
    expected, _ = unsplit_gradients(module, inputs, gradients)
    module.weight.register_hook(lambda gradient: 2 * gradient)
    found, _ = split_gradients(module, inputs, gradients)
    assert_same(found, {"weight": 2 * expected["weight"], "bias": expected["bias"]})


def test_frozen_parameters_are_not_queued() -> None:
    module = build(lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)))
    module[0].requires_grad_(False)
    module[1].weight.requires_grad_(False)
    module[2].bias.requires_grad_(False)
    inputs, gradients = example((3, 4), module)
    expected = unsplit_gradients(module, inputs, gradients)
    found = split_gradients(module, inputs, gradients)
    assert_same(found, expected)
    trained = {name for name, gradient in found[0].items() if gradient is not None}
    assert trained == {"1.bias", "2.weight"}

    deferred = DeferredWeights(module)
    deferred.convert()
    with deferred.record(0):
        torch.autograd.backward(module(inputs[0]), gradients[0])
    assert deferred.pending(0) == 1


def test_requires_grad_is_read_at_each_forward_and_at_w() -> None:
    module = build(lambda: nn.Linear(4, 4))
    deferred = DeferredWeights(module)
    deferred.convert()
    x = torch.ones(1, 4, dtype=torch.float64, requires_grad=True)
    module.weight.requires_grad_(False)
    with deferred.record(0):
        module(x).sum().backward()
    assert deferred.pending(0) == 0
    module.weight.requires_grad_(True)
    module.zero_grad()
    with deferred.record(1):
        module(x).sum().backward()
    assert deferred.pending(1) == 1
    module.bias.requires_grad_(False)
    deferred.run(1)
    assert module.bias.grad is None
    assert_same(module.weight.grad, torch.ones(4, 4, dtype=torch.float64))


def test_gradients_are_added_to_those_that_are_there() -> None:
    module = build(lambda: nn.Linear(4, 2))
    inputs, gradients = example((3, 4), module)
    expected, _ = unsplit_gradients(module, [*inputs, *inputs], [*gradients, *gradients])
    split_gradients(module, inputs, gradients)
    there = module.weight.grad
    found, _ = split_gradients(module, inputs, gradients)
    assert_same(found, expected)
    assert found["weight"] is there


# --- inputs, outputs and graphs


@pytest.mark.parametrize(("upstream", "in_b"), [(True, 2), (False, 1)])
def test_without_gradients_upstream_b_computes_only_what_is_needed(
    upstream: bool, in_b: int
) -> None:
    module = build(lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)))
    inputs, gradients = example((3, 4), module)
    deferred = DeferredWeights(module)
    deferred.convert()
    with deferred.record(0):
        output = module(inputs[0].detach().requires_grad_(upstream))
    with products() as computed:
        torch.autograd.backward(output, gradients[0])
    assert computed == {"mm": in_b}
    with products() as computed:
        deferred.run(0)
    assert computed == {"mm": 2}


def test_X24_each_of_several_outputs_has_its_own_gradient() -> None:
    class Outputs(nn.Module):
        """a, b = chunk([w1 x, w2 x])."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1, 2, bias=False)

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return self.layer(x).chunk(2, dim=-1)

    module = Outputs()
    deferred = DeferredWeights(module)
    deferred.convert()
    x = torch.tensor([[2.0]], requires_grad=True)
    with deferred.record(0):
        a, b = module(x)
    torch.autograd.backward((a, b), (torch.ones(1, 1), torch.full((1, 1), 10.0)))
    deferred.run(0)
    assert module.layer.weight.grad.tolist() == [[2.0], [20.0]]
    assert x.grad is not None


def test_an_output_without_use_gets_no_gradient() -> None:
    module = build(lambda: nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]))
    deferred = DeferredWeights(module)
    deferred.convert()
    x = torch.ones(1, 2, dtype=torch.float64)
    with deferred.record(0):
        used, unused = module[0](x), module[1](x)
    used.sum().backward()
    deferred.run(0)
    assert unused.requires_grad
    assert module[0].weight.grad is not None
    assert module[1].weight.grad is None


class Checkpointed(nn.Module):
    """Computes its part again in the backward."""

    def __init__(self, part: nn.Module, *, reentrant: bool) -> None:
        super().__init__()
        self.part = part
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = checkpoint(self.part, x, use_reentrant=self.reentrant)
        return output


@pytest.mark.parametrize("b_is_recorded", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_computes_nothing_twice_and_counts_nothing_twice(
    reentrant: bool, b_is_recorded: bool
) -> None:
    part = build(lambda: nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 4)))
    module = nn.Sequential(build(lambda: nn.Linear(4, 4)), Checkpointed(part, reentrant=reentrant))
    inputs, gradients = example((3, 4), module, microbatches=1)
    expected = unsplit_gradients(module, inputs, gradients)

    deferred = DeferredWeights(module)
    deferred.convert()
    x = inputs[0].detach().requires_grad_()
    with products() as forward, deferred.record(0):
        output = module(x)
    with products() as backward, deferred.record(0 if b_is_recorded else None):
        torch.autograd.backward(output, gradients[0])
    with products() as weights:
        deferred.run(0)
    assert forward == {"addmm": 3}
    # Reentrant checkpointing computes all of its part again, the other stops before the last
    # layer, as without the split. The former builds its graph in B: without a record, unsplit.
    unsplit = reentrant and not b_is_recorded
    assert backward == {"addmm": 2 if reentrant else 1, "mm": 3 + (2 if unsplit else 0)}
    assert weights == {"mm": 1 if unsplit else 3}
    deferred.restore()
    assert_same((gradients_of(module), [x.grad]), expected)


class Square(torch.autograd.Function):
    """x * x, with its own backward, which is counted."""

    backwards = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        Square.backwards += 1
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


def test_custom_functions_of_the_module_run_once() -> None:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.second(Square.apply(self.first(x)))
            return output

    module = build(Module)
    inputs, gradients = example((3, 4), module)
    expected = unsplit_gradients(module, inputs, gradients)
    before = Square.backwards
    found = split_gradients(module, inputs, gradients)
    assert Square.backwards - before == len(inputs)
    assert_same(found, expected)


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight:UserWarning")
def test_under_autocast_the_layers_compute_in_its_type() -> None:
    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv1d(3, 3, 3, padding=1), nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 4)
        )

    module = build(make, torch.float32)
    inputs, gradients = example((2, 3, 4), module)
    with torch.autocast("cpu", torch.bfloat16):
        output = module(inputs[0])
    assert output.dtype == torch.bfloat16
    gradients = [gradient.bfloat16() for gradient in gradients]

    def run(module: nn.Module, deferred: DeferredWeights | None) -> Any:
        leaves = [x.detach().requires_grad_() for x in inputs]
        for index, (x, gradient) in enumerate(zip(leaves, gradients, strict=True)):
            with torch.autocast("cpu", torch.bfloat16):
                if deferred is None:
                    output = module(x)
                else:
                    with deferred.record(index):
                        output = module(x)
            torch.autograd.backward(output, gradient)
        if deferred is not None:
            for index in range(len(inputs)):
                deferred.run(index)
        return gradients_of(module), [x.grad for x in leaves]

    expected = run(copy.deepcopy(module), None)
    assert expected[0]["1.weight"].dtype == torch.float32
    deferred = DeferredWeights(module)
    deferred.convert()
    assert_same(run(module, deferred), expected)


def test_outside_of_a_record_and_without_gradients_a_converted_module_is_the_module() -> None:
    module = build(transformer_like)
    x = torch.tensor([[1, 2, 3]])
    gradient = torch.randn_like(module(x))
    expected = unsplit_gradients(module, [x], [gradient])
    output = module(x)
    deferred = DeferredWeights(module)
    deferred.convert()
    with torch.no_grad(), deferred.record(0):
        assert_same(module(x), output.detach())
    assert not module(x).is_leaf
    torch.autograd.backward(module(x), gradient)
    assert_same((gradients_of(module), [None]), expected)
    assert deferred.pending(0) == 0


def test_a_second_backward_through_a_kept_graph_counts_again() -> None:
    module = build(lambda: nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
    deferred = DeferredWeights(module)
    deferred.convert()
    with deferred.record(0):
        output = module(torch.ones(1, 2, dtype=torch.float64)).sum()
    output.backward(retain_graph=True)
    output.backward()
    assert deferred.pending(0) == 6
    deferred.run(0)
    assert module[1].bias.grad.tolist() == [2.0, 2.0]
    assert module[0].bias.grad.tolist() == pytest.approx([0.0, 0.0])


# --- memory


def tracked(rows: int, columns: int) -> tuple[bytearray, Tensor]:
    """A buffer and a tensor in it; the buffer has one reference more while it is in use."""
    buffer = bytearray(rows * columns * 8)
    return buffer, torch.frombuffer(buffer, dtype=torch.float64).view(rows, columns)


def test_after_b_only_what_w_needs_is_held_and_after_w_nothing() -> None:
    module = build(lambda: nn.Sequential(nn.GELU(), nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)))
    deferred = DeferredWeights(module)
    deferred.convert()
    of_input, x = tracked(3, 4)
    of_gradient, gradient = tracked(3, 2)
    unused = sys.getrefcount(bytearray(1)) + 1
    with deferred.record(0):
        output = module(x.requires_grad_())
    torch.autograd.backward(output, gradient)
    del x, gradient, output
    # The first activation is of no use to W, the last gradient is.
    assert sys.getrefcount(of_input) == unused
    assert sys.getrefcount(of_gradient) == unused + 1
    # Inputs of 4 and 8 numbers per row, gradients of outputs of 8 and 2.
    assert deferred.bytes(0) == 3 * (4 + 8 + 8 + 2) * 8
    assert deferred.bytes(1) == 0
    deferred.run(0)
    assert (deferred.bytes(0), deferred.pending(0)) == (0, 0)
    assert sys.getrefcount(of_gradient) == unused


@pytest.mark.parametrize("name", ["layer norm", "group norm", "rms norm"])
def test_norms_keep_gradients_and_no_activations(name: str) -> None:
    make, shape = SPLIT_LAYERS[name]
    module = build(make)
    inputs, gradients = example(shape, module)
    deferred = DeferredWeights(module)
    deferred.convert()
    with deferred.record(0):
        output = module(inputs[0])
    torch.autograd.backward(output, gradients[0])
    assert deferred.bytes(0) == sum(parameter.nbytes for parameter in module.parameters())
    assert set(gradients_of(module).values()) == {None}


@pytest.mark.parametrize(("limit", "portions"), [(0, [["bias", "weight"]] * 3), (10**6, None)])
def test_gradients_reach_their_parameters_in_portions(
    limit: int, portions: list[list[str]] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small limit: layer by layer; a large one: all at once."""
    monkeypatch.setattr(split, "ACCUMULATED_TOGETHER", limit)
    module = build(lambda: nn.Sequential(*(nn.Linear(2, 2) for _ in range(3))))
    names = {parameter: name for name, parameter in module.named_parameters()}
    seen: list[list[str]] = []
    accumulate = split._accumulate

    def record(gradients: dict[nn.Parameter, Tensor]) -> None:
        seen.append(sorted(names[parameter].partition(".")[2] for parameter in gradients))
        accumulate(gradients)

    monkeypatch.setattr(split, "_accumulate", record)
    inputs, gradients = example((3, 2), module, microbatches=1)
    expected = unsplit_gradients(module, inputs, gradients)
    assert_same(split_gradients(module, inputs, gradients), expected)
    assert seen == (portions or [["bias"] * 3 + ["weight"] * 3])


def test_memory_that_several_calls_hold_counts_once_and_parameters_do_not() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.position = nn.Parameter(torch.ones(3, 4))
            self.first, self.second = nn.Linear(4, 2), nn.Linear(4, 2)
            self.third = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.first(x) + self.second(x) + self.third(self.position)
            return output

    module = build(Heads)
    deferred = DeferredWeights(module)
    deferred.convert()
    with deferred.record(0):
        output = module(torch.ones(3, 4, dtype=torch.float64))
    torch.autograd.backward(output, torch.ones_like(output))
    assert deferred.pending(0) == 3
    assert deferred.bytes(0) == 3 * (4 + 2) * 8  # one input, one gradient for all three


def test_microbatches_are_apart_and_can_be_forgotten() -> None:
    module = build(lambda: nn.Linear(1, 1, bias=False))
    deferred = DeferredWeights(module)
    deferred.convert()
    for key, value in (((0, 1), 3.0), ((0, 2), 5.0), ((1, 1), 7.0)):
        with deferred.record(key):
            module(torch.full((1, 1), value, dtype=torch.float64)).sum().backward()
    deferred.run((0, 2))
    assert module.weight.grad.item() == 5.0
    deferred.run((0, 1))
    assert module.weight.grad.item() == 8.0
    deferred.clear()
    assert deferred.pending((1, 1)) == 0
    deferred.run((1, 1))
    assert module.weight.grad.item() == 8.0
