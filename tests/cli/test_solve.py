from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from schedopt.check import check
from schedopt.cli import report
from schedopt.cli import solve as solve_module
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.solvers.solution import Solution
from tests.cli.conftest import Run


def test_it_reports_what_was_found_and_proven(run: Run, problem_file: Path) -> None:
    result = run("solve", problem_file, "--seed", "3", "--workers", "1")
    assert result.code == 0
    for pattern in (
        r"^two by two: 2 devices, 2 stages \(linear\), 2 microbatches",
        r"^status +optimal \(proven\)$",
        r"^objective +makespan 7 units, from .+$",
        r"^bound +7 units, from .+$",
        r"^gap +0 %$",
        r"^makespan +7 units \(objective\), bubble 14\.29 % of it$",
        r"^period +\d+ units, bubble .+ of it$",
        r"^most work +all devices have equal work, 6 units$",
        r"^transfers +4 between devices in one step$",
        r"^ +1 +1 +6 +1 +14\.29 % +2 +2 +yes$",
        r"seed 3, workers 1, schedopt \S+, ortools \S+",
    ):
        assert re.search(pattern, result.out, re.MULTILINE), (pattern, result.out)


def test_the_schedule_is_written_and_valid(run: Run, problem_file: Path, tmp_path: Path) -> None:
    output = tmp_path / "best.json"
    result = run("solve", problem_file, "-o", output)
    assert result.code == 0
    assert result.err.endswith(f"schedule written to {output}\n")
    schedule = Schedule.load(output)
    assert check(schedule) == ()
    assert schedule.makespan == 7
    assert schedule.problem == Problem.load(problem_file)


def test_json_goes_to_stdout_alone(run: Run, problem_file: Path) -> None:
    result = run("solve", problem_file, "--json")
    data = result.json
    assert (data["status"], data["objective_name"], data["objective"]) == ("optimal", "makespan", 7)
    assert (data["bound"], data["gap"], data["time_unit"], data["seed"]) == (7, 0.0, "units", 0)
    assert {"schedopt", "ortools"} <= data["versions"].keys()
    assert [d["peak_memory"] for d in data["summary"]["devices"]] == [2, 2]


def test_the_memory_that_a_solve_took_is_reported(run: Run, problem_file: Path) -> None:
    data = run("solve", problem_file, "--json", "--memory-limit", "4GiB").json
    assert data["memory_limit"] == 4 * 2**30
    assert data["peak_resident"] > 2**20
    report = run("solve", problem_file).out
    assert re.search(r" s \(.*\), at most \d+ MiB of memory, seed 0", report)


def test_a_memory_limit_that_is_no_size_is_refused(run: Run, problem_file: Path) -> None:
    result = run("solve", problem_file, "--memory-limit", "4 apples")
    assert result.code == 2
    assert "'4 apples' is not a size, such as 4GiB" in result.err


def test_progress_goes_to_stderr_and_quiet_silences_it(run: Run, problem_file: Path) -> None:
    loud = run("solve", problem_file)
    assert re.search(r"best .+ bound 7 units +gap", loud.err)
    quiet = run("solve", problem_file, "--quiet")
    assert quiet.err == ""
    assert "optimal (proven)" in quiet.out


def test_quiet_silences_warnings(run: Run) -> None:
    assert run("solve", "zb-1.5b-p8-m24", "--microbatches", "1", "--capacity", "0", "-q").err == ""


def test_few_microbatches_are_a_warning_not_an_error(run: Run, problem_file: Path) -> None:
    result = run("solve", problem_file, "--microbatches", "1", "--json")
    assert result.code == 0
    assert "warning: microbatches = 1 is less than the 2 devices" in result.err
    assert result.json["objective"] == 5
    assert result.json["summary"]["makespan_bubble"] == pytest.approx(0.4)


def test_options_replace_fields_of_the_problem(run: Run, problem_file: Path) -> None:
    options = ("--capacity", "1", "--microbatches", "3", "--objective", "period")
    data = run("solve", problem_file, *options, "--json").json
    assert data["summary"]["microbatches"] == 3
    assert data["summary"]["objective"] == "period"
    assert [d["capacity"] for d in data["summary"]["devices"]] == [1, 1]


def test_a_decimal_capacity_is_taken_exactly(run: Run, problem_file: Path) -> None:
    data = run("solve", problem_file, "--capacity", "1.1", "--json").json
    assert data["summary"]["devices"][0]["capacity"] == 1.1


def test_proven_infeasible_is_exit_code_3_with_the_reason(run: Run, problem_file: Path) -> None:
    result = run("solve", problem_file, "--capacity", "0")
    assert result.code == 3
    assert "infeasible (proven)" in result.out
    assert "device 1 needs 1 activations" in result.out
    data = run("solve", problem_file, "--capacity", "0", "--json")
    assert data.code == 3
    assert (data.json["status"], data.json["summary"]) == ("infeasible", None)
    assert len(data.json["reasons"]) == 2


def test_no_file_is_written_without_a_schedule(
    run: Run, problem_file: Path, tmp_path: Path
) -> None:
    output = tmp_path / "best.json"
    assert run("solve", problem_file, "--capacity", "0", "-o", output).code == 3
    assert not output.exists()


