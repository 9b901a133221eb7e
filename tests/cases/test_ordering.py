"""Edges, placements and indices that runtimes got wrong, as far as a schedule shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schedopt import Problem, ProblemError, Schedule, check
from schedopt.analysis import summary
from schedopt.classic import interleaved, one_f_one_b, zb_h1
from schedopt.op import KINDS, Op, Resource
from tests.cases.solving import checked, optimal_schedule, optimum, pipeline


@pytest.mark.parametrize(("edges", "makespan"), [([{"from": 0, "to": 2, "lag": 6}], 21), ([], 11)])
def test_X05_a_skip_connection_can_be_the_longest_path(edges: list[Any], makespan: int) -> None:
    """Stage 2 needs the output of stage 0, 6 later; a runtime knew only neighbours."""
    assert optimum(pipeline(3, 3, edges=edges)) == makespan


def test_X08_two_devices_can_be_interleaved() -> None:
    """With two devices the next and the previous are the same; that is no reason to refuse."""
    problem = pipeline(2, 2, placement=[0, 1, 0, 1])
    assert optimum(problem) == 13
    assert check(interleaved(problem)) == ()


V_OF_EIGHT = [0, 1, 2, 3, 3, 2, 1, 0]


def test_X10_the_placement_travels_with_the_schedule(tmp_path: Path) -> None:
    """A model was cut for a loop and run with a V; the file says which stages are where."""
    schedule = optimal_schedule(pipeline(4, 8, placement=V_OF_EIGHT, capacity=8))
    assert schedule.makespan == 51
    path = tmp_path / "v.json"
    schedule.save(path)
    loaded = Schedule.load(path)
    assert loaded == schedule
    assert loaded.to_dict()["placement"] == V_OF_EIGHT
    for resource, ops in loaded.orders.items():
        assert {op.stage for op in ops} == {resource.device, 7 - resource.device}


def test_X10_ops_on_a_device_that_is_not_theirs_are_a_violation() -> None:
    """A schedule for the V is none for the loop."""
    schedule = optimal_schedule(pipeline(4, 2, placement=V_OF_EIGHT))
    loop = pipeline(4, 2, placement="interleaved", stages=8)
    moved = Schedule(loop, schedule.timeline, schedule.resolution)
    rules = {(violation.rule, violation.op.stage) for violation in check(moved) if violation.op}
    assert {stage for rule, stage in rules if rule == "device"} == {4, 5, 6, 7}


def test_X14_labels_with_two_digits_are_distinct() -> None:
    """11F3 and 1F13 are different ops; an older text form had no separator."""
    assert [Op.parse(label) for label in ("11F3", "1F13", "10W10", "1B0")] == [
        Op("F", 11, 3),
        Op("F", 1, 13),
        Op("W", 10, 10),
        Op("B", 1, 0),
    ]
    ops = [Op(kind, s, i) for kind in KINDS for s in range(32) for i in range(256)]
    labels = [str(op) for op in ops]
    assert len(set(labels)) == len(ops)
    assert [Op.parse(label) for label in labels] == ops


@pytest.mark.parametrize(
    ("build", "devices", "microbatches"), [(zb_h1, 12, 24), (one_f_one_b, 32, 256)]
)
def test_X14_writing_and_reading_a_schedule_changes_nothing(
    build: Callable[[Problem], Schedule], devices: int, microbatches: int, tmp_path: Path
) -> None:
    """Also with two-digit stages and three-digit microbatches."""
    schedule = build(pipeline(devices, microbatches))
    path = tmp_path / "schedule.json"
    schedule.save(path)
    assert Schedule.load(path) == schedule


@pytest.mark.parametrize(("B", "work"), [(2, 32), (1, 24)])
def test_X15_b_is_the_gradient_of_the_input(B: int, work: int) -> None:
    """B = 2 read as the gradient of the input is more work than as the whole backward."""
    schedule = zb_h1(pipeline(4, 8, 1, B, 1))
    assert [device.work for device in summary(schedule).devices] == [work] * 4
    assert schedule.to_dict()["kinds"]["B"] == KINDS["B"]
    assert "input" in KINDS["B"]
    assert "weights" in KINDS["W"]


def test_X15_the_whole_backward_in_two_halves_is_27() -> None:
    """A whole backward of 2 is B = 1 and W = 1."""
    assert optimum(pipeline(4, 8, capacity=4)) == 27


def test_X26_tied_embeddings_are_summed_after_the_last_w_of_both_stages() -> None:
    """The last stage is busy until 27 in any schedule, and the sum of the copies takes 2."""
    assert optimum(pipeline(4, 8, capacity=4)) == 27
    tied = {"tied": [{"stages": [0, 3], "duration": 2}]}
    schedule = checked(pipeline(4, 8, capacity=4, end_of_step=tied)).schedule
    assert schedule is not None
    assert schedule.makespan == 29
    (summed,) = schedule.timeline[Resource("network", 0)]
    assert str(summed.op) == "0TIE0"
    ends = [timed.end for d in (0, 3) for timed in schedule.by_device[d] if timed.op.kind == "W"]
    assert summed.start >= max(ends)
    optimizers = [timed.start for d in (0, 3) for timed in schedule.by_device[d][-1:]]
    assert min(optimizers) >= summed.end


def test_X21_every_stage_reduces_its_gradients_after_its_last_w() -> None:
    """The reduction of the last stage was left out; here each is an op that has to be there."""
    problem = pipeline(3, 3, end_of_step={"reduction": 1})
    schedule = checked(problem).schedule
    assert schedule is not None
    networks = {r.device: ops for r, ops in schedule.timeline.items() if r.kind == "network"}
    assert [str(networks[d][0].op) for d in range(3)] == ["0RED0", "1RED0", "2RED0"]
    for device, (reduced,) in networks.items():
        last = max(t.end for t in schedule.by_device[device] if t.op.kind == "W")
        assert reduced.start >= last
    without = {r: ops for r, ops in schedule.timeline.items() if r != Resource("network", 2)}
    (violation,) = check(replace(schedule, timeline=without))
    assert str(violation) == "missing: device 2, 2RED0: is not in the schedule"


def test_X32_forward_only_takes_m_plus_p_minus_1() -> None:
    """Evaluation with the schedule of training was wrong; its number of microbatches counts."""
    problem = Problem(devices=4, microbatches=8, durations={"F": 1}, forward_only=True)
    assert optimum(problem) == 11
    assert optimum(problem.replace(microbatches=4)) == 7
    assert optimum(pipeline(4, 8, forward_only=True)) == 11  # B and W are given and do not count


def test_X32_a_problem_without_backward_says_so() -> None:
    with pytest.raises(ProblemError, match="without a backward set forward_only = true"):
        Problem(devices=4, microbatches=8, durations={"F": 1})


def test_X33_a_stage_without_weights_takes_no_time_for_them() -> None:
    """An embedding alone on a stage made a collective hang; here its W takes no time."""
    assert optimum(pipeline(3, 3, 1, 1, [1, 0, 1])) == 11


@pytest.mark.parametrize(("backward", "makespan"), [(0, 15), (2, 24)])
def test_X34_a_frozen_first_stage_has_no_backward(backward: int, makespan: int) -> None:
    """A frozen encoder of twice the length, and the same encoder trained."""
    assert optimum(pipeline(3, 4, [2, 1, 1], [backward, 1, 1], [backward, 1, 1])) == makespan
