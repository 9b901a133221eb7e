"""Classic schedules of problems with recomputation, links and an end of the step."""

from __future__ import annotations

from fractions import Fraction

import pytest

from schedopt import Problem, check
from schedopt.classic import CLASSIC, gpipe, one_f_one_b
from schedopt.errors import NotApplicableError
from schedopt.memory import peak_memory
from schedopt.variants import with_recompute_mode


def both(microbatches: int, **fields: object) -> tuple[Problem, Problem]:
    """A problem that recomputes everything, and the same without."""
    recompute = {"mode": "always", "kept": 1 / 64, **dict(fields.pop("recompute", {}))}  # type: ignore[call-overload]
    problem = Problem.uniform(
        devices=4,
        microbatches=microbatches,
        recompute=recompute,
        **fields,  # type: ignore[arg-type]
    )
    return problem, with_recompute_mode(problem, "never")


@pytest.mark.parametrize("m", [8, 32, 128])
def test_full_recomputation_of_gpipe_costs_one_forward_per_microbatch(m: int) -> None:
    """A third of the work, if the forward is half of the backward."""
    again, without = both(m, F=2, B=2, W=2)
    assert gpipe(without).makespan == (m + 3) * 6
    assert gpipe(again).makespan == (m + 3) * 6 + m * 2


def test_the_peak_of_gpipe_becomes_almost_independent_of_the_number_of_microbatches() -> None:
    peaks = {}
    for m in (8, 32, 128):
        again, without = both(m)
        peaks[m] = max(peak_memory(gpipe(again)))
        assert max(peak_memory(gpipe(without))) == m
    assert peaks == {m: 1 + Fraction(m - 1, 64) for m in (8, 32, 128)}


@pytest.mark.parametrize("m", [8, 32])
def test_selective_recomputation_of_1f1b_costs_its_part(m: int) -> None:
    """An eighth of the forward is computed again, and half of the memory is saved until then."""
    again, without = both(m, F=8, B=8, W=8, recompute={"kept": 0.5, "R": 1})
    assert one_f_one_b(without).makespan == (m + 3) * 24
    assert one_f_one_b(again).makespan == (m + 3) * 24 + m
    assert peak_memory(one_f_one_b(without)) == (4, 3, 2, 1)
    assert peak_memory(one_f_one_b(again)) == (2.5, 2, 1.5, 1)


@pytest.mark.parametrize("name", CLASSIC)
@pytest.mark.parametrize("placement", ["linear", "interleaved", "v", "wave"])
def test_every_pattern_is_completed_to_a_valid_schedule(name: str, placement: str) -> None:
    problem = Problem.uniform(
        devices=2,
        microbatches=3,
        placement=placement,
        stages=2 if placement == "linear" else 4,
        F=3,
        B=2,
        W=1,
        recompute={"mode": "always", "kept": 0.25},
        links={"size": 3, "bandwidth": 2, "latency": 1},
        end_of_step={"reduction": 2, "optimizer": 1, "tied": [{"stages": [0, 1], "duration": 1}]},
    )
    try:
        schedule = CLASSIC[name](problem)
    except NotApplicableError:
        return
    assert check(schedule) == ()
    assert schedule.name == name
    for ops in schedule.by_device.values():
        kinds = [timed.op.kind for timed in ops]
        assert kinds[-1] == "OPT"
        backwards = [k for k, kind in enumerate(kinds) if kind in ("B", "BW")]
        for place in backwards:
            before = ops[place - 1].op
            assert before == ops[place].op._replace(kind="R")
