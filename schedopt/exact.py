"""Exact numbers: what a user writes as 0.1 is one tenth, and stays one tenth.

Times and memory are read as decimals, kept as fractions, and counted in whole steps of a
*resolution*: the largest step that divides 1 and every given number. Whole numbers therefore
have resolution 1 and keep their own values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

Number = int | float


def exact(number: Number | Fraction) -> Fraction:
    """The decimal that was written, as a fraction (0.1 -> 1/10)."""
    if isinstance(number, float):
        return Fraction(repr(number))
    return Fraction(number)


def resolution(numbers: Iterable[Fraction]) -> Fraction:
    """Largest step of which 1 and all `numbers` are whole multiples."""
    return Fraction(1, math.lcm(*(number.denominator for number in numbers)))


def steps(number: Fraction, step: Fraction) -> int:
    """`number` counted in steps of `step`.

    Raises
    ------
    ValueError
        If it is not a whole number of steps.
    """
    count = number / step
    if count.denominator != 1:
        raise ValueError(f"{number} is not a whole multiple of {step}")
    return count.numerator


def plain(number: Fraction) -> Number:
    """The int or the nearest float of a fraction, for people and for reports."""
    return number.numerator if number.denominator == 1 else float(number)


def to_json(number: Fraction) -> Number | str:
    """A JSON value that is read back exactly (`schedopt.fields.Exact`).

    An int, or a float where it is exact, or else a string of the form "1/3".
    """
    value = plain(number)
    return value if exact(value) == number else str(number)


def text(number: Fraction | Number, digits: int = 6) -> str:
    """Short decimal text: 12, 12.5, 0.333333; small numbers as 1e-07."""
    number = exact(number)
    if number.denominator == 1:
        return str(number.numerator)
    if abs(number) * 10**digits < 1:
        return f"{float(number):.{digits}g}"
    return f"{float(number):.{digits}f}".rstrip("0").rstrip(".")
