"""Many solves in one process: nothing is left of them, and memory does not grow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOLVES = 20
GROWTH = 8 * 2**20
"""Bytes by which the resident memory may grow, after a first round of each kind of solve.

Measured: 0.2 MiB, from where the allocator keeps what is free; and 24 MiB when every order model
was kept.
"""

SCRIPT = """
import gc, json, os, sys, threading
from schedopt import Problem, solve
from schedopt.solvers.team import Team
from tests.solvers.test_neighbourhood import start_of

HALVES = {"F": 2, "B": -1, "W": -1}

def hundred(devices, microbatches, capacity, **fields):
    return Problem.uniform(devices=devices, microbatches=microbatches, F=100, B=100, W=100,
                           lag=10, capacity=capacity, memory=HALVES, **fields)

LIMIT = {"workers": 1, "deterministic_limit": 0.05}
KINDS = [
    (hundred(4, 8, 6), LIMIT),
    (hundred(6, 16, 7), LIMIT),
    (hundred(3, 10, 4, objective="period"), LIMIT),
    (hundred(2, 6, 4, placement="v"), LIMIT),
    (hundred(3, 4, 1), LIMIT),
    (Problem(devices=3, microbatches=6, durations={"F": [1, 2, 1], "BW": 3},
             memory={"capacity": 2}, microbatch_factors=[1, 2, 1, 1, 2, 1]), LIMIT),
    (hundred(4, 12, 5), {"workers": 2, "time_limit": 2}),
]

def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def state():
    try:
        os.waitpid(-1, os.WNOHANG)
        children = "some"
    except ChildProcessError:
        children = "none"
    return [children, threading.active_count(), sorted(os.listdir("/proc/self/fd"))]

def search_together(problem):
    sequences = start_of(problem)[2]
    with Team(problem, index_order=False, size=2, seed=0) as team:
        return team.run(sequences, value=10**6, bound=0, seconds=0.5).windows

def run(count):
    statuses = []
    assert search_together(KINDS[0][0])
    for number in range(count):
        problem, options = KINDS[number % len(KINDS)]
        statuses.append(solve(problem, **options).status)
    return statuses

run(len(KINDS))
before, first = resident(), state()
statuses = run(int(sys.argv[1]))
print(json.dumps({"growth": resident() - before, "before": first, "after": state(),
                  "statuses": statuses}))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What a process that solved many problems says about itself."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(SOLVES)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="needs what Linux tells of a process"
)


def test_the_solves_are_of_every_kind(found: dict[str, Any]) -> None:
    assert len(found["statuses"]) == SOLVES
    assert set(found["statuses"]) == {"optimal", "feasible", "infeasible"}


def test_memory_does_not_grow(found: dict[str, Any]) -> None:
    assert found["growth"] < GROWTH


def test_no_process_thread_or_open_file_is_left(found: dict[str, Any]) -> None:
    children, threads, _ = found["after"]
    assert (children, threads) == ("none", 1)
    assert found["after"] == found["before"]
