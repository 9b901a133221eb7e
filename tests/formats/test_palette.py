from __future__ import annotations

import itertools

import pytest

from schedopt.formats.palette import IDLE_COLOUR, KIND_COLOURS, KIND_LETTERS, shade
from schedopt.op import KINDS


def luminance(colour: str) -> float:
    parts = [part / 255 for part in bytes.fromhex(colour[1:])]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


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
