from __future__ import annotations

import click
import pytest

from schedopt.cli.options import size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4GiB", 4 * 2**30),
        ("512 mib", 512 * 2**20),
        ("1.5GB", 1_500_000_000),
        ("2e9", 2 * 10**9),
        ("100000", 100_000),
        ("64 KiB", 2**16),
    ],
)
def test_a_size_is_a_number_with_or_without_a_unit(text: str, expected: int) -> None:
    assert size(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "4 gib b", "-1GiB", "0", "4G", "nan", "1e400", "٣GiB"])
def test_anything_else_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a size, such as 4GiB"):
        size(text)
