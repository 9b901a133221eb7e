from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedopt.op import KINDS, Op, Resource


@pytest.mark.parametrize(
    ("label", "op"),
    [
        ("11F3", Op("F", 11, 3)),
        ("1F13", Op("F", 1, 13)),
        ("10W10", Op("W", 10, 10)),
        ("1B0", Op("B", 1, 0)),
        ("1BW0", Op("BW", 1, 0)),
    ],
)
def test_two_digit_indices_stay_apart(label: str, op: Op) -> None:
    assert str(op) == label
    assert Op.parse(label) == op


@given(st.sampled_from(sorted(KINDS)), st.integers(0, 9999), st.integers(0, 9999))
def test_an_op_is_read_back_from_its_text(kind: str, stage: int, microbatch: int) -> None:
    op = Op(kind, stage, microbatch)
    assert Op.parse(str(op)) == op


@pytest.mark.parametrize(
    "label", ["", "F0", "0F", "0X0", "0f0", "-1F0", "0 F0", "0F0 ", "0BB0", "0F0.5"]
)
def test_other_text_is_refused_with_what_is_expected(label: str) -> None:
    with pytest.raises(ValueError, match=r"is not an op; expected stage, kind \(F, B, W, .*OPT\)"):
        Op.parse(label)


def test_a_resource_shows_its_kind_and_device() -> None:
    assert str(Resource("compute", 3)) == "compute 3"
