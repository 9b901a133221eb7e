from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schedopt import Problem, Schedule, Solution, classic, solve
from schedopt.advice import Change, changes, outcomes
from schedopt.exact import to_json
from schedopt.solvers.solution import Progress
from tests.schedules import two_by_two


def solved(problem: Problem) -> Solution:
    return solve(problem, workers=1, deterministic_limit=1)


def names(schedule: Schedule) -> list[str]:
    return [change.what for change in changes(schedule)]


def problem_of(what: str, schedule: Schedule) -> Problem:
    return {change.what: change.problem for change in changes(schedule)}[what]


def slow_link(**fields: Any) -> Problem:
    return Problem.uniform(
        **{"devices": 2, "microbatches": 4, "F": 2, "B": 2, "W": 2, "lag": 4, **fields}
    )


def test_every_figure_is_that_of_a_fresh_solve_of_the_changed_problem() -> None:
    schedule = solved(slow_link(capacity=2)).schedule
    assert schedule is not None
    found = list(outcomes(schedule, lambda change: solved(change.problem)))
    assert [outcome.change for outcome in found] == list(changes(schedule))
    assert len(found) >= 7
    for outcome in found:
        again = solved(outcome.change.problem)
        data = outcome.to_dict()
        assert again.objective is not None
        assert data["objective"] == to_json(again.objective)
        assert data["objective_bound"] == to_json(again.bound)
        assert data["status"] == again.status == "optimal"
        time = again.objective * 4 / outcome.change.problem.microbatches
        assert outcome.time == time
        assert outcome.saved == 1 - time / schedule.makespan
    assert found[0].saved == 0


def test_each_change_is_what_its_name_says() -> None:
    schedule = classic.zb_h1(slow_link(capacity=[2, 3]))
    assert names(schedule) == [
        "the same problem, solved",
        "one activation more on device 0",
        "one activation more on device 1",
        "one activation more on every device",
        "links twice as fast",
        "stage 0 10 % faster",
        "stage 1 10 % faster",
        "one microbatch more",
        "backward fused",
    ]
    assert problem_of("the same problem, solved", schedule) == schedule.problem
    assert problem_of("one activation more on device 1", schedule).capacity == (2, 4)
    assert problem_of("one activation more on every device", schedule).capacity == (3, 4)
    assert problem_of("links twice as fast", schedule).lag == 2
    faster = problem_of("stage 1 10 % faster", schedule).stage_data
    assert [data.durations["W"] * 10 for data in faster] == [20, 18]
    assert problem_of("one microbatch more", schedule).microbatches == 5
    assert problem_of("backward fused", schedule).stage_data[0].backward == "BW"


def test_what_changes_nothing_is_not_solved() -> None:
    """Unlimited memory, no lags: more of it, or faster links, would be the same problem."""
    schedule = classic.one_f_one_b(Problem.uniform(devices=2, microbatches=2))
    assert schedule.problem.stage_data[0].backward == "BW"
    assert names(schedule) == [
        "the same problem, solved",
        "stage 0 10 % faster",
        "stage 1 10 % faster",
        "one microbatch more",
        "backward split into halves",
    ]


def test_of_many_devices_those_without_room_get_more_memory() -> None:
    problem = Problem.uniform(devices=6, microbatches=12, capacity=2)
    schedule = solved(problem).schedule
    assert schedule is not None
    given = [name for name in names(schedule) if name.startswith("one activation more on device")]
    assert 1 <= len(given) <= 4
    assert "one activation more on device 0" in given


@pytest.mark.parametrize("heavy", [1, 2])
def test_the_busiest_devices_have_the_stages_to_make_faster(heavy: int) -> None:
    times = [3 if stage == heavy else 1 for stage in range(4)]
    problem = Problem.uniform(devices=4, microbatches=4, F=times)
    faster = [name for name in names(classic.zb_h1(problem)) if name.startswith("stage")]
    assert faster == [f"stage {heavy} 10 % faster"]


def test_after_an_interruption_the_rest_is_left_out() -> None:
    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    def solve_one(change: Change) -> Solution:
        news: Callable[[Progress], None] | None = stop if "device 1" in change.what else None
        return solve(change.problem, workers=1, deterministic_limit=1, progress=news)

    found = list(outcomes(two_by_two(capacity=2), solve_one))
    assert [outcome.change.what for outcome in found] == names(two_by_two(capacity=2))[:3]
