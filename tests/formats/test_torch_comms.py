"""Tables with transfers: what torch reads, and what would hang or train wrongly there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedopt.classic import CLASSIC
from schedopt.errors import DeadlockError, InputError
from schedopt.formats.torch_actions import Action
from schedopt.formats.torch_comms import read_torch_comms, write_torch_comms
from schedopt.problem import Problem
from schedopt.schedule import Schedule

PROBLEM = Problem(devices=2, microbatches=1, durations={"F": 1, "BW": 2})
TABLE = "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n"
TWO = Problem(devices=2, microbatches=2, durations={"F": 1, "BW": 2})
SHAPES = {"ZB-V": "v", "Interleaved 1F1B": "interleaved", "Wave": "wave"}


def classic(name: str, *, devices: int, microbatches: int, lag: int = 1) -> Schedule:
    problem = Problem.uniform(devices=devices, microbatches=microbatches, lag=lag)
    if name in SHAPES:
        problem = problem.replace(placement=SHAPES[name], stages=2 * devices)
    return CLASSIC[name](problem)


def faults_of(text: str, problem: Problem = PROBLEM) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_torch_comms(text, problem, source="a.csv")
    return [str(fault) for fault in caught.value.faults]


def test_ops_transfers_and_reductions_are_written_in_their_order() -> None:
    assert write_torch_comms(CLASSIC["1F1B"](PROBLEM)) == TABLE


def test_nothing_is_sent_between_stages_of_one_device() -> None:
    v = classic("ZB-V", devices=2, microbatches=1)
    first, second = write_torch_comms(v).splitlines()
    assert "1SEND_F0" not in second
    assert "2RECV_F0" not in second
    assert "2SEND_F0" in second
    assert "3RECV_F0" in first


@given(
    devices=st.integers(2, 4),
    microbatches=st.integers(1, 8),
    lag=st.integers(0, 2),
    name=st.sampled_from(["GPipe", "1F1B", "ZB-H1", *SHAPES]),
)
def test_reading_what_was_written_gives_the_same_schedule(
    devices: int, microbatches: int, lag: int, name: str
) -> None:
    schedule = classic(name, devices=devices, microbatches=microbatches, lag=lag)
    table = write_torch_comms(schedule)
    assert read_torch_comms(table, schedule.problem, name=schedule.name) == schedule
    assert_no_wait(table)


def assert_no_wait(table: str) -> None:
    """Run the rows, with sends and receives that wait for each other: the strictest runtime."""
    rows = [[Action.parse(cell) for cell in row.split(",")] for row in table.splitlines()]
    at = [0] * len(rows)
    moved = True
    while moved:
        moved = False
        heads = {row[k]: r for r, (row, k) in enumerate(zip(rows, at, strict=True)) if k < len(row)}
        for action, row in heads.items():
            assert action is not None
            word, letter = action.word[:4], action.word[-1]
            if word == "SEND":
                step = 1 if letter == "F" else -1
                meets = Action(action.stage + step, f"RECV_{letter}", action.microbatch)
                if meets not in heads:
                    continue
                at[heads[meets]] += 1
            elif word == "RECV":
                continue
            at[row] += 1
            moved = True
            break
    assert at == [len(row) for row in rows]


def test_so_does_a_schedule_with_indices_of_several_digits() -> None:
    schedule = classic("ZB-H1", devices=32, microbatches=256)
    again = read_torch_comms(write_torch_comms(schedule), schedule.problem, name=schedule.name)
    assert again == schedule


def test_what_is_for_sharded_stages_is_left_out() -> None:
    sharded = "0UNSHARD," + TABLE.replace("0REDUCE_GRAD", "0REDUCE_GRAD,0RESHARD")
    assert read_torch_comms(sharded, PROBLEM) == read_torch_comms(TABLE, PROBLEM)


def test_faults_of_ops_and_of_cells_are_named_with_row_and_column() -> None:
    wrong = "0F0,0SEND_F0,0RECV_B0,0SEND_F,0B0,0REDUCE_GRAD0\n1RECV_F0,1F0,0B0,0SEND_B0,1SEND_B9\n"
    found = faults_of(wrong)
    assert found[0].startswith("row 1, column 4 = '0SEND_F': must be stage, F, I (gradient")
    assert found[1].startswith("row 1, column 6 = '0REDUCE_GRAD0': must be stage")
    assert found[2:] == [
        "row 2, column 3 = '0B0': must be in row 1, that of the device of its stage",
        "row 2 = without 1B0: must have each op once",
        "row 2, column 4 = '0SEND_B0': must be in row 1, that of the device of its stage",
        "row 2, column 5 = '1SEND_B9': must be of a microbatch from 0 to 0",
    ]


def test_every_transfer_and_every_reduction_must_be_there_once() -> None:
    assert faults_of(TABLE.replace("0SEND_F0,", "").replace(",1REDUCE_GRAD", "")) == [
        "row 1 = without 0SEND_F0: must be there for 0F0",
        "row 2 = without 1REDUCE_GRAD: must be there after 1B0: gradients are not scaled without "
        "it",
    ]
    assert faults_of(TABLE.replace("0SEND_F0", "0SEND_F0,0SEND_F0")) == [
        "row 1, column 3 = '0SEND_F0': is there already: row 1, column 2"
    ]
    assert faults_of(TABLE.replace("0SEND_F0", "0SEND_F1")) == [
        "row 1, column 2 = '0SEND_F1': must be of a microbatch from 0 to 0",
        "row 1 = without 0SEND_F0: must be there for 0F0",
    ]
    assert faults_of(TABLE.replace("1B0,", "1B0,1SEND_F0,")) == [
        "row 2, column 4 = '1SEND_F0': must not be there: the stage has no neighbour on another "
        "device that way"
    ]


def test_a_transfer_comes_after_what_makes_it_and_before_what_needs_it() -> None:
    early = TABLE.replace("0F0,0SEND_F0", "0SEND_F0,0F0").replace("1RECV_F0,1F0", "1F0,1RECV_F0")
    early = early.replace("1B0,1SEND_B0,1REDUCE_GRAD", "1REDUCE_GRAD,1B0,1SEND_B0")
    assert faults_of(early) == [
        "row 1, column 1 = '0SEND_F0': must come after 0F0, which makes it: row 1, column 2",
        "row 2, column 2 = '1RECV_F0': must come before 1F0: row 2, column 1",
        "row 2, column 3 = '1REDUCE_GRAD': must come after 1B0: row 2, column 4",
    ]


def test_two_ranks_need_one_order_of_the_transfers_between_them() -> None:
    table = write_torch_comms(CLASSIC["GPipe"](TWO))
    assert table.splitlines()[1].startswith("1RECV_F0,1RECV_F1,1F0")
    assert faults_of(table.replace("1RECV_F0,1RECV_F1", "1RECV_F1,1RECV_F0"), TWO) == [
        "row 1, column 2 = '0SEND_F0': must be 0SEND_F1: row 2 has 1RECV_F1 first, and both ranks "
        "need one order of the transfers between them"
    ]


def test_rows_that_wait_for_each_other_are_refused() -> None:
    loop = Problem.uniform(devices=3, microbatches=1, placement=[0, 1, 2, 0])
    schedule = CLASSIC["GPipe"](loop)
    table = write_torch_comms(schedule)
    start = "0F0,0SEND_F0,3RECV_F0,3F0"
    assert table.startswith(start)
    with pytest.raises(DeadlockError, match=r"these ops wait for each other: .*3F0"):
        read_torch_comms(table.replace(start, "3RECV_F0,3F0,0F0,0SEND_F0"), schedule.problem)
