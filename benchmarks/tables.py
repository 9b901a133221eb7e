"""Tables of the solver benchmark, in Markdown: they read the same in a terminal and in docs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import groupby

from benchmarks.measure import Earlier, Key, Result, verdict
from benchmarks.peers import Figure
from schedopt.exact import text
from schedopt.formats.tables import percent
from schedopt.solvers.solution import gap

NOTHING = "-"
TEXTS = {"instance", "minimised", "status", "best classic", "best peer", "change"}
TEXTS |= {"stage", "source", "group", "algorithm", "schedule", "problem", "runtime", "against"}
TEXTS |= {"wanted"}
"""Headings of the columns that are aligned to the left."""


Table = tuple[list[str], list[list[str]]]
"""Headings and rows."""


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, its columns padded to equal width."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]

    def line(cells: Sequence[str], fill: str = " ") -> str:
        fitted = [
            cell.ljust(width, fill) if heading in TEXTS else cell.rjust(width, fill)
            for heading, cell, width in zip(headings, cells, widths, strict=True)
        ]
        return f"| {' | '.join(fitted)} |"

    rule = ["-" if heading in TEXTS else ":" for heading in headings]
    return "\n".join([line(headings), line(rule, "-"), *map(line, rows)])


# ---------------------------------------------------------------------- results

NEW: dict[str, Callable[[Result], str]] = {
    "instance": lambda result: result.instance.name,
    "minimised": lambda result: result.key.objective_name,
    "objective": lambda result: number(result.solution.objective),
    "bound": lambda result: number(result.solution.bound),
    "gap": lambda result: share(result.solution.gap),
    "status": lambda result: result.solution.status,
    "s to best": lambda result: seconds(result.seconds_to_best),
    "s to proof": lambda result: seconds(result.seconds_to_proof),
    "best classic": lambda result: figure(result.classic),
    "best peer": lambda result: figure(result.peer),
    "ratio": lambda result: ratio(result.solution.objective, result.peer),
}
"""The columns of a table of results."""

OLD: dict[str, Callable[[Earlier], str]] = {
    "objective": lambda old: number(old.objective),
    "gap": lambda old: share(old.gap),
}
"""The columns that are there twice in a comparison."""


def result_table(results: Sequence[Result], earlier: Mapping[Key, Earlier] | None = None) -> str:
    """One row per problem; with the results of an earlier run, what became of them."""
    if earlier is None:
        return markdown(list(NEW), [[cell(result) for cell in NEW.values()] for result in results])
    headings = []
    for name in NEW:
        headings += [f"old {name}", f"new {name}"] if name in OLD else [name]
    rows = []
    for result in results:
        old = earlier.get(result.key)
        row = []
        for name, cell in NEW.items():
            if name in OLD:
                row.append(NOTHING if old is None else OLD[name](old))
            row.append(cell(result))
        rows.append([*row, change(result, old)])
    return markdown([*headings, "change"], rows)


def change(result: Result, old: Earlier | None) -> str:
    """What became of the objective since an earlier run: better, equal, worse or new."""
    if old is None:
        return "new"
    if old.objective is None:
        return "equal" if result.solution.objective is None else "better"
    return verdict(result.solution.objective, old.objective)


def changes(results: Sequence[Result], earlier: Mapping[Key, Earlier]) -> str:
    """One line: how many are better, equal and worse than in an earlier run, and the proofs."""
    found = Counter(change(result, earlier.get(result.key)) for result in results)
    both = [(r.solution.status, earlier[r.key].status) for r in results if r.key in earlier]
    won = sum(new == "optimal" != old for new, old in both)
    lost = sum(old == "optimal" != new for new, old in both)
    counts = ", ".join(f"{found[name]} {name}" for name in ("better", "equal", "worse", "new"))
    return f"{counts}; {won} newly proven, {lost} no longer proven"


# ---------------------------------------------------------------------- what contributed


def stage_table(results: Sequence[Result]) -> str:
    """What each stage of the search added, in the order they ran: the state after it."""
    headings = ["instance", "minimised", "stage", "seconds", "objective", "objective change"]
    headings += ["bound", "bound change", "gap"]
    rows = []
    for result in results:
        value, bound = None, None
        for stage in result.solution.stages:
            rows.append(
                [
                    result.instance.name,
                    result.key.objective_name,
                    stage.name,
                    seconds(stage.seconds),
                    number(stage.objective),
                    difference(value, stage.objective),
                    number(stage.bound),
                    difference(bound, stage.bound),
                    share(gap(stage.objective, stage.bound)),
                ]
            )
            value, bound = stage.objective, stage.bound
    return markdown(headings, rows)


def history_table(results: Sequence[Result]) -> str:
    """Who found what, and when; news from one source that follow each other are one row."""
    headings = ["instance", "minimised", "source", "news", "from s", "to s"]
    headings += ["objective", "bound"]
    rows = []
    for result in results:
        for source, group in groupby(result.solution.history, key=lambda news: news.source):
            found = list(group)
            rows.append(
                [
                    result.instance.name,
                    result.key.objective_name,
                    source,
                    str(len(found)),
                    seconds(found[0].elapsed),
                    seconds(found[-1].elapsed),
                    number(found[-1].objective),
                    number(found[-1].bound),
                ]
            )
    return markdown(headings, rows)


# ---------------------------------------------------------------------- cells


def number(value: Fraction | None) -> str:
    """A makespan, period or bound, to the hundredth."""
    return NOTHING if value is None else text(value, 2)


def share(value: float | None) -> str:
    """A gap in per cent."""
    return NOTHING if value is None else percent(value)


def seconds(value: float | None) -> str:
    """Seconds, to the tenth."""
    return NOTHING if value is None else f"{value:.1f}"


def figure(value: Figure | None) -> str:
    """A value and what reached it."""
    return NOTHING if value is None else f"{value.name} {number(value.value)}"


def ratio(value: Fraction | None, other: Figure | None) -> str:
    """A value over another one; only what is equal is "1"."""
    if value is None or other is None:
        return NOTHING
    if verdict(value, other.value) == "equal":
        return "1"
    return f"{float(value / other.value):.5f}"


def difference(before: Fraction | None, after: Fraction | None) -> str:
    """Change of a value in per cent; nothing if there was none before, or no change."""
    if not before or after is None or after == before:
        return NOTHING
    return f"{float(100 * (after - before) / before):+.2f} %"
