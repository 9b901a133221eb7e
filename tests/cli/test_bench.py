from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from schedopt.classic import CLASSIC
from schedopt.problem import Problem
from tests.cli.conftest import Run
from tests.cli.test_check import spoil


def test_measured_stands_beside_predicted_and_torch_below(
    run: Run, schedule_file: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.json"
    arguments = ["--emulate", "--against-torch", "--steps", "1", "--trace", trace]
    result = run("bench", schedule_file, *arguments)
    assert result.code == 0
    assert "timing 1 steps of each schedule on 2 processes" in result.err
    for name in ("by hand +schedopt", "1F1B +schedopt", "1F1B +torch"):
        assert len(re.findall(rf"^ {name} ", result.out, re.MULTILINE)) == 2
    assert re.search(r"^ by hand .+ yes +0\.\d+$", result.out, re.MULTILINE)
    assert "Losses: equal. Lag of a boundary tensor, measured: " in result.out
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    rows = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert rows == {f"device {d} {kind}" for d in (0, 1) for kind in ("predicted", "measured")}


def test_losses_that_differ_are_exit_code_1(run: Run, schedule_file: Path) -> None:
    model = ["--model", "tests.executor.user_models:drifting", "--steps", "1"]
    result = run("bench", schedule_file, schedule_file, *model, "--json", "--quiet")
    assert result.code == 1
    assert "Error: the losses of the schedules differ, by " in result.err
    assert result.json["losses_equal"] is False


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "give either --model MODULE:FACTORY or --emulate"),
        (["--emulate", "--model", "a:b"], "give either --model MODULE:FACTORY or --emulate"),
        (["--emulate", "--set", "width=8"], "--set and --device are for --model"),
        (["--model", "nowhere:factory"], "model = nowhere:factory: must be MODULE:FACTORY"),
        (["--emulate", "--steps", "0"], "0 is not in the range x>=1"),
        (["--emulate", "--trace", "no/folder.json"], "there is no directory 'no'"),
    ],
)
def test_what_is_wrong_is_named_before_anything_runs(
    run: Run, schedule_file: Path, arguments: list[str], error: str
) -> None:
    result = run("bench", schedule_file, *arguments)
    assert (result.code, result.out) == (2, "")
    assert error in result.err


def test_a_schedule_that_breaks_a_rule_is_refused(run: Run, schedule_file: Path) -> None:
    spoil(schedule_file)
    result = run("bench", schedule_file, "--emulate")
    assert result.code == 2
    assert "schedule is not valid" in result.err


def test_schedules_for_different_numbers_of_devices_are_refused(
    run: Run, schedule_file: Path, tmp_path: Path
) -> None:
    other = tmp_path / "three.json"
    CLASSIC["1F1B"](Problem.uniform(devices=3, microbatches=2)).save(other)
    result = run("bench", schedule_file, other, "--emulate")
    assert result.code == 2
    assert "schedules[1].devices = 3: must be 2, as of the first" in result.err
