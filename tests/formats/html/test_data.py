from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schedopt import Problem, Schedule, classic
from schedopt.binding import REASONS, binding
from schedopt.errors import InputError
from schedopt.formats.html.data import page_data
from schedopt.formats.palette import shade
from schedopt.graph import FIFO, build_graph
from schedopt.idle import CAUSES, causes
from schedopt.memory import memory_curves
from schedopt.op import Op, Resource
from schedopt.schedule import TimedOp
from tests.problems import problems, random_orders
from tests.schedules import two_by_two


def page_of(schedule: Schedule) -> dict[str, Any]:
    """What the page is given about one schedule."""
    (found,) = page_data([schedule])["schedules"]
    assert isinstance(found, dict)
    return found


def ops_of(page: dict[str, Any]) -> list[list[TimedOp]]:
    """Ops of each device, read back from the arrays."""
    rows = []
    for device in page["devices"]:
        row, now = [], 0
        for form, microbatch, gap, length in zip(
            *(device[name] for name in ("form", "microbatch", "gap", "length")), strict=True
        ):
            look = page["forms"][form]
            start = now + gap
            now = start + length
            row.append(TimedOp(Op(look["kind"], look["stage"], microbatch), start, now))
        rows.append(row)
    return rows


@given(problems(), st.data())
@settings(max_examples=25)
def test_the_arrays_give_back_every_op_memory_curve_and_reason(
    problem: Problem, data: st.DataObject
) -> None:
    orders = random_orders(problem, lambda low, high: data.draw(st.integers(low, high)))
    assume(orders is not None)
    assert orders is not None
    schedule = Schedule.from_order(build_graph(problem), orders)
    page = page_of(schedule)
    rows = ops_of(page)
    assert rows == [list(schedule.by_device[device]) for device in range(problem.devices)]
    everything = [timed.op for row in rows for timed in row]
    step, amount_step = Fraction(*page["time_step"]), Fraction(*page["memory_step"])
    for curve, device in zip(memory_curves(schedule), page["devices"], strict=True):
        times, amounts = (accumulate(device["memory"][name]) for name in ("time", "amount"))
        assert tuple((t * step, a * amount_step) for t, a in zip(times, amounts, strict=True)) == (
            curve.points
        )
        assert device["memory"]["peak"] * amount_step == curve.peak
    assert page["violations"] == 0
    names, holds = list(REASONS), binding(schedule)
    for device, row in zip(page["devices"], rows, strict=True):
        for place, timed in enumerate(row):
            hold = holds[timed.op]
            source = device["source"][place]
            assert names[device["reason"][place]] == hold.reason
            assert (None if source < 0 else everything[source]) == hold.op
            assert device["slack"].get(place, 0) * step == hold.slack


def test_edges_are_those_of_the_graph_for_every_microbatch() -> None:
    skip = {"from": 0, "to": 2, "lag": 0.25}
    problem = Problem.uniform(devices=3, microbatches=3, lag=0.5, edges=[skip])
    schedule = classic.gpipe(problem)
    page = page_of(schedule)
    forms, step = [(f["kind"], f["stage"]) for f in page["forms"]], Fraction(*page["time_step"])
    graph = build_graph(schedule.problem)
    found = {
        (Op(*forms[source], i), Op(*forms[target], i)): lag * step
        for source, target, lag in page["edges"]
        for i in range(3)
    }
    assert found == {
        (source, target): arc["lag"] * graph.graph["resolution"]
        for source, target, arc in graph.edges(data=True)
        if arc["reason"] != FIFO
    }


def test_idle_time_is_that_of_the_causes_with_what_the_bound_makes_unavoidable() -> None:
    schedule = replace(two_by_two(), info={"bound": 6.5})
    found = causes(schedule, Fraction(13, 2))
    for told, device in zip(page_of(schedule)["idle"], found, strict=True):
        assert told["causes"] == [device.causes[cause] for cause in CAUSES]
        assert (told["total"], told["work"], told["unavoidable"]) == (1, 6, 0.5)
    assert page_of(two_by_two())["idle"][0]["unavoidable"] is None


def test_a_bound_that_can_not_be_one_is_not_used() -> None:
    assert page_of(replace(two_by_two(), info={"bound": 8}))["idle"][0]["unavoidable"] is None


def test_a_schedule_that_breaks_rules_says_so_and_has_no_reasons() -> None:
    schedule = two_by_two()
    ops = schedule.by_device[0]
    timeline = {Resource("compute", 0): (ops[0], TimedOp(ops[1].op, 0, 3))}
    page = page_of(Schedule(schedule.problem, timeline, schedule.resolution))
    assert page["violations"] > 0
    assert page["violation"]
    assert (page["idle"], page["devices"][0]["reason"]) == ([], [])
    assert [len(row) for row in ops_of(page)] == [2, 0]


def test_ops_have_the_colours_of_every_other_picture() -> None:
    problem = Problem.uniform(devices=2, microbatches=4, placement="v")
    schedule = classic.zb_v(problem)
    for form in page_of(schedule)["forms"]:
        chunk = int(form["stage"] >= 2)
        looks = [shade(form["kind"], chunk=chunk, chunks=2, odd=odd) for odd in (False, True)]
        assert form["colours"] == [look.background for look in looks]
        assert form["text"] == [look.text for look in looks]
        assert form["darker"] == (chunk == 1)


def test_the_history_is_that_of_the_file_as_far_as_it_is_one() -> None:
    news = {"elapsed": 0.5, "objective": 9, "bound": "20/3", "source": "1F1B"}
    odd = [{"objective": [1], "more": 2}, {"objective": True}, {"bound": "x"}, {"bound": "1/0"}]
    late = {"objective": 8, "bound": float("nan"), "source": 3}
    assert page_of(replace(two_by_two(), info={"history": [news, *odd, late, 5]}))["history"] == [
        {"elapsed": 0.5, "objective": 9, "bound": 20 / 3, "source": "1F1B"},
        {"elapsed": None, "objective": 8, "bound": None, "source": ""},
    ]
    assert page_of(replace(two_by_two(), info={"history": 3}))["history"] == []


def test_schedules_of_different_time_units_share_no_axis() -> None:
    with pytest.raises(InputError, match="time_unit = s: must be that of all schedules"):
        page_data([two_by_two(time_unit="ms"), two_by_two(time_unit="s")])
    with pytest.raises(InputError, match="give at least one"):
        page_data([])
