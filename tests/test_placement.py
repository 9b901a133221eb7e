from __future__ import annotations

import pytest

from schedopt.placement import (
    PLACEMENT_NAMES,
    default_chunks,
    name_of_placement,
    named_placement,
)


@pytest.mark.parametrize(
    ("name", "devices", "chunks", "device_of"),
    [
        ("linear", 4, None, (0, 1, 2, 3)),
        ("linear", 1, 1, (0,)),
        ("v", 4, None, (0, 1, 2, 3, 3, 2, 1, 0)),
        ("v", 1, None, (0, 0)),
        ("interleaved", 2, None, (0, 1, 0, 1)),
        ("interleaved", 3, 3, (0, 1, 2, 0, 1, 2, 0, 1, 2)),
        ("interleaved", 3, 1, (0, 1, 2)),
        ("wave", 2, 4, (0, 1, 1, 0, 0, 1, 1, 0)),
        ("wave", 3, None, (0, 1, 2, 2, 1, 0)),
    ],
)
def test_named_placements(
    name: str, devices: int, chunks: int | None, device_of: tuple[int, ...]
) -> None:
    assert named_placement(name, devices, chunks) == device_of


def test_every_placement_uses_each_device_equally_often() -> None:
    for name in PLACEMENT_NAMES:
        placed = named_placement(name, 5)
        assert [placed.count(device) for device in range(5)] == [default_chunks(name)] * 5


@pytest.mark.parametrize(("name", "chunks"), [("linear", 2), ("v", 1), ("v", 3)])
def test_linear_and_v_have_a_fixed_number_of_chunks(name: str, chunks: int) -> None:
    with pytest.raises(ValueError, match=rf"'{name}' has \d stage\(s\) per device, not {chunks}"):
        named_placement(name, 4, chunks)


def test_an_unknown_name_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(ValueError, match="unknown placement 'zigzag'; valid: linear, interleaved"):
        named_placement("zigzag", 2)


@pytest.mark.parametrize(
    ("device_of", "devices", "name"),
    [
        ((0, 1, 2), 3, "linear"),
        ((0, 1, 1, 0), 2, "v"),
        ((0, 1, 0, 1), 2, "interleaved"),
        ((0, 1, 1, 0, 0, 1), 2, "wave"),
        ((0,), 1, "linear"),
        ((0, 0), 1, "interleaved"),
        ((1, 0), 2, None),
        ((0, 1, 1), 2, None),
        ((), 0, None),
    ],
)
def test_the_name_of_a_list(device_of: tuple[int, ...], devices: int, name: str | None) -> None:
    assert name_of_placement(device_of, devices) == name
