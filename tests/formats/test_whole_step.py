"""Every report and export of random problems of a whole step: recomputation, links, end of step."""

from __future__ import annotations

import io
import json
from fractions import Fraction

from hypothesis import assume, given, settings
from rich.console import Console

from schedopt import Problem, Schedule, check, solve
from schedopt.analysis import compare, summary
from schedopt.binding import critical_path
from schedopt.formats.chrome_trace import write_chrome_trace
from schedopt.formats.html import report
from schedopt.formats.html.data import page_data
from schedopt.formats.op_table import read_op_table, write_op_table
from schedopt.formats.path import path_rows, path_sum
from schedopt.formats.plot import draw
from schedopt.formats.rows import rows_of
from schedopt.formats.text import gantt, memory_chart
from schedopt.idle import causes
from tests.whole_step import whole_steps

EXAMPLES = 25


def schedule_of(problem: Problem) -> Schedule:
    found = solve(problem, workers=1, deterministic_limit=0.3).schedule
    assume(found is not None)
    assert found is not None
    return found


@given(problem=whole_steps())
@settings(max_examples=EXAMPLES, deadline=None)
def test_idle_time_sums_and_the_critical_path_is_as_long_as_the_step(problem: Problem) -> None:
    schedule = schedule_of(problem)
    for device in causes(schedule):
        assert device.idle == schedule.makespan - device.work
        assert all(time >= 0 for time in device.causes.values())
    path = critical_path(schedule)
    times = {t.op: t for ops in schedule.timeline.values() for t in ops}
    assert times[path[-1].op].end * schedule.resolution == schedule.makespan
    assert sum((link.binding.slack for link in path), Fraction(0)) == 0
    assert path_rows(schedule, path)
    assert path_sum(schedule, path).startswith(f"{float(schedule.makespan):g} ")


@given(problem=whole_steps())
@settings(max_examples=EXAMPLES, deadline=None)
def test_every_picture_shows_every_op(problem: Problem) -> None:
    schedule = schedule_of(problem)
    devices = range(problem.devices)
    rows = rows_of(schedule, devices)
    every = {timed.op for ops in schedule.timeline.values() for timed in ops}
    assert {timed.op for row in rows for timed in row.timed_ops} == every
    console = Console(file=io.StringIO(), width=100)
    console.print(gantt(schedule))
    console.print(memory_chart(schedule))
    labels = [label.get_text() for label in draw(schedule).axes[0].get_yticklabels()]
    assert labels == [row.label for row in rows]
    (data,) = page_data([schedule])["schedules"]
    assert sum(len(row["form"]) for row in data["devices"]) == len(every)
    assert [row["memory"] is None for row in data["devices"]] == [
        place >= problem.devices for place in range(len(rows))
    ]
    assert report([schedule]).lower().startswith("<!doctype html>")
    assert summary(schedule).to_dict()["makespan"] is not None
    assert compare(problem)


@given(problem=whole_steps())
@settings(max_examples=EXAMPLES, deadline=None)
def test_files_of_a_whole_step_come_back_as_they_were(problem: Problem) -> None:
    schedule = schedule_of(problem)
    again = Schedule.from_dict(json.loads(schedule.to_json()))
    assert again.timeline == schedule.timeline
    assert again.problem == problem
    table = write_op_table(schedule)
    timed = read_op_table(table, problem)
    assert {r: ops for r, ops in timed.timeline.items() if ops} == dict(schedule.timeline)
    cells = [line.split(",")[:-2] for line in table.splitlines()]
    untimed = read_op_table("\n".join(",".join(line) for line in cells), problem)
    assert check(untimed) == ()
    assert untimed.by_device.keys() == schedule.by_device.keys()
    for device, ops in schedule.by_device.items():
        assert [t.op for t in untimed.by_device[device]] == [t.op for t in ops]
    events = json.loads(write_chrome_trace([schedule]))["traceEvents"]
    spans = [event["name"] for event in events if event["ph"] == "X"]
    assert len(spans) == sum(map(len, schedule.timeline.values()))
