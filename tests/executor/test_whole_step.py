"""Recomputation as an op, optimizer steps without a barrier, forward only, branches."""

from __future__ import annotations

from typing import Any

import pytest

from schedopt import Problem, Schedule, ScheduleError, solve
from schedopt.classic import gpipe, one_f_one_b, zb_h1, zb_v
from schedopt.executor.local import LocalRanks
from schedopt.executor.program import training_program
from schedopt.variants import with_recompute_mode
from tests.executor import whole

LIMIT = 1e-12


def problem_of(**fields: Any) -> Problem:
    given = {"devices": 4, "microbatches": 4, "recompute": {"mode": "always", "kept": 0.25}}
    return Problem.uniform(**{**given, **fields})


def decided() -> Schedule:
    problem = problem_of(capacity=2, recompute={"mode": "decide", "kept": 0.25})
    schedule = solve(problem, workers=1, deterministic_limit=1).schedule
    assert schedule is not None
    kinds = [t.op.kind for ops in schedule.timeline.values() for t in ops]
    assert 0 < kinds.count("R") < kinds.count("F")
    return schedule


SCHEDULES = {
    "GPipe": lambda: gpipe(problem_of()),
    "1F1B": lambda: one_f_one_b(problem_of(microbatches=6)),
    "ZB-H1": lambda: zb_h1(problem_of()),
    "ZB-V": lambda: zb_v(problem_of(devices=2, placement="v")),
    "some stages": lambda: zb_h1(
        problem_of(recompute={"mode": ["always", "never", "always", "never"], "kept": 0.25})
    ),
    "decided": decided,
}


def without(schedule: Schedule) -> Schedule:
    """The same orders without R."""
    problem = with_recompute_mode(schedule.problem, "never").with_capacity(None)
    orders = {
        resource: [op for op in ops if op.kind != "R"] for resource, ops in schedule.orders.items()
    }
    from schedopt.graph import build_graph

    return Schedule.from_order(build_graph(problem), orders)


@pytest.mark.parametrize("name", SCHEDULES)
def test_recomputed_steps_are_bit_for_bit_those_without(ranks: LocalRanks, name: str) -> None:
    """Dropout, running statistics and losses included; each forward runs exactly once more."""
    schedule = SCHEDULES[name]()
    other = without(schedule)
    m = schedule.problem.microbatches
    again = [op for ops in schedule.orders.values() for op in ops if op.kind == "R"]
    results = ranks.run(whole.recomputed_and_not, schedule, other, 0.0)
    for rank, found in enumerate(results[: schedule.problem.devices]):
        for part in ("gradients", "buffers", "losses", "random"):
            assert found[part] == 0.0, (part, rank)
        stages = schedule.problem.stages_on[rank]
        times = [sum(op.stage == stage for op in again) for stage in stages]
        assert found["forwards"] == ([2 * (m + n) for n in times], [2 * m for _ in stages])
        assert found["recorded"] == ([2 * m for _ in stages], [2 * m for _ in stages])


def test_dropout_gives_the_same_numbers_again(ranks: LocalRanks) -> None:
    schedule = gpipe(problem_of(devices=2, microbatches=3))
    results = ranks.run(whole.recomputed_and_not, schedule, without(schedule), 0.5)
    for found in results[:2]:
        assert [found[part] for part in ("gradients", "losses", "random")] == [0.0] * 3


def test_recomputation_holds_only_inputs_until_r(ranks: LocalRanks) -> None:
    schedule = gpipe(problem_of(microbatches=8))
    results = ranks.run(whole.recomputed_and_not, schedule, without(schedule), 0.0)
    for found in results:
        ours, theirs = found["stats"]
        planned = ours.planned_microbatches
        assert all(n == 1 for n in planned.values())
        assert all(ours.held_microbatches[s] <= planned[s] for s in planned)
        assert max(theirs.held_microbatches.values()) == 8
        assert ours.activation_bytes < 0.5 * theirs.activation_bytes
        assert ours.activation_bytes_left == 0


PLAIN = {"devices": 4, "microbatches": 4}


