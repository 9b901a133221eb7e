"""Cases about files of other programs."""

from __future__ import annotations

import pytest

from schedopt.errors import InputError
from schedopt.formats.torch_csv import read_torch_csv
from schedopt.op import Op, Resource
from schedopt.problem import Problem


def test_X12_blanks_in_a_table_of_actions() -> None:
    problem = Problem.uniform(devices=2, microbatches=1)
    split = " 0F0 ,,, 0I0,0W0\n,1F0, 1I0 ,1W0,"
    found = read_torch_csv(split, problem).orders[Resource("compute", 1)]
    assert found == (Op("F", 1, 0), Op("B", 1, 0), Op("W", 1, 0))
    with pytest.raises(InputError, match=r"row 2, column 3 = '1 I0': must be stage, F, I"):
        read_torch_csv(split.replace(" 1I0 ", " 1 I0 "), problem)


def test_X15_b_is_read_as_a_full_backward_and_nothing_else() -> None:
    split = Problem.uniform(devices=1, microbatches=1)
    with pytest.raises(InputError, match=r"'0B0': must be one of F, I, W"):
        read_torch_csv("0F0,0B0,0W0", split)
    fused = Problem(devices=1, microbatches=1, durations={"F": 1, "BW": 2})
    found = read_torch_csv("0F0,0B0", fused)
    assert [op.kind for op in found.orders[Resource("compute", 0)]] == ["F", "BW"]
    assert found.makespan == 3
