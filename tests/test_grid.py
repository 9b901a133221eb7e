from __future__ import annotations

from fractions import Fraction

import pytest

from schedopt import NotApplicableError, Problem
from schedopt.grid import Cut, Room, counts, cuts, grid, rooms

TWO = Problem.uniform(devices=2, microbatches=4, memory={"F": 3, "static": [1, 2]}, capacity=9)


def test_a_range_has_both_its_ends() -> None:
    wanted = [2, 3, 4]
    assert [room.activations for room in rooms("2:4")] == wanted
    assert [room.activations for room in rooms("0.5:2:0.5")] == [0.5, 1, 1.5, 2]
    assert [room.activations for room in rooms("8,2:3, 8")] == [8, 2, 3]
    assert counts("8:32:8") == (8, 16, 24, 32)


def test_sizes_are_bytes() -> None:
    assert rooms("2KiB,1.5MB") == (Room(size=2048), Room(size=1_500_000))
    problem = TWO.replace(memory_unit="KiB")
    assert Room(size=2048).change(problem).capacity == (2, 2)
    with pytest.raises(ValueError, match="in activations; give a number of activations"):
        Room(size=2048).change(TWO)


def test_placements_have_their_chunks() -> None:
    assert cuts("own,linear,v,interleaved:3,wave") == (
        Cut("own", 0),
        Cut("linear", 1),
        Cut("v", 2),
        Cut("interleaved", 3),
        Cut("wave", 2),
    )


@pytest.mark.parametrize(
    ("read", "given", "reason"),
    [
        (rooms, "", "'' is no number"),
        (rooms, "4:2", "LOW must not be above HIGH"),
        (rooms, "1:2:0", "STEP greater than 0"),
        (rooms, "0:999999999", "at most 1000 numbers"),
        (rooms, "1:2:3:4", "is no number, and no range"),
        (rooms, "-1", "is no number"),
        (rooms, "1e9", "is no number"),
        (rooms, "nan", "is no number"),
        (rooms, "2XB", "is no number"),
        (counts, "2.5", "2.5 is no number of microbatches"),
        (counts, "0", "0 is no number of microbatches"),
        (cuts, "vee", "'vee' is no placement; valid: own, linear"),
        (cuts, "v:3", "placement 'v' has 2 stage"),
        (cuts, "interleaved:x", "the chunks must be a whole number"),
        (cuts, "interleaved:0", "the chunks must be a whole number"),
        (cuts, "own:2", "'own:2' is no placement"),
    ],
)
def test_what_can_not_be_read_is_named(read: object, given: str, reason: str) -> None:
    assert callable(read)
    with pytest.raises(ValueError, match=reason):
        read(given)


def test_an_activation_is_what_a_microbatch_holds_on_a_device() -> None:
    """Static memory comes on top, and a V placement has the same room as a linear one."""
    room = Room(activations=Fraction(3, 2))
    assert room.change(TWO).capacity == (1 + 4.5, 2 + 4.5)
    (point,) = grid(TWO, placements=cuts("v"), capacities=[room])
    assert point.problem.capacity == (5.5, 6.5)
    assert point.problem.stage_data[0].memory["F"] == 1.5


def test_a_grid_has_every_combination() -> None:
    points = grid(
        TWO, placements=cuts("own,v"), microbatches=counts("4,8"), capacities=rooms("1,2")
    )
    assert [point[:3] for point in points] == [
        (place, count, room)
        for place in ("own", "v, 2 chunks")
        for count in (4, 8)
        for room in ("1", "2")
    ]
    for point in points:
        assert point.problem.microbatches == point.microbatches
        assert point.problem.stage_count == (2 if point.placement == "own" else 4)


def test_what_is_left_out_stays_as_it_is() -> None:
    (point,) = grid(TWO)
    assert point == ("own", 4, "own", TWO)


def test_only_linear_problems_can_have_other_placements() -> None:
    with pytest.raises(NotApplicableError, match="only a linear placement"):
        grid(TWO.replace(placement=[1, 0]), placements=cuts("v"))
