from __future__ import annotations

from dataclasses import replace
from typing import Any

from schedopt import Problem, Schedule, classic
from schedopt.analysis import summary
from schedopt.formats.html.tables import comparison, device_table, figures, problem_tables
from tests.schedules import two_by_two


def columns(table: dict[str, Any]) -> dict[str, list[str]]:
    """A table by its headings."""
    return dict(zip(table["headings"], map(list, zip(*table["rows"], strict=True)), strict=True))


def figures_of(schedule: Schedule) -> dict[str, str]:
    return {name: value for name, value, _ in figures(schedule, summary(schedule))}


def test_the_figures_are_objective_proof_and_peak_as_far_as_they_are_known() -> None:
    schedule = two_by_two(time_unit="ms", capacity=4)
    known = {"makespan": "7 ms", "bubble": "14.29 %", "peak memory": "50.00 %"}
    assert figures_of(schedule) == known
    info = {"status": "feasible", "bound": 6, "bound_source": "work"}
    proof = {"status": "feasible", "bound": "6 ms", "gap": "14.29 %"}
    assert figures_of(replace(schedule, info=info)) == known | proof
    assert figures_of(two_by_two(memory_unit="GiB"))["peak memory"] == "2 GiB"


def test_a_comparison_names_the_best_and_by_how_much_the_others_are_worse() -> None:
    problem = Problem.uniform(devices=2, microbatches=2)
    schedules = [classic.gpipe(problem), two_by_two()]
    table = columns(comparison([(schedule, summary(schedule)) for schedule in schedules]))
    assert table["schedule"] == ["GPipe", "by hand"]
    assert table["value (units)"] == ["9", "7"]
    assert table["to the best"] == ["+28.57 %", "best"]


def test_devices_have_their_work_peak_and_capacity() -> None:
    table = columns(device_table(summary(two_by_two(capacity=1, memory_unit="GiB"))))
    assert table["work (units)"] == ["6", "6"]
    assert table["peak memory (GiB)"] == ["2", "2"]
    assert table["capacity (GiB)"] == ["1", "1"]
    assert table["fits"] == ["no", "no"]


def test_a_problem_has_its_stages_devices_and_lags() -> None:
    problem = Problem.uniform(
        name="mine", devices=2, microbatches=3, F=[1, 2.5], B=1, W=1, lag=0.25, time_unit="ms"
    )
    tables = problem_tables(problem)
    facts = dict(tables["facts"])
    assert facts["name"] == "mine"
    assert facts["transfers take"] == "0.25 ms"
    assert "lengths of microbatches" not in facts
    assert columns(tables["stages"])["F (ms)"] == ["1", "2.5"]
    assert columns(tables["devices"])["stages"] == ["0", "1"]


def test_lengths_of_microbatches_are_told_where_they_differ() -> None:
    problem = Problem.uniform(devices=2, microbatches=2, microbatch_factors=[1, 1.5])
    assert dict(problem_tables(problem)["facts"])["lengths of microbatches"] == "1 to 1.5"


def test_a_problem_of_a_whole_step_names_its_parts() -> None:
    problem = Problem.uniform(
        devices=2,
        microbatches=2,
        links={"size": 3, "bandwidth": 2, "latency": 1},
        recompute={"mode": ["always", "decide"]},
        extras=[{"name": "loss", "stage": 1}],
    )
    facts = dict(problem_tables(problem)["facts"])
    assert facts["transfers take"] == "2.5 units"
    assert facts["links"] == "busy while they send"
    assert facts["recomputed"] == "always on 1 stage, decide on 1 stage"
    assert facts["extras"] == "loss on stage 1"
    assert "backward" not in facts
    forward = Problem(devices=2, microbatches=2, durations={"F": 1}, forward_only=True)
    assert dict(problem_tables(forward)["facts"])["backward"] == "none: forward only"
