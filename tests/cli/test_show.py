from __future__ import annotations

import json
from pathlib import Path

import pytest

from schedopt.cli.show import CLASSIC_NAMES
from tests.cli.conftest import Run
from tests.cli.test_check import spoil


def test_it_draws_ops_and_memory_and_sums_up(run: Run, schedule_file: Path) -> None:
    result = run("show", schedule_file, "--width", "60")
    assert result.code == 0
    assert result.err == ""
    lines = result.out.splitlines()
    assert lines[2] == "     0 F0────F1────······B0────W0────B1────W1────  14.3 %"
    assert "     0 ▄▄▄▄▄▄▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▄▄▄▄▄▄▄▄▄▄▄▄ 100.0 %" in lines
    assert "by hand for two by two: 2 devices, 2 stages (linear), 2 microbatches" in result.out
    assert "makespan   7 units (objective), bubble 14.29 % of it" in result.out


def test_without_a_terminal_there_are_no_colours(run: Run, schedule_file: Path) -> None:
    assert "\x1b" not in run("show", schedule_file).out


def test_a_picture_is_as_wide_as_asked(run: Run, schedule_file: Path) -> None:
    def width(*options: str) -> int:
        return len(run("show", schedule_file, *options).out.splitlines()[2])

    assert width() == 100 - (100 - 15) % 7
    assert width("--width", "190") == 190


def test_a_classic_schedule_of_a_problem(run: Run, problem_file: Path) -> None:
    result = run("show", problem_file, "--classic", "1F1B", "--json")
    assert result.code == 0
    assert result.json["name"] == "1F1B"
    assert result.json["makespan"] == 9  # (m + p - 1) (F + B + W)
    assert result.json["valid"] is True


@pytest.mark.parametrize("name", CLASSIC_NAMES)
def test_every_classic_schedule_can_be_shown_or_says_what_it_needs(run: Run, name: str) -> None:
    result = run("show", "zb-1.5b-p8-m24", "--classic", name)
    if result.code == 0:
        assert "device" in result.out
    else:
        assert result.code == 2
        assert result.err.startswith("Error: ")
        assert "placement" in result.err


def test_an_unknown_classic_schedule_lists_the_known(run: Run, problem_file: Path) -> None:
    result = run("show", problem_file, "--classic", "2f2b")
    assert result.code == 2
    assert "'2f2b'" in result.err
    assert "'interleaved-1f1b'" in result.err


def test_a_broken_schedule_is_drawn_with_a_warning(run: Run, schedule_file: Path) -> None:
    spoil(schedule_file)
    result = run("show", schedule_file)
    assert result.code == 0
    assert "breaks rules of its problem" in result.err
    assert "device" in result.out
    assert run("show", schedule_file, "--quiet").err == ""
    assert run("show", schedule_file, "--json").json["valid"] is False


def test_facts_of_the_file_that_are_no_facts_do_no_harm(run: Run, schedule_file: Path) -> None:
    data = json.loads(schedule_file.read_text(encoding="utf-8"))
    data["info"] = {"status": [1], "gap": "x", "bound": None, "versions": 3, "seed": {"a": 1}}
    schedule_file.write_text(json.dumps(data), encoding="utf-8")
    result = run("show", schedule_file)
    assert result.code == 0
    assert "status       [1], as its file says" in result.out


def test_a_part_of_a_schedule(run: Run, schedule_file: Path) -> None:
    options = ("--from", "2", "--to", "5", "--device", "1", "--width", "60")
    lines = run("show", schedule_file, *options).out.splitlines()
    assert lines[2] == "     1 B0─────────────F1─────────────B1─────────────   0.0 %"
    assert not any(line.startswith("     0 ▄") for line in lines)  # no memory of device 0


def test_a_part_with_nothing_in_it_is_an_error_that_names_the_options(
    run: Run, schedule_file: Path
) -> None:
    result = run("show", schedule_file, "--from", "8", "--device", "2")
    assert (result.code, result.out) == (2, "")
    assert "from = 8: must be at least 0 and before the makespan, 7 units" in result.err
    assert "device = 2: must be a device of the problem, 0 to 1" in result.err
