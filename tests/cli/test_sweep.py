from __future__ import annotations

import re
from pathlib import Path

import pytest

from schedopt import Problem, solve
from schedopt.cli import sweep as sweep_module
from schedopt.sweep import load
from tests.cli.conftest import Run

LIMITS = ("--workers", "1", "--deterministic-limit", "1")


def test_a_grid_is_solved_and_shown_with_the_front(run: Run, problem_file: Path) -> None:
    result = run("sweep", problem_file, "--capacity", "1:2", "--placement", "linear,v", *LIMITS)
    assert result.code == 0
    assert "4 of 4: v, 2 chunks, 2 microbatches, capacity 2" in result.err
    for pattern in (
        r"^two by two: 4 of 4 points; objective: makespan, in units; memory in activations$",
        r"^ linear +2 +2 +2 +7 +7 +optimal$",
        r"^time per microbatch, 2 microbatches, units$",
        r"^ +2 +2 +3\.5 +solved +linear$",
        r"^ +2 +2 +4\.5 +1F1B +linear$",
    ):
        assert re.search(pattern, result.out, re.MULTILINE), (pattern, result.out)


def test_json_has_results_and_marks(run: Run, problem_file: Path) -> None:
    data = run("sweep", problem_file, "--capacity", "2", "--json", *LIMITS).json
    assert data["points"] == len(data["results"]) == 1
    assert (data["results"][0]["objective"], data["results"][0]["capacity"]) == (7, "2")
    (solved,) = (mark for mark in data["marks"] if mark["solved"])
    assert (solved["memory"], solved["time_per_microbatch"]) == (2, 3.5)
    assert any(mark["front"] for mark in data["marks"])


def test_it_goes_on_from_the_results_that_are_there(
    run: Run, problem_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "sweep.json"
    assert run("sweep", problem_file, "--capacity", "1", "--results", kept, *LIMITS).code == 0
    solved = []

    def watched(problem: object, *given: object, **options: object) -> object:
        solved.append(problem)
        return original(problem, *given, **options)  # type: ignore[arg-type]

    original = sweep_module.run
    monkeypatch.setattr(sweep_module, "run", watched)
    result = run("sweep", problem_file, "--capacity", "1:2", "--results", kept, *LIMITS)
    assert result.code == 0
    assert len(solved) == 1
    assert [r.capacity for r in load(kept)] == ["1", "2"]


def test_an_interruption_keeps_what_is_done(
    run: Run, problem_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, original = tmp_path / "sweep.json", sweep_module.run
    left = [1]

    def interrupted(*given: object, **options: object) -> object:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return original(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(sweep_module, "run", interrupted)
    arguments = ("sweep", problem_file, "--capacity", "1:3", "--results", kept, *LIMITS)
    result = run(*arguments)
    assert result.code == 0
    assert f"interrupted after 1 of 3 points; the same command goes on from {kept}" in result.err
    assert [r.capacity for r in load(kept)] == ["1"]
    assert "1 of 3 points" in result.out
    kept.unlink()
    assert run(*arguments).code == 130


def test_a_picture_is_drawn(run: Run, problem_file: Path, tmp_path: Path) -> None:
    picture = tmp_path / "front.svg"
    assert run("sweep", problem_file, "--capacity", "1:2", "-o", picture, "-q", *LIMITS).code == 0
    assert "two by two: makespan against memory" in picture.read_text(encoding="utf-8")


def test_the_objective_can_be_replaced(run: Run, tmp_path: Path) -> None:
    problem = Problem.uniform(devices=3, microbatches=6)
    problem.save(tmp_path / "problem.json")
    arguments = ("--capacity", "5", "--objective", "period", "--json", *LIMITS)
    data = run("sweep", tmp_path / "problem.json", *arguments).json
    assert data["objective_name"] == "period"
    again = solve(
        problem.replace(objective="period").with_capacity(5), workers=1, deterministic_limit=1
    )
    assert data["results"][0]["objective"] == again.objective == 18


def test_nothing_feasible_has_its_exit_code(run: Run, problem_file: Path) -> None:
    result = run("sweep", problem_file, "--capacity", "0", *LIMITS)
    assert result.code == 3
    assert re.search(r"^ own +2 +0 .+infeasible$", result.out, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--capacity", "4:2"), "Invalid value for '--capacity': '4:2' is no range"),
        (("--microbatches", "1.5"), "1.5 is no number of microbatches"),
        (("--placement", "x"), "'x' is no placement; valid: own, linear"),
        (("--capacity", "2GiB"), "this one has it in activations"),
        (("--output", "x.bmp"), "'x.bmp' must end in one of .svg, .png, .pdf, .html"),
        (("--results", "."), "Invalid value for '--results': '.' is a directory"),
    ],
)
def test_wrong_options_are_named(
    run: Run, problem_file: Path, arguments: tuple[str, ...], reason: str
) -> None:
    result = run("sweep", problem_file, *arguments)
    assert (result.code, result.out) == (2, "")
    assert reason in result.err


def test_results_that_are_none_are_not_overwritten(
    run: Run, problem_file: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}", encoding="utf-8")
    result = run("sweep", problem_file, "--results", other)
    assert (result.code, other.read_text(encoding="utf-8")) == (2, "{}")
    assert "results of a sweep is not valid" in result.err
