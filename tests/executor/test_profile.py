"""A profile as a problem: it loads, it is solved, and its memory is what was counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schedopt import check, solve
from schedopt.executor.factory import ModelError
from schedopt.executor.link import Link
from schedopt.executor.local import LocalRanks
from schedopt.executor.profile import Profile, profile_model
from schedopt.executor.stage_costs import FormCosts, StageCosts, Timing
from schedopt.problem import Problem

WIDTH, ROWS = 16, 2
TENSOR = WIDTH * ROWS * 4
PARAMETERS = 2 * (WIDTH * WIDTH + WIDTH) * 4
"""Bytes of the two layers of a stage."""

LAYOUT = Problem.uniform(devices=2, microbatches=3, placement="v", capacity=10**6)


@pytest.fixture(scope="module")
def measured(ranks: LocalRanks) -> Profile:
    """An MLP of four stages, measured by two ranks at a time."""
    return profile_model(
        "schedopt.executor.models:mlp",
        4,
        options={"width": WIDTH, "rows": ROWS},
        ranks=2,
        warm_up=1,
        repeats=3,
        local=ranks,
    )


def test_the_problem_can_be_saved_loaded_and_solved(measured: Profile, tmp_path: Path) -> None:
    problem = measured.problem(LAYOUT)
    problem.save(tmp_path / "problem.json")
    assert Problem.load(tmp_path / "problem.json") == problem
    assert (problem.time_unit, problem.memory_unit) == ("us", "bytes")
    assert problem.device_of == (0, 1, 1, 0)
    assert problem.capacity == (10**6, 10**6)
    solution = solve(problem, deterministic_limit=0.1, workers=1)
    assert solution.schedule is not None
    assert check(solution.schedule) == ()


def test_every_duration_and_lag_is_positive(measured: Profile) -> None:
    problem = measured.problem(LAYOUT)
    for data in problem.stage_data:
        assert list(data.durations) == ["F", "B", "W"]
        assert all(duration > 0 for duration in data.durations.values())
    for stage in (0, 2):
        assert problem.lag_between(stage, stage + 1) > 0
        assert problem.lag_between(stage + 1, stage) > 0


def test_memory_is_what_a_hand_count_gives(measured: Profile) -> None:
    # After F the outputs of two tanh, and the input unless it is the batch; after B the inputs of
    # two linear layers and the gradients of their outputs.
    problem = measured.problem(LAYOUT)
    for stage, data in enumerate(problem.stage_data):
        after_f = 3 * TENSOR if stage else 2 * TENSOR
        after_b = 4 * TENSOR if stage else 3 * TENSOR
        assert data.memory == {"F": after_f, "B": after_b - after_f, "W": -after_b}


@pytest.mark.parametrize(("factor", "copies"), [(0, 2), (1, 3), (2, 4), (0.5, 2.5)])
def test_static_memory_is_parameters_gradients_and_optimizer_state(
    measured: Profile, factor: float, copies: float
) -> None:
    problem = measured.problem(LAYOUT, optimizer_factor=factor)
    assert problem.static == (2 * copies * PARAMETERS, 2 * copies * PARAMETERS)


def test_fused_stages_have_bw_alone(measured: Profile) -> None:
    for data in measured.problem(LAYOUT, split=False).stage_data:
        assert list(data.durations) == ["F", "BW"]
        assert data.memory["BW"] == -data.memory["F"]


def test_the_profile_is_json_with_all_that_was_measured(measured: Profile) -> None:
    data = json.loads(json.dumps(measured.to_dict()))
    assert [stage["stage"] for stage in data["stages"]] == [0, 1, 2, 3]
    for stage, costs in zip(data["stages"], measured.stages, strict=True):
        assert costs.split is not None
        assert stage["split"]["held_bytes"] == costs.split.held_bytes
        assert stage["fused"]["timings"]["BW"]["median_us"] == costs.fused.timings["BW"].median_us
    assert [link["latency_us"] for link in data["links"]] == [
        link.latency_us for link in measured.links or ()
    ]


def test_what_a_stage_raises_on_a_rank_is_a_fault_of_the_model(ranks: LocalRanks) -> None:
    name = "tests.executor.user_models:failing"
    with pytest.raises(ModelError, match="stage 1, op F: ArithmeticError: no such sum") as caught:
        profile_model(name, 3, links=False, repeats=1, local=ranks)
    assert caught.value.source == name


def given(stage: int, *, is_split: bool) -> StageCosts:
    """Costs that are made up."""
    fused = FormCosts({"F": Timing(10.04, 0), "BW": Timing(30.0, 0)}, {"F": 7}, {"F": 0, "BW": 5})
    split = FormCosts(
        {"F": Timing(11.0, 0), "B": Timing(16.0, 0), "W": Timing(0.0, 0)},
        {"F": 7, "B": 9},
        {"F": 3, "B": 0, "W": 0},
    )
    return StageCosts(stage, split if is_split else None, fused, 100, 60, 8, 2000, 1000, ())


def test_each_number_stands_where_the_problem_wants_it() -> None:
    links = Link(5.0, 100.0), Link(6.0, 100.0)
    stages = given(0, is_split=True), given(1, is_split=False)
    profile = Profile("a:b", {}, stages, links, "a device", 1, 1)
    problem = profile.problem(Problem.uniform(devices=2, microbatches=2), optimizer_factor=1)
    first, second = problem.stage_data
    # Times are rounded to tenths, and nothing takes no time.
    assert {kind: float(d) for kind, d in first.durations.items()} == {"F": 11, "B": 16, "W": 0.1}
    assert first.memory == {"F": 7, "B": 2, "W": -9}
    assert first.transient == {"F": 3, "B": 0, "W": 0}
    assert {kind: float(d) for kind, d in second.durations.items()} == {"F": 10, "BW": 30}
    assert second.memory == {"F": 7, "BW": -7}
    assert second.transient == {"F": 0, "BW": 5}
    assert (problem.lag_between(0, 1), problem.lag_between(1, 0)) == (25, 16)
    assert problem.static == (100 + 60 + 60 + 8,) * 2
    alone = Profile("a:b", {}, stages, None, "a device", 1, 1).problem(problem)
    assert (alone.lag_between(0, 1), alone.lag_between(1, 0)) == (0, 0)
