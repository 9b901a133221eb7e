from __future__ import annotations

from fractions import Fraction

import pytest

from schedopt.formats.palette import OVER_CAPACITY_COLOUR, shade
from schedopt.formats.text import SMALLEST_WIDTH, gantt, memory_chart
from schedopt.formats.view import View
from schedopt.op import Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule, TimedOp
from tests.schedules import schedule_of, two_by_two


def colours(schedule: Schedule, line: int, *, width: int = 40) -> list[tuple[str, str]]:
    """Text and style of the coloured parts of one line of a Gantt chart."""
    part = gantt(schedule, width=width).split("\n")[line]
    return [(part.plain[span.start : span.end], str(span.style)) for span in part.spans]


def chart(schedule: Schedule, *, width: int) -> list[str]:
    """The columns of each device of a Gantt chart in letters."""
    lines = gantt(schedule, width=width, colour=False).plain.splitlines()
    return [line[7:-8] for line in lines[2 : 2 + schedule.problem.devices]]


def test_a_gantt_chart_in_letters_is_exactly_this() -> None:
    assert gantt(two_by_two(), width=60, colour=False).plain.splitlines() == [
        "       0           2           4           6",
        "device ┬───────────┬───────────┬───────────┬─────    idle",
        "     0 F0────F1────······B0────W0────B1────W1────  14.3 %",
        "     1 ······F0────B0────F1────B1────W0────W1────  14.3 %",
        "       F forward   B backward, gradient of the input only",
        "       W backward, gradient of the weights only   · idle",
        "       number: microbatch   time in units",
        "       one column = 0.167",
    ]


def test_a_memory_chart_is_exactly_this() -> None:
    drawn = memory_chart(two_by_two(capacity=2), width=60, colour=False).plain
    assert drawn.splitlines() == [
        "       0           2           4           6",
        "device ┬───────────┬───────────┬───────────┬─────    peak",
        "     0 ▄▄▄▄▄▄▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▄▄▄▄▄▄▄▄▄▄▄▄ 100.0 %",
        "     1       ▄▄▄▄▄▄▄▄▄▄▄▄▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▄▄▄▄▄▄ 100.0 %",
        "       height: memory in use   peak in % of the capacity",
        "       ! over the capacity",
    ]


def test_ascii_only_means_ascii() -> None:
    schedule = two_by_two(capacity=1)
    drawn = [
        chart(schedule, width=60, colour=False, ascii_only=True).plain
        for chart in (gantt, memory_chart)
    ]
    assert all(text.isascii() for text in drawn)
    assert "F0----F1----......B0----" in drawn[0]
    assert "######!!!!" in drawn[1]


def test_in_colour_an_op_is_a_box_of_its_kind_with_its_microbatch() -> None:
    assert colours(two_by_two(), 2) == [
        (" 0 ", "#000000 on #56B4E9"),
        (" 1 ", "#000000 on #89CAF0"),
        (" 0 ", "#000000 on #E69F00"),
        (" 0 ", "#000000 on #009E73"),
        (" 1 ", "#000000 on #EEBC4C"),
        (" 1 ", "#000000 on #4CBB9D"),
    ]


def test_later_stages_of_a_device_are_darker_or_in_small_letters() -> None:
    problem = Problem.uniform(devices=1, stages=2, placement="interleaved", microbatches=1)
    schedule = schedule_of(problem, "0F0 1F0 1B0 1W0 0B0 0W0")
    assert chart(schedule, width=40) == ["F0──f0──b0──w0──B0──W0──"]
    dark = shade("F", chunk=1, chunks=2)
    assert colours(schedule, 2)[1] == (" 0  ", f"{dark.text} on {dark.background}")
    assert "small letter: later stage of the device" in gantt(schedule, colour=False).plain


def test_equal_ops_get_equal_boxes_where_the_width_allows() -> None:
    assert chart(two_by_two(), width=44) == [
        "F0──F1──····B0──W0──B1──W1──",
        "····F0──B0──F1──B1──W0──W1──",
    ]
    assert chart(two_by_two(), width=42) == ["F0─F1─···B0─W0─B1─W1─", "···F0─B0─F1─B1─W0─W1─"]


def test_only_ops_with_room_for_the_longest_label_have_one() -> None:
    problem = Problem.uniform(devices=1, microbatches=4, F=18, B=0, W=2)
    order = " ".join(f"0F{i} 0B{i} 0W{i}" for i in range(4))
    schedule = schedule_of(problem, order)
    assert chart(schedule, width=55) == ["F0───────WF1───────WF2───────WF3───────W"]
    assert colours(schedule, 2, width=55)[1][0] == " "

    def row(microbatches: int) -> str:
        problem = Problem.uniform(devices=1, microbatches=microbatches, F=1, B=0, W=0)
        order = " ".join(f"0F{i} 0B{i} 0W{i}" for i in range(microbatches))
        return chart(schedule_of(problem, order), width=40)[0]

    assert row(10) == "F0F1F2F3F4F5F6F7F8F9"
    assert row(11) == "F─F─F─F─F─F─F─F─F─F─F─"


def test_a_column_with_many_ops_shows_the_kinds_in_their_proportion() -> None:
    problem = Problem.uniform(devices=1, microbatches=1000, F=2, B=1, W=1)
    order = " ".join(f"0F{i} 0B{i} 0W{i}" for i in range(1000))
    (row,) = chart(schedule_of(problem, order), width=95)
    assert [row.count(letter) for letter in "FBW"] == [40, 20, 20]
    assert len(row) == 80
    assert "FFF" not in row


