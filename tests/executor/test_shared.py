"""A parameter that stands in several stages is one parameter."""

from __future__ import annotations

import pytest
from torch import nn

from schedopt.classic import dualpipe_v, one_f_one_b, zb_h1, zb_v
from schedopt.executor.errors import ExecutorError
from schedopt.executor.local import LocalRanks
from schedopt.executor.shared import require_possible
from tests.executor import replicated
from tests.executor.replicated import Case
from tests.executor.test_data_parallel import require_exact
from tests.executor.test_pipeline import problem_of

TIED = (("tied", True),)


def test_X26_tied_embeddings_have_the_gradient_of_one_parameter(ranks: LocalRanks) -> None:
    """On the first and last rank, and on a V on one rank, where nothing is sent."""
    schedules = [
        zb_h1(problem_of(4, 8, "linear", split=True)),
        one_f_one_b(problem_of(4, 5, "linear", split=False)),
        zb_v(problem_of(4, 4, "v", split=True)),
    ]
    cases = [
        Case(schedule.name, schedule, "transformer", (8,), steps=2, options=TIED)
        for schedule in schedules
    ]
    require_exact(ranks, cases)


def test_tied_embeddings_are_one_over_all_replicas(ranks: LocalRanks) -> None:
    schedules = [
        zb_h1(problem_of(2, 3, "linear", split=True)),
        dualpipe_v(problem_of(2, 4, "v", split=True)),
    ]
    cases = [
        Case(schedule.name, schedule, "transformer", (4, 6), steps=2, options=TIED)
        for schedule in schedules
    ]
    require_exact(ranks, cases)


@pytest.mark.parametrize("restart", [False, True])
def test_X27_three_holders_stay_equal_also_after_a_restart(
    ranks: LocalRanks, restart: bool
) -> None:
    """Stages 0, 2 and 3; save, load and one step equal two steps."""
    schedule = zb_h1(problem_of(4, 4, "linear", split=True))
    for parameters, copies, between in ranks.run(replicated.three_holders, schedule, restart):
        assert parameters <= 1e-10
        assert copies <= 1e-10
        assert between == 0.0


def test_places_that_do_not_exist_are_named() -> None:
    modules = {0: nn.Linear(2, 2)}
    with pytest.raises(ExecutorError) as caught:
        require_possible([((0, "wait"), (4, "weight"), (0, "bias"), (0, "bias"))], modules, 2)
    text = str(caught.value)
    assert "(0, 'wait'): stage 0 has the parameters weight, bias" in text
    assert "(4, 'weight'): there are the stages 0 to 1" in text
    assert "(0, 'bias') stands in the list twice" in text


def test_copies_of_different_shapes_are_refused_on_every_rank(ranks: LocalRanks) -> None:
    schedule = one_f_one_b(problem_of(4, 4, "linear", split=False))
    for name, text, _ in ranks.run(replicated.copies_of_different_shapes, schedule):
        assert name == "MismatchError"
        assert "0.weight is 3x2 float32, 3.weight is 2x3 float32" in text
