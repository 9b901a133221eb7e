"""Replicas of a pipeline have the gradients of one process with the whole batch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from schedopt import Problem
from schedopt.classic import gpipe, one_f_one_b, zb_h1, zb_v
from schedopt.executor import data_parallel
from schedopt.executor.data_parallel import flat_with_flags, gradients_in
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


def test_X22_replicas_have_the_gradients_of_the_whole_batch(ranks: LocalRanks) -> None:
    """Also with B and W apart, where hooks on the backward would fire too early."""
    cases = [
        Case(f"{schedule.name} {model}", schedule, model, (rows, rows), steps=steps)
        for schedule, rows in ((FUSED, 4), (SPLIT, 6), (V_SHAPE, 4))
        for model, steps in (("mlp", 2), ("transformer", 1))
    ]
    require_exact(ranks, cases)


def test_a_stage_is_averaged_while_others_still_run(ranks: LocalRanks) -> None:
    """V placement, two stages on a rank: the one that is done first does not wait."""
    for events in ranks.run(replicated.order_of_averages, V_SHAPE):
        averages = [place for place, event in enumerate(events) if event == "average"]
        ops = [place for place, event in enumerate(events) if event != "average"]
        assert averages[0] < ops[-1]
        first, last = events[averages[0] - 1], events[ops[-1]]
        assert first != last
        assert first not in events[averages[0] :]


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


def test_X28_replicas_that_disagree_on_m_are_refused_on_every_rank(ranks: LocalRanks) -> None:
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


def test_X34_a_frozen_first_stage_has_no_gradients(ranks: LocalRanks) -> None:
    for schedule in (FUSED, SPLIT):
        for found in ranks.run(replicated.frozen_first_stage, schedule):
            assert found == {"frozen": 0.0, "trained": pytest.approx(0.0, abs=EXACT)}


def test_X33_a_stage_without_parameters_takes_part_in_everything(ranks: LocalRanks) -> None:
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
    found = ranks.run(replicated.under_autocast, SPLIT)
    # The blocks add to the float32 of the embedding; the head is a product.
    assert [set(each["types"]) for each in found[:2]] == [{"torch.float32"}, {"torch.bfloat16"}]
    assert max(each["difference"] for each in found) <= 2e-2


# --- parts


def test_gradients_travel_together_by_type_and_up_to_a_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_parallel, "BUCKET_BYTES", 100)
    sizes = [(10, torch.float32), (10, torch.float32), (10, torch.float32), (1, torch.float64)]
    parameters = [nn.Parameter(torch.zeros(size, dtype=dtype)) for size, dtype in sizes]
    parameters.append(nn.Parameter(torch.zeros(1000, dtype=torch.float64)))
    buckets = data_parallel._buckets(parameters)
    assert [[len(p) for p in bucket] for bucket in buckets] == [[10, 10], [10], [1], [1000]]


def test_gradients_that_no_replica_has_stay_apart_from_zeros() -> None:
    like = [torch.zeros(2), torch.zeros(1, 2), torch.zeros(3)]
    one = flat_with_flags([torch.ones(2), None, None], like)
    other = flat_with_flags([None, None, torch.zeros(3)], like)
    first, second, third = gradients_in(one + other, like, [False, True, True])
    assert first is not None
    assert first.tolist() == [1.0, 1.0]
    assert second is None
    assert third is not None
    assert third.tolist() == [0.0, 0.0, 0.0]