@pytest.mark.parametrize(
    ("interrupted", "code"), [(False, report.NOTHING_FOUND), (True, report.INTERRUPTED)]
)
def test_nothing_found_is_exit_code_4_and_130_after_ctrl_c(
    run: Run,
    problem_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    interrupted: bool,
    code: int,
) -> None:
    found = solve_module.solve(Problem.load(problem_file), workers=1)
    fields = {**vars(found), "schedule": None, "objective": None, "status": "unknown"}
    nothing = Solution(**{**fields, "interrupted": interrupted})
    monkeypatch.setattr(solve_module, "solve", lambda problem, **options: nothing)
    result = run("solve", problem_file)
    assert result.code == code
    assert "unknown (nothing found)" in result.out


def test_ctrl_c_outside_the_search_is_exit_code_130(
    run: Run, problem_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(problem: Problem, **options: object) -> Solution:
        raise KeyboardInterrupt

    monkeypatch.setattr(solve_module, "solve", interrupt)
    result = run("solve", problem_file)
    assert (result.code, result.out) == (130, "")


def test_a_solver_fault_is_reported(
    run: Run, problem_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = solve_module.solve(Problem.load(problem_file), workers=1)
    faulty = Solution(**{**vars(found), "faults": ("CP-SAT said infeasible",)})
    monkeypatch.setattr(solve_module, "solve", lambda problem, **options: faulty)
    result = run("solve", problem_file)
    assert result.code == 0
    assert "solver fault, caught: CP-SAT said infeasible" in result.out


def test_an_output_that_can_not_be_written_is_found_before_the_search(
    run: Run, problem_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(solve_module, "solve")
    for output, reason in (
        (tmp_path, "is a directory"),
        (tmp_path / "no" / "best.json", "there is no directory"),
    ):
        result = run("solve", problem_file, "-o", output)
        assert result.code == 2
        assert repr(str(output)) in result.err
        assert reason in result.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_failed_write_keeps_the_report(run: Run, problem_file: Path) -> None:
    result = run("solve", problem_file, "-o", "/dev/full")
    assert result.code == 2
    assert "optimal (proven)" in result.out
    assert "'/dev/full' could not be written: No space left on device" in result.err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--capacity", "nan"),
        ("--capacity", "-1"),
        ("--capacity", "many"),
        ("--capacity", "inf"),
        ("--microbatches", "0"),
        ("--microbatches", "1.5"),
        ("--time-limit", "0"),
        ("--workers", "0"),
        ("--seed", "-1"),
        ("--deterministic-limit", "0"),
        ("--objective", "speed"),
    ],
)
def test_a_wrong_option_is_named_with_its_value(
    run: Run, problem_file: Path, option: str, value: str
) -> None:
    result = run("solve", problem_file, option, value)
    assert result.code == 2
    assert option in result.err
    assert value in result.err


def test_an_option_that_contradicts_the_problem_names_the_field(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    problem = Problem.uniform(devices=1, microbatches=2, microbatch_factors=[1, 2])
    path.write_text(json.dumps(problem.to_dict()), encoding="utf-8")
    result = run("solve", path, "--microbatches", "3")
    assert result.code == 2
    assert "microbatch_factors" in result.err


def test_a_schedule_file_can_be_solved_again(run: Run, schedule_file: Path) -> None:
    assert run("solve", schedule_file, "--json").json["objective"] == 7


def test_a_file_with_twenty_faults_names_all_twenty_and_exits_with_2(run: Run) -> None:
    result = run("solve", Path(__file__).parents[1] / "data" / "twenty_faults.toml")
    assert result.code == 2
    assert result.out == ""
    assert "20 faults" in result.err
    assert len(re.findall(r"^  \S+", result.err, re.MULTILINE)) == 20


def test_index_order_keeps_unequal_microbatches_in_order(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "problem.toml"
    path.write_text(
        "devices = 2\nmicrobatches = 3\nmicrobatch_factors = [3, 1, 1]\n"
        "durations = { F = 2, B = 2, W = 1 }\nmemory = { capacity = 4 }\n"
    )
    options = ("--json", "--time-limit", "2")
    free = run("solve", path, *options).json["objective"]
    assert run("solve", path, *options, "--index-order").json["objective"] > free


def test_a_deterministic_limit_has_no_limit_of_time_unless_one_is_given(
    run: Run, problem_file: Path
) -> None:
    alone = run("solve", problem_file, "--deterministic-limit", "1").out
    assert "(deterministic limit 1)" in alone
    both = run("solve", problem_file, "--deterministic-limit", "1", "--time-limit", "9").out
    assert "(time limit 9 s, deterministic limit 1)" in both


def test_solving_again_continues_from_what_is_kept(run: Run, problem_file: Path) -> None:
    first = run("solve", problem_file, "--json", "--quiet").json
    second = run("solve", problem_file, "--json", "--quiet").json
    assert second["objective_source"] == f"cache: {first['objective_source']}"
    assert second["objective"] == first["objective"] == 7


@pytest.mark.parametrize("option", [["--no-cache"], ["--deterministic-limit", "1"]])
def test_nothing_is_kept_or_used_without_the_cache(
    run: Run, problem_file: Path, tmp_path: Path, option: list[str]
) -> None:
    run("solve", problem_file, "--quiet", *option)
    assert not (tmp_path / "cache").exists()
    run("solve", problem_file, "--quiet")
    again = run("solve", problem_file, "--json", "--quiet", *option).json
    assert "cache" not in again["objective_source"]


def test_a_cache_that_can_not_be_written_is_a_note(
    run: Run, problem_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("no folder")
    result = run("solve", problem_file)
    assert result.code == 0
    assert f"cache: nothing stored in {tmp_path / 'cache'}: File exists" in result.err
    assert "cache: nothing" not in run("solve", problem_file, "--quiet").err
