from __future__ import annotations

import re
from pathlib import Path

from schedopt import Schedule, check
from tests.cli.conftest import Run

LIMITS = ("--workers", "1", "--deterministic-limit", "0.5")


def test_it_says_what_to_use_and_what_others_cost(
    run: Run, problem_file: Path, tmp_path: Path
) -> None:
    best = tmp_path / "best.json"
    result = run("recommend", problem_file, "-o", best, *LIMITS)
    assert result.code == 0
    assert "1 of 4: linear\n" in result.err
    for pattern in (
        r"^two by two: makespan, in units$",
        r"^Use solved, placement interleaved, 4 chunks: 6\.25 units, peak memory 2 activations\.$",
        r"^Nothing found is shorter\.$",
        r"^ solved +linear +7 +12\.00 % +2 +4 +7 +optimal$",
        r"^ 1F1B +linear +9 +44\.00 % +2 +4$",
    ):
        assert re.search(pattern, result.out, re.MULTILINE), (pattern, result.out)
    schedule = Schedule.load(best)
    assert (schedule.makespan, check(schedule)) == (6.25, ())


def test_json_has_every_candidate(run: Run, problem_file: Path) -> None:
    data = run("recommend", problem_file, "--json", *LIMITS).json
    assert data["recommended"] == data["candidates"][0]
    assert data["recommended"]["cost"] == 0
    assert data["complete"] is True
    placements = {row["placement"] for row in data["candidates"] if row["status"]}
    assert placements == {
        "linear",
        "v, 2 chunks",
        "interleaved, 2 chunks",
        "interleaved, 4 chunks",
    }


def test_a_plain_schedule_that_is_as_good_is_recommended(run: Run, tmp_path: Path) -> None:
    problem = tmp_path / "one.toml"
    problem.write_text("devices = 1\nmicrobatches = 2\ndurations = { F = 1, BW = 2 }\n")
    out = run("recommend", problem, *LIMITS).out
    assert re.search(r"^Use 1F1B, placement linear: 6 units", out, re.MULTILINE)
    assert "A plain schedule does it." in out


def test_nothing_feasible_has_its_exit_code_and_reasons(run: Run, tmp_path: Path) -> None:
    problem = tmp_path / "full.toml"
    problem.write_text(
        "devices = 2\nmicrobatches = 2\ndurations = { F = 1, BW = 2 }\nmemory = { capacity = 0 }\n"
    )
    result = run("recommend", problem, *LIMITS)
    assert result.code == 3
    assert "No schedule was found within the capacities." in result.out
    assert re.search(r"^linear: device 0 needs 1 activations", result.out, re.MULTILINE)
