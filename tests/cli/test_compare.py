from __future__ import annotations

import re
from pathlib import Path

from schedopt.analysis import RECUTS
from schedopt.classic import CLASSIC
from tests.cli.conftest import Run
from tests.cli.test_check import spoil

ROWS = sum(len(RECUTS.get(name, (None,))) for name in CLASSIC)


def test_every_classic_schedule_and_the_solved_one(run: Run, problem_file: Path) -> None:
    result = run("compare", problem_file, "--workers", "1")
    assert result.code == 0
    assert result.out.startswith(
        "two by two: 2 devices, 2 microbatches, 1 copy of the parameters; objective: makespan\n"
    )
    for name in (*CLASSIC, "solved"):
        assert re.search(rf"^ {name} ", result.out, re.MULTILINE)
    assert re.search(r"^ 1F1B +linear +2 +BW +9 +33\.33 % ", result.out, re.MULTILINE)
    assert re.search(r"^ ZB-V +v, 2 chunks \(re-cut\) +4 +B, W ", result.out, re.MULTILINE)
    assert re.search(r"^ solved +linear +2 +B, W +7 +14\.29 % ", result.out, re.MULTILINE)
    assert re.search(
        r"^solved: optimal, makespan 7 units, from .+, bound 7 units, gap 0 %; ",
        result.out,
        re.MULTILINE,
    )


def test_the_rules_of_the_figures_stand_below_the_table(run: Run, problem_file: Path) -> None:
    out = run("compare", problem_file, "--no-solve").out
    for rule in (
        "Times in units; peak memory of the fullest device in activations, capacity 2.",
        "* the objective",
        "B is the gradient of the input",
        "A transfer between devices is a pure delay",
        "re-cut: each stage cut into equal pieces",
    ):
        assert rule in out


def test_without_solving_only_classic_schedules(run: Run, problem_file: Path) -> None:
    result = run("compare", problem_file, "--no-solve", "--json")
    assert result.code == 0
    assert len(result.json["rows"]) == ROWS
    assert result.json["solution"] is None


def test_json_has_the_memory_of_every_device(run: Run, problem_file: Path) -> None:
    data = run("compare", problem_file, "--json").json
    assert (data["problem"], data["objective"]) == ("two by two", "makespan")
    assert data["solution"]["status"] == "optimal"
    (row,) = (row for row in data["rows"] if row["name"] == "1F1B")
    assert [d["peak_memory"] for d in row["summary"]["devices"]] == [2, 1]
    assert row["summary"]["parameter_copies"] == 1


def test_a_schedule_file_is_compared_as_it_is(run: Run, schedule_file: Path) -> None:
    result = run("compare", schedule_file, "--json")
    assert result.code == 0
    assert [row["name"] for row in result.json["rows"]][ROWS:] == ["by hand"]
    assert result.json["solution"] is None


def test_what_a_file_says_about_its_schedule_is_told_as_such(
    run: Run, problem_file: Path, schedule_file: Path, tmp_path: Path
) -> None:
    assert "by hand: its file does not say how it was found\n" in run("compare", schedule_file).out
    solved = tmp_path / "best.json"
    run("solve", problem_file, "-o", solved, "--seed", "5", "--workers", "1")
    assert re.search(
        r"^solved: status optimal, as its file says, bound 7 units, from .+, gap 0 %, "
        r"solved with seed 5, workers 1, schedopt ",
        run("compare", solved).out,
        re.MULTILINE,
    )


def test_options_do_not_change_a_schedule_file(run: Run, schedule_file: Path) -> None:
    result = run("compare", schedule_file, "--capacity", "1")
    assert result.code == 2
    assert "a schedule file is compared as it is" in result.err


def test_a_schedule_that_breaks_rules_is_not_compared(run: Run, schedule_file: Path) -> None:
    spoil(schedule_file)
    result = run("compare", schedule_file)
    assert (result.code, result.out) == (2, "")
    assert "is not valid, order: device 0, 0B0 at 0: " in result.err


def test_an_infeasible_problem_still_has_its_classic_schedules(
    run: Run, problem_file: Path
) -> None:
    result = run("compare", problem_file, "--capacity", "0")
    assert result.code == 3
    assert re.search(r"^ 1F1B .+ no, 2 over ", result.out, re.MULTILINE)
    assert "solved: infeasible" in result.out
    assert "device 0 needs 1 activations" in result.out


def test_a_bubble_of_zero_is_only_said_of_what_has_none(run: Run, problem_file: Path) -> None:
    out = run("compare", problem_file, "--no-solve").out
    assert not re.search(r" 0(\.0+)? %", out)
