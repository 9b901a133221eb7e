from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run


def spoil(path: Path) -> None:
    """Let op 0B0 start at 0, where 0F0 runs."""
    data = json.loads(path.read_text(encoding="utf-8"))
    first = data["timeline"][0]["ops"]
    (op,) = (op for op in first if (op["kind"], op["microbatch"]) == ("B", 0))
    op["start"], op["end"] = 0, 1
    path.write_text(json.dumps(data), encoding="utf-8")


def test_a_valid_schedule_is_exit_code_0(run: Run, schedule_file: Path) -> None:
    result = run("check", schedule_file)
    assert result.code == 0
    assert result.out.startswith(f"{schedule_file}: valid, no rule of the problem is broken\n")
    assert "makespan   7 units (objective), bubble 14.29 % of it" in result.out


def test_every_violation_is_printed_with_op_device_and_time(run: Run, schedule_file: Path) -> None:
    spoil(schedule_file)
    result = run("check", schedule_file)
    assert result.code == 2
    count = len(result.out.splitlines()[1:])
    assert count >= 2
    assert result.out.startswith(f"{schedule_file}: schedule is not valid, {count} violations:\n")
    assert "  overlap: device 0, 0B0 at 0: " in result.out
    assert "  precedence: device 0, 0B0 at 0: " in result.out


def test_violations_as_json(run: Run, schedule_file: Path) -> None:
    assert run("check", schedule_file, "--json").json["valid"] is True
    spoil(schedule_file)
    result = run("check", schedule_file, "--json")
    assert result.code == 2
    assert result.json["valid"] is False
    (overlap,) = (v for v in result.json["violations"] if v["rule"] == "overlap")
    assert (overlap["device"], overlap["op"], overlap["time"]) == (0, "0B0", 0)
    assert result.json["summary"]["makespan"] == 7


def test_a_fault_in_the_problem_of_a_schedule_names_its_place(
    run: Run, schedule_file: Path
) -> None:
    data = json.loads(schedule_file.read_text(encoding="utf-8"))
    data["problem"]["lag"] = -1
    schedule_file.write_text(json.dumps(data), encoding="utf-8")
    result = run("check", schedule_file)
    assert result.code == 2
    assert f"{schedule_file}: schedule is not valid, 1 fault:\n  problem.lag = -1:" in result.err


def test_a_file_that_states_another_makespan_than_that_of_its_times_is_refused(
    run: Run, schedule_file: Path
) -> None:
    data = json.loads(schedule_file.read_text(encoding="utf-8"))
    data["makespan"] = 6
    schedule_file.write_text(json.dumps(data), encoding="utf-8")
    result = run("check", schedule_file)
    assert result.code == 2
    assert "makespan = 6: must be 7, the end of its last op, or left out" in result.err
