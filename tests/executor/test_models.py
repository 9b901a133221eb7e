"""The bundled models: one model for every number of stages, and the protocol of a factory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from schedopt.errors import InputError
from schedopt.executor.models import PipelineModel, mlp, model_of, transformer
from schedopt.executor.split import DeferredWeights


def loss_of(model: PipelineModel, microbatches: int = 2) -> tuple[Tensor, nn.Module]:
    """Loss and module after a backward of all stages one after the other."""
    module = model.whole()
    loss = model.loss_fn(module(*model.inputs(microbatches)), model.target(microbatches))
    loss.backward()
    return loss.detach(), module


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("stages", [2, 3, 5])
def test_a_transformer_is_the_same_model_for_every_number_of_stages(
    stages: int, tied: bool
) -> None:
    def make(stages: int) -> PipelineModel:
        return transformer(stages, layers=5, width=8, heads=2, tied=tied, dtype=torch.float64)

    expected, one = loss_of(make(1))
    found, module = loss_of(make(stages))
    assert found == expected

    def gradients(module: nn.Module) -> dict[str, Tensor]:
        by_name = {name.partition(".")[2]: p.grad for name, p in module.named_parameters()}
        return {name: gradient for name, gradient in by_name.items() if gradient is not None}

    assert len(gradients(one)) == len(list(one.parameters()))
    torch.testing.assert_close(gradients(module), gradients(one), rtol=0, atol=0)


def test_an_mlp_is_the_same_model_for_every_number_of_stages() -> None:
    losses = {float(loss_of(mlp(stages, layers=4, width=8))[0]) for stages in (1, 2, 3, 4)}
    assert len(losses) == 1


def test_layers_are_spread_evenly_and_named_by_their_place_in_the_model() -> None:
    model = mlp(3, layers=7)
    names = [list(dict(model.build(stage).named_children())) for stage in range(3)]
    assert [len(each) for each in names] == [2, 2, 3]
    assert [*names[0], *names[1], *names[2]] == [f"layer_{layer}" for layer in range(7)]


def test_the_seed_decides_weights_and_data_and_leaves_the_state_of_torch_alone() -> None:
    state = torch.get_rng_state()
    one, same, other = transformer(2, seed=1), transformer(2, seed=1), transformer(2, seed=2)
    weights = [model.build(1).state_dict()["head.weight"] for model in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(one.inputs(2)[0], same.inputs(2)[0])
    assert not torch.equal(one.inputs(2)[0], other.inputs(2)[0])
    assert not torch.equal(one.inputs(2)[0], one.target(2))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_batch_has_the_rows_of_its_microbatches() -> None:
    assert transformer(2, rows=3, length=5).inputs(4)[0].shape == (12, 5)
    assert mlp(2, rows=3, width=5, dtype=torch.bfloat16).target(4).shape == (12, 5)
    assert mlp(2, dtype=torch.bfloat16).inputs(1)[0].dtype == torch.bfloat16


def test_tied_weights_are_declared_and_equal() -> None:
    model = transformer(3, tied=True)
    assert model.shared == (((0, "embedding.tokens.weight"), (2, "head.weight")),)
    first, last = (model.build(stage).get_parameter(name) for stage, name in model.shared[0])
    assert torch.equal(first, last)
    assert first is not last
    single = transformer(1, tied=True)
    assert single.shared == ()
    module = single.build(0)
    assert module.get_parameter("embedding.tokens.weight") is module.get_parameter("head.weight")


@pytest.mark.parametrize("model", [transformer(2), mlp(2)])
def test_every_layer_of_the_bundled_models_is_split(model: PipelineModel) -> None:
    for stage in range(2):
        assert DeferredWeights(model.build(stage)).unsplit == ()


def wrong_count(stages: int, *, device: str) -> PipelineModel:
    return mlp(stages + 1, device=device)


def no_model(stages: int, *, device: str) -> list[int]:
    return [stages]


def test_a_factory_is_found_by_its_name_and_takes_options() -> None:
    model = model_of("schedopt.executor.models:mlp", 2, device="cpu", width=16)
    assert model.stages == 2
    assert model.inputs(1)[0].shape == (4, 16)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("schedopt.executor.models", "must be MODULE:FACTORY that can be imported"),
        ("schedopt.executor.nowhere:mlp", "No module named 'schedopt.executor.nowhere'"),
        ("schedopt.executor.models:gpt", "has no attribute 'gpt'"),
        (f"{__name__}:pytest", "must be a function; pytest is a module"),
        (f"{__name__}:wrong_count", "must return 2 stages, not 3"),
        (f"{__name__}:no_model", "must return a PipelineModel, not list"),
    ],
)
def test_a_wrong_factory_is_named_with_what_is_wrong(name: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        model_of(name, 2, device="cpu")
    assert f"model = {name}: " in str(caught.value)
    assert message in str(caught.value)


def test_numbers_that_make_no_model_are_refused_together() -> None:
    with pytest.raises(InputError, match="layers = 1: must be at least one a stage, 2"):
        mlp(2, layers=1)
    with pytest.raises(InputError, match="width = 6: must be a multiple of 4"):
        transformer(1, width=6)
    with pytest.raises(InputError, match="stages = 0: must be at least 1"):
        transformer(0)
