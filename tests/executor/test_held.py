"""Memory of a step stays within the plan of its schedule, and does not grow."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from schedopt import Problem, Schedule
from schedopt.classic import CLASSIC
from schedopt.executor.held import HeldStorages
from schedopt.executor.local import LocalRanks
from tests.executor import features

ROWS = 3
PLACEMENT = {
    "Interleaved 1F1B": "interleaved",
    "Wave": "wave",
    **dict.fromkeys(["ZB-V", "V-Half", "V-Min", "DualPipeV"], "v"),
}
M = 8


def schedule_of(name: str, m: int) -> Schedule:
    placement = PLACEMENT.get(name, "linear")
    return CLASSIC[name](Problem.uniform(devices=4, microbatches=m, placement=placement))


@pytest.fixture(scope="module")
def found(ranks: LocalRanks) -> dict[tuple[str, int], list[Any]]:
    """What each rank held, by schedule and number of microbatches."""
    keys = [(name, m) for name in CLASSIC for m in (M, 2 * M)]
    results = ranks.run(features.memories_of, [schedule_of(*key) for key in keys], ROWS)
    return {key: [of_rank[k] for of_rank in results] for k, key in enumerate(keys)}


@pytest.mark.parametrize("name", CLASSIC)
def test_what_is_held_stays_within_the_plan_of_the_schedule(
    found: dict[tuple[str, int], list[Any]], name: str
) -> None:
    for m in (M, 2 * M):
        for rank, result in enumerate(found[name, m]):
            for stats in result["stats"]:
                planned = stats.planned_microbatches
                assert all(stats.held_microbatches[s] <= planned[s] for s in planned)
                limit = sum(planned[stage] * size for stage, size in result["one"].items())
                assert 0 < stats.activation_bytes <= limit, (name, m, rank)


@pytest.mark.parametrize("name", CLASSIC)
def test_nothing_is_left_after_a_step_and_nothing_grows_from_step_to_step(
    found: dict[tuple[str, int], list[Any]], name: str
) -> None:
    for result in found[name, M]:
        learning, second, third = result["stats"]
        for stats in (learning, second, third):
            assert stats.activation_bytes_left == 0
            assert stats.boundary_messages_left == 0
        assert second == third


@pytest.mark.parametrize("name", [name for name in CLASSIC if name != "GPipe"])
def test_M08_what_is_held_does_not_depend_on_the_number_of_microbatches(
    found: dict[tuple[str, int], list[Any]], name: str
) -> None:
    for few, many in zip(found[name, M], found[name, 2 * M], strict=True):
        few, many = few["stats"][-1], many["stats"][-1]
        planned = few.planned_microbatches == many.planned_microbatches
        assert few.boundary_messages <= few.planned_boundary_messages
        assert many.boundary_messages <= many.planned_boundary_messages
        if planned:  # the plan itself may need all 8 microbatches
            assert few.activation_bytes == many.activation_bytes
        if few.planned_boundary_messages == many.planned_boundary_messages:
            assert few.boundary_bytes == many.boundary_bytes


def test_a_storage_counts_once_and_until_its_last_use_is_gone() -> None:
    weight = torch.ones(4, 4, requires_grad=True)
    x = torch.ones(2, 4, requires_grad=True)
    held = HeldStorages([weight])
    with held.counting():
        y = x * x  # saves x twice
        z = y @ weight  # saves y and the weight
    assert held.bytes == 2 * 2 * 4 * 4
    del y
    z.sum().backward()
    assert held.bytes == 0


def test_views_of_one_storage_count_once_as_a_whole() -> None:
    x = torch.ones(8, requires_grad=True)
    held = HeldStorages([])
    with held.counting():
        total = (x[:2] ** 2).sum() + (x[2:4] ** 2).sum()
    assert held.bytes == 8 * 4
    del total
    assert held.bytes == 0
