"""A step of any schedule gives the gradients of one process."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from schedopt import NotApplicableError, Problem, Schedule, solve
from schedopt.classic import CLASSIC
from schedopt.executor.local import LocalRanks
from schedopt.graph import build_graph
from tests.executor import features, steps
from tests.executor.steps import Case
from tests.problems import random_orders

EXACT = 1e-12
"""Largest difference in float64, relative to the largest entry of a gradient."""

MODELS = {"mlp": (steps.mlp, steps.numbers), "transformer": (steps.transformer, steps.tokens)}


def problem_of(p: int, m: int, placement: str, *, split: bool, **fields: Any) -> Problem:
    durations = {"F": 2, "B": 2, "W": 1} if split else {"F": 2, "BW": 3}
    return Problem(
        devices=p, microbatches=m, placement=placement, durations=durations, lag=1, **fields
    )


def classic_schedules(p: int, m: int, *, split: bool) -> list[Schedule]:
    """Every classic schedule that is defined for p, m and the form of the backward."""
    found = []
    for build in CLASSIC.values():
        for placement in ("linear", "interleaved", "v", "wave"):
            try:
                found.append(build(problem_of(p, m, placement, split=split)))
            except NotApplicableError:
                continue
    return found


def case_of(schedule: Schedule, model: str, **options: Any) -> Case:
    problem = schedule.problem
    form = "fused" if "BW" in problem.stage_data[0].durations else "split"
    name = f"{schedule.name} p={problem.devices} m={problem.microbatches} "
    name += f"{problem.placement_name} {form} {model}"
    return Case(name, schedule, *MODELS[model], **options)


def require_exact(ranks: LocalRanks, cases: list[Case]) -> None:
    for rank, results in enumerate(ranks.run(steps.run_cases, cases)):
        for case, result in zip(cases, results, strict=True):
            if rank >= case.schedule.problem.devices:
                assert result is None
                continue
            assert result["error"] == "", (case.name, rank)
            assert result["gradients"] <= EXACT, (case.name, rank, result)
            assert result["output"] <= EXACT, (case.name, rank, result)
            stats = result["stats"]
            assert stats.held_microbatches.keys() == stats.planned_microbatches.keys()
            for stage, held in stats.held_microbatches.items():
                assert 0 < held <= stats.planned_microbatches[stage], (case.name, rank, stage)
            assert stats.boundary_messages <= stats.planned_boundary_messages, (case.name, rank)
            assert stats.boundary_messages_left == 0


def test_gradients_are_those_of_one_process_for_every_classic_schedule(ranks: LocalRanks) -> None:
    cases = []
    for split in (True, False):
        for number, schedule in enumerate(classic_schedules(4, 4, split=split)):
            cases.append(case_of(schedule, ("mlp", "transformer")[number % 2], steps=2))
    assert len(cases) > 15
    require_exact(ranks, cases)


@pytest.mark.parametrize(("p", "m"), [(1, 1), (1, 3), (2, 1), (2, 5), (3, 2), (4, 1)])
def test_any_number_of_ranks_and_microbatches_works(ranks: LocalRanks, p: int, m: int) -> None:
    cases = [
        case_of(schedule, "mlp", steps=2)
        for split in (True, False)
        for schedule in classic_schedules(p, m, split=split)[::2]
    ]
    require_exact(ranks, cases)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_gradients_are_those_of_one_process_on_the_whole_grid(
    ranks: LocalRanks, p: int, model: str
) -> None:
    """Every classic schedule with 1 to 8 microbatches, split and fused, and solved ones."""
    for m in range(1, 9):
        schedules = [s for split in (True, False) for s in classic_schedules(p, m, split=split)]
        for placement in ("linear", "v"):
            problem = problem_of(p, m, placement, split=True, memory={"capacity": 2 * p})
            solved = solve(problem, workers=1, deterministic_limit=0.5).schedule
            assert solved is not None
            schedules.append(solved)
        require_exact(ranks, [case_of(schedule, model, steps=2) for schedule in schedules])


def random_schedule(seed: int) -> Schedule:
    """Any placement on at most 4 devices, skip connections, split and fused stages."""
    random = Random(seed)
    p, m = random.randint(1, 4), random.randint(1, 6)
    stages = random.randint(1, p + 3)
    fused = [random.random() < 0.3 for _ in range(stages)]
    pairs = [(s, t) for s in range(stages) for t in range(s + 2, stages)]
    problem = Problem(
        devices=p,
        microbatches=m,
        placement=[random.randrange(p) for _ in range(stages)],
        durations={
            "F": [random.randint(0, 4) for _ in fused],
            "B": [None if f else random.randint(0, 4) for f in fused],
            "W": [None if f else random.randint(0, 4) for f in fused],
            "BW": [random.randint(0, 6) if f else None for f in fused],
        },
        lag=random.randint(0, 3),
        edges=[{"from": s, "to": t} for s, t in pairs if random.random() < 0.15],
        memory={"capacity": random.choice([None, stages + random.randint(0, 4)])},
    )
    if random.random() < 0.5:
        solved = solve(problem, workers=1, deterministic_limit=0.1, seed=seed).schedule
        assert solved is not None
        return solved
    orders = random_orders(problem, random.randint)
    assert orders is not None
    return Schedule.from_order(build_graph(problem), orders, name=f"random {seed}")


def require_random_schedules_exact(ranks: LocalRanks, seeds: range) -> None:
    schedules = [random_schedule(seed) for seed in seeds]
    cases: list[tuple[str, Schedule, dict[str, Any]]] = [
        (f"mixing {s.problem.stage_count} {2 * s.problem.microbatches}", s, {}) for s in schedules
    ]
    for results in ranks.run(features.run_features, cases):
        for seed, result in zip(seeds, results, strict=True):
            assert result is None or result["error"] == "", seed
            assert result is None or result["gradients"] <= EXACT, (seed, result)


def test_random_schedules_on_random_placements_are_exact(ranks: LocalRanks) -> None:
    require_random_schedules_exact(ranks, range(12))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 25))
def test_200_random_schedules_on_random_placements_are_exact(ranks: LocalRanks, first: int) -> None:
    require_random_schedules_exact(ranks, range(first, first + 25))
