"""Tables of actions: what torch reads, and what is refused of what people write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedopt.classic import CLASSIC
from schedopt.errors import DeadlockError, InputError
from schedopt.formats.torch_csv import read_torch_csv, write_torch_csv
from schedopt.problem import Problem
from tests.schedules import two_by_two

SPLIT = two_by_two(name="by hand")
TABLE = "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n"


def faults_of(text: str, problem: Problem = SPLIT.problem) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_torch_csv(text, problem, source="a.csv")
    assert str(caught.value).startswith("a.csv: table of actions is not valid, ")
    return [str(fault) for fault in caught.value.faults]


def test_the_gradient_of_the_input_is_written_as_i_and_a_full_backward_as_b() -> None:
    assert write_torch_csv(SPLIT) == TABLE
    fused = CLASSIC["1F1B"](Problem.uniform(devices=2, microbatches=1))
    assert write_torch_csv(fused) == "0F0,0B0\n1F0,1B0\n"


def test_blanks_and_empty_cells_are_left_out() -> None:
    spaced = " 0F0 ,0F1,, 0I0,0W0,0I1 , 0W1\n,1F0, 1I0 ,1F1,1I1,1W0,1W1,,\n\n"
    assert read_torch_csv(spaced, SPLIT.problem).orders == SPLIT.orders


@given(
    devices=st.integers(1, 4),
    microbatches=st.integers(1, 12),
    name=st.sampled_from(["GPipe", "1F1B", "ZB-H1", "ZB-V"]),
)
def test_reading_what_was_written_gives_the_same_schedule(
    devices: int, microbatches: int, name: str
) -> None:
    problem = Problem.uniform(devices=devices, microbatches=microbatches, lag=1)
    if name == "ZB-V":
        problem = problem.replace(placement="v", stages=2 * devices)
    schedule = CLASSIC[name](problem)
    again = read_torch_csv(write_torch_csv(schedule), schedule.problem, name=schedule.name)
    assert again == schedule


@pytest.mark.parametrize("name", ["1F1B", "ZB-H1"])
def test_so_does_a_schedule_with_indices_of_several_digits(name: str) -> None:
    schedule = CLASSIC[name](Problem.uniform(devices=32, microbatches=256))
    again = read_torch_csv(write_torch_csv(schedule), schedule.problem)
    assert again.orders == schedule.orders


def test_all_faults_are_named_with_row_column_and_text() -> None:
    wrong = "0F0,0F0,0B0,0W0,x,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,0W1,1W7,9F0\n"
    assert faults_of(wrong) == [
        "row 1, column 2 = '0F0': is there already: row 1, column 1",
        "row 1, column 3 = '0B0': must be one of F, I, W: the backward of this stage in the "
        "problem",
        "row 1, column 5 = 'x': must be stage, F, I (gradient of the input), W or B (full "
        "backward), microbatch: 0F11",
        "row 2, column 6 = '0W1': must be in row 1, that of the device of its stage",
        "row 2, column 7 = '1W7': must be of a microbatch from 0 to 1",
        "row 2, column 8 = '9F0': must be of a stage from 0 to 1",
        "row 1 = without 0F1: must have each op once",
        "row 1 = without 0I0: must have each op once",
        "row 2 = without 1W1: must have each op once",
    ]


def test_an_index_of_thousands_of_digits_is_a_fault_of_its_cell() -> None:
    found = faults_of(TABLE.replace("0F0", "9" * 5000 + "F0"))
    assert found[0].startswith("row 1, column 1 = '9999")
    assert found[1] == "row 1 = without 0F0: must have each op once"


def test_a_text_that_is_no_table_is_refused_with_the_reason() -> None:
    assert "field larger than field limit" in faults_of(TABLE + "x" * 200_000)[0]


def test_lines_may_end_as_on_any_system() -> None:
    for ending in ("\r", "\r\n"):
        table = TABLE.replace("\n", ending)
        assert read_torch_csv(table, SPLIT.problem).orders == SPLIT.orders


def test_an_old_table_whose_b_is_the_gradient_of_the_input_is_refused() -> None:
    found = faults_of(TABLE.replace("I", "B"))
    assert "must be one of F, I, W" in found[0]


def test_every_device_has_a_row() -> None:
    assert faults_of("0F0\n") == ["rows = 1: must be 2, one for each device of the problem"]


def test_rows_that_wait_for_each_other_are_refused() -> None:
    circle = "0F0,0I0,0W0,0F1,0I1,0W1\n1F1,1I1,1W1,1F0,1I0,1W0\n"
    with pytest.raises(DeadlockError):
        read_torch_csv(circle, SPLIT.problem)
