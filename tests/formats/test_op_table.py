"""A table of ops comes back as the same schedule, times included."""

from __future__ import annotations

from fractions import Fraction

import pytest

from schedopt.check import check
from schedopt.classic import zb_h1
from schedopt.errors import InputError
from schedopt.formats.op_table import read_op_table, write_op_table
from schedopt.problem import Problem
from tests.schedules import two_by_two

SPLIT = two_by_two(name="by hand", time_unit="ms")
TABLE = write_op_table(SPLIT)


def faults_of(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_op_table(text, SPLIT.problem, source="a.csv")
    return [str(fault) for fault in caught.value.faults]


def without_times(table: str) -> str:
    return "\n".join(line.rsplit(",", 2)[0] for line in table.splitlines())


@pytest.mark.parametrize("durations", [{"F": 1, "B": 2, "W": 3}, {"F": 0.5, "B": 0.1, "W": 1e-7}])
def test_reading_what_was_written_gives_the_same_schedule(durations: dict[str, float]) -> None:
    schedule = zb_h1(Problem(devices=3, microbatches=4, durations=durations, lag=0.25))
    again = read_op_table(write_op_table(schedule), schedule.problem, name=schedule.name)
    assert again == schedule


def test_times_that_are_given_are_kept_right_or_wrong() -> None:
    late = TABLE.replace('1,5,W,"backward, gradient of the weights only",1,1,6,7', "LAST")
    late = late.replace("LAST", "1,5,W,,1,1,20/3,23/3")
    read = read_op_table(late, SPLIT.problem)
    assert check(read) == ()
    assert read.makespan == Fraction(23, 3)
    early = read_op_table(late.replace("20/3,23/3", "5.5,6.5"), SPLIT.problem)
    assert check(early) != ()


def test_without_times_ops_start_as_early_as_they_can() -> None:
    assert read_op_table(without_times(TABLE), SPLIT.problem, name="by hand") == SPLIT


def test_columns_may_stand_in_any_order_and_lines_too() -> None:
    first, *lines = without_times(TABLE).splitlines()
    assert first == "device,position,kind,meaning,stage,microbatch"
    rows = [line.split(",") for line in reversed(lines)]
    turned = ["kind,device,stage,microbatch,position"]
    turned += [f"{r[2]}, {r[0]} ,{r[-2]},{r[-1]},{r[1]}" for r in rows]
    assert read_op_table("\n".join(turned), SPLIT.problem).orders == SPLIT.orders


def test_all_faults_are_named_with_line_and_column() -> None:
    lines = ["device,position,kind,meaning,stage,microbatch,start (ms),end (ms)"]
    lines += ["0,0,F,forward,0,0,0,1", "0,0,F,forward,0,0,x,1", "0,1,B,full backward,0,0,2,3"]
    lines += ["1,0,F,,0,1,1,2", "2,0,BW,,1,0,1,2", "1,,F,,7,-1,1,2"]
    found = faults_of("\n".join(lines))
    assert found[:9] == [
        "line 3, start (ms) = 'x': must be a number, or 1/3",
        "line 4, meaning = 'full backward': must be 'backward, gradient of the input only': that "
        "is what B means here",
        "line 5, device = '1': must be 0, the device of stage 0",
        "line 6, device = '2': must be a whole number from 0 to 1",
        "line 6, kind = 'BW': must be one of F, B, W, as this stage has in the problem",
        "line 7, stage = '7': must be a whole number from 0 to 1",
        "line 7, microbatch = '-1': must be a whole number from 0 to 1",
        "line 7, position = '': must be a whole number from 0 to 15",
        "(table) = without 0F1: must have each op once",
    ]


@pytest.mark.parametrize("time", ["1e999", "nan", "1/0", "0x10", "1_0", "9" * 101, "１"])
def test_a_time_is_a_plain_number(time: str) -> None:
    assert faults_of(TABLE.replace(",0,0,0,1", f",0,0,{time},1")) == [
        f"line 2, start (ms) = {time!r}: must be a number, or 1/3",
        "(table) = without 0F0: must have each op once",
    ]


def test_an_op_or_a_position_that_is_there_twice_is_refused() -> None:
    assert faults_of(TABLE.replace("0,1,F,forward,0,1", "0,0,F,forward,0,0")) == [
        "line 3 = 0F0: is there already: line 2",
        "line 3 = position 0: is there already: line 2",
        "(table) = without 0F1: must have each op once",
    ]


def test_headings_name_the_unit_of_the_problem() -> None:
    found = faults_of(TABLE.replace("start (ms)", "start (us)"))
    assert found[0].startswith("line 1 = 'start (us)': must be one of device, position, kind")
    assert found[1].startswith("line 1 = without 'start (ms)': must have the columns")
    assert faults_of("")[0].startswith("line 1 = without 'device'")
