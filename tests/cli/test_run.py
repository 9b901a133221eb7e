"""`schedopt run`: steps of a schedule with a model, and faults with their names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schedopt.executor.errors import ExecutorError
from schedopt.executor.local import LocalRanks
from tests.cli.conftest import Run

MLP = "schedopt.executor.models:mlp"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", MLP, "--nproc", 3), "nproc = 3: must be 2, one process for each device"),
        (("--model", "tests.executor.test_models:wrong_count"), "must return 2 stages, not 3"),
        (("--model", "tests.executor.test_models:no_model"), "must return a PipelineModel"),
        (("--model", "nowhere:mlp"), "No module named 'nowhere'"),
        (("--model", MLP, "--set", "depth=3"), "option = depth=3"),
        (("--model", MLP, "--trace", "no/such/place.json"), "there is no directory"),
        ((), "Missing option '--model'"),
    ],
)
def test_a_wrong_argument_is_named_and_is_exit_code_2(
    run: Run, schedule_file: Path, arguments: tuple[object, ...], message: str
) -> None:
    result = run("run", schedule_file, *map(str, arguments))
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert "Traceback" not in result.err


def test_a_problem_is_not_run(run: Run, problem_file: Path) -> None:
    result = run("run", problem_file, "--model", MLP)
    assert result.code == 2
    assert "is a problem, not a schedule; solve it first" in result.err


def test_a_schedule_that_breaks_a_rule_is_not_run(run: Run, schedule_file: Path) -> None:
    text = schedule_file.read_text(encoding="utf-8")
    schedule_file.write_text(text.replace('"capacity": 2', '"capacity": 1'), encoding="utf-8")
    result = run("run", schedule_file, "--model", MLP)
    assert result.code == 2
    assert "capacity" in result.err


def run_on(ranks: LocalRanks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command take ranks that are there already."""
    from schedopt.executor import launch

    run_here: Callable[..., Any] = launch.run_here
    monkeypatch.setattr(
        launch, "run_here", lambda request, **options: run_here(request, ranks=ranks)
    )


@pytest.fixture
def four(tmp_path: Path) -> Path:
    """A schedule for four devices."""
    from schedopt.classic import CLASSIC
    from schedopt.problem import Problem

    path = tmp_path / "four.json"
    problem = Problem.uniform(devices=4, microbatches=4, time_unit="ms")
    CLASSIC["ZB-H1"](problem).save(path)
    return path


def test_the_report_has_steps_ranks_prediction_and_verdict(
    run: Run,
    ranks: LocalRanks,
    four: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_on(ranks, monkeypatch)
    result = run("run", four, "--model", MLP, "--steps", 2, "--check")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert lines[0] == f"ZB-H1 with {MLP}: 4 ranks, 4 stages, 4 microbatches"
    assert any(line.split()[:3] == ["step", "loss", "ms"] for line in lines)
    assert "predicted 15.00 ms" in result.out
    assert lines[-1].startswith("gradients  equal to those of one process: largest relative")
    assert float(lines[-1].split()[-3]) <= 1e-12


def test_gradients_that_differ_are_exit_code_1(
    run: Run,
    ranks: LocalRanks,
    four: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_on(ranks, monkeypatch)
    model = "tests.executor.user_models:drifting"
    result = run("run", four, "--model", model, "--steps", 1, "--check")
    assert result.code == 1
    assert "gradients  DIFFERENT from one process" in result.out


def test_a_stage_that_raises_is_exit_code_2_with_its_own_error(
    run: Run,
    ranks: LocalRanks,
    four: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_on(ranks, monkeypatch)
    result = run("run", four, "--model", "tests.executor.user_models:failing", "--steps", 1)
    assert (result.code, result.out) == (2, "")
    assert "in op 1F0: stage 1, microbatch 0: ArithmeticError: no such sum" in result.err
    assert "user_models.py" in result.err
    assert "Traceback" not in result.err


def test_a_rank_that_is_lost_is_exit_code_1(
    run: Run, schedule_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from schedopt.executor import launch

    def lost(request: object, **options: object) -> None:
        raise ExecutorError("rank 1: the process has ended")

    monkeypatch.setattr(launch, "run_here", lost)
    result = run("run", schedule_file, "--model", MLP)
    assert (result.code, result.out) == (1, "")
    assert "Error: rank 1: the process has ended" in result.err


@pytest.mark.slow
def test_torchrun_starts_the_ranks_and_one_of_them_reports(
    schedule_file: Path, tmp_path: Path
) -> None:
    main = tmp_path / "main.py"
    main.write_text("from schedopt.cli import main\n\nmain()\n", encoding="utf-8")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    arguments = ("run", str(schedule_file), "--model", MLP, "--steps", "1", "--check")
    done = subprocess.run(
        [*torchrun, "--nproc-per-node", "2", str(main), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("gradients  equal to those of one process") == 1
    assert "Traceback" not in done.stderr
