from __future__ import annotations

from schedopt import Problem, Schedule, classic
from schedopt.binding import critical_path
from schedopt.formats.path import path_rows, path_sum, visits
from schedopt.schedule import TimedOp
from tests.schedules import schedule_of, two_by_two


def test_the_path_of_1f1b_in_words() -> None:
    schedule = classic.one_f_one_b(Problem.uniform(devices=3, microbatches=4, lag=1))
    path = critical_path(schedule)
    assert path_rows(schedule, path)[:3] == [
        ("0 to 1", "0", "0F0", ""),
        ("2 to 3", "1", "1F0", "after 0F0, transfer 1"),
        ("4 to 7", "2", "2F0 to 2BW0: 1 F, 1 BW", "after 1F0, transfer 1"),
    ]
    assert path_sum(schedule, path) == "26 units = 18 in 12 ops + 8 in 8 transfers"


def test_what_repeats_is_folded() -> None:
    """One microbatch at a time: there and back, four times over."""
    problem = Problem.uniform(devices=2, microbatches=4, capacity=1)
    schedule = schedule_of(
        problem,
        "0F0 0B0 0W0 0F1 0B1 0W1 0F2 0B2 0W2 0F3 0B3 0W3",
        "1F0 1B0 1W0 1F1 1B1 1W1 1F2 1B2 1W2 1F3 1B3 1W3",
    )
    path = critical_path(schedule)
    assert path_rows(schedule, path) == [
        ("0 to 1", "0", "0F0", ""),
        ("1 to 3", "1", "1F0 to 1B0: 1 F, 1 B", "after 0F0"),
        ("3 to 6", "0", "0B0 to 0F1: 1 F, 1 B, 1 W", "after 1B0"),
        ("to 16", "", "the 2 lines above, 2 times more", ""),
        ("16 to 18", "1", "1F3 to 1B3: 1 F, 1 B", "after 0F3"),
        ("18 to 20", "0", "0B3 to 0W3: 1 B, 1 W", "after 1B3"),
    ]


def test_starting_late_is_said() -> None:
    schedule = two_by_two()
    shifted = {
        resource: tuple(TimedOp(op, start + 5, end + 5) for op, start, end in ops)
        for resource, ops in schedule.timeline.items()
    }
    late = Schedule(schedule.problem, shifted, schedule.resolution)
    assert path_sum(late, critical_path(late)) == "12 units = 7 in 7 ops + 5 of starting late"


def test_the_visits_cover_the_path() -> None:
    schedule = classic.zb_h1(Problem.uniform(devices=4, microbatches=8, lag=0.5))
    path = critical_path(schedule)
    parts = visits(schedule, path)
    assert [link for visit in parts for link in visit.links] == list(path)
    assert sum(visit.wait + visit.end - visit.start for visit in parts) == schedule.makespan
