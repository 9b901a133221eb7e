"""The report of a solution, and the exit code that belongs to it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from schedopt.analysis import Summary
from schedopt.exact import text
from schedopt.formats.headings import gap_text, said, versions_text
from schedopt.formats.tables import device_table, facts, headline, objective_facts
from schedopt.schedule import Schedule
from schedopt.solvers.resident import size_text
from schedopt.solvers.solution import Solution

SOLVED, INFEASIBLE, NOTHING_FOUND, INTERRUPTED = 0, 3, 4, 130

STATUS_TEXT = {
    "optimal": "optimal (proven)",
    "feasible": "feasible (the gap is open)",
    "infeasible": "infeasible (proven)",
    "unknown": "unknown (nothing found)",
}


def exit_code(solution: Solution) -> int:
    """Exit code of a command that solved."""
    if solution.schedule is not None:
        return SOLVED
    if solution.status == "infeasible":
        return INFEASIBLE
    return INTERRUPTED if solution.interrupted else NOTHING_FOUND


def solution_report(
    solution: Solution, summary: Summary | None, *, title: str
) -> Iterator[RenderableType]:
    """What a solve found, what is proven, and how.

    Parameters
    ----------
    solution
        The solution.
    summary
        Of its schedule, None if it has none.
    title
        Name of the problem.
    """
    unit = solution.problem.time_unit
    yield title if summary is None else f"{title}: {headline(summary)}"
    yield ""
    proven = [
        ("status", STATUS_TEXT[solution.status]),
        ("objective", objective_text(solution)),
    ]
    if solution.status != "infeasible":
        bound = f"{text(solution.bound)} {unit}, from {solution.bound_source}"
        proven += [("bound", bound), ("gap", gap_text(solution.gap))]
    yield facts(proven + (objective_facts(summary) if summary is not None else []))
    for reason in solution.reasons:
        yield f"  {reason}"
    if summary is not None:
        yield device_table(summary)
    if solution.stages:
        yield stage_table(solution)
    for fault in solution.faults:
        yield f"solver fault, caught: {fault}"
    yield run_text(solution)


def objective_text(solution: Solution) -> str:
    """Name, value and origin of the objective."""
    name, unit = solution.problem.objective, solution.problem.time_unit
    if solution.objective is None:
        return f"{name}, no schedule"
    return f"{name} {text(solution.objective)} {unit}, from {solution.objective_source}"


def run_text(solution: Solution) -> str:
    """What a solution ran with, in a line."""
    limits = []
    if solution.time_limit is not None:
        limits.append(f"time limit {solution.time_limit:g} s")
    if solution.deterministic_limit is not None:
        limits.append(f"deterministic limit {solution.deterministic_limit:g}")
    if solution.interrupted:
        limits.append("interrupted")
    peak = solution.peak_resident
    parts = [
        f"{solution.seconds:.1f} s ({', '.join(limits)})",
        "" if peak is None else f"at most {size_text(peak)} of memory",
        f"seed {solution.seed}",
        f"workers {solution.workers}",
        versions_text(solution.versions),
        solution.resolution_note,
    ]
    return ", ".join(part for part in parts if part)


def stage_table(solution: Solution) -> Table:
    """What each stage of the search contributed."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("search")
    for name in ("seconds", solution.problem.objective, "bound"):
        table.add_column(name, justify="right")
    table.add_column("")
    for stage in solution.stages:
        table.add_row(
            Text(stage.name),
            f"{stage.seconds:.1f}",
            "" if stage.objective is None else text(stage.objective, 3),
            "" if stage.bound is None else text(stage.bound, 3),
            Text(stage.detail),
        )
    return table


def schedule_report(schedule: Schedule, summary: Summary) -> Iterator[RenderableType]:
    """What a schedule achieves, and what its file says about how it was made."""
    name = schedule.name or "schedule"
    problem = f" for {schedule.problem.name}" if schedule.problem.name else ""
    yield f"{name}{problem}: {headline(summary)}"
    yield ""
    yield facts([*said(schedule), *objective_facts(summary)])
    yield device_table(summary)
