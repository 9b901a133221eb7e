from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_check import spoil


def test_it_writes_a_picture_and_says_so(run: Run, schedule_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.svg"
    result = run("plot", schedule_file, "-o", target)
    assert (result.code, result.out) == (0, "")
    assert result.err == f"picture written to {target}\n"
    assert target.read_text(encoding="utf-8").startswith("<?xml")
    assert run("plot", schedule_file, "-o", target, "--quiet").err == ""


def test_options_change_the_picture(run: Run, schedule_file: Path, tmp_path: Path) -> None:
    target, pictures = tmp_path / "a.png", []
    for options in ([], ["--from", "1", "--to", "3"], ["--device", "1"], ["--no-transfers"]):
        assert run("plot", schedule_file, "-o", target, *options).code == 0
        pictures.append(target.read_bytes())
    assert len(set(pictures)) == 4


def test_another_ending_is_an_error_that_names_the_valid_ones(
    run: Run, schedule_file: Path, tmp_path: Path
) -> None:
    result = run("plot", schedule_file, "-o", tmp_path / "a.gif")
    assert result.code == 2
    assert "a.gif' must end in one of .svg, .png, .pdf" in result.err


def test_a_part_with_nothing_in_it_is_an_error(
    run: Run, schedule_file: Path, tmp_path: Path
) -> None:
    result = run("plot", schedule_file, "-o", tmp_path / "a.svg", "--from", "99")
    assert result.code == 2
    assert "from = 99: must be at least 0 and before the makespan, 7 units" in result.err
    assert not (tmp_path / "a.svg").exists()


def test_without_matplotlib_it_says_how_to_install_it(
    run: Run, schedule_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("schedopt.formats.plot", "schedopt.formats.plot_rows"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("plot", schedule_file, "-o", tmp_path / "a.svg")
    assert result.code == 2
    assert "pip install schedopt[plot]" in result.err


def test_a_broken_schedule_is_drawn_with_a_warning(
    run: Run, schedule_file: Path, tmp_path: Path
) -> None:
    spoil(schedule_file)
    result = run("plot", schedule_file, "-o", tmp_path / "a.svg")
    assert result.code == 0
    assert "breaks rules of its problem" in result.err
