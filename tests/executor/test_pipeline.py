"""A step of any schedule gives the gradients of one process."""

from __future__ import annotations

from typing import Any

import pytest

from schedopt import NotApplicableError, Problem, Schedule
from schedopt.classic import CLASSIC
from schedopt.executor.local import LocalRanks
from tests.executor import steps
from tests.executor.steps import Case

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
