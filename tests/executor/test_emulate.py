"""Emulated stages: they take the time of their ops, and are stages in every other respect."""

from __future__ import annotations

import time

import pytest
import torch

from schedopt.errors import ProblemError
from schedopt.executor.emulate import EmulatedStage, emulated, emulated_links, emulated_ops
from schedopt.executor.split import DeferredWeights
from schedopt.problem import Problem

LONG = 0.02


def problem(**fields: object) -> Problem:
    return Problem.uniform(devices=2, microbatches=2, **fields)  # type: ignore[arg-type]


def seconds(call: object, *args: object) -> float:
    start = time.perf_counter()
    call(*args)  # type: ignore[operator]
    return time.perf_counter() - start


@pytest.mark.parametrize("long", ["F", "B", "W"])
def test_the_op_that_is_long_waits_and_no_other_has_to(long: str) -> None:
    times = dict.fromkeys(("F", "B", "W"), 0.0) | {long: LONG}
    stage = EmulatedStage(times)
    deferred = DeferredWeights(stage)
    deferred.convert()
    x = torch.ones(1, 8, requires_grad=True)
    outputs: list[torch.Tensor] = []

    def forward() -> None:
        with deferred.record(0):
            outputs.append(stage(x))

    def backward() -> None:
        with deferred.record(0):
            torch.autograd.backward(outputs[0], torch.ones(1, 8))

    # Any op can be held up by the machine; the one that waits never ends early.
    found = {"F": seconds(forward), "B": seconds(backward), "W": seconds(deferred.run, 0)}
    assert found[long] >= LONG
    assert x.grad is not None
    assert stage.linear.weight.grad is not None


def test_a_fused_backward_takes_the_time_of_bw() -> None:
    stage = EmulatedStage({"F": 0.0, "BW": LONG})
    output = stage(torch.ones(1, 8))
    assert seconds(output.backward, torch.ones(1, 8)) >= LONG


def test_gradients_are_those_of_what_the_stage_computes() -> None:
    stage = EmulatedStage({"F": 0.0, "B": 0.0, "W": 0.0}).double()
    x = torch.randn(1, 5, dtype=torch.float64, requires_grad=True)
    other = torch.randn(1, 5, dtype=torch.float64, requires_grad=True)
    stage(x, other).square().sum().backward()
    weight = stage.linear.weight.detach().clone().requires_grad_()
    a, b = x.detach().clone().requires_grad_(), other.detach().clone().requires_grad_()
    ((a + b) + (a + b)[:1, :1] @ weight.T).square().sum().backward()
    for ours, theirs in ((x, a), (other, b), (stage.linear.weight, weight)):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert torch.allclose(ours.grad, theirs.grad, rtol=1e-13)


def test_boundary_tensors_have_the_size_that_was_asked_for() -> None:
    model = emulated(problem(), unit_seconds=1e-9, boundary_bytes=4096)
    (batch,) = model.inputs(3)
    assert model.stages == 2
    assert model.build(0)(batch[:1]).untyped_storage().nbytes() == 4096
    assert len(batch) == len(model.target(3)) == 3


def test_stages_take_the_times_of_the_problem_in_seconds() -> None:
    given = problem(F=[1, 20], B=0, W=0)  # type: ignore[arg-type]
    model = emulated(given, unit_seconds=1e-3, boundary_bytes=4)
    assert seconds(model.build(1), torch.ones(1, 1)) >= LONG


def test_unequal_microbatches_are_refused() -> None:
    with pytest.raises(ProblemError, match=r"microbatch_factors = \[1.0, 2.0\]: must be equal"):
        emulated(problem(microbatch_factors=[1, 2]), unit_seconds=1.0)


def test_links_have_the_lags_of_the_problem_in_each_direction() -> None:
    given = problem(lag={"forward": 3, "backward": 5})
    assert emulated_links(given, unit_seconds=0.5) == {(0, 1): 1.5, (1, 0): 2.5}


def test_links_without_a_lag_are_left_out() -> None:
    assert emulated_links(problem(lag=[[0, 0], [2, 0]]), unit_seconds=1.0) == {(1, 0): 2.0}


def test_a_link_with_two_lags_is_refused() -> None:
    given = problem(stages=4, placement="interleaved", lag=[1, 2, 3])
    with pytest.raises(ProblemError, match=r"lag from device 0 to 1 = 1: .*stage 2 to 3 it is 3"):
        emulated_links(given, unit_seconds=1.0)


def test_ops_have_the_durations_of_the_problem_in_seconds() -> None:
    given = problem(F=[1, 2], B=3, W=4)  # type: ignore[arg-type]
    found = emulated_ops(given, unit_seconds=0.5)
    assert found == {
        (0, "F"): 0.5,
        (1, "F"): 1.0,
        (0, "B"): 1.5,
        (1, "B"): 1.5,
        (0, "W"): 2.0,
        (1, "W"): 2.0,
    }
