from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from schedopt.cache import FOLDER_VARIABLE
from schedopt.cli import main
from tests.schedules import two_by_two

PROBLEM = """
name = "two by two"
devices = 2
microbatches = 2
durations = { F = 1, B = 1, W = 1 }
memory = { capacity = 2 }
"""


class Result(NamedTuple):
    """What a command line printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def plain_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the tester's own terminal, and nothing from or for their cache."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING", "PYTHONUNBUFFERED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process."""

    def run(*arguments: str | Path) -> Result:
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        code = stopped.value.code
        assert isinstance(code, int)
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture
def problem_file(tmp_path: Path) -> Path:
    path = tmp_path / "problem.toml"
    path.write_text(PROBLEM, encoding="utf-8")
    return path


@pytest.fixture
def schedule_file(tmp_path: Path) -> Path:
    path = tmp_path / "schedule.json"
    two_by_two(capacity=2, name="two by two").save(path)
    return path
