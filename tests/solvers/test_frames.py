"""What a frame says about an op holds in every schedule of at most the horizon."""

import pytest

from schedopt import Problem
from schedopt.graph import build_graph
from schedopt.op import Op
from schedopt.solvers.frames import UNBOUND, follow_arcs, frames, start_limits
from schedopt.solvers.instance import build_instance
from schedopt.solvers.order_model import OrderModel
from tests.problems import random_problems


def instance_of(problem: Problem):
    return build_instance(build_graph(problem))


def frames_of(instance, most: int | None = None):
    known = list(frames(instance, most=most))
    for frame in known:
        follow_arcs(instance, frame)
    return known


def test_the_makespan_has_one_frame_with_the_heads_and_tails_of_the_instance():
    instance = instance_of(Problem.uniform(devices=3, microbatches=2, lag=1))
    (frame,) = frames_of(instance)
    assert frame.span is None
    assert frame.head == instance.heads()
    assert frame.tail == instance.tails()


def test_the_period_has_a_frame_per_device_that_binds_the_others_between_its_ops():
    instance = instance_of(
        Problem.uniform(devices=3, microbatches=1, F=2, B=3, W=4, lag=1, objective="period")
    )
    number = {op: a for a, op in enumerate(instance.ops)}
    first, _, last = frames_of(instance)
    b = number[Op("B", 2, 0)]
    assert first.head[b] == 8  # three F and two lags after the first start on device 0
    assert first.tail[b] == 12  # two lags, two B and one W to the last end on device 0
    assert first.tail[number[Op("W", 2, 0)]] < UNBOUND  # device 0 does not wait for it
    assert last.head[number[Op("F", 0, 0)]] < UNBOUND  # nothing on device 2 comes before it


def test_frames_that_are_left_out_are_spread_over_the_devices():
    instance = instance_of(Problem.uniform(devices=8, microbatches=1, objective="period"))
    spans = [frame.span for frame in frames(instance, most=4)]
    assert spans == [f"device {device}" for device in (0, 2, 4, 6)]


@pytest.mark.parametrize("objective", ["makespan", "period"])
def test_start_limits_leave_room_for_an_optimal_schedule(objective):
    for problem in random_problems(40, seed=17, ops=12, objective=objective):
        instance = instance_of(problem)
        horizon = sum(instance.duration) + sum(
            lag for after in instance.successors for _, lag in after
        )
        model = OrderModel(instance, horizon=horizon, bound=0)
        if model.precedence.contradiction:
            continue
        model.build()
        free = model.solve(time_limit=60, workers=1)
        if free.status != "optimal":
            continue
        tight = OrderModel(instance, horizon=free.bound, bound=0)
        tight.build()
        assert tight.solve(time_limit=60, workers=1).status == "optimal", problem.name


def test_without_a_common_begin_the_limits_are_wide_and_still_hold():
    # seen from device 1 alone, no frame begins before every op
    problem = Problem.uniform(devices=2, microbatches=2, F=2, B=3, W=4, objective="period")
    instance = instance_of(problem)
    known = frames_of(instance)
    earliest, latest = start_limits(instance, known[1:], 30)
    assert earliest == instance.heads()
    assert all(low <= high for low, high in zip(earliest, latest, strict=True))
