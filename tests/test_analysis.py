from __future__ import annotations

import json
from fractions import Fraction

import pytest

from schedopt import analysis
from schedopt.analysis import RECUTS, compare, placement_text, summary, transfers
from schedopt.bundled import load_bundled
from schedopt.classic import CLASSIC
from schedopt.errors import Fault, NotApplicableError, ProblemError
from schedopt.op import Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from tests.schedules import schedule_of, two_by_two


def test_summary_of_a_small_schedule() -> None:
    facts = summary(two_by_two(capacity=2, time_unit="ms", memory_unit="GiB"))
    assert (facts.name, facts.objective) == ("by hand", "makespan")
    assert (facts.time_unit, facts.memory_unit) == ("ms", "GiB")
    assert (facts.makespan, facts.period) == (7, 7)
    assert facts.makespan_bubble == facts.period_bubble == 1 - Fraction(12, 2 * 7)
    assert (len(facts.devices), facts.stages, facts.microbatches) == (2, 2, 2)
    assert (facts.placement, facts.backward, facts.parameter_copies) == ("linear", "B, W", 1)
    assert facts.transfers == 4
    assert [(d.work, d.idle, d.peak, d.capacity, d.fits) for d in facts.devices] == [
        (6, 1, 2, 2, True),
        (6, 1, 2, 2, True),
    ]
    assert facts.peak == 2
    assert facts.fits


def test_the_bubbles_of_makespan_and_period_differ() -> None:
    durations = {"F": 1, "B": 1, "W": [1, 5]}
    problem = Problem(devices=2, microbatches=1, durations=durations, objective="period")
    facts = summary(schedule_of(problem, "0F0 0B0 0W0", "1F0 1B0 1W0"))
    assert facts.objective == "period"
    assert (facts.makespan, facts.period) == (8, 7)  # device 1 starts at 1
    assert facts.makespan_bubble == 1 - Fraction(10, 2 * 8)
    assert facts.period_bubble == 1 - Fraction(10, 2 * 7)


def test_only_an_exactly_full_period_has_no_bubble() -> None:
    facts = summary(schedule_of(Problem.uniform(devices=1, microbatches=1), "0F0 0B0 0W0"))
    assert (facts.makespan_bubble, facts.period_bubble) == (0, 0)


def test_one_device_over_its_capacity_means_it_does_not_fit() -> None:
    facts = summary(two_by_two(memory={"capacity": [2, 1]}, capacity=None))
    assert [device.fits for device in facts.devices] == [True, True]
    problem = two_by_two().problem.with_capacity([2, 1])
    schedule = schedule_of(problem, "0F0 0F1 0B0 0W0 0B1 0W1", "1F0 1B0 1F1 1B1 1W0 1W1")
    facts = summary(schedule)
    assert [device.fits for device in facts.devices] == [True, False]
    assert not facts.fits


def test_without_capacity_everything_fits() -> None:
    facts = summary(two_by_two())
    assert [device.capacity for device in facts.devices] == [None, None]
    assert facts.fits


def test_the_busiest_devices_are_those_with_the_most_work() -> None:
    problem = Problem(
        devices=3, microbatches=1, durations={"F": [1, 2, 2], "B": 1, "W": 1}, memory={}
    )
    schedule = schedule_of(problem, "0F0 0B0 0W0", "1F0 1B0 1W0", "2F0 2B0 2W0")
    assert [device.stages for device in summary(schedule).busiest] == [(1,), (2,)]


def test_an_unused_device_is_idle_all_the_time() -> None:
    problem = Problem.uniform(devices=2, microbatches=1, placement=[0])
    facts = summary(schedule_of(problem, "0F0 0B0 0W0"))
    assert (facts.devices[1].work, facts.devices[1].idle) == (0, 3)
    assert facts.makespan_bubble == Fraction(1, 2)
    assert facts.placement == "own list"


def test_time_zero_has_no_bubble() -> None:
    problem = Problem.uniform(devices=1, microbatches=1, F=0, B=0, W=0)
    assert summary(schedule_of(problem, "0F0 0B0 0W0")).makespan_bubble == 0


def test_decimals_stay_exact() -> None:
    problem = Problem.uniform(devices=1, microbatches=3, F=0.1, B=0.1, W=0.1)
    facts = summary(schedule_of(problem, " ".join(f"0F{i} 0B{i} 0W{i}" for i in range(3))))
    assert facts.devices[0].work == Fraction(9, 10)


def test_transfers_cross_devices_twice_for_each_microbatch() -> None:
    def count(**fields: object) -> int:
        return transfers(Problem.uniform(**{"devices": 4, "microbatches": 5, **fields}))  # type: ignore[arg-type]

    assert count() == 2 * 3 * 5
    assert count(placement="interleaved", stages=8) == 2 * 7 * 5
    assert count(placement="v") == 2 * 6 * 5  # not between the two stages of the last device
    assert count(placement=[0, 0, 1, 2]) == 2 * 2 * 5
    assert count(edges=[{"from": 0, "to": 2}]) == 2 * 4 * 5
    assert count(edges=[{"from": 0, "to": 1}]) == 2 * 3 * 5  # the same transfer


