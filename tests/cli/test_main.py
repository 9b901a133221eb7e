"""What holds for every command: streams, colours, encodings, exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from schedopt.cli import commands
from tests.cli.conftest import Run

MAIN = (sys.executable, "-c", "from schedopt.cli import main; main()")


def start(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[bytes]:
    """Run a command line in a process of its own."""
    line = [*MAIN, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, check=False, timeout=60, **options)  # type: ignore[call-overload,no-any-return]


def test_the_version_names_the_solver_too(run: Run) -> None:
    result = run("--version")
    assert result.code == 0
    assert result.out.startswith(f"schedopt {version('schedopt')} (ortools {version('ortools')}, ")


def test_every_command_has_help_with_examples(run: Run) -> None:
    names = {"bench", "check", "compare", "problems", "profile", "run", "show", "solve"}
    names |= {"explain", "export", "import", "plot", "recommend", "report", "sweep"}
    assert set(commands.commands) == names
    for name in commands.commands:
        result = run(name, "--help")
        assert result.code == 0
        assert f"  Examples:\n    schedopt {name}" in result.out


@pytest.mark.parametrize("arguments", [(), ("frobnicate",), ("solve",), ("solve", "a", "b")])
def test_wrong_usage_is_exit_code_2(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert "schedopt" in result.err


@pytest.mark.parametrize("unbuffered", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_a_reader_that_leaves_early_is_no_error(
    schedule_file: Path, unbuffered: dict[str, str]
) -> None:
    line = [*MAIN, "show", str(schedule_file), "--width", "20000"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(line, env={**os.environ, **unbuffered}, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_without_traceback(schedule_file: Path) -> None:
    with open("/dev/full", "wb") as full:
        line = [*MAIN, "show", str(schedule_file)]
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr == b"Error: output could not be written: No space left on device\n"


def test_an_encoding_without_boxes_gets_ascii(schedule_file: Path) -> None:
    done = start("show", schedule_file, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert b"F0--" in done.stdout
    table = start("compare", schedule_file, env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    assert table.returncode == 0
    assert b"1F1B" in table.stdout


def test_colours_appear_only_on_request(schedule_file: Path) -> None:
    terminal = {
        **os.environ,
        "FORCE_COLOR": "1",
        "COLORTERM": "truecolor",
        "TERM": "xterm-256color",
    }
    assert b"\x1b[" not in start("show", schedule_file).stdout
    assert b"\x1b[" in start("show", schedule_file, env=terminal).stdout
    done = start("show", schedule_file, env={**terminal, "NO_COLOR": "1"})
    assert not re.search(rb"\x1b\[[0-9;]*[34]8[;0-9]*m", done.stdout)
    assert "F0──".encode() in done.stdout


def test_arguments_can_be_completed_in_a_shell() -> None:
    script = start(env={**os.environ, "_SCHEDOPT_COMPLETE": "bash_source"})
    assert script.returncode == 0
    assert b"_SCHEDOPT_COMPLETE=bash_complete" in script.stdout
    words = {"COMP_WORDS": "schedopt problems zb-1.5b-p8-m2", "COMP_CWORD": "2"}
    done = start(env={**os.environ, "_SCHEDOPT_COMPLETE": "bash_complete", **words})
    assert done.stdout == b"plain,zb-1.5b-p8-m24\n"


def test_no_command_prints_help_of_another() -> None:
    helps = [command.get_short_help_str() for command in commands.commands.values()]
    assert len(set(helps)) == len(helps)
    assert all(isinstance(command, click.Command) for command in commands.commands.values())
