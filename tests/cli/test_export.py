from __future__ import annotations

import json
from pathlib import Path

import pytest

from schedopt.classic import gpipe
from schedopt.problem import Problem
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


def test_a_table_with_transfers_comes_back_as_the_same_order(
    run: Run, schedule_file: Path, tmp_path: Path
) -> None:
    table, again = tmp_path / "table.csv", tmp_path / "again.json"
    assert run("export", schedule_file, "--to", "torch-compute-comms", "-o", table).code == 0
    given = ("--from", "torch-compute-comms", "--problem", schedule_file, "-o", again)
    assert run("import", table, *given).code == 0
    assert Schedule.load(again).orders == Schedule.load(schedule_file).orders


def test_a_table_of_ops_comes_back_with_its_times(
    run: Run, schedule_file: Path, tmp_path: Path
) -> None:
    table, again = tmp_path / "ops.csv", tmp_path / "again.json"
    assert run("export", schedule_file, "--to", "ops-csv", "-o", table).code == 0
    result = run("import", table, "--from", "ops-csv", "--problem", schedule_file, "-o", again)
    assert result.code == 0
    assert "B in the table" not in result.err
    assert Schedule.load(again).timeline == Schedule.load(schedule_file).timeline


def test_times_that_break_a_rule_are_refused(run: Run, schedule_file: Path, tmp_path: Path) -> None:
    table = tmp_path / "ops.csv"
    run("export", schedule_file, "--to", "ops-csv", "-o", table)
    lines = table.read_text(encoding="utf-8").splitlines()
    lines[-1] = lines[-1].rsplit(",", 2)[0] + ",0,1"
    table.write_text("\n".join(lines), encoding="utf-8")
    new = tmp_path / "new.json"
    result = run("import", table, "--from", "ops-csv", "--problem", schedule_file, "-o", new)
    assert result.code == 2
    assert "breaks rules of the problem" in result.err
    assert not new.exists()


def test_an_old_table_is_read_with_the_meaning_that_is_told(
    run: Run, schedule_file: Path, tmp_path: Path
) -> None:
    table, again = tmp_path / "table.csv", tmp_path / "again.json"
    run("export", schedule_file, "--to", "torch-compute-only", "-o", table)
    table.write_text(table.read_text(encoding="utf-8").replace("I", "B"), encoding="utf-8")
    given = ("import", table, "--problem", schedule_file, "-o", again)
    assert "must be told what it means" in run(*given).err
    result = run(*given, "--b-means", "input-gradient")
    assert result.code == 0
    assert "B in the table is read as the gradient of the input only" in result.err
    wrong = run(*given, "--from", "ops-csv", "--b-means", "input-gradient")
    assert "--b-means is for tables of torch" in wrong.err


def test_a_trace_can_have_several_schedules(run: Run, schedule_file: Path) -> None:
    result = run("export", schedule_file, schedule_file, "--to", "chrome")
    assert result.code == 0
    events = json.loads(result.out)["traceEvents"]
    assert {event["pid"] for event in events} == {1, 2}


def test_the_schema_is_the_published_one(run: Run) -> None:
    published = Path(__file__).parents[2] / "data" / "schedule.schema.json"
    assert run("export", "--to", "schema").out == published.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("form", "count", "wanted"),
    [
        ("schema", 1, "no schedule, not for 1"),
        ("chrome", 0, "at least one schedule, not for 0"),
        ("ops-csv", 2, "one schedule, not for 2"),
        ("torch-compute-only", 0, "one schedule, not for 0"),
    ],
)
def test_every_format_says_how_many_schedules_it_is_for(
    run: Run, schedule_file: Path, form: str, count: int, wanted: str
) -> None:
    result = run("export", *[schedule_file] * count, "--to", form)
    assert result.code == 2
    assert f"--to {form} is for {wanted}" in result.err


def test_what_torch_can_not_run_is_refused_with_the_reason(run: Run, tmp_path: Path) -> None:
    problem = Problem.uniform(devices=3, microbatches=1, edges=[{"from": 0, "to": 2}])
    skip = tmp_path / "skip.json"
    gpipe(problem).save(skip)
    for form in ("torch-compute-only", "torch-compute-comms"):
        result = run("export", skip, "--to", form)
        assert result.code == 2
        assert "only neighbouring stages send to each other" in result.err
    assert run("export", skip, "--to", "ops-csv").code == 0
