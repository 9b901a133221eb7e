from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

COMMANDS = ("solve", "compare", "check", "show")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_file_is_named(run: Run, command: str) -> None:
    result = run(command, "nowhere.toml")
    assert result.code == 2
    assert "nowhere.toml" in result.err
    assert "No such file" in result.err
    assert result.out == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_name_suggests_close_ones(run: Run, command: str) -> None:
    result = run(command, "zb-1.5-p8-m24")
    assert result.code == 2
    assert "did you mean" in result.err
    assert "zb-1.5b-p8-m24" in result.err
    assert "schedopt problems" in result.err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_directory_is_no_file(run: Run, command: str, tmp_path: Path) -> None:
    result = run(command, tmp_path)
    assert result.code == 2
    assert f"{tmp_path}: problem is not valid" in result.err
    assert "Is a directory" in result.err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("latin.json", b'{"name": "\xe9"}'),
        ("broken.json", b'{"devices": '),
        ("broken.toml", b"devices = = 2"),
        ("list.json", b"[1, 2]"),
        ("empty.json", b""),
        ("deep.json", b"[" * 100_000),
        ("nul.toml", b"devices = 2\x00"),
    ],
)
def test_a_file_that_is_no_problem_never_gives_a_traceback(
    run: Run, command: str, tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    result = run(command, path)
    assert result.code == 2
    assert f"Error: {path}: problem is not valid, 1 fault:" in result.err


def test_several_faults_are_reported_together(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "problem.toml"
    path.write_text(
        "devices = 0\nmicrobatches = -1\nlags = 3\n[durations]\nF = [1, -2]\nB = 'x'\nW = 1\n"
    )
    result = run("solve", path)
    assert result.code == 2
    assert result.err.startswith(f"Error: {path}: problem is not valid, 5 faults:\n")
    for fault in (
        "devices = 0:",
        "microbatches = -1:",
        "durations.F[1] = -2:",
        "durations.B = 'x':",
        "lags = 3:",
    ):
        assert f"\n  {fault}" in result.err


@pytest.mark.parametrize("command", ["check", "show"])
def test_a_problem_is_no_schedule(run: Run, command: str, problem_file: Path) -> None:
    result = run(command, problem_file)
    assert result.code == 2
    assert f"{str(problem_file)!r} is a problem, not a schedule" in result.err
    assert f"schedopt solve {problem_file} -o schedule.json" in result.err


def test_a_file_wins_over_a_bundled_problem_of_the_same_name(
    run: Run, problem_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(problem_file.parent)
    problem_file.rename("zb-1.5b-p8-m24")
    result = run("solve", "zb-1.5b-p8-m24")  # TOML without its ending is read as JSON
    assert result.code == 2
    assert "must be a readable JSON file, or TOML with the ending .toml" in result.err
    Path("zb-1.5b-p8-m24").unlink()
    Path("zb-1.5b-p8-m24").mkdir()
    assert run("show", "zb-1.5b-p8-m24").err.count("is a problem, not a schedule") == 1
