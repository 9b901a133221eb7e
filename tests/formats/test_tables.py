from __future__ import annotations

import re
from fractions import Fraction

from rich.console import Console, RenderableType

from schedopt.analysis import Row, summary
from schedopt.formats.palette import OVER_CAPACITY_COLOUR
from schedopt.formats.tables import (
    comparison_notes,
    comparison_table,
    device_table,
    facts,
    headline,
    objective_facts,
    percent,
)
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from tests.schedules import schedule_of, two_by_two


def lines(part: RenderableType) -> list[str]:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(part)
    return [line.rstrip() for line in capture.get().splitlines() if line.strip()]


def row_of(schedule: Schedule, **changes: object) -> Row:
    made = summary(schedule)
    fields = {"name": schedule.name, "placement": made.placement, "summary": made}
    return Row(**{"schedule": schedule, **fields, **changes})  # type: ignore[arg-type]


def test_only_exactly_nothing_is_zero_percent() -> None:
    assert percent(Fraction(0)) == "0 %"
    assert percent(Fraction(1, 10**9)) == "< 0.01 %"
    assert percent(Fraction(1, 10_000)) == "0.01 %"
    assert percent(Fraction(1, 7)) == "14.29 %"
    assert percent(1) == "100.00 %"


def test_facts_without_a_value_are_left_out() -> None:
    assert lines(facts([("a", "1"), ("bbb", ""), ("c", "2")])) == ["a  1", "c  2"]


def test_the_headline_states_the_basis_of_the_figures() -> None:
    assert headline(summary(two_by_two())) == (
        "2 devices, 2 stages (linear), 2 microbatches, backward B, W, 1 copy of the parameters"
    )
    one = schedule_of(Problem.uniform(devices=1, microbatches=1), "0F0 0B0 0W0")
    assert headline(summary(one)).startswith("1 device, 1 stage (linear), 1 microbatch, ")


def test_the_objective_is_named_beside_its_value() -> None:
    named = dict(objective_facts(summary(two_by_two(time_unit="ms"))))
    assert named["makespan"] == "7 ms (objective), bubble 14.29 % of it"
    assert named["period"] == "7 ms, bubble 14.29 % of it"
    named = dict(objective_facts(summary(two_by_two(objective="period"))))
    assert named["makespan"] == "7 units, bubble 14.29 % of it"
    assert named["period"] == "7 units (objective), bubble 14.29 % of it"


def test_the_bottleneck_is_named() -> None:
    durations = {"F": [1, 3, 3], "B": 1, "W": 1}
    problem = Problem(devices=3, microbatches=1, durations=durations)
    schedule = schedule_of(problem, "0F0 0B0 0W0", "1F0 1B0 1W0", "2F0 2B0 2W0")
    named = dict(objective_facts(summary(schedule)))
    assert named["most work"] == "device 1, 2 (stage 1, 2) with 5 units"


def test_the_device_table_shows_work_idle_time_and_memory() -> None:
    schedule = two_by_two(memory={"static": 0.5}, capacity=2.25, memory_unit="GiB")
    assert lines(device_table(summary(schedule))) == [
        " device   stages   work   idle   of makespan   peak memory   capacity   fits",
        " ───────────────────────────────────────────────────────────────────────────",
        "      0   0           6      1       14.29 %           2.5       2.25   no",
        "      1   1           6      1       14.29 %           2.5       2.25   no",
        "Times in units, memory in GiB.",
    ]


def test_the_comparison_has_one_line_for_each_schedule() -> None:
    rows = [
        row_of(two_by_two(capacity=2)),
        Row("ZB-V", "needs placement v", None, None, note="needs two stages per device"),
        row_of(two_by_two(capacity=1), name="too big", recut=True),
    ]
    head, _, *body = lines(comparison_table(rows, objective="makespan"))
    assert re.split(r" {2,}", head.strip()) == [
        *("schedule", "placement", "stages", "backward", "makespan*", "bubble"),
        *("period", "bubble", "peak memory", "fits", "transfers"),
    ]
    assert [line.split("   ")[0].strip() for line in body] == ["by hand", "ZB-V", "too big"]
    assert re.split(r" {2,}", body[0].strip()) == [
        *("by hand", "linear", "2", "B, W", "7", "14.29 %", "7", "14.29 %", "2", "yes", "4"),
    ]
    assert re.split(r" {2,}", body[1].strip()) == ["ZB-V", "needs placement v"]
    assert "linear (re-cut)" in body[2]
    assert "no, 2 over" in body[2]
    assert "period*" in lines(comparison_table(rows, objective="period"))[0]


def test_the_best_schedule_that_fits_is_bold() -> None:
    slow = Problem.uniform(devices=2, microbatches=1, F=50, capacity=1)
    rows = [
        row_of(two_by_two(capacity=1)),
        row_of(schedule_of(slow, "0F0 0B0 0W0", "1F0 1B0 1W0"), name="slow"),
        row_of(two_by_two(capacity=2)),
    ]
    table = comparison_table(rows, objective="makespan")
    assert [row.style for row in table.rows] == ["", "", "bold"]
    only_slow = comparison_table(rows[:2], objective="makespan")
    assert [row.style for row in only_slow.rows] == ["", "bold"]


def test_what_does_not_fit_is_marked_in_colour() -> None:
    table = device_table(summary(two_by_two(capacity=1)))
    (*_, fits) = table.columns
    assert {str(cell.style) for cell in fits.cells if not isinstance(cell, str)} == {
        OVER_CAPACITY_COLOUR
    }


def test_notes_give_units_capacity_and_reasons() -> None:
    rows = [
        row_of(two_by_two(capacity=2, time_unit="ms")),
        Row("A", "needs placement v", None, None, note="why"),
        Row("A", "needs placement v", None, None, note="why"),
    ]
    notes = comparison_notes(rows)
    assert notes[0] == "Times in ms; peak memory of the fullest device in activations, capacity 2."
    assert notes.count("why") == 1
    assert not any(note.startswith("re-cut") for note in notes)
    assert any(
        note.startswith("re-cut") for note in comparison_notes([row_of(two_by_two(), recut=True)])
    )


def test_notes_give_the_range_of_unequal_capacities() -> None:
    problem = two_by_two().problem
    for capacity, said in (([2, 5], "2 to 5"), (None, "unlimited"), ([None, 3], "3")):
        rows = ("0F0 0F1 0B0 0W0 0B1 0W1", "1F0 1B0 1F1 1B1 1W0 1W1")
        schedule = schedule_of(problem.with_capacity(capacity), *rows)
        assert comparison_notes([row_of(schedule)])[0].endswith(f", capacity {said}.")
