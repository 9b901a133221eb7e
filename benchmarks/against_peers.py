"""The solver against every published row, each at the memory of the row."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from benchmarks.instances import Instance
from benchmarks.measure import Result, Settings, Verdict, verdict
from benchmarks.peers import Figure, Objective, PeerRow
from benchmarks.tables import markdown, number, ratio
from schedopt.exact import to_json
from schedopt.solvers import Solution

SAMPLE = 100
"""Rows of a default run."""
SAMPLE_SEED = 0
FIRST_SECONDS = (2.0, 10.0)
"""Limits that are tried before the whole one: most rows are met within the first."""
OBJECTIVES: tuple[Objective, ...] = ("makespan", "period")


class Match(NamedTuple):
    """One row for one objective: what it reaches, and what the solver reaches."""

    row: PeerRow
    objective_name: Objective
    theirs: Fraction
    ours: Fraction | None
    status: str

    @property
    def verdict(self) -> Verdict:
        """Whether ours is better, equal or worse."""
        return verdict(self.ours, self.theirs)


class Job(NamedTuple):
    """A problem for one objective, with all rows about it."""

    instance: Instance
    rows: tuple[PeerRow, ...]

    @property
    def objective_name(self) -> Objective:
        """What is minimised."""
        return self.instance.problem.objective

    @property
    def best(self) -> Figure:
        """The best value of the rows."""
        values = [(row, row.value(self.objective_name)) for row in self.rows]
        figures = [Figure(row.algorithm, value) for row, value in values if value is not None]
        return min(figures, key=lambda figure: figure.value)

    def matches(self, solution: Solution) -> Iterator[Match]:
        """What a solution means for each row."""
        for row in self.rows:
            value = row.value(self.objective_name)
            if value is not None:
                name = self.objective_name
                yield Match(row, name, value, solution.objective, solution.status)


def sampled(rows: Sequence[PeerRow], size: int | None) -> list[PeerRow]:
    """A sample that is the same in every run, in the order of the rows; all rows if None."""
    if size is None or size >= len(rows):
        return list(rows)
    chosen = random.Random(SAMPLE_SEED).sample(range(len(rows)), size)
    return [rows[position] for position in sorted(chosen)]


def jobs(rows: Sequence[PeerRow]) -> list[Job]:
    """The problems of rows, each once for each objective for which a row has a value."""
    found: dict[tuple[str, Objective], list[PeerRow]] = {}
    for row in rows:
        for objective in OBJECTIVES:
            if row.value(objective) is not None:
                found.setdefault((row.name, objective), []).append(row)
    return [
        Job(Instance(name, members[0].problem(objective)), tuple(members))
        for (name, objective), members in found.items()
    ]


def race(job: Job, settings: Settings) -> Solution:
    """Solve with growing time limits, until no row is better or no better one is possible."""
    limits = [limit for limit in FIRST_SECONDS if limit < settings.time_limit]
    for limit in limits:
        solution = settings.solve(job.instance.problem, limit)
        settled = solution.status == "optimal" or solution.interrupted
        if settled or verdict(solution.objective, job.best.value) != "worse":
            return solution
    return settings.solve(job.instance.problem)


def record(result: Result, matches: Sequence[Match]) -> dict[str, Any]:
    """A result with its rows, ready for JSON."""
    rows = [
        {
            "group": match.row.group,
            "algorithm": match.row.algorithm,
            "value": to_json(match.theirs),
            "verdict": match.verdict,
        }
        for match in matches
    ]
    return {**result.to_dict(), "rows": rows}


def count_table(matches: Sequence[Match]) -> str:
    """How many rows are met, per group and objective."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for match in matches:
        for group in (match.row.group, "all"):
            counts.setdefault((group, match.objective_name), Counter())[match.verdict] += 1
    groups = [group for group, _ in counts if group != "all"]
    rows = []
    for group in (*dict.fromkeys(groups), "all"):
        for objective in OBJECTIVES:
            found = counts.get((group, objective), Counter())
            total = found.total()
            never_worse = total - found["worse"]
            figures = (total, never_worse, found["better"], found["equal"], found["worse"])
            rows.append([group, objective, *map(str, figures)])
    headings = ["group", "minimised", "rows", "never worse", "better", "equal", "worse"]
    return markdown(headings, rows)


def worse_table(matches: Sequence[Match]) -> str:
    """The rows that are not met, the worst first."""
    worse = [match for match in matches if match.verdict == "worse"]
    worse.sort(key=_ratio, reverse=True)
    rows = [
        [
            match.row.group,
            match.row.algorithm,
            match.row.name,
            match.objective_name,
            number(match.theirs),
            number(match.ours),
            ratio(match.ours, Figure(match.row.algorithm, match.theirs)),
            match.status,
        ]
        for match in worse
    ]
    headings = ["group", "algorithm", "instance", "minimised", "theirs", "ours", "ratio", "status"]
    return markdown(headings, rows)


def _ratio(match: Match) -> float:
    return float("inf") if match.ours is None else float(match.ours / match.theirs)
