"""Units of time and of memory."""

from __future__ import annotations

import pytest

from schedopt.units import BYTES, SECONDS, size_in_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("4096", 4096), ("2KiB", 2048), (" 1.5 GiB ", 3 * 2**29), ("0.001kB", 1)],
)
def test_a_size_is_a_number_with_a_unit_or_in_bytes(text: str, size: int) -> None:
    assert size_in_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1 pound", "1e3", "1 GiB GiB", "nan"])
def test_anything_else_is_refused_with_what_is_valid(text: str) -> None:
    with pytest.raises(ValueError, match=f"{text!r} is no size; valid: .*MiB"):
        size_in_bytes(text)


def test_units_have_their_ratios() -> None:
    assert SECONDS["s"] == 1000 * SECONDS["ms"] == 10**6 * SECONDS["us"] == 10**9 * SECONDS["ns"]
    assert BYTES["GiB"] == 1024 * BYTES["MiB"] == 1024**2 * BYTES["KiB"]
