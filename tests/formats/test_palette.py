from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from schedopt.formats.palette import (
    CAUSE_COLOURS,
    IDLE_COLOUR,
    KIND_COLOURS,
    KIND_LETTERS,
    shade,
)
from schedopt.idle import CAUSES
from schedopt.op import KINDS


def luminance(colour: str) -> float:
    parts = [part / 255 for part in bytes.fromhex(colour[1:])]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


SEEN_AS = {
    "all cones": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
"""What becomes of linear RGB: Machado, Oliveira, Fernandes (2009), at severity 1."""

LINEAR_TO_XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]


def lab(colour: str, seen_as: str) -> Any:
    """CIE L*a*b* of a colour, with one kind of cone missing."""
    parts = np.array(list(bytes.fromhex(colour[1:]))) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(SEEN_AS[seen_as]) @ linear, 0, 1)
    x, y, z = np.cbrt(np.array(LINEAR_TO_XYZ) @ seen / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("colours", [KIND_COLOURS, CAUSE_COLOURS], ids=["kinds", "causes"])
@pytest.mark.parametrize("seen_as", SEEN_AS)
def test_colours_differ_clearly_for_everyone(colours: dict[str, str], seen_as: str) -> None:
    for first, second in itertools.combinations(colours.values(), 2):
        difference = np.linalg.norm(lab(first, seen_as) - lab(second, seen_as))
        assert difference > 15, (first, second)


def test_every_cause_of_idle_time_has_a_colour() -> None:
    assert CAUSE_COLOURS.keys() == CAUSES.keys()


def test_every_kind_has_its_own_colour_and_letter() -> None:
    assert KIND_COLOURS.keys() == KIND_LETTERS.keys() == KINDS.keys()
    assert len(set(KIND_COLOURS.values())) == len(KINDS)
    assert len({letter.lower() for letter in KIND_LETTERS.values()}) == len(KINDS)


def test_the_first_stage_has_the_pure_colour() -> None:
    assert shade("F") == ("#56B4E9", "#000000")
    assert shade("F", chunk=0, chunks=4) == ("#56B4E9", "#000000")


def test_later_stages_are_darker_and_odd_microbatches_lighter() -> None:
    by_chunk = [luminance(shade("B", chunk=c, chunks=4).background) for c in range(4)]
    assert by_chunk == sorted(by_chunk, reverse=True)
    assert len(set(by_chunk)) == 4
    assert luminance(shade("B", odd=True).background) > by_chunk[0]


@pytest.mark.parametrize("kind", KINDS)
def test_text_is_readable_on_every_shade(kind: str) -> None:
    for chunk, odd in itertools.product(range(3), (False, True)):
        look = shade(kind, chunk=chunk, chunks=3, odd=odd)
        lighter, darker = sorted(map(luminance, look), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def test_an_unknown_kind_is_grey() -> None:
    assert shade("?").background == IDLE_COLOUR
