"""A grid of variants of one problem: placements, numbers of microbatches, capacities."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import NamedTuple

from schedopt.exact import plain, text
from schedopt.placement import PLACEMENT_NAMES, default_chunks, named_placement
from schedopt.problem import Problem
from schedopt.units import BYTES, size_in_bytes
from schedopt.variants import activation, recut, with_microbatches

OWN = "own"
"""Stands for what the problem itself has."""
MOST_VALUES = 1000
"""Most values of one option of a grid."""


class Cut(NamedTuple):
    """A placement for the model of a problem: `chunks` stages on each device; None for its own."""

    name: str
    chunks: int

    def __str__(self) -> str:
        return self.name if self.chunks <= 1 else f"{self.name}, {self.chunks} chunks"


class Room(NamedTuple):
    """A capacity of all devices: activations beside static memory, or bytes; or the problem's own.

    An activation of a device is what one microbatch holds there (`schedopt.variants.activation`).
    """

    activations: Fraction | None = None
    size: int | None = None

    def __str__(self) -> str:
        if self.size is not None:
            return f"{self.size} bytes"
        return OWN if self.activations is None else text(self.activations)

    def change(self, problem: Problem) -> Problem:
        """The problem with this capacity.

        Raises
        ------
        ValueError
            If it is a size and the memory of the problem is not in bytes.
        """
        if self.size is not None:
            if problem.memory_unit not in BYTES:
                raise ValueError(
                    f"a size in bytes needs a problem with memory in bytes, this one has it in "
                    f"{problem.memory_unit}; give a number of activations"
                )
            return problem.with_capacity(plain(Fraction(self.size, BYTES[problem.memory_unit])))
        if self.activations is None:
            return problem
        return problem.with_capacity(
            [
                plain(problem.static[device] + self.activations * activation(problem, device))
                for device in range(problem.devices)
            ]
        )


class Point(NamedTuple):
    """One problem of a grid."""

    placement: str
    microbatches: int
    capacity: str
    problem: Problem


_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")


def cuts(given: str) -> tuple[Cut, ...]:
    """Read placements: "own,linear,v,interleaved:2".

    Raises
    ------
    ValueError
        For an unknown name, or chunks that the placement can not have.
    """
    result = []
    for part in given.split(","):
        name, _, chunks = part.strip().partition(":")
        if name == OWN and not chunks:
            result.append(Cut(OWN, 0))
            continue
        if chunks and not (chunks.isascii() and chunks.isdigit() and 0 < int(chunks) < MOST_VALUES):
            raise ValueError(f"{part!r}: the chunks must be a whole number of at least 1")
        if name not in PLACEMENT_NAMES:
            known = ", ".join((OWN, *PLACEMENT_NAMES))
            raise ValueError(f"{part!r} is no placement; valid: {known}, with :CHUNKS if wanted")
        cut = Cut(name, int(chunks) if chunks else default_chunks(name))
        named_placement(cut.name, 1, cut.chunks)
        result.append(cut)
    return tuple(dict.fromkeys(result))


def rooms(given: str) -> tuple[Room, ...]:
    """Read capacities: "2:16" (both included), "2:4:0.5", "4,8,12", "24GiB,40GiB".

    Raises
    ------
    ValueError
        If a part is neither a number of activations, nor a range of them, nor a size.
    """
    result: list[Room] = []
    for part in given.split(","):
        unit = part.strip().lstrip("0123456789.").strip()
        if unit in BYTES:
            result.append(Room(size=size_in_bytes(part)))
        else:
            result += [Room(activations=count) for count in _numbers(part)]
    return tuple(dict.fromkeys(result))


def counts(given: str) -> tuple[int, ...]:
    """Read numbers of microbatches: "8,16,32", "8:32:8".

    Raises
    ------
    ValueError
        If one is not a whole number of at least 1.
    """
    numbers = [number for part in given.split(",") for number in _numbers(part)]
    for number in numbers:
        if number.denominator != 1 or number < 1:
            raise ValueError(f"{text(number)} is no number of microbatches; they are whole, from 1")
    return tuple(dict.fromkeys(number.numerator for number in numbers))


def _numbers(part: str) -> list[Fraction]:
    """A number, or all numbers of a range LOW:HIGH or LOW:HIGH:STEP."""
    pieces = part.strip().split(":")
    if len(pieces) > 3 or not all(_NUMBER.fullmatch(piece) for piece in pieces):
        raise ValueError(f"{part!r} is no number, and no range LOW:HIGH or LOW:HIGH:STEP")
    numbers = [Fraction(piece) for piece in pieces]
    if len(numbers) == 1:
        return numbers
    low, high, step = (*numbers, Fraction(1))[:3]
    if not (low <= high and step > 0 and (high - low) / step < MOST_VALUES):
        raise ValueError(
            f"{part!r} is no range of at most {MOST_VALUES} numbers: LOW must not be above HIGH, "
            "and STEP greater than 0"
        )
    return [low + k * step for k in range(int((high - low) / step) + 1)]


def grid(
    problem: Problem,
    *,
    placements: Sequence[Cut] = (Cut(OWN, 0),),
    microbatches: Sequence[int] = (),
    capacities: Sequence[Room] = (Room(),),
) -> tuple[Point, ...]:
    """All combinations, with the problem's own value for what is left out.

    Raises
    ------
    NotApplicableError
        If another placement is asked for and the problem is not linear.
    ProblemError
        If a combination is no valid problem.
    ValueError
        If a capacity can not be given in this unit.
    """
    points = []
    for cut, count in product(placements, microbatches or (problem.microbatches,)):
        placed = problem if cut.name == OWN else recut(problem, cut.name, cut.chunks)
        counted = with_microbatches(placed, count)
        for room in capacities:
            points.append(Point(str(cut), count, str(room), room.change(counted)))
    return tuple(points)