def train(ranks: LocalRanks, schedule: Schedule, name: str, **options: Any) -> list[Any]:
    replicas, wrong = options.pop("replicas", 1), options.pop("wrong", None)
    results = ranks.run(whole.trained, schedule, name, options, wrong, replicas)
    found = results[: schedule.problem.devices * replicas]
    assert all(not each["error"] for each in found), found
    assert not any(any(each["gradients left"]) for each in found)
    return found


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
@pytest.mark.parametrize("wrong", [None, 2])
@pytest.mark.parametrize("max_norm", [None, 3.0])
def test_post_validated_steps_are_bit_for_bit_those_that_wait(
    ranks: LocalRanks, name: str, wrong: int | None, max_norm: float | None
) -> None:
    """Five steps with other learning rates, some clipped, one with an overflow that is left out."""
    schedule = zb_h1(Problem.uniform(**PLAIN))
    options: dict[str, Any] = {"max_norm": max_norm, "wrong": wrong}
    post = train(ranks, schedule, name, **options)
    waits = train(ranks, schedule, name, **options, post_validation=False)
    for ours, theirs in zip(post, waits, strict=True):
        assert all(
            a.equal(b) for a, b in zip(ours["parameters"], theirs["parameters"], strict=True)
        )
        assert ours["difference"] < LIMIT
        assert ours["verdicts"] == theirs["verdicts"] == post[0]["verdicts"]
    verdicts = post[0]["verdicts"]
    assert [v.is_finite for v in verdicts] == [step != wrong for step in range(whole.STEPS)]
    clipped = [v.factor < 1 for v in verdicts]
    assert any(clipped) == (max_norm is not None)
    assert not all(clipped)


def test_recomputed_post_validated_and_data_parallel_steps_equal_one_process(
    ranks: LocalRanks,
) -> None:
    problem = problem_of(
        devices=2,
        microbatches=4,
        recompute={"mode": ["always", "never"], "kept": 0.25},
        links={"size": 1, "bandwidth": 4},
        end_of_step={"reduction": 1, "optimizer": 1},
    )
    schedule = one_f_one_b(problem)
    found = train(ranks, schedule, "SGD", max_norm=1.5, replicas=2)
    assert max(each["difference"] for each in found) < LIMIT
    assert any(v.factor < 1 for v in found[0]["verdicts"])


def test_ranks_agree_on_what_follows_the_last_backward(ranks: LocalRanks) -> None:
    for text in ranks.run(whole.ends_that_differ, one_f_one_b(Problem.uniform(**PLAIN))):
        assert text.startswith("MismatchError")
        assert "end of a step: SGD, clipped to 1, checked afterwards on rank 0" in text


def test_X32_a_forward_only_schedule_evaluates_in_its_order(ranks: LocalRanks) -> None:
    problem = Problem(devices=3, microbatches=4, durations={"F": 1}, forward_only=True)
    schedule = solve(problem, workers=1).schedule
    assert schedule is not None
    for rank, found in enumerate(ranks.run(whole.evaluated, schedule)[:3]):
        assert found["output"] < LIMIT
        assert found["losses"] == (4 if rank == 2 else 0)
        assert found["refused"] == "this schedule is forward only: it has no backward; use eval"
        assert found["ops"] == [str(t.op) for t in schedule.by_device[rank]]


TOWERS = {"chain": False, "edges": [{"from": 0, "to": 2}, {"from": 1, "to": 2}]}


def test_two_towers_that_meet_train_like_one_process(ranks: LocalRanks) -> None:
    schedule = solve(Problem.uniform(devices=3, microbatches=4, **TOWERS), workers=1).schedule
    assert schedule is not None
    assert max(ranks.run(whole.towers, schedule)[:3]) < LIMIT


def test_an_output_that_no_stage_uses_is_refused() -> None:
    problem = Problem.uniform(devices=3, microbatches=2, chain=False, edges=[{"from": 0, "to": 2}])
    with pytest.raises(ScheduleError, match=r"output of stage 1.*only the last one, 2, has a loss"):
        training_program(gpipe(problem))
