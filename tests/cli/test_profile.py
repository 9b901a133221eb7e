"""`schedopt profile`: a problem file that `solve` takes, and faults with their names."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from schedopt.problem import Problem
from tests.cli.conftest import Run

MLP = "schedopt.executor.models:mlp"
MODEL = (MLP, "--set", "width=16", "--set", "rows=2")


def test_a_model_is_profiled_solved_and_run_with_the_gradients_of_one_process(
    run: Run, tmp_path: Path
) -> None:
    """The whole way, with ranks that the commands start themselves."""
    problem, schedule, trace = (str(tmp_path / name) for name in ("p.json", "s.json", "t.json"))
    sizes = ("--devices", 2, "--microbatches", 3, "--capacity", "16KiB,0.5MiB")
    profiled = run("profile", *MODEL, *sizes, "--optimizer-factor", 0, "--repeat", 2, "-o", problem)
    assert profiled.code == 0, profiled.err
    assert f"problem written to {problem}" in profiled.err
    for word in ("link back", "held after F", "F (fused)", "static", "4352, 4352 bytes by device"):
        assert word in profiled.out
    given = Problem.load(problem)
    assert given.capacity == (16384, 524288)
    assert given.static == (4352, 4352)  # 2 layers of 16 x 17 numbers, and their gradients
    assert run("solve", problem, "-o", schedule, "--deterministic-limit", 0.1, "-q").code == 0
    done = run(
        *("run", schedule, "--model", *MODEL, "--steps", 2, "--check", "--trace", trace, "--json")
    )
    assert done.code == 0, done.err
    assert done.json["gradient_difference"] <= 1e-12
    assert len(done.json["losses"]) == len(done.json["seconds"]) == 2
    assert "torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d" in done.err
    assert f"--no-python schedopt run {schedule} --model {MLP} --steps 2" in done.err
    assert json.loads(Path(trace).read_text(encoding="utf-8"))["traceEvents"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((MLP,), "give --devices, --stages or both"),
        ((MLP, "--devices", 2, "--placement", "x"), "'x' must be linear, interleaved, v"),
        (
            (MLP, "--devices", 2, "--stages", 3, "--placement", "v"),
            "placement = 'v': places",
        ),
        ((MLP, "--devices", 2, "--placement", "0,2"), "placement"),
        ((MLP, "--devices", 2, "--capacity", "2 pounds"), "'2 pounds' is no size"),
        ((MLP, "--devices", 2, "--capacity", "1GiB,1GiB,1GiB"), "memory.capacity"),
        ((MLP, "--devices", 2, "--set", "witdh=3"), "option = witdh=3"),
        ((MLP, "--devices", 2, "--set", "layers=1"), "layers = 1: must be at least one a stage, 2"),
        (("nowhere:mlp", "--devices", 2), "No module named 'nowhere'"),
        (("schedopt.executor.models:gpt", "--devices", 2), "has no attribute 'gpt'"),
        (("tests.executor.test_models:no_model", "--devices", 2), "must return a PipelineModel"),
        (("tests.executor.user_models:raising", "--devices", 2), "KeyError: 'checkpoint'"),
        ((MLP, "--devices", 2, "-o", "no/such/place.json"), "there is no directory"),
    ],
)
def test_a_wrong_argument_is_named_and_is_exit_code_2(
    run: Run, arguments: tuple[object, ...], message: str
) -> None:
    result = run("profile", *map(str, arguments))
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("options", "stages", "device_of"),
    [
        (("--devices", 3), 3, (0, 1, 2)),
        (("--stages", 3), 3, (0, 1, 2)),
        (("--stages", 4, "--placement", "v"), 4, (0, 1, 1, 0)),
        (("--devices", 2, "--placement", "interleaved"), 4, (0, 1, 0, 1)),
        (("--devices", 2, "--stages", 6, "--placement", "wave"), 6, (0, 1, 1, 0, 0, 1)),
        (("--placement", "1,0,0"), 3, (1, 0, 0)),
    ],
)
def test_devices_stages_and_placement_follow_from_each_other(
    options: tuple[object, ...], stages: int, device_of: tuple[int, ...]
) -> None:
    from schedopt.cli.profile import _layout

    given = dict(zip(options[::2], options[1::2], strict=True))
    layout = _layout(
        given.get("--devices"),  # type: ignore[arg-type]
        given.get("--stages"),  # type: ignore[arg-type]
        given.get("--placement", "linear"),  # type: ignore[arg-type]
        None,
    )
    assert (layout.stage_count, layout.device_of) == (stages, device_of)
    assert layout.microbatches == 2 * layout.devices


def test_without_torch_a_message_says_how_to_install_it() -> None:
    line = (
        "import sys; sys.modules['torch'] = None; from schedopt.cli import main; "
        f"main(['profile', {MLP!r}, '--devices', '2'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", line], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 2
    assert "needs PyTorch, which is not installed: pip install schedopt[executor]" in done.stderr
    assert "Traceback" not in done.stderr
