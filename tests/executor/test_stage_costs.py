"""Costs of a stage: bytes by a hand count, times that are there."""

from __future__ import annotations

import pytest
import torch

from schedopt.executor.factory import ModelError
from schedopt.executor.models import PipelineModel, mlp
from schedopt.executor.stage_costs import StageCosts, first_boundary, measure_stage
from tests.executor import user_models

WIDTH, ROWS = 8, 3
TENSOR = WIDTH * ROWS * 4
"""Bytes of what is between two layers, for a microbatch in float32."""


def costs_of(model: PipelineModel, repeats: int = 2) -> list[StageCosts]:
    inputs = first_boundary("a model", model)
    result = []
    for stage in range(model.stages):
        costs, inputs = measure_stage(
            "a model", model, stage, inputs, device=torch.device("cpu"), warm_up=1, repeats=repeats
        )
        result.append(costs)
    return result


@pytest.fixture(scope="module")
def of_mlp() -> list[StageCosts]:
    """Three stages of two layers each: linear, tanh, linear, tanh."""
    return costs_of(mlp(3, width=WIDTH, rows=ROWS))


def test_after_f_the_input_and_what_each_tanh_gave_is_held(of_mlp: list[StageCosts]) -> None:
    # The output of a tanh is what the tanh and the linear layer after it need; the input of
    # stage 0 is the batch, and the target is part of it.
    for costs in of_mlp:
        expected = 2 * TENSOR + (TENSOR if costs.stage else 0)
        assert costs.split is not None
        assert costs.split.held_bytes["F"] == costs.fused.held_bytes["F"] == expected


def test_after_b_the_inputs_of_the_linear_layers_and_two_gradients_are_held(
    of_mlp: list[StageCosts],
) -> None:
    for costs in of_mlp:
        assert costs.split is not None
        inputs = 2 * TENSOR if costs.stage else TENSOR
        assert costs.split.held_bytes["B"] == inputs + 2 * TENSOR
        assert list(costs.split.held_bytes) == ["F", "B"]
        assert list(costs.fused.held_bytes) == ["F"]


def test_parameters_and_boundary_tensors_have_their_exact_sizes(of_mlp: list[StageCosts]) -> None:
    parameters = 2 * (WIDTH * WIDTH + WIDTH) * 4
    assert {costs.parameter_bytes for costs in of_mlp} == {parameters}
    assert {costs.gradient_bytes for costs in of_mlp} == {parameters}
    assert {costs.buffer_bytes for costs in of_mlp} == {0}
    assert [costs.output_bytes for costs in of_mlp] == [TENSOR, TENSOR, 0]
    assert [costs.input_gradient_bytes for costs in of_mlp] == [0, TENSOR, TENSOR]


def test_every_kind_of_both_forms_is_timed(of_mlp: list[StageCosts]) -> None:
    for costs in of_mlp:
        assert costs.split is not None
        assert list(costs.split.timings) == ["F", "B", "W"]
        assert list(costs.fused.timings) == ["F", "BW"]
        for timing in (*costs.split.timings.values(), *costs.fused.timings.values()):
            assert timing.median_us > 0
            assert timing.spread >= 0


def test_a_frozen_parameter_has_no_gradient_and_a_buffer_is_counted() -> None:
    model = user_models.affine(2, device="cpu", width=WIDTH)

    def build(stage: int) -> torch.nn.Module:
        return model.build(stage).requires_grad_(stage == 0)

    costs = costs_of(PipelineModel(2, build, model.inputs, model.target, model.loss_fn), repeats=1)
    assert [each.parameter_bytes for each in costs] == [4 * WIDTH, 4 * WIDTH]
    assert [each.gradient_bytes for each in costs] == [4 * WIDTH, 0]
    assert [each.buffer_bytes for each in costs] == [4 * WIDTH, 4 * WIDTH]


def test_a_stage_that_can_not_be_split_has_only_bw() -> None:
    (costs,) = costs_of(user_models.affine(1, device="cpu"), repeats=1)
    assert costs.split is None
    assert list(costs.fused.timings) == ["F", "BW"]
    assert costs.unsplit[0][0] == ""


@pytest.mark.parametrize(
    ("factory", "place", "message"),
    [
        (user_models.failing, "stage 1, op F", "ArithmeticError: no such sum"),
        (user_models.failing_backward, "stage 1, op B", "ArithmeticError: no way back"),
    ],
)
def test_what_a_stage_raises_is_named_with_its_op_and_line(
    factory: object, place: str, message: str
) -> None:
    with pytest.raises(ModelError) as caught:
        costs_of(factory(3, device="cpu"))  # type: ignore[operator]
    (fault,) = caught.value.faults
    assert (fault.field, caught.value.source) == (place, "a model")
    first, *places = fault.valid.splitlines()
    assert first == message
    assert any("user_models.py" in line and "raise ArithmeticError" in line for line in places)
    assert not any("stage_costs.py" in line or "torch" in line for line in places)
