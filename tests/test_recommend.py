from __future__ import annotations

from fractions import Fraction

import pytest

from schedopt import Problem, Solution, check, solve
from schedopt.recommend import Candidate, choose, placements, recommend
from schedopt.solvers.solution import Progress


def solved(name: str, problem: Problem) -> Solution:
    return solve(problem, workers=1, deterministic_limit=0.5)


def candidate(name: str, objective: int | None, placement: str = "linear") -> Candidate:
    value = None if objective is None else Fraction(objective)
    status = ("optimal" if objective else "infeasible") if name == "solved" else ""
    return Candidate(name, placement, value, Fraction(1), 0, status, None, None)


def test_where_memory_is_short_a_solved_schedule_is_recommended() -> None:
    problem = Problem.uniform(devices=2, microbatches=4, F=2, B=2, W=2, lag=0.5, capacity=2)
    found = recommend(problem, solved)
    assert found.chosen is not None
    assert found.chosen is found.best
    assert found.chosen.objective is not None
    assert found.chosen.objective == 26.5
    assert found.chosen.schedule is not None
    assert check(found.chosen.schedule) == ()
    assert found.reason == "Nothing found is shorter."
    cheapest = {c.placement: c.objective for c in reversed(found.candidates) if c.objective}
    assert cheapest["linear"] == 28
    assert all(c.memory is None or c.memory <= 2 for c in found.candidates)


def test_a_plain_schedule_within_1_percent_is_preferred() -> None:
    problem = Problem(
        devices=2, microbatches=4, lag=0.7, durations={"F": 1, "BW": 2}, memory={"capacity": 2}
    )
    found = recommend(problem, solved)
    assert found.chosen is not None
    assert found.best is not None
    assert (found.chosen.name, found.chosen.objective) == ("1F1B", Fraction(178, 10))
    assert (found.best.placement, found.best.objective) == ("v, 2 chunks", Fraction(177, 10))
    assert found.reason.startswith("It is only 0.56% longer than the best found (solved, v, ")


@pytest.mark.parametrize(
    ("best", "plain", "interleaved", "chosen"),
    [
        (1000, 1010, 1000, "1F1B"),
        (1000, 1011, 1010, "Interleaved 1F1B"),
        (1000, 1011, 1011, "solved"),
        (1000, None, None, "solved"),
        (1000, 1000, 1000, "1F1B"),
    ],
)
def test_the_simplest_schedule_that_is_as_good_is_chosen(
    best: int, plain: int | None, interleaved: int | None, chosen: str
) -> None:
    given = [
        candidate("solved", best),
        candidate("Interleaved 1F1B", interleaved),
        candidate("1F1B", plain),
        candidate("GPipe", 1000),
    ]
    found = choose(given)
    assert found.chosen is not None
    assert found.chosen.name == chosen
    assert found.to_dict()["recommended"]["schedule"] == chosen


def test_candidates_are_ranked_and_those_without_a_schedule_last() -> None:
    given = [candidate("solved", None, "v"), candidate("GPipe", 12), candidate("solved", 10)]
    found = choose(given)
    assert [c.objective for c in found.candidates] == [10, 12, None]
    assert [row["cost"] for row in found.to_dict()["candidates"]] == [0, 0.2, None]


def test_nothing_that_fits_is_no_recommendation() -> None:
    found = recommend(Problem.uniform(devices=2, microbatches=2, capacity=0), solved)
    assert (found.chosen, found.best, found.complete) == (None, None, True)
    assert found.reason == "No schedule was found within the capacities."
    assert all(c.status == "infeasible" and c.reasons for c in found.candidates)


def test_a_problem_with_a_placement_of_its_own_keeps_it() -> None:
    linear = Problem.uniform(devices=2, microbatches=2)
    own = linear.replace(placement=[1, 0])
    assert placements(own) == (("own list", own),)
    assert [name for name, _ in placements(linear)] == [
        "linear",
        "interleaved, 2 chunks",
        "v, 2 chunks",
        "interleaved, 4 chunks",
    ]


def test_after_an_interruption_no_other_placement_is_tried() -> None:
    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    def interrupted(name: str, problem: Problem) -> Solution:
        return solve(problem, workers=1, progress=stop)

    found = recommend(Problem.uniform(devices=2, microbatches=4, capacity=2), interrupted)
    assert not found.complete
    assert sum(c.is_solved for c in found.candidates) == 1
