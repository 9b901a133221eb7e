"""Clipping and overflow over all stages, here with the other ranks made up."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from schedopt.executor.clipping import clip, spread_overflow

CPU = torch.device("cpu")


class OtherRank:
    """Another rank with a number of its own."""

    def __init__(self, number: float) -> None:
        self.number = number

    def __call__(self, value: Tensor, *, is_max: bool) -> Tensor:
        return torch.clamp(value, min=self.number) if is_max else value + self.number


def parameters_with(*gradients: list[float] | None) -> list[nn.Parameter]:
    found = []
    for gradient in gradients:
        parameter = nn.Parameter(torch.zeros(len(gradient or [0.0])))
        parameter.grad = None if gradient is None else torch.tensor(gradient)
        found.append(parameter)
    return found


@pytest.mark.parametrize(
    ("norm_type", "elsewhere", "expected"), [(2.0, 144.0, 13.0), (1.0, 5.0, 12.0)]
)
def test_the_norm_is_that_of_all_ranks(norm_type: float, elsewhere: float, expected: float) -> None:
    parameters = parameters_with([3.0], None, [0.0, 4.0])
    norm = clip(parameters, (), 1.0, norm_type, CPU, OtherRank(elsewhere))
    assert norm == expected
    assert parameters[0].grad is not None
    assert parameters[0].grad.item() == pytest.approx(3 / expected)
    assert parameters[1].grad is None


def test_the_largest_entry_of_all_ranks_is_a_norm() -> None:
    assert clip(parameters_with([3.0]), (), 1.0, float("inf"), CPU, OtherRank(7.0)) == 7.0


def test_what_another_rank_counts_is_scaled_and_not_counted() -> None:
    counted, copy = parameters_with([3.0], [4.0])
    assert clip([counted, copy], {copy}, 1.0, 2.0, CPU, OtherRank(16.0)) == 5.0
    assert copy.grad is not None
    assert copy.grad.item() == pytest.approx(0.8)


def test_small_gradients_stay_as_they_are() -> None:
    (parameter,) = parameters_with([0.25])
    clip([parameter], (), 1.0, 2.0, CPU, OtherRank(0.0))
    assert parameter.grad is not None
    assert parameter.grad.item() == 0.25


def test_a_rank_without_gradients_takes_part() -> None:
    assert clip([], (), 1.0, 2.0, CPU, OtherRank(4.0)) == 2.0
    spread_overflow([], CPU, OtherRank(1.0))


def test_an_overflow_of_another_rank_becomes_one_here() -> None:
    parameters = parameters_with(None, [1.0, 2.0], [3.0])
    spread_overflow(parameters, CPU, OtherRank(1.0))
    assert parameters[1].grad is not None
    assert not parameters[1].grad.isfinite().all()


def test_without_an_overflow_nothing_changes() -> None:
    (parameter,) = parameters_with([1.0, 2.0])
    spread_overflow([parameter], CPU, OtherRank(0.0))
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_an_overflow_of_this_rank_is_told(value: float) -> None:
    told = []

    def tell(found: Tensor, *, is_max: bool) -> Tensor:
        told.append((found.item(), is_max))
        return found

    spread_overflow(parameters_with([1.0], [value]), CPU, tell)
    assert told == [(1.0, True)]
