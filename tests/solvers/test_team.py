"""Processes that search windows together."""

import time

import pytest

from schedopt import Problem, Schedule, check
from schedopt.solvers import team as team_module
from schedopt.solvers.team import Team, TeamError
from tests.solvers.test_neighbourhood import start_of

PROBLEM = Problem.uniform(
    devices=4,
    microbatches=8,
    F=5,
    B=4,
    W=3,
    lag=1,
    capacity=6,
    memory={"F": 2, "B": -1, "W": -1},
)


def test_a_team_finds_a_better_valid_schedule():
    graph, instance, sequences = start_of(PROBLEM)
    value = int(Schedule.from_order(graph, instance.orders(sequences)).objective / instance.step)
    with Team(PROBLEM, index_order=False, size=2, seed=0) as team:
        found = team.run(sequences, value=value, bound=0, seconds=2)
        again = team.run(found.sequences, value=found.value, bound=0, seconds=0.2)
    schedule = Schedule.from_order(graph, instance.orders(found.sequences))
    assert check(schedule) == ()
    assert schedule.objective / instance.step == found.value < value
    assert again.value <= found.value
    assert found.windows > 0


def test_no_process_is_left_when_it_is_closed():
    team = Team(PROBLEM, index_order=False, size=2, seed=0)
    processes = list(team._processes)
    team.close()
    assert all(process.poll() is not None for process in processes)


def test_a_worker_ends_by_itself_when_its_input_ends():
    team = Team(PROBLEM, index_order=False, size=1, seed=0)
    (process,) = team._processes
    process.stdin.close()
    for _ in range(200):
        if process.poll() is not None:
            break
        time.sleep(0.1)
    assert process.poll() == 0
    team.close()


def test_a_worker_that_died_is_an_error_not_a_hang():
    _, _, sequences = start_of(PROBLEM)
    with Team(PROBLEM, index_order=False, size=1, seed=0) as team:
        team._processes[0].kill()
        team._processes[0].wait()
        with pytest.raises(TeamError, match="ended"):
            team.run(sequences, value=1000, bound=0, seconds=1)


def test_an_interpreter_that_can_not_be_started_is_named(monkeypatch):
    monkeypatch.setattr(team_module.sys, "executable", "/no/such/python")
    with pytest.raises(TeamError, match="/no/such/python"):
        Team(PROBLEM, index_order=False, size=1, seed=0)