def test_placements_in_words() -> None:
    def words(**fields: object) -> str:
        return placement_text(Problem.uniform(**{"devices": 3, "microbatches": 1, **fields}))  # type: ignore[arg-type]

    assert words() == "linear"
    assert words(placement="v") == "v, 2 chunks"
    assert words(placement="interleaved", stages=12) == "interleaved, 4 chunks"
    assert words(placement=[0, 1, 2, 2, 1, 0, 0, 1, 2]) == "wave, 3 chunks"
    assert words(placement=[1, 0, 2]) == "own list"


def test_the_form_of_backward_is_named() -> None:
    fused = Problem(devices=1, microbatches=1, durations={"F": 1, "BW": 2})
    assert summary(schedule_of(fused, "0F0 0BW0")).backward == "BW"
    mixed = Problem(
        devices=2,
        microbatches=1,
        durations={"F": 1, "B": [1, None], "W": [1, None], "BW": [None, 2]},
    )
    assert summary(schedule_of(mixed, "0F0 0B0 0W0", "1F0 1BW0")).backward == "mixed"


def test_a_schedule_that_breaks_rules_can_be_summed_up() -> None:
    schedule = two_by_two()
    timeline = {**schedule.timeline, Resource("copy", 9): schedule.by_device[0]}
    facts = summary(Schedule(schedule.problem, timeline, schedule.resolution))
    assert [device.work for device in facts.devices] == [6, 6]


def test_a_summary_is_ready_for_json() -> None:
    data = json.loads(json.dumps(summary(two_by_two(F=0.5, capacity=3)).to_dict()))
    assert data["makespan"] == 6
    assert data["makespan_bubble"] == pytest.approx(1 / 6)
    assert data["devices"][1] == {
        "device": 1,
        "stages": [1],
        "work": 5,
        "idle": 1,
        "peak_memory": 2,
        "capacity": 3,
        "fits": True,
    }


# ---------------------------------------------------------------------- comparison


def too_large(problem: Problem) -> Schedule:
    raise ProblemError([Fault("stages", "9", "too many")])


def not_applicable(problem: Problem) -> Schedule:
    raise NotApplicableError("needs a full moon")


def test_every_classic_schedule_has_a_row_and_given_ones_follow() -> None:
    schedule = two_by_two()
    rows = compare(schedule.problem, schedule)
    expected = [name for name in CLASSIC for _ in RECUTS.get(name, (None,))]
    assert [row.name for row in rows] == [*expected, "by hand"]
    assert rows[-1].schedule is schedule
    assert rows[-1].summary == summary(schedule)


def test_a_linear_problem_is_cut_for_schedules_with_several_stages_per_device() -> None:
    problem = Problem.uniform(devices=2, microbatches=4, capacity=4)
    rows = {(row.name, row.placement): row for row in compare(problem)}
    for name, cuts in RECUTS.items():
        for placement, chunks in cuts:
            row = rows[name, f"{placement}, {chunks} chunks"]
            assert row.recut
            assert row.summary is not None
            assert (len(row.summary.devices), row.summary.stages) == (2, 2 * chunks)
            assert row.summary.work == 2 * 4 * 3
    assert not rows["1F1B", "linear"].recut


def test_another_placement_is_not_cut() -> None:
    rows = compare(Problem.uniform(devices=2, microbatches=2, placement="interleaved"))
    assert not any(row.recut for row in rows)
    by_name = {row.name: row for row in rows}
    assert by_name["Interleaved 1F1B"].summary is not None
    assert by_name["ZB-V"].summary is None
    assert by_name["ZB-V"].placement == "needs placement v"
    assert by_name["ZB-V"].note


def test_a_row_says_why_a_schedule_can_not_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "CLASSIC", {"1F1B": not_applicable, "GPipe": too_large})
    first, second = compare(two_by_two().problem)
    assert (first.schedule, first.summary) == (None, None)
    assert (first.placement, first.note) == ("needs placement linear", "needs a full moon")
    assert second.placement == "not applicable"
    assert second.note.startswith("GPipe: problem is not valid, 1 fault:")
    assert "stages = 9: too many" in second.note


def test_progress_is_told_the_name_of_each_classic_schedule() -> None:
    names: list[str] = []
    compare(two_by_two().problem, progress=names.append)
    assert names == list(CLASSIC)


def test_rows_are_ready_for_json() -> None:
    rows = [json.loads(json.dumps(row.to_dict())) for row in compare(two_by_two().problem)]
    assert {"name", "placement", "recut", "note", "summary"} == rows[0].keys()


def test_where_recomputation_is_decided_both_uniform_choices_are_compared() -> None:
    rows = {row.name: row.summary for row in compare(load_bundled("recompute-p4-m8"))}
    nothing, everything = rows["1F1B, nothing recomputed"], rows["1F1B, all recomputed"]
    assert nothing is not None
    assert everything is not None
    assert (nothing.makespan, nothing.peak) == (66, 4)
    assert everything.makespan == 66 + 8 * 2  # R of each microbatch, on every device
    assert everything.peak == 1 + 3 * Fraction(1, 4)
    assert everything.fits
    assert not nothing.fits
