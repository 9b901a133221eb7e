from __future__ import annotations

from collections import Counter

import pytest

from schedopt.errors import InputError
from schedopt.layout import MAX_SYMBOLS, parse_layout
from schedopt.placement import named_placement


def joined(text: str) -> list[str]:
    return ["".join(stage) for stage in parse_layout(text)]


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("Et|tL", ["Et", "tL"]),
        ("E||t|L", ["E", "", "t", "L"]),
        ("Et*3|tL", ["Ettt", "tL"]),
        ("E(tt|)*2L", ["Ett", "tt", "L"]),
        ("E(t|t)*2|L", ["Et", "tt", "t", "L"]),
        ("E(|tt)*2L", ["E", "tt", "ttL"]),
        ("E(t*2|)*2tL", ["Ett", "tt", "tL"]),
        ("E|*3tL", ["E", "", "", "tL"]),
        ("Et*0|tL", ["E", "tL"]),
        ("E,t,*2,|,t,L,", ["Ett", "tL"]),
        ("EL", ["EL"]),
    ],
)
def test_layouts_mean_what_the_guide_says(text: str, stages: list[str]) -> None:
    assert joined(text) == stages


def test_the_published_layout_with_two_chunks_has_61_layers_on_16_devices() -> None:
    stages = parse_layout("Et*3|(tt|)*29,m|L", layers=61)
    assert [stage.count("t") for stage in stages] == [3, *[2] * 29, 0, 0]
    device_of = named_placement("interleaved", 16, 2)
    assert [s for s, device in enumerate(device_of) if device == 14] == [14, 30]
    assert (stages[14], stages[30]) == (["t", "t"], ["m"])
    assert [s for s, device in enumerate(device_of) if device == 15] == [15, 31]
    assert (stages[15], stages[31]) == (["t", "t"], ["L"])


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("Et*3|(tt|)*29m|L", [3, *[2] * 29, 0, 0]),
        ("Et*4|(t*4|)*14tmL", [*[4] * 15, 1]),
        ("Et*8|(t*8|)*6t*5mL", [*[8] * 7, 5]),
        ("Et*16|(t*16|)*2t*13mL", [16, 16, 16, 13]),
    ],
)
def test_every_published_layout_has_each_layer_once(text: str, counts: list[int]) -> None:
    stages = parse_layout(text, layers=61)
    assert [stage.count("t") for stage in stages] == counts
    assert Counter("".join(map("".join, stages))) == {"E": 1, "t": 61, "m": 1, "L": 1}


@pytest.mark.parametrize(
    ("text", "position", "token", "reason"),
    [
        ("Etx|L", 3, "x", "the symbols are E, t, m, L and |"),
        ("Et |L", 3, " ", "is not expected here"),
        ("Et3|L", 3, "3", "is not expected here"),
        ("Et*2,9|L", 6, "9", "is not expected here"),
        ("Et*2*3|L", 5, "*", "is not expected here"),
        ("*2EL", 1, "*", "is not expected here"),
        ("E)L", 2, ")", "is not expected here"),
        ("Et*|L", 3, "*|", "must be followed by a whole number"),
        ("Et*", 3, "*", "must be followed by a whole number"),
        ("Et*-1|L", 3, "*-", "must be followed by a whole number"),
        ("Et*1000000|L", 3, "*1000000", "at most 6 digits"),
        ("E(tt|L", 2, "(", "is never closed"),
        ("E(t(t|)*2)*2L", 4, "(", "a group can not stand within a group"),
        ("E()*2L", 2, "(", "the group is empty"),
        ("E(t|)L", 6, "L", "a group must be followed by *n"),
        ("E(t|)", 6, "", "a group must be followed by *n"),
        ("Et*200000|L", 2, "t", f"gives more than {MAX_SYMBOLS} symbols"),
        ("E(t*900000|)*9|L", 2, "(", f"gives more than {MAX_SYMBOLS} symbols"),
        ("E(t*90000|)*9|L", 2, "(", f"gives more than {MAX_SYMBOLS} symbols"),
    ],
)
def test_a_wrong_token_is_named_with_its_position(
    text: str, position: int, token: str, reason: str
) -> None:
    with pytest.raises(ValueError, match="layout is not valid") as error:
        parse_layout(text)
    assert isinstance(error.value, InputError)
    (fault,) = error.value.faults
    assert (fault.field, fault.value) == (f"character {position}", repr(token))
    assert reason in fault.valid


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("t|L", [("E", "0 times")]),
        ("tE|L", [("E", "1 times")]),
        ("Et|t", [("L", "0 times")]),
        ("EtE|LL", [("E", "2 times"), ("L", "2 times")]),
        ("Et|Lt", [("L", "1 times")]),
        ("", [("E", "0 times"), ("L", "0 times")]),
    ],
)
def test_embedding_comes_first_and_loss_last_each_once(
    text: str, faults: list[tuple[str, str]]
) -> None:
    with pytest.raises(InputError) as error:
        parse_layout(text)
    assert [(fault.field, fault.value) for fault in error.value.faults] == faults


def test_a_missing_layer_is_reported_with_both_numbers() -> None:
    with pytest.raises(InputError, match="60 != 61, the number of layers"):
        parse_layout("Et*2|(tt|)*29,m|L", layers=61)
