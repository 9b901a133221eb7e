"""Cases about files of other programs."""

from __future__ import annotations

import json

import pytest

from schedopt.classic import zb_h1
from schedopt.errors import InputError
from schedopt.formats.op_table import read_op_table, write_op_table
from schedopt.formats.torch_comms import read_torch_comms, write_torch_comms
from schedopt.formats.torch_csv import read_torch_csv, write_torch_csv
from schedopt.op import Op, Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.solvers import solve


def test_X12_blanks_in_a_table_of_actions() -> None:
    problem = Problem.uniform(devices=2, microbatches=1)
    split = " 0F0 ,,, 0I0,0W0\n,1F0, 1I0 ,1W0,"
    found = read_torch_csv(split, problem).orders[Resource("compute", 1)]
    assert found == (Op("F", 1, 0), Op("B", 1, 0), Op("W", 1, 0))
    with pytest.raises(InputError, match=r"row 2, column 3 = '1 I0': must be stage, F, I"):
        read_torch_csv(split.replace(" 1I0 ", " 1 I0 "), problem)


def test_X14_indices_of_two_digits_stay_apart() -> None:
    problem = Problem.uniform(devices=12, microbatches=24)
    schedule = zb_h1(problem)
    forms = ((write_torch_csv, read_torch_csv), (write_torch_comms, read_torch_comms))
    for write, read in forms:
        table = write(schedule)
        cells = {cell for row in table.splitlines() for cell in row.split(",")}
        assert {"11F3", "1F13", "10W10", "1I0"} <= cells
        assert read(table, problem).orders == schedule.orders
    assert read_op_table(write_op_table(schedule), problem, name=schedule.name) == schedule
    assert Schedule.from_dict(json.loads(schedule.to_json())) == schedule


def test_X15_both_meanings_of_b_and_what_they_make_of_the_same_durations() -> None:
    given = {"F": 1, "B": 2, "W": 1}
    as_input = Problem(devices=4, microbatches=8, durations=given, memory={"capacity": 4})
    with pytest.raises(InputError, match="B: must be told what it means"):
        read_torch_csv("\n".join(["0F0,0B0,0W0"] * 4), as_input)
    old = write_torch_csv(zb_h1(as_input)).replace("I", "B")
    read = read_torch_csv(old, as_input, b_means="input-gradient")
    work = sum(timed.end - timed.start for timed in read.by_device[0]) * read.resolution
    assert work == 32
    as_full = as_input.replace(durations={**given, "B": 1})
    best = solve(as_full, workers=1, deterministic_limit=5)
    assert best.schedule is not None
    assert (best.status, best.schedule.makespan) == ("optimal", 27)
    busy = sum(timed.end - timed.start for timed in best.schedule.by_device[0])
    assert busy * best.schedule.resolution == 24


def test_X15_b_is_a_full_backward_where_the_problem_has_no_other() -> None:
    fused = Problem(devices=1, microbatches=1, durations={"F": 1, "BW": 2})
    found = read_torch_csv("0F0,0B0", fused)
    assert [op.kind for op in found.orders[Resource("compute", 0)]] == ["F", "BW"]
    assert found.makespan == 3


def test_X17_a_table_of_one_stage_for_each_device_for_a_model_with_two() -> None:
    table = write_torch_csv(zb_h1(Problem.uniform(devices=2, microbatches=2)))
    model = Problem.uniform(devices=2, microbatches=2, stages=4, placement="interleaved")
    with pytest.raises(InputError, match=r"row 1 = without 2F0, 2F1: must have each op once"):
        read_torch_csv(table, model)
