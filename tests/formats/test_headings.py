from __future__ import annotations

from dataclasses import replace

from schedopt.formats.headings import achieved, title
from tests.schedules import two_by_two


def test_a_title_names_schedule_and_problem_as_far_as_they_have_names() -> None:
    assert title(two_by_two()) == "by hand"
    assert title(two_by_two(name="small")) == "by hand for small"
    assert title(replace(two_by_two(), name="")) == "schedule"


def test_objective_bound_and_gap_are_told_as_far_as_they_are_known() -> None:
    schedule = two_by_two(time_unit="ms")
    assert achieved(schedule) == "makespan 7 ms, no bound known"
    proven = replace(schedule, info={"bound": 7})
    assert achieved(proven) == "makespan 7 ms, bound 7 ms, gap 0 % (proven optimal)"
    open_gap = replace(two_by_two(objective="period"), info={"bound": "20/3"})
    assert achieved(open_gap) == "period 7 units, bound 6.666667 units, gap 4.76 %"
    assert achieved(replace(schedule, info={"bound": [1]})).endswith("no bound known")