def test_a_column_is_idle_if_more_than_half_of_it_is() -> None:
    problem = Problem.uniform(devices=1, microbatches=1, F=1, B=0, W=0)
    ops = schedule_of(problem, "0F0 0B0 0W0").by_device[0]

    def with_end(end: int) -> str:
        late = tuple(TimedOp(timed.op, end, end) for timed in ops[1:])
        timeline = {Resource("compute", 0): (ops[0], *late)}
        schedule = Schedule(problem, timeline, problem.time_resolution)
        return chart(schedule, width=40)[0]

    assert with_end(48).count("F") == 1  # a column of 2, half of it busy
    assert with_end(72).count("F") == 0  # a column of 3


@pytest.mark.parametrize("width", [1, SMALLEST_WIDTH, 57, 80, 200])
def test_no_line_is_wider_than_the_width(width: int) -> None:
    schedule = two_by_two(capacity=2, time_unit="us")
    for chart in (gantt, memory_chart):
        lines = chart(schedule, width=width).plain.splitlines()
        rows = [line for line in lines if line[:7].strip().isdigit() or "┬" in line]
        assert len(rows) == 3
        assert max(map(len, rows)) <= max(width, SMALLEST_WIDTH)


def test_memory_over_the_capacity_is_marked() -> None:
    schedule = two_by_two(capacity=1)
    drawn = memory_chart(schedule, width=60, colour=False).plain.splitlines()
    assert drawn[2] == "     0 ▇▇▇▇▇▇!!!!!!!!!!!!!!!!!!!!!!!!▇▇▇▇▇▇▇▇▇▇▇▇ 200.0 %"
    spans = memory_chart(schedule, width=60).split("\n")[2].spans
    assert [str(span.style) for span in spans].count(OVER_CAPACITY_COLOUR) == 2  # columns, peak


def test_without_capacity_memory_is_drawn_against_the_largest_peak() -> None:
    problem = Problem.uniform(
        devices=2, microbatches=1, memory={"F": [4, 2], "B": 0}, memory_unit="GiB"
    )
    drawn = memory_chart(schedule_of(problem, "0F0 0B0 0W0", "1F0 1B0 1W0"), width=52, colour=False)
    lines = drawn.plain.splitlines()
    assert "▇" in lines[2]
    assert lines[2].endswith(" 4")
    assert set(lines[3][7:-8]) == {" ", "▄"}
    assert lines[3].endswith(" 2")
    assert lines[4].endswith("peak in GiB")


def test_static_memory_is_part_of_the_memory() -> None:
    schedule = two_by_two(capacity=4, memory={"static": 2})
    row = memory_chart(schedule, width=60, colour=False).plain.splitlines()[3]
    assert row == "     1 ▄▄▄▄▄▄▆▆▆▆▆▆▆▆▆▆▆▆▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▆▆▆▆▆▆ 100.0 %"


def test_nothing_but_ops_of_no_length_can_be_drawn() -> None:
    problem = Problem.uniform(devices=1, microbatches=1, F=0, B=0, W=0)
    schedule = schedule_of(problem, "0F0 0B0 0W0")
    assert chart(schedule, width=40) == ["·" * 25]
    assert "100.0 %" in memory_chart(two_by_two(capacity=2)).plain


def test_a_broken_schedule_can_be_drawn() -> None:
    schedule = two_by_two()
    ops = schedule.by_device[0]
    timeline = {
        Resource("compute", 0): (ops[0], TimedOp(ops[1].op, 0, 3)),
        Resource("copy", 7): ops,
    }
    broken = Schedule(schedule.problem, timeline, schedule.resolution)
    assert "idle" in gantt(broken).plain
    assert "peak" in memory_chart(broken).plain


def zoomed(schedule: Schedule, **view: object) -> list[str]:
    drawn = gantt(schedule, width=60, colour=False, view=View.of(schedule, **view))  # type: ignore[arg-type]
    return drawn.plain.splitlines()


def test_a_view_shows_its_span_of_time_and_its_devices_only() -> None:
    lines = zoomed(two_by_two(), start=Fraction(2), end=Fraction(5), devices=[1])
    assert lines[:4] == [
        "       2              3              4              5"[:52].rstrip(),
        "device ┬──────────────┬──────────────┬──────────────    idle",
        "     1 B0─────────────F1─────────────B1─────────────   0.0 %",
        "       F forward   B backward, gradient of the input only",
    ]
    assert zoomed(two_by_two(), start=Fraction(0), end=Fraction(2))[3].endswith("  50.0 %")


def test_a_view_can_begin_between_two_steps() -> None:
    lines = zoomed(two_by_two(), start=Fraction(3, 2), end=Fraction(11, 3))
    part = 44 // 13 * 3  # columns of half a unit
    assert lines[2][7 : 7 + part] == "F1" + "─" * (part - 2)
    assert lines[2][7 + part : 7 + 3 * part] == "·" * 2 * part
    assert lines[2].endswith("46.2 %")  # idle from 2 to 3, of 13/6


def test_memory_idle_time_and_peak_of_a_view_are_those_of_its_time() -> None:
    schedule = two_by_two(capacity=2)
    view = View.of(schedule, start=Fraction(5), end=Fraction(7), devices=[0, 1])
    drawn = memory_chart(schedule, width=60, colour=False, view=view).plain
    rows = drawn.splitlines()[2:4]
    assert rows[0] == "     0 " + "▄" * 44 + "  50.0 %"
    assert rows[1] == "     1 " + "▇" * 22 + "▄" * 22 + " 100.0 %"
    assert "peak: of 5 to 7 units" in drawn
    assert "idle: of 5 to 7 units" in gantt(schedule, width=60, view=view).plain
    for chart in (gantt, memory_chart):
        assert ": of " not in chart(schedule, width=60).plain
