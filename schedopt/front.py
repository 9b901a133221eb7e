"""Trade-offs of memory against time: marks, and which of them no other one beats."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple


class Mark(NamedTuple):
    """A schedule as a point of the picture of memory against time.

    Attributes
    ----------
    name
        What made it.
    placement
        In words, as in `schedopt.analysis.placement_text`.
    microbatches
        In one step.
    memory
        Peak of the fullest device, static memory included, in the unit of the problem.
    time
        Objective by the number of microbatches, in the unit of the problem.
    solved
        Whether it was searched for; otherwise it is a classic schedule.
    """

    name: str
    placement: str
    microbatches: int
    memory: Fraction
    time: Fraction
    solved: bool


def front(marks: Iterable[Mark]) -> tuple[Mark, ...]:
    """The marks of which no other one needs as little memory and time, and less of one (Pareto).

    Only marks with equally many microbatches are compared. They are in the order of their
    microbatches and memory; equal ones are all there.
    """
    result: list[Mark] = []
    fastest: dict[int, tuple[Fraction, Fraction]] = {}
    for mark in sorted(marks, key=lambda mark: (mark.microbatches, mark.memory, mark.time)):
        best = fastest.get(mark.microbatches)
        if best is None or mark.time < best[1] or (mark.memory, mark.time) == best:
            fastest[mark.microbatches] = mark.memory, mark.time
            result.append(mark)
    return tuple(result)
