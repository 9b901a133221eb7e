from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from schedopt import Problem, Solution, classic, solve
from schedopt.errors import InputError
from schedopt.grid import Point, counts, cuts, grid, rooms
from schedopt.solvers.solution import Progress
from schedopt.sweep import Result, classic_marks, load, save, sweep

PROBLEM = Problem.uniform(devices=2, microbatches=4, lag=0.5)
POINTS = grid(PROBLEM, placements=cuts("linear,v"), capacities=rooms("0:2"))


def solve_point(point: Point) -> Solution:
    return solve(point.problem, workers=1, deterministic_limit=1)


def never(point: Point) -> Solution:
    raise AssertionError(point)


def swept() -> list[Result]:
    return list(sweep(POINTS, solve_point, limit=1))


def test_each_result_is_that_of_a_solve() -> None:
    for point, result in zip(POINTS, swept(), strict=True):
        again = solve_point(point)
        assert (result.status, result.objective) == (again.status, again.objective)
        assert result.bound == again.bound
        assert (result.placement, result.capacity) == (point.placement, point.capacity)
        if point.capacity == "0":
            assert (result.status, result.mark) == ("infeasible", None)
        else:
            assert result.mark is not None
            assert result.mark.memory <= int(point.capacity)
            assert result.mark.time * 4 == result.objective


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    results = swept()
    save(tmp_path / "sweep.json", PROBLEM, results)
    assert load(tmp_path / "sweep.json") == tuple(results)
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.json"]


def test_final_results_are_not_searched_for_again() -> None:
    results = swept()
    assert {result.status for result in results} <= {"optimal", "infeasible"}
    assert list(sweep(POINTS, never, limit=99, known=results)) == results


def test_an_open_result_serves_a_search_that_may_take_no_longer() -> None:
    result = replace(swept()[1], status="feasible", limit=2.0)
    assert result.serves(2)
    assert not result.serves(3)
    assert not result.serves(None)
    assert not replace(result, limit=None).serves(1)


def test_other_problems_have_other_results() -> None:
    others = grid(PROBLEM.replace(lag=1), capacities=rooms("1"))
    known = sweep(grid(PROBLEM, capacities=rooms("1")), solve_point)
    with pytest.raises(AssertionError, match="Point"):
        list(sweep(others, never, known=list(known)))


def test_an_interrupted_search_ends_the_sweep_and_leaves_no_result() -> None:
    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    def solve_one(point: Point) -> Solution:
        if point.placement == "linear":
            return solve_point(point)
        return solve(point.problem, workers=1, progress=stop)

    assert [result.placement for result in sweep(POINTS, solve_one)] == ["linear"] * 3 + [
        "v, 2 chunks"  # infeasible, and known without a search
    ]


def test_classic_schedules_are_marks_without_a_capacity() -> None:
    marks = classic_marks(PROBLEM.with_capacity(1), counts("4,8"))
    gpipe = [mark for mark in marks if mark.name == "GPipe"]
    assert [(mark.microbatches, mark.memory) for mark in gpipe] == [(4, 4), (8, 8)]
    for mark in gpipe:
        problem = PROBLEM.replace(microbatches=mark.microbatches)
        assert mark.time * mark.microbatches == classic.gpipe(problem).makespan
    assert {mark.solved for mark in marks} == {False}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "must be a readable JSON file"),
        ("[]", "must be a table of fields"),
        ('{"format": "x", "problem": {}, "results": []}', "must be schedopt.sweep/1"),
        ('{"format": "schedopt.sweep/1", "problem": {}, "results": [{}]}', "key: required"),
    ],
)
def test_a_file_that_holds_no_results_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "sweep.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=reason) as error:
        load(path)
    assert error.value.what == "results of a sweep"
