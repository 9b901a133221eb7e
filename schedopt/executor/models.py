"""Models cut into stages: what the executor needs of a model, and two small ones.

A factory is a function ``factory(stages, *, device, ...) -> PipelineModel``; the command line
takes it as MODULE:FACTORY, for example ``schedopt.executor.models:transformer``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from schedopt.errors import Fault
from schedopt.executor.factory import ModelError, find_factory, naming, wrong

Parts = dict[str, Callable[[], nn.Module]]


@dataclass(frozen=True)
class PipelineModel:
    """A model cut into stages, with data to run it on.

    Attributes
    ----------
    stages
        Number of stages.
    build
        Stage -> a new module for it: the same values each time, on every rank.
    inputs
        Number of microbatches -> the arguments of the first stage for a whole batch; each tensor
        has as many rows as the microbatches have together.
    target
        Number of microbatches -> the target of that batch.
    loss_fn
        Output of the last stage and target -> loss, a mean over rows.
    shared
        Parameters that are one parameter: for each the places where it stands, (stage, name).
    """

    stages: int
    build: Callable[[int], nn.Module]
    inputs: Callable[[int], tuple[Tensor, ...]]
    target: Callable[[int], Tensor]
    loss_fn: Callable[[Any, Tensor], Tensor]
    shared: tuple[tuple[tuple[int, str], ...], ...] = ()

    def whole(self) -> nn.Sequential:
        """All stages as one module, in which a shared parameter is one object."""
        model = nn.Sequential(*(self.build(stage) for stage in range(self.stages)))
        for places in self.shared:
            paths = [f"{stage}.{name}" for stage, name in places]
            first = model.get_parameter(paths[0])
            for path in paths[1:]:
                owner, _, name = path.rpartition(".")
                setattr(model.get_submodule(owner), name, first)
        return model


def model_of(
    name: str, stages: int, *, device: torch.device | str, **options: Any
) -> PipelineModel:
    """Call the factory MODULE:FACTORY.

    Raises
    ------
    ModelError
        If there is no such factory, it raises, or it does not return a model of so many stages.
    """
    factory = find_factory(name)
    with naming(name, "the factory"):
        model = factory(stages, device=device, **options)
    if not isinstance(model, PipelineModel):
        raise wrong(name, f"must return a PipelineModel, not {type(model).__name__}")
    if model.stages != stages:
        raise wrong(name, f"must return {stages} stages, not {model.stages}")
    return model


def build_stages(name: str, model: PipelineModel, stages: Iterable[int]) -> dict[int, nn.Module]:
    """Modules of some stages.

    Raises
    ------
    ModelError
        If the model `name` raises; says for which stage.
    """
    modules = {}
    for stage in stages:
        with naming(name, f"stage {stage}, build"):
            modules[stage] = model.build(stage)
    return modules


def batch_of(
    name: str, model: PipelineModel, microbatches: int
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Inputs and target of a batch.

    Raises
    ------
    ModelError
        If the model `name` raises.
    """
    with naming(name, "inputs and target"):
        return model.inputs(microbatches), model.target(microbatches)


