from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run
from tests.cli.test_check import spoil
from tests.formats.html.test_page import data_in


def test_it_writes_a_page_of_all_schedules_and_says_so(
    run: Run, schedule_file: Path, tmp_path: Path
) -> None:
    target = tmp_path / "report.html"
    result = run("report", schedule_file, schedule_file, "-o", target)
    assert (result.code, result.out) == (0, "")
    assert result.err == f"report written to {target}\n"
    schedules = data_in(target.read_text(encoding="utf-8"))["schedules"]
    assert [schedule["title"] for schedule in schedules] == ["by hand for two by two"] * 2
    assert run("report", schedule_file, "-o", target, "--quiet").err == ""


def test_a_broken_schedule_is_reported_with_a_warning(
    run: Run, schedule_file: Path, tmp_path: Path
) -> None:
    spoil(schedule_file)
    result = run("report", schedule_file, "-o", tmp_path / "report.html")
    assert result.code == 0
    assert "breaks rules of its problem" in result.err


def test_what_can_not_be_read_or_written_is_an_error(
    run: Run, schedule_file: Path, problem_file: Path, tmp_path: Path
) -> None:
    target = tmp_path / "report.html"
    result = run("report", problem_file, "-o", target)
    assert result.code == 2
    assert "is a problem, not a schedule" in result.err
    assert run("report", schedule_file, "-o", tmp_path).code == 2
    assert run("report", "-o", target).code == 2
    assert not target.exists()
