"""Which placement and schedule to use: solved ones beside classic ones, within the capacities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from schedopt.analysis import compare, placement_text, summary
from schedopt.errors import NotApplicableError, ProblemError
from schedopt.exact import to_json
from schedopt.grid import Cut
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.solvers.solution import Solution
from schedopt.variants import recut

PLAIN = ("1F1B", "Interleaved 1F1B")
"""Schedules that every framework has, the simplest first."""
AS_GOOD = Fraction(1, 100)
"""By how much a plain schedule may be longer and still be as good."""
CUTS = (Cut("interleaved", 2), Cut("v", 2), Cut("interleaved", 4))
"""Placements that are tried beside the problem's own, where it is linear."""


@dataclass(frozen=True)
class Candidate:
    """A schedule within the capacities, or a placement for which none was found.

    Attributes
    ----------
    name
        "solved", or that of a classic schedule.
    placement
        In words.
    objective
        Of the problem, exact, in its time unit; None without a schedule.
    memory
        Peak of the fullest device.
    transfers
        Between devices in one step.
    status
        Of the solution; "" for a classic schedule.
    bound
        Proven for its placement; None for a classic schedule.
    schedule
        The schedule itself.
    reasons
        Why there is none.
    """

    name: str
    placement: str
    objective: Fraction | None
    memory: Fraction | None
    transfers: int
    status: str
    bound: Fraction | None
    schedule: Schedule | None
    reasons: tuple[str, ...] = ()

    @property
    def is_solved(self) -> bool:
        """Whether it was searched for."""
        return self.status != ""

    def cost(self, best: Fraction) -> Fraction | None:
        """By what share it is longer than the best one."""
        return None if self.objective is None or not best else self.objective / best - 1


@dataclass(frozen=True)
class Recommendation:
    """What to use.

    Attributes
    ----------
    chosen
        The candidate to use; None if no schedule was found.
    best
        The shortest one.
    candidates
        All, the shortest first; those without a schedule last.
    complete
        Whether every placement was tried.
    """

    chosen: Candidate | None
    best: Candidate | None
    candidates: tuple[Candidate, ...]
    complete: bool

    @property
    def reason(self) -> str:
        """Why this one, in a sentence."""
        if self.chosen is None or self.best is None or self.best.objective is None:
            return "No schedule was found within the capacities."
        if self.chosen is self.best:
            plain = " A plain schedule does it." if self.chosen.name in PLAIN else ""
            return f"Nothing found is shorter.{plain}"
        cost = self.chosen.cost(self.best.objective)
        longer = f"only {float(cost):.2%} longer than" if cost else "as short as"
        return (
            f"It is {longer} the best found ({self.best.name}, {self.best.placement}), and plain: "
            "every framework has it."
        )

    def to_dict(self) -> dict[str, Any]:
        """All but the schedules, ready for JSON."""
        best = None if self.best is None else self.best.objective

        def row(candidate: Candidate) -> dict[str, Any]:
            cost = None if best is None else candidate.cost(best)
            return {
                "schedule": candidate.name,
                "placement": candidate.placement,
                "objective": _number(candidate.objective),
                "cost": None if cost is None else float(cost),
                "memory": _number(candidate.memory),
                "transfers": candidate.transfers,
                "status": candidate.status,
                "bound": _number(candidate.bound),
                "reasons": list(candidate.reasons),
            }

        return {
            "recommended": None if self.chosen is None else row(self.chosen),
            "reason": self.reason,
            "complete": self.complete,
            "candidates": [row(candidate) for candidate in self.candidates],
        }


def placements(problem: Problem) -> tuple[tuple[str, Problem], ...]:
    """The problem as it is, and with the placements of `CUTS` where each can be had."""
    found = [(placement_text(problem), problem)]
    for cut in CUTS:
        try:
            found.append((str(cut), recut(problem, cut.name, cut.chunks)))
        except (NotApplicableError, ProblemError):
            continue
    return tuple(found)


def recommend(problem: Problem, solve_one: Callable[[str, Problem], Solution]) -> Recommendation:
    """Compare what the placements of a problem allow, and choose.

    The shortest schedule within the capacities is best. If a plain one (`PLAIN`) is at most 1 %
    longer, the first such one is chosen instead.

    Parameters
    ----------
    problem
        The problem; a placement other than its own cuts every stage into equal pieces.
    solve_one
        Solves the problem of a placement, which is told in words. After an interrupted solution
        no other placement is tried.
    """
    candidates = [
        Candidate(
            row.name,
            row.placement,
            row.schedule.objective,
            row.summary.peak,
            row.summary.transfers,
            "",
            None,
            row.schedule,
        )
        for row in compare(problem)
        if row.schedule is not None and row.summary is not None and row.summary.fits
    ]
    complete = True
    for name, placed in placements(problem):
        solution = solve_one(name, placed)
        candidates.append(_solved(name, solution))
        if solution.interrupted:
            complete = False
            break
    return choose(candidates, complete=complete)


def choose(candidates: Sequence[Candidate], *, complete: bool = True) -> Recommendation:
    """The recommendation among some candidates; of equally long ones a plain, then a solved."""

    def place(candidate: Candidate) -> tuple[bool, Fraction, int]:
        rank = PLAIN.index(candidate.name) if candidate.name in PLAIN else len(PLAIN)
        rank += not candidate.is_solved and candidate.name not in PLAIN
        return candidate.objective is None, candidate.objective or Fraction(0), rank

    ranked = tuple(sorted(candidates, key=place))
    made = [candidate for candidate in ranked if candidate.objective is not None]
    if not made:
        return Recommendation(None, None, ranked, complete)
    best = made[0]
    longest = (best.objective or Fraction(0)) * (1 + AS_GOOD)
    for name in PLAIN:
        for candidate in made:
            if candidate.name == name and (candidate.objective or Fraction(0)) <= longest:
                return Recommendation(candidate, best, ranked, complete)
    return Recommendation(best, best, ranked, complete)


def _solved(placement: str, solution: Solution) -> Candidate:
    schedule = solution.schedule
    facts = None if schedule is None else summary(schedule)
    return Candidate(
        "solved",
        placement,
        solution.objective,
        None if facts is None else facts.peak,
        0 if facts is None else facts.transfers,
        solution.status,
        solution.bound,
        schedule,
        solution.reasons,
    )


def _number(value: Fraction | None) -> int | float | str | None:
    return None if value is None else to_json(value)