def transformer(
    stages: int,
    *,
    layers: int | None = None,
    width: int = 64,
    heads: int = 4,
    vocabulary: int = 128,
    length: int = 32,
    rows: int = 1,
    tied: bool = False,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> PipelineModel:
    """A causal language model: embedding, blocks with the norm first, head.

    The weights depend on the seed and not on the number of stages.

    Parameters
    ----------
    stages
        Their number.
    layers
        Number of blocks, as even as possible over the stages; by default two a stage.
    width, heads
        Of the blocks; the width is a multiple of the heads.
    vocabulary
        Number of tokens that there are.
    length
        Tokens in a row.
    rows
        Of a microbatch.
    tied
        Whether the head has the weight of the embedding; shared by the first and last stage.
    dtype, device
        Of the parameters.
    seed
        Of weights and data.
    """
    blocks = _cut(layers, stages)
    if width % heads:
        raise ModelError([Fault("width", str(width), f"must be a multiple of {heads}")])
    embedding: Parts = {"embedding": lambda: _Embedding(vocabulary, length, width)}

    def build(stage: int) -> nn.Sequential:
        parts = dict(embedding) if stage == 0 else {}
        parts |= {f"block_{layer}": lambda: _Block(width, heads) for layer in blocks[stage]}
        if stage == stages - 1:
            parts["norm"] = lambda: nn.LayerNorm(width)
            parts["head"] = lambda: nn.Linear(width, vocabulary, bias=False)
        module = _assemble(parts, seed).to(dtype=dtype)
        if tied and stage == stages - 1:
            # The same values, and in one stage the same parameter.
            first = module if stages == 1 else _assemble(embedding, seed).to(dtype=dtype)
            weight = first.get_parameter("embedding.tokens.weight")
            module.get_submodule("head").weight = weight
        return module.to(device)

    def tokens(microbatches: int, which: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed + which)
        shape = (microbatches * rows, length)
        return torch.randint(vocabulary, shape, generator=generator).to(device)

    is_shared = tied and stages > 1
    places = ((0, "embedding.tokens.weight"), (stages - 1, "head.weight"))
    return PipelineModel(
        stages,
        build,
        inputs=lambda microbatches: (tokens(microbatches, 0),),
        target=lambda microbatches: tokens(microbatches, 1),
        loss_fn=_token_loss,
        shared=(places,) if is_shared else (),
    )


def mlp(
    stages: int,
    *,
    layers: int | None = None,
    width: int = 64,
    rows: int = 4,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> PipelineModel:
    """Layers of one width, with a mean squared error.

    The weights depend on the seed and not on the number of stages.

    Parameters
    ----------
    stages
        Their number.
    layers
        Number of linear layers, as even as possible over the stages; by default two a stage.
    width
        Of every layer.
    rows
        Of a microbatch.
    dtype, device
        Of parameters and data.
    seed
        Of weights and data.
    """
    of_stage = _cut(layers, stages)

    def build(stage: int) -> nn.Sequential:
        names = [f"layer_{layer}" for layer in of_stage[stage]]
        return _assemble({name: lambda: _Layer(width) for name in names}, seed).to(device, dtype)

    def numbers(microbatches: int, which: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed + which)
        shape = (microbatches * rows, width)
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)

    return PipelineModel(
        stages,
        build,
        inputs=lambda microbatches: (numbers(microbatches, 0),),
        target=lambda microbatches: numbers(microbatches, 1),
        loss_fn=functional.mse_loss,
    )


def _cut(layers: int | None, stages: int) -> list[range]:
    """The layers of each stage, as even as possible."""
    faults = []
    if stages < 1:
        faults.append(Fault("stages", str(stages), "must be at least 1"))
    count = 2 * stages if layers is None else layers
    if count < stages:
        faults.append(Fault("layers", str(count), f"must be at least one a stage, {stages}"))
    if faults:
        raise ModelError(faults)
    return [range(s * count // stages, (s + 1) * count // stages) for s in range(stages)]


def _assemble(parts: Parts, seed: int) -> nn.Sequential:
    """A sequence of named parts, the values of each drawn from the seed and its name."""
    module = nn.Sequential()
    with torch.random.fork_rng(devices=[]):
        for name, make in parts.items():
            torch.manual_seed(zlib.crc32(f"{seed} {name}".encode()))
            module.add_module(name, make())
    return module


def _token_loss(scores: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), target.flatten())


class _Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


class _Embedding(nn.Module):
    """Of tokens and of their places."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(length, width)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        summed: Tensor = self.tokens(tokens) + self.places(places)
        return summed


class _Block(nn.Module):
    """Causal attention and a feed-forward part of four times the width."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.attention_in = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.feed_norm = nn.LayerNorm(width)
        self.feed_in = nn.Linear(width, 4 * width)
        self.feed_out = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention_out(self._attention(self.attention_in(self.attention_norm(x))))
        fed: Tensor = self.feed_out(functional.gelu(self.feed_in(self.feed_norm(x))))
        return x + fed

    def _attention(self, joined: Tensor) -> Tensor:
        rows, length, _ = joined.shape
        parts = joined.view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return mixed.transpose(1, 2).reshape(rows, length, -1)
