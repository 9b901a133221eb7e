from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from schedopt.formats.front import HEIGHT, front_chart, write_picture
from schedopt.front import Mark

UNITS = {"unit": "ms", "memory_unit": "GiB"}


def mark(memory: int, time: int, *, microbatches: int = 8, name: str = "solved") -> Mark:
    return Mark(name, "linear", microbatches, Fraction(memory), Fraction(time), name == "solved")


MARKS = [mark(2, 9), mark(4, 6), mark(4, 8), mark(8, 7, name="GPipe")]


def rows(marks: list[Mark]) -> list[str]:
    lines = front_chart(marks, width=40, **UNITS).plain.splitlines()
    return [line.split("|")[1] for line in lines if "|" in line]


def test_the_picture_has_memory_from_left_to_right_and_time_upwards() -> None:
    drawn = rows(MARKS)
    assert len(drawn) == HEIGHT
    assert drawn[0][0] == "*"
    assert drawn[-1].index("*") == round((4 - 2) / (8 - 2) * (len(drawn[0]) - 1))
    (classic,) = (line for line in drawn if "x" in line)
    assert classic.index("x") == len(classic) - 1
    assert drawn[round(HEIGHT / 3)].count("o") == 1


def test_each_number_of_microbatches_has_a_picture() -> None:
    both = [*MARKS, mark(3, 5, microbatches=16)]
    text = front_chart(both, width=60, **UNITS).plain
    assert "time per microbatch, 8 microbatches, ms" in text
    assert "time per microbatch, 16 microbatches, ms" in text
    assert text.count("peak memory, GiB") == 2
    assert len(rows(both)) == 2 * HEIGHT


@pytest.mark.parametrize("ending", [".svg", ".png", ".pdf", ".html"])
def test_pictures_are_written_in_every_form(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"front{ending}"
    write_picture(path, [*MARKS, mark(3, 5, microbatches=16)], title="a < b & c", **UNITS)
    content = path.read_bytes()
    begins = {".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF", ".html": b"<!DOCTYPE html>"}
    assert content.startswith(begins[ending])
    if ending in (".svg", ".html"):
        for text in (b"a &lt; b &amp; c", b"GPipe", b"peak memory of the fullest device, GiB"):
            assert text in content


def test_the_same_picture_is_the_same_file(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        write_picture(tmp_path / name, MARKS, title="front", **UNITS)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in one of \.svg, \.png, \.pdf, \.html"):
        write_picture(tmp_path / "front.bmp", MARKS, title="front", **UNITS)
