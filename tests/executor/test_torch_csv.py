"""The runtime of torch reads the tables of actions that are written, and trains the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from schedopt.classic import CLASSIC
from schedopt.executor.local import LocalRanks
from schedopt.formats.torch_comms import read_torch_comms, write_torch_comms
from schedopt.formats.torch_csv import write_torch_csv
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.solvers import solve
from tests.executor.torch_steps import PLACEMENTS, TorchCase, classic, lowered, run_torch

WRITERS = {"compute_only": write_torch_csv, "compute_comms": write_torch_comms}
EXACT = 1e-12

FEW = ("GPipe", "1F1B", "ZB-H1", "ZB-V", "Interleaved 1F1B")
FUSED = {"F": 1, "BW": 2}
SPLIT = {"F": 2, "B": 3, "W": 1}
SOLVED: list[dict[str, Any]] = [
    {"placement": placement, "microbatches": microbatches, "durations": durations, **more}
    for placement, more in (
        ("linear", {"memory": {"capacity": 3}}),
        ("linear", {"memory": {"capacity": [4, 3, 3, 2]}, "lag": 1}),
        ("interleaved", {"stages": 8, "lag": 1}),
        ("v", {"stages": 8, "memory": {"capacity": 4}}),
        ("wave", {"stages": 12}),
        ([2, 0, 3, 1, 1, 3, 0], {"lag": [1, 2, 0, 1, 0, 2]}),
        ([0, 0, 1, 2, 3, 3], {"objective": "period"}),
    )
    for microbatches, durations in ((5, SPLIT), (8, SPLIT), (6, FUSED))
]


def solved(fields: dict[str, Any]) -> Schedule:
    problem = Problem(devices=4, **fields)
    schedule = solve(problem, workers=1, deterministic_limit=0.2).schedule
    assert schedule is not None
    return schedule


def assert_torch_runs(
    schedules: Sequence[tuple[str, Schedule]], ranks: LocalRanks, folder: Path, timeout: float
) -> None:
    """In both forms, all in the one process group."""
    cases = []
    for number, (name, schedule) in enumerate(schedules):
        for form, write in WRITERS.items():
            table = folder / f"{number}-{form}.csv"
            table.write_text(write(schedule), encoding="utf-8")
            cases.append(TorchCase(f"{name}, {form}", schedule, form, table))
    for rank, found in enumerate(ranks.run(run_torch, cases, timeout=timeout)):
        for case, worst in zip(cases, found, strict=False):
            assert isinstance(worst, float), (case.name, rank, worst)
            assert worst < EXACT, (case.name, rank)
        assert len(found) == len(cases)


def test_torch_runs_the_tables_with_the_gradients_of_one_process(
    ranks: LocalRanks, tmp_path: Path
) -> None:
    schedules = [(name, classic(name)) for name in FEW]
    schedules += [(str(SOLVED[k]["placement"]), solved(SOLVED[k])) for k in (0, 15)]
    assert_torch_runs(schedules, ranks, tmp_path, 120)


@pytest.mark.parametrize("name", ["1F1B", "ZB-V"])
def test_the_transfers_that_torch_adds_itself_are_read_too(name: str, ranks: LocalRanks) -> None:
    schedule = classic(name)
    tables = ranks.run(lowered, schedule)
    assert len(set(tables)) == 1
    assert read_torch_comms(tables[0], schedule.problem).orders == schedule.orders


@pytest.mark.slow
def test_so_it_does_with_every_classic_schedule_and_with_more_than_20_solved_ones(
    ranks: LocalRanks, tmp_path: Path
) -> None:
    assert {*FEW, *PLACEMENTS, "ZB-H2"} == set(CLASSIC)
    schedules = [(name, classic(name, microbatches=m)) for name in CLASSIC for m in (4, 8)]
    schedules += [(str(fields), solved(fields)) for fields in SOLVED]
    assert len(SOLVED) == 21
    assert_torch_runs(schedules, ranks, tmp_path, 500)
