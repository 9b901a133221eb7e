"""What is to be expected of a schedule with the times of a machine."""

from __future__ import annotations

from schedopt.classic import CLASSIC
from schedopt.executor.prediction import timed_with
from schedopt.problem import Problem

SCHEDULE = CLASSIC["1F1B"](
    Problem(devices=2, microbatches=1, durations={"F": 1, "BW": 1}, objective="period", lag=0.5)
)


def test_a_step_has_the_given_durations_and_lags_and_the_same_orders() -> None:
    lags = {(0, 1): 7.0, (1, 0): 11.0}
    durations = [{"F": 100.0, "BW": 200.0}, {"F": 300.0, "BW": 400.4}]
    timed = timed_with(SCHEDULE, durations, lambda d, e: lags[d, e])
    assert timed.orders == SCHEDULE.orders
    assert timed.makespan == 100 + 7 + 300 + 400 + 11 + 200
    assert (timed.problem.time_unit, timed.problem.objective) == ("us", "makespan")


def test_ops_start_as_early_as_possible_also_if_the_period_was_minimised() -> None:
    durations = [{"F": 1.0, "BW": 1.0}] * 2
    assert timed_with(SCHEDULE, durations, lambda d, e: 0.0).by_device[0][0].start == 0
