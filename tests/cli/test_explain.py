from __future__ import annotations

import re
from pathlib import Path

import pytest

from schedopt import Problem, Schedule, classic, solve
from schedopt.advice import changes
from schedopt.binding import critical_path
from schedopt.exact import to_json
from schedopt.idle import CAUSES, causes
from tests.cli.conftest import Run
from tests.cli.test_check import spoil
from tests.traces import events_of, write_trace


@pytest.fixture
def slow_link(tmp_path: Path) -> Path:
    path = tmp_path / "slow.json"
    problem = Problem.uniform(devices=4, microbatches=8, F=4, B=4, W=4, lag=1, name="slow link")
    classic.one_f_one_b(problem).save(path)
    return path


def test_the_report_says_where_the_time_goes(run: Run, slow_link: Path) -> None:
    result = run("explain", slow_link, "--no-advice")
    assert (result.code, result.err) == (0, "")
    for pattern in (
        r"^1F1B for slow link: makespan 148 units, objective: makespan$",
        r"^All devices have equal work, 96 units\.$",
        r"^Devices are idle 35\.14 % of the step; 34\.62 % of that is fill: ",
        r"^ device +work +idle +fill +drain +transfer$",
        r"^ +0 +96 +52 +24 +12 +16$",
        r"^ +3 +96 +52 +12 +24 +16$",
        r"^ +all +64\.86 % +35\.14 % +12\.16 % +12\.16 % +10\.81 %$",
        r"^Critical path: 148 units = 132 in \d+ ops \+ 16 in 16 transfers$",
        r"^ 0 to 4 +0 +0F0$",
        r"^ 5 to 9 +1 +1F0 +after 0F0, transfer 1$",
        r"^transfer: transfers and reductions that no work hides\.$",
    ):
        assert re.search(pattern, result.out, re.MULTILINE), (pattern, result.out)


def test_json_has_exact_causes_and_the_critical_path(run: Run, slow_link: Path) -> None:
    data = run("explain", slow_link, "--no-advice", "--json").json
    schedule = Schedule.load(slow_link)
    assert (data["makespan"], data["objective_name"], data["bound"]) == (148, "makespan", None)
    for device, row in zip(causes(schedule), data["devices"], strict=True):
        assert row["causes"] == device.causes
        assert row["causes"].keys() == CAUSES.keys()
        assert sum(row["causes"].values()) == row["idle"] == 148 - row["work"]
    path = critical_path(schedule)
    assert [link["op"] for link in data["critical_path"]] == [str(link.op) for link in path]
    assert data["busiest"] == [0, 1, 2, 3]
    assert (data["advice"], data["measured"]) == ([], None)


def test_what_would_help_is_what_fresh_solves_find(run: Run, schedule_file: Path) -> None:
    limits = ("--workers", "1", "--deterministic-limit", "1")
    result = run("explain", schedule_file, "--json", *limits)
    assert result.code == 0
    wanted = changes(Schedule.load(schedule_file))
    assert [row["change"] for row in result.json["advice"]] == [c.what for c in wanted]
    assert f"solving 2 of {len(wanted)}: one activation more on device 0" in result.err
    for row, change in zip(result.json["advice"], wanted, strict=True):
        again = solve(change.problem, workers=1, deterministic_limit=1)
        assert again.objective is not None
        assert (row["objective"], row["status"]) == (to_json(again.objective), "optimal")
    assert result.json["bound"] == 7
    assert [d["unavoidable"] for d in result.json["devices"]] == [1, 1]
    assert [d["avoidable"] for d in result.json["devices"]] == [0, 0]


def test_the_advice_is_a_table(run: Run, schedule_file: Path) -> None:
    result = run("explain", schedule_file, "--workers", "1", "--quiet")
    assert result.err == ""
    assert "What would help, each solved; now makespan 7 units" in result.out
    assert re.search(r"^ the same problem, solved +7 +0 % +7 +optimal$", result.out, re.MULTILINE)
    assert re.search(r"^ backward fused +9 +-28\.57 % +9 +optimal$", result.out, re.MULTILINE)
    assert "Bound of the makespan: 7 units, from " in result.out


def test_the_bound_of_the_file_is_told_as_such(
    run: Run, problem_file: Path, tmp_path: Path
) -> None:
    best = tmp_path / "best.json"
    run("solve", problem_file, "-o", best, "--workers", "1")
    out = run("explain", best, "--no-advice").out
    assert re.search(r"^Bound of the makespan: 7 units, from .+, as its file says\.$", out, re.M)


def test_a_measured_step_stands_beside_the_plan(run: Run, slow_link: Path, tmp_path: Path) -> None:
    schedule = Schedule.load(slow_link)
    trace = write_trace(tmp_path / "trace.json", events_of(schedule))
    result = run("explain", slow_link, "--no-advice", "--trace", trace)
    assert result.code == 0
    for pattern in (
        r"^ +predicted +measured$",
        r"^ length of the step +148 units +148000 us$",
        r"^ transfer +10\.81 % +10\.81 %$",
    ):
        assert re.search(pattern, result.out, re.MULTILINE), (pattern, result.out)
    data = run("explain", slow_link, "--no-advice", "--trace", trace, "--json").json["measured"]
    assert (data["time_unit"], data["makespan"]) == ("us", 148000)
    assert [device["causes"]["transfer"] for device in data["devices"]] == [16000] * 4


def test_a_trace_of_something_else_is_refused(
    run: Run, slow_link: Path, schedule_file: Path, tmp_path: Path
) -> None:
    trace = write_trace(tmp_path / "trace.json", events_of(Schedule.load(schedule_file)))
    result = run("explain", slow_link, "--no-advice", "--trace", trace)
    assert (result.code, result.out) == (2, "")
    assert f"{trace}: trace is not valid" in result.err
    assert "1F2: is missing on device 1" in result.err


def test_a_schedule_that_breaks_rules_is_not_explained(run: Run, schedule_file: Path) -> None:
    spoil(schedule_file)
    result = run("explain", schedule_file)
    assert (result.code, result.out) == (2, "")
    assert "is not valid, order: device 0, 0B0 at 0: " in result.err


def test_a_problem_is_to_be_solved_first(run: Run, problem_file: Path) -> None:
    result = run("explain", problem_file)
    assert result.code == 2
    assert "is a problem, not a schedule; solve it first" in result.err
