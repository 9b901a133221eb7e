from __future__ import annotations

from fractions import Fraction

import pytest

from schedopt.errors import ProblemError
from schedopt.layer_costs import problem_of_stages, read_layer, read_layers


def test_one_number_counts_for_every_layer_and_a_list_for_each() -> None:
    layers = read_layers({"durations": {"F": [1, 2.5], "BW": 3}, "memory": {"static": [4, 5]}}, 2)
    assert [layer.durations for layer in layers] == [
        {"F": 1, "BW": 3},
        {"F": Fraction(5, 2), "BW": 3},
    ]
    assert [layer.memory for layer in layers] == [{"F": 1, "BW": -1}] * 2
    assert [layer.static for layer in layers] == [4, 5]


def test_memory_of_a_layer_must_sum_to_zero() -> None:
    with pytest.raises(ProblemError, match=r"layers: of layer 1 sums to 1, not 0"):
        read_layers({"durations": {"F": 1, "B": 1, "W": 1}, "memory": {"B": 0, "W": [-1, 0]}}, 2)


def test_each_layer_without_a_backward_is_named() -> None:
    with pytest.raises(ProblemError) as error:
        read_layers({"durations": {"F": 1, "B": [None, 1, None], "W": [None, 1, None]}}, 3)
    assert [fault.valid for fault in error.value.faults] == [
        "layer 0 has neither B and W nor BW",
        "layer 2 has neither B and W nor BW",
    ]


def test_faults_of_a_single_layer_name_its_place() -> None:
    with pytest.raises(ProblemError, match=r"head\.durations\.F = -1"):
        read_layer({"durations": {"F": -1, "BW": 1}}, place="head")


def test_a_stage_has_split_or_fused_layers_but_not_both() -> None:
    split = read_layer({"durations": {"F": 1, "B": 1, "W": 1}}, place="a")
    fused = read_layer({"durations": {"F": 1, "BW": 2}}, place="b")
    problem = problem_of_stages([[split], [fused]], devices=2, microbatches=1)
    assert problem.durations.B == (1, None)
    assert problem.durations.BW == (None, 2)
    with pytest.raises(ProblemError, match="stage 1 has layers with B and W and layers with BW"):
        problem_of_stages([[split], [split, fused]], devices=2, microbatches=1)
