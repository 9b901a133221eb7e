"""Schedules in the runtime of torch with our split: the gradients of one process, or a refusal."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.pipelining import schedules as of_torch

from schedopt.errors import NotApplicableError, ScheduleError
from schedopt.executor import torch_runtime
from schedopt.executor.local import LocalRanks
from schedopt.executor.torch_runtime import build
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from tests.executor import torch_steps
from tests.executor.steps import group_of, loss_fn, mlp, numbers
from tests.executor.torch_steps import TorchCase, classic, run_torch
from tests.schedules import schedule_of
from tests.test_readme import blocks

ONE = Problem.uniform(devices=1, microbatches=2)
LATE_W = schedule_of(ONE, "0F0 0F1 0B0 0B1 0W0 0W1")
ZB, V = classic("ZB-H1", microbatches=5), classic("ZB-V", microbatches=4)
CASES = [
    TorchCase("B and W", ZB, steps=2),
    TorchCase("two stages on a device", V),
    TorchCase("full backwards", classic("1F1B")),
    TorchCase("frozen first stage", ZB, model=torch_steps.frozen_first),
    TorchCase("views as outputs", ZB, model=torch_steps.views),
    TorchCase("checkpointed", V, model=torch_steps.checkpointed),
    TorchCase("a layer used twice", ZB, model=torch_steps.sharing),
    TorchCase("nothing can wait", ZB, model=torch_steps.unsplit),
]


@pytest.fixture(scope="module")
def found(ranks: LocalRanks) -> dict[str, list[float | str]]:
    """Largest difference of each case, by rank."""
    results = ranks.run(run_torch, CASES, timeout=120)
    return {case.name: [of[k] for of in results if k < len(of)] for k, case in enumerate(CASES)}


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_gradients_are_those_of_one_process(found: dict[str, list[float | str]], name: str) -> None:
    assert len(found[name]) == 4
    for rank, worst in enumerate(found[name]):
        assert isinstance(worst, float), (rank, worst)
        assert worst < 1e-12, rank


def test_stages_sharded_between_replicas_have_the_gradients_of_one_process(
    ranks: LocalRanks,
) -> None:
    assert max(ranks.run(torch_steps.sharded_difference)) < 1e-12


def in_one_process(what: str) -> Any:
    """On the first rank alone; what it raised if it did."""
    group = group_of(1)
    if group is None:
        return None
    try:
        return WITH_ONE_DEVICE[what](group)
    except Exception:
        return traceback.format_exc()


def events_of_backwards(group: Any) -> list[str]:
    """When gradients of the output (B) and of the weight (W) are there."""
    layer = nn.Linear(6, 6).double()
    events: list[str] = []

    def watch(module: nn.Module, given: Any, output: torch.Tensor) -> None:
        output.register_hook(lambda gradient: events.append("B"))

    runtime = build(LATE_W, {0: layer}, loss_fn, group=group)
    runtime.step(numbers(4)[0], target=numbers(4)[1])  # learns shapes
    layer.zero_grad()
    layer.register_forward_hook(watch)
    layer.weight.register_post_accumulate_grad_hook(lambda weight: events.append("W"))
    runtime.step(numbers(4)[0], target=numbers(4)[1])
    return events


def accumulates(group: Any, **options: Any) -> list[str]:
    (module,) = mlp(1)
    runtime = build(LATE_W, {0: module}, loss_fn, group=group, **options)
    x, y = numbers(4)
    runtime.step(x, target=y)
    module.zero_grad(set_to_none=False)
    runtime.step(x, target=y)
    runtime.step(x, target=y)
    return ["went on"]


def with_ddp(group: Any) -> Any:
    wrapped = nn.parallel.DistributedDataParallel(mlp(1)[0], process_group=group)
    return build(LATE_W, {0: wrapped}, loss_fn, group=group)


def compiled(group: Any) -> Any:
    (module,) = mlp(1)
    module.compile(backend="eager")
    return build(LATE_W, {0: module}, loss_fn, group=group)


WITH_ONE_DEVICE = {
    "events": events_of_backwards,
    "accumulates": accumulates,
    "accumulates sums": lambda group: accumulates(group, scale_grads=False),
    "ddp": with_ddp,
    "compiled": compiled,
    "two stages": lambda group: build(LATE_W, mlp(2), loss_fn, group=group),
    "two devices": lambda group: build(classic("1F1B"), mlp(1), loss_fn, group=group),
}


def test_gradients_of_weights_are_computed_in_w(ranks: LocalRanks) -> None:
    assert ranks.run(in_one_process, "events")[0] == ["B", "B", "W", "W"]


def test_gradients_of_an_earlier_step_are_refused_where_torch_would_divide_them_again(
    ranks: LocalRanks,
) -> None:
    refused = ranks.run(in_one_process, "accumulates")[0]
    assert "ExecutorError: stage 0: 0.weight has a gradient already, and torch would divide" in (
        refused
    )
    assert ranks.run(in_one_process, "accumulates sums")[0] == ["went on"]


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("ddp", "SplitError: stage 0 is wrapped by DistributedDataParallel"),
        ("compiled", "SplitError: stage 0: the module is compiled"),
        ("two stages", "the schedule has 1 stage on this device ([0]), the model has 2"),
        ("two devices", "the schedule has 4 devices, the group 1 ranks"),
    ],
)
def test_what_would_train_wrongly_or_hang_is_refused_with_the_reason(
    ranks: LocalRanks, what: str, reason: str
) -> None:
    assert reason in ranks.run(in_one_process, what)[0]


def test_a_schedule_that_is_wrong_or_not_for_torch_is_refused() -> None:
    late = replace(LATE_W, timeline={r: ops[::-1] for r, ops in LATE_W.timeline.items()})
    with pytest.raises(ScheduleError, match="schedule is not valid"):
        build(late, mlp(1), loss_fn)
    skip = Problem.uniform(devices=3, microbatches=1, edges=[{"from": 0, "to": 2}])
    rows = ["0F0 0B0 0W0", "1F0 1B0 1W0", "2F0 2B0 2W0"]
    with pytest.raises(NotApplicableError, match="only neighbouring stages"):
        build(schedule_of(skip, *rows), mlp(1), loss_fn)


def test_a_version_of_torch_that_is_not_tested_is_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "__version__", "2.99.1")
    empty = Schedule(ONE, {}, ONE.time_resolution)
    with (
        pytest.warns(
            RuntimeWarning, match=r"torch 2\.99\.1 is untried, this is tested with torch 2\.13"
        ),
        pytest.raises(ScheduleError),
    ):
        build(empty, mlp(1), loss_fn)


def test_a_version_without_the_private_names_is_an_error_with_the_tested_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(of_torch, "_Action")
    file = torch_runtime.__file__
    assert file is not None
    spec = importlib.util.spec_from_file_location("another_torch", file)
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ImportError, match=r"under the names known here: .*tested with torch 2\.13"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


@pytest.mark.slow
def test_the_program_of_the_documentation_trains(tmp_path: Path) -> None:
    for mark, _, text in blocks("docs/torch-runtime.md"):
        if mark.startswith("file: "):
            (tmp_path / mark.removeprefix("file: ")).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, "--nproc-per-node", "2", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *_, last = map(float, done.stdout.split())
    assert last < first
