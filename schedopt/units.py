"""Units of time and of memory: in problems they are names only, but measurements have real ones."""

from __future__ import annotations

import re
from fractions import Fraction

SECONDS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
}
"""Units of time in seconds."""

BYTES = {
    "bytes": 1,
    "byte": 1,
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
"""Units of memory in bytes."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def size_in_bytes(text: str) -> int:
    """Bytes of a size as it is written: "4096", "512MiB", "1.5 GiB"; rounded down.

    Raises
    ------
    ValueError
        If it is no number of at least 0 with a known unit, or none.

    Examples
    --------
    >>> size_in_bytes("1.5KiB")
    1536
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match[2] or "B") not in BYTES:
        units = ", ".join(BYTES)
        raise ValueError(f"{text!r} is no size; valid: a number of at least 0 and one of {units}")
    return int(Fraction(match[1]) * BYTES[match[2] or "B"])
