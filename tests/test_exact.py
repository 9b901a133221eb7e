from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from schedopt.exact import exact, plain, resolution, steps, text, to_json
from schedopt.fields import Exact

read = TypeAdapter(Exact).validate_python
NUMBERS = st.integers(-(10**100), 10**100) | st.floats(-1e100, 1e100).filter(
    lambda number: number == 0 or abs(number) >= 1e-100
)


@pytest.mark.parametrize(
    ("written", "number"),
    [
        (0.1, Fraction(1, 10)),
        (1.5, Fraction(3, 2)),
        (-0.3, Fraction(-3, 10)),
        (1e-9, Fraction(1, 10**9)),
        (1e23, Fraction(10**23)),  # the float itself is 8388608 less
        (7, Fraction(7)),
        (10**30 + 1, Fraction(10**30 + 1)),
        (Fraction(1, 3), Fraction(1, 3)),
    ],
)
def test_a_number_is_the_decimal_that_was_written(written: Any, number: Fraction) -> None:
    assert exact(written) == number


@pytest.mark.parametrize(
    ("numbers", "step"),
    [
        ([], Fraction(1)),
        ([Fraction(4), Fraction(6)], Fraction(1)),
        ([Fraction(1, 2), Fraction(3)], Fraction(1, 2)),
        ([Fraction(1, 4), Fraction(1, 6)], Fraction(1, 12)),
        ([Fraction(3, 10), Fraction(0)], Fraction(1, 10)),
    ],
)
def test_resolution_is_the_largest_step_that_divides_one_and_all(
    numbers: list[Fraction], step: Fraction
) -> None:
    assert resolution(numbers) == step


def test_steps_counts_and_refuses_to_round() -> None:
    assert steps(Fraction(3, 2), Fraction(1, 10)) == 15
    assert steps(Fraction(-4), Fraction(2)) == -2
    with pytest.raises(ValueError, match="1/3 is not a whole multiple of 1/10"):
        steps(Fraction(1, 3), Fraction(1, 10))


def test_plain_is_an_int_where_it_can_be_and_else_a_float() -> None:
    assert (plain(Fraction(6, 2)), type(plain(Fraction(3)))) == (3, int)
    assert plain(Fraction(1, 10)) == 0.1
    assert plain(Fraction(1, 3)) == 1 / 3


@pytest.mark.parametrize(
    ("number", "value"),
    [
        (Fraction(12), 12),
        (Fraction(1, 10), 0.1),
        (Fraction(1, 3), "1/3"),
        (Fraction(-22, 7), "-22/7"),
        (Fraction(10**17 + 1), 10**17 + 1),
        (Fraction(10**17 + 1, 10), "100000000000000001/10"),
    ],
)
def test_json_holds_a_float_only_where_it_is_exact(number: Fraction, value: Any) -> None:
    assert to_json(number) == value
    assert read(json.loads(json.dumps(to_json(number)))) == number


@given(NUMBERS, NUMBERS, st.integers(1, 1000))
def test_numbers_are_read_back_from_json_exactly(one: Any, other: Any, parts: int) -> None:
    for number in (exact(one), exact(one) * exact(other), exact(one) / parts + exact(other)):
        assert read(json.loads(json.dumps(to_json(number)))) == number


@pytest.mark.parametrize(
    "value", ["1/0", "1/-3", "0.5", "", "1/3 ", "nan", None, [1], True, "1/03"]
)
def test_other_text_than_a_ratio_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError):
        read(value)


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (12, "12"),
        (12.5, "12.5"),
        (Fraction(1, 3), "0.333333"),
        (Fraction(-1, 4), "-0.25"),
        (100.0, "100"),
        (0, "0"),
        (10**30, "1" + "0" * 30),
        (2.0000004, "2"),
        (Fraction(1, 10**7), "1e-07"),
        (Fraction(-1, 3 * 10**9), "-3.33333e-10"),
    ],
)
def test_text_is_short_and_never_hides_a_small_number_as_zero(number: Any, shown: str) -> None:
    assert text(number) == shown


def test_text_has_as_many_decimals_as_asked_for() -> None:
    assert text(Fraction(2, 3), digits=2) == "0.67"
    assert text(Fraction(1, 8), digits=2) == "0.12"
