"""Named placements: which device each stage lives on.

Stages are numbered in model order, devices are pipeline ranks. ``chunks`` is the number of
stages on each device.

======================  ==================================================================
linear                  one stage per device: 0..p-1
interleaved             round robin, stage s on device s mod p (Narayanan et al., 2021)
v                       0..p-1, p-1..0: two stages per device (Qi et al., 2024)
wave                    zigzag 0..p-1, p-1..0, 0..p-1, ... (Liu et al., Hanayo, 2023)
======================  ==================================================================
"""

from __future__ import annotations

from collections.abc import Sequence

PLACEMENT_NAMES = ("linear", "interleaved", "v", "wave")


def default_chunks(name: str) -> int:
    """Stages per device of a named placement when nothing else says how many."""
    return 1 if name == "linear" else 2


def named_placement(name: str, devices: int, chunks: int | None = None) -> tuple[int, ...]:
    """Return the device of each stage.

    Parameters
    ----------
    name
        One of `PLACEMENT_NAMES`.
    devices
        Number of devices p, at least 1.
    chunks
        Stages per device; `default_chunks` when omitted.

    Raises
    ------
    ValueError
        For an unknown name, or a number of chunks the placement can not have.

    Examples
    --------
    >>> named_placement("v", 3)
    (0, 1, 2, 2, 1, 0)
    """
    if name not in PLACEMENT_NAMES:
        raise ValueError(f"unknown placement {name!r}; valid: {', '.join(PLACEMENT_NAMES)}")
    chunks = default_chunks(name) if chunks is None else chunks
    fixed = {"linear": 1, "v": 2}.get(name)
    if fixed is not None and chunks != fixed:
        raise ValueError(f"placement {name!r} has {fixed} stage(s) per device, not {chunks}")
    up = tuple(range(devices))
    if name in ("linear", "interleaved"):
        return up * chunks
    return tuple(d for chunk in range(chunks) for d in (up if chunk % 2 == 0 else up[::-1]))


def name_of_placement(device_of: Sequence[int], devices: int) -> str | None:
    """Name of a placement given as a list, or None if it has none.

    A linear placement is also interleaved with one chunk; the simpler name wins.
    """
    if devices < 1 or len(device_of) % devices:
        return None
    chunks = len(device_of) // devices
    for name in PLACEMENT_NAMES:
        if name in ("linear", "v") and chunks != default_chunks(name):
            continue
        if tuple(device_of) == named_placement(name, devices, chunks):
            return name
    return None
