from __future__ import annotations

from pathlib import Path

from schedopt.schedule import Schedule
from tests.cli.conftest import Run
from tests.cli.test_check import spoil


def test_a_table_of_actions_comes_back_as_the_same_order(
    run: Run, schedule_file: Path, problem_file: Path, tmp_path: Path
) -> None:
    table, again = tmp_path / "table.csv", tmp_path / "again.json"
    assert run("export", schedule_file, "--to", "torch-compute-only", "-o", table).code == 0
    result = run("import", table, "--problem", schedule_file, "-o", again)
    assert result.code == 0
    assert "B in the table is read as a full backward" in result.err
    assert Schedule.load(again).orders == Schedule.load(schedule_file).orders


def test_the_table_goes_to_standard_output_without_a_file(run: Run, schedule_file: Path) -> None:
    result = run("export", schedule_file, "--to", "ops-csv")
    assert result.code == 0
    assert result.err == ""
    assert result.out.startswith("device,position,kind,meaning,stage,microbatch,start")


def test_a_schedule_that_breaks_a_rule_is_not_exported(run: Run, schedule_file: Path) -> None:
    spoil(schedule_file)
    result = run("export", schedule_file, "--to", "ops-csv")
    assert result.code == 2
    assert result.out == ""
    assert "breaks rules of its problem" in result.err


def test_faults_of_a_table_name_the_file_row_and_column(
    run: Run, schedule_file: Path, tmp_path: Path
) -> None:
    table = tmp_path / "table.csv"
    table.write_text("0F0,oops\n1F0\n", encoding="utf-8")
    result = run("import", table, "--problem", schedule_file, "-o", tmp_path / "new.json")
    assert result.code == 2
    assert f"{table}: table of actions is not valid" in result.err
    assert "row 1, column 2 = 'oops'" in result.err
    assert not (tmp_path / "new.json").exists()


def test_a_table_that_is_not_there_is_named(run: Run, schedule_file: Path, tmp_path: Path) -> None:
    result = run(
        "import", tmp_path / "no.csv", "--problem", schedule_file, "-o", tmp_path / "n.json"
    )
    assert result.code == 2
    assert "no.csv' can not be read" in result.err
