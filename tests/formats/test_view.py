from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest

from schedopt.errors import InputError
from schedopt.formats.view import View
from schedopt.problem import Problem
from tests.schedules import schedule_of, two_by_two


def test_without_options_a_view_shows_everything() -> None:
    assert View.of(two_by_two()) == View(Fraction(0), Fraction(7), (0, 1))


def test_an_end_after_the_makespan_means_the_makespan() -> None:
    assert View.of(two_by_two(), start=Fraction(1, 2), end=Fraction(100)).end == 7


def test_devices_are_shown_once_and_in_the_order_asked_for() -> None:
    assert View.of(two_by_two(), devices=[1, 0, 1]).devices == (1, 0)


@pytest.mark.parametrize(
    ("start", "end", "devices", "faults"),
    [
        (7, None, (), ["from = 7: must be at least 0 and before the makespan, 7 units"]),
        (-1, None, (), ["from = -1: must be at least 0 and before the makespan, 7 units"]),
        (3, 3, (), ["to = 3: must be after 3, where the view begins"]),
        (None, 0, (), ["to = 0: must be after 0, where the view begins"]),
        (
            9,
            2,
            (0, 2, -1),
            [
                "from = 9: must be at least 0 and before the makespan, 7 units",
                "to = 2: must be after 9, where the view begins",
                "device = 2: must be a device of the problem, 0 to 1",
                "device = -1: must be a device of the problem, 0 to 1",
            ],
        ),
    ],
)
def test_a_view_of_nothing_names_everything_that_is_wrong(
    start: int | None, end: int | None, devices: Sequence[int], faults: list[str]
) -> None:
    given = [None if time is None else Fraction(time) for time in (start, end)]
    with pytest.raises(InputError) as error:
        View.of(two_by_two(), start=given[0], end=given[1], devices=devices)
    assert [str(fault) for fault in error.value.faults] == faults


def test_a_schedule_without_length_has_a_view_of_one_step() -> None:
    problem = Problem.uniform(devices=1, microbatches=1, F=0, B=0, W=0)
    assert View.of(schedule_of(problem, "0F0 0B0 0W0")).end == 1
