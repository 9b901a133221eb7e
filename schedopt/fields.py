"""Types of the fields of a problem file: checked item by item, so that each fault has a place."""

from __future__ import annotations

import contextlib
import math
import numbers
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any

from pydantic import Discriminator, PlainValidator, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from schedopt.exact import Number, exact

LARGEST, SMALLEST = 10**100, Fraction(1, 10**100)
"""Sizes between which given numbers lie, besides 0. What follows from them fits into a float."""
LARGEST_RESULT = 10**300
LARGEST_COUNT = 10**9


def _finite(value: Any) -> Number:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise PydanticCustomError("number", "must be a number, written without quotes")
    number: Number = math.inf
    with contextlib.suppress(OverflowError):
        number = int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(number, float) and not math.isfinite(number):
        raise PydanticCustomError("finite", "must be a finite number")
    if isinstance(value, Fraction) and exact(number) != value:
        raise PydanticCustomError("decimal", "must have a decimal form of at most 17 digits")
    return number


def _number(value: Any) -> Number:
    number = _finite(value)
    if number and not SMALLEST <= abs(number) <= LARGEST:
        raise PydanticCustomError("size", "must be 0 or between 1e-100 and 1e100 in size")
    return number


def _checked(
    accept: Callable[[Number], bool], valid: str
) -> tuple[Callable[[Any], Number], Callable[[Any], Number | None]]:
    def required(value: Any) -> Number:
        number = _number(value)
        if not accept(number):
            raise PydanticCustomError("range", "must be {valid}", {"valid": valid})
        return number

    def optional(value: Any) -> Number | None:
        return None if value is None else required(value)

    return required, optional


_signed, _signed_or_null = _checked(lambda number: True, "a number")
_not_negative, _not_negative_or_null = _checked(lambda number: number >= 0, "at least 0")
_positive, _ = _checked(lambda number: number > 0, "greater than 0")


def _integer(minimum: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if not isinstance(value, numbers.Integral) or isinstance(value, bool):
            raise PydanticCustomError("integer", "must be a whole number")
        if int(value) < minimum:
            raise PydanticCustomError("range", "must be at least {limit}", {"limit": minimum})
        if int(value) > LARGEST_COUNT:
            raise PydanticCustomError("range", "must be at most {limit}", {"limit": LARGEST_COUNT})
        return int(value)

    return check


def _exact(value: Any) -> Fraction:
    if isinstance(value, str):
        if not _RATIO.fullmatch(value):
            raise PydanticCustomError("ratio", 'must be a number, or a ratio such as "1/3"')
        number = Fraction(value)
    else:
        number = exact(_finite(value))
    if abs(number) > LARGEST_RESULT:
        raise PydanticCustomError("size", "must be between -1e300 and 1e300")
    return number


_RATIO = re.compile(r"-?\d{1,1000}/[1-9]\d{0,999}")
_NUMBER = {"type": "number"}
_NOT_NEGATIVE = {"type": "number", "minimum": 0}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


NotNegative = Annotated[Number, PlainValidator(_not_negative), WithJsonSchema(_NOT_NEGATIVE)]
Positive = Annotated[
    Number, PlainValidator(_positive), WithJsonSchema({"type": "number", "exclusiveMinimum": 0})
]
Signed = Annotated[Number, PlainValidator(_signed), WithJsonSchema(_NUMBER)]
NotNegativeOrNull = Annotated[
    Number | None, PlainValidator(_not_negative_or_null), WithJsonSchema(_or_null(_NOT_NEGATIVE))
]
SignedOrNull = Annotated[
    Number | None, PlainValidator(_signed_or_null), WithJsonSchema(_or_null(_NUMBER))
]
Exact = Annotated[
    Fraction,
    PlainValidator(_exact),
    WithJsonSchema({"anyOf": [_NUMBER, {"type": "string", "pattern": f"^{_RATIO.pattern}$"}]}),
]
"""A number of any size without rounding, as `schedopt.exact.to_json` writes it."""
Count = Annotated[
    int, PlainValidator(_integer(1)), WithJsonSchema({"type": "integer", "minimum": 1})
]
Index = Annotated[
    int, PlainValidator(_integer(0)), WithJsonSchema({"type": "integer", "minimum": 0})
]

TAGS = ("<one>", "<list>", "<table>", "<directions>", "<name>")
"""Words that pydantic puts into the place of an error; they are not part of the file."""


def shape_of(value: Any) -> str:
    """Whether a value is meant as one number, a list or a table."""
    if isinstance(value, (list, tuple)):
        nested = any(isinstance(item, (list, tuple)) for item in value)
        return "<table>" if nested else "<list>"
    return "<one>"


def one_or_list(value: Any) -> str:
    """Whether a value is meant as one for all or as a list."""
    return "<list>" if isinstance(value, (list, tuple)) else "<one>"


PerItem = Annotated[
    Annotated[NotNegative, Tag("<one>")] | Annotated[tuple[NotNegative, ...], Tag("<list>")],
    Discriminator(one_or_list),
]
"""One number for all, or a list with one for each."""

PerItemOrNull = Annotated[
    Annotated[NotNegativeOrNull, Tag("<one>")]
    | Annotated[tuple[NotNegativeOrNull, ...], Tag("<list>")],
    Discriminator(one_or_list),
]
SignedPerItemOrNull = Annotated[
    Annotated[SignedOrNull, Tag("<one>")] | Annotated[tuple[SignedOrNull, ...], Tag("<list>")],
    Discriminator(one_or_list),
]
