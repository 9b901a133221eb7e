"""Replicas of a pipeline have the gradients of one process with the whole batch."""

from __future__ import annotations

import pytest

from schedopt import Problem
from schedopt.classic import gpipe, one_f_one_b, zb_h1, zb_v
from schedopt.executor.local import LocalRanks
from tests.executor import replicated
from tests.executor.replicated import Case
from tests.executor.test_pipeline import EXACT, problem_of

FUSED = one_f_one_b(problem_of(2, 4, "linear", split=False))
SPLIT = zb_h1(problem_of(2, 3, "linear", split=True))
V_SHAPE = zb_v(problem_of(2, 4, "v", split=True))


def require_exact(ranks: LocalRanks, cases: list[Case]) -> None:
    for results in ranks.run(replicated.run_cases, cases):
        for case, found in zip(cases, results, strict=True):
            assert found is not None, case.name
            assert found <= EXACT, (case.name, found)


def test_replicas_have_the_gradients_of_the_whole_batch(ranks: LocalRanks) -> None:
    """X22: also with B and W apart, where hooks on the backward would fire too early."""
    cases = [
        Case(f"{schedule.name} {model}", schedule, model, (rows, rows), steps=steps)
        for schedule, rows in ((FUSED, 4), (SPLIT, 6), (V_SHAPE, 4))
        for model, steps in (("mlp", 2), ("transformer", 1))
    ]
    require_exact(ranks, cases)


def test_replicas_of_one_device_need_no_pipeline(ranks: LocalRanks) -> None:
    schedule = gpipe(problem_of(1, 3, "linear", split=False))
    require_exact(ranks, [Case("p = 1", schedule, "mlp", (3, 3, 3, 3), steps=2)])


def test_a_larger_replica_counts_for_more_in_a_mean(ranks: LocalRanks) -> None:
    require_exact(ranks, [Case("4 and 10 rows", SPLIT, "mlp", (4, 10), steps=2)])


def test_a_sum_over_replicas_is_a_sum(ranks: LocalRanks) -> None:
    """A mean over each microbatch of one row, added up, is the mean times the rows."""
    schedule = one_f_one_b(problem_of(2, 4, "linear", split=False))
    case = Case("sum", schedule, "mlp", (4, 4), executor=(("loss_reduction", "sum"),))
    for found in ranks.run(replicated.run_sum, case):
        assert found <= EXACT


def test_replicas_that_disagree_on_m_are_refused_on_every_rank(ranks: LocalRanks) -> None:
    """X28."""
    schedules = [one_f_one_b(problem_of(2, m, "linear", split=False)) for m in (3, 4)]
    for name, text, seconds in ranks.run(replicated.different_schedules, schedules):
        assert name == "MismatchError"
        assert "m: 3 on replica 0, 4 on replica 1" in text
        assert seconds < 15


def test_replicas_start_from_the_first_and_train_the_same(ranks: LocalRanks) -> None:
    for (name, text, _), values in ranks.run(replicated.different_parameters, FUSED):
        assert values == 0.0
        assert name == "MismatchError"
        assert "parameters: " in text


def test_a_replica_that_fails_stops_the_others(ranks: LocalRanks) -> None:
    outcomes = ranks.run(replicated.a_replica_that_fails, FUSED)
    assert outcomes[1][:2] == ("ValueError", "no more data")
    for name, text, seconds in (outcomes[0], *outcomes[2:]):
        assert name == "PeerError"
        assert "no more data" in text
        assert seconds < 25


def test_parameters_without_use_stay_without_gradients(ranks: LocalRanks) -> None:
    """A layer used by one replica has a gradient on all, one used by none on none."""
    for found in ranks.run(replicated.parameters_without_use, FUSED):
        assert max(found.values()) <= EXACT, found


def test_a_frozen_first_stage_has_no_gradients(ranks: LocalRanks) -> None:
    """X34."""
    for schedule in (FUSED, SPLIT):
        for found in ranks.run(replicated.frozen_first_stage, schedule):
            assert found == {"frozen": 0.0, "trained": pytest.approx(0.0, abs=EXACT)}


def test_a_stage_without_parameters_takes_part_in_everything(ranks: LocalRanks) -> None:
    """X33."""
    problem = Problem(devices=2, microbatches=3, durations={"F": 1, "B": 1, "W": [1, 0]})
    for gradients, norm in ranks.run(replicated.stage_without_parameters, zb_h1(problem)):
        assert gradients <= EXACT
        assert norm <= EXACT


@pytest.mark.parametrize("overflow_on", [None, 1])
def test_clipping_and_a_gradient_scaler_do_what_they_do_in_one_process(
    ranks: LocalRanks, overflow_on: int | None
) -> None:
    """An overflow on one rank makes all ranks skip the step."""
    case = Case("scaled", SPLIT, "transformer", (3, 3), steps=3, options=(("tied", True),))
    for found in ranks.run(replicated.train, case, overflow_on, 0.1):
        assert found.parameters <= 1e-11
        assert found.norms <= EXACT
        assert found.scales == ((8.0, 4.0, 4.0) if overflow_on else (8.0, 8.0, 8.0))


def test_under_autocast_replicas_compute_in_its_type(ranks: LocalRanks) -> None:
    for found in ranks.run(replicated.under_autocast, SPLIT):
        assert set(found["types"]) <= {"torch.float32", "torch.bfloat16"}
        assert found["difference"] <= 2e-2
