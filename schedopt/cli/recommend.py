"""`schedopt recommend`."""

from __future__ import annotations

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from schedopt.cli.inputs import check_output, load_problem
from schedopt.cli.options import (
    SolveOptions,
    json_option,
    many_solves_options,
    objective_option,
    part_options,
    quiet_option,
)
from schedopt.cli.output import message, print_json, show, warn
from schedopt.cli.report import INFEASIBLE, INTERRUPTED, NOTHING_FOUND, SOLVED
from schedopt.cli.solve import run
from schedopt.exact import text
from schedopt.formats.tables import percent
from schedopt.problem import Problem
from schedopt.recommend import Recommendation, placements, recommend
from schedopt.solvers.solution import Solution


@click.command("recommend")
@click.argument("problem", metavar="PROBLEM")
@click.option("--output", "-o", metavar="FILE", help="Write the recommended schedule to FILE.")
@objective_option
@part_options
@many_solves_options
@json_option
@quiet_option
def command(
    *,
    problem: str,
    output: str | None,
    options: SolveOptions,
    as_json: bool,
    quiet: bool,
) -> int:
    """Say which placement and schedule to use within the memory, and what others cost.

    Solves the problem as it is and, if it has one stage per device in order, with each stage cut
    for interleaved and V placements; the classic schedules that fit stand beside. A plain 1F1B or
    interleaved schedule that is at most 1 % longer than the best is recommended instead of it.
    PROBLEM is a file (.toml or .json) or the name of a bundled problem.

    \b
    Examples:
      schedopt recommend problem.toml
      schedopt recommend zb-1.5b-p8-m24 --time-limit 20 -o best.json

    Exit code: 0 there is a recommendation, 2 bad input, 3 no schedule is feasible, 4 nothing
    found, 130 interrupted before anything was found.
    """
    if output is not None:
        check_output(output)
    given = options.change(load_problem(problem))
    warn(given, quiet=quiet)
    count, number = len(placements(given)), 0

    def solve_one(name: str, placed: Problem) -> Solution:
        nonlocal number
        number += 1
        if not quiet:
            message(f"{number} of {count}: {name}")
        return run(placed, options, quiet=quiet)

    found = recommend(given, solve_one)
    if as_json:
        data = {"problem": given.name, "objective_name": given.objective}
        print_json({**data, "time_unit": given.time_unit, **found.to_dict()})
    else:
        show(*_report(found, given, given.name or problem))
    if output is not None and found.chosen is not None and found.chosen.schedule is not None:
        found.chosen.schedule.save(output)
    return _exit_code(found)


def _report(found: Recommendation, problem: Problem, title: str) -> list[Table | str]:
    parts: list[Table | str] = [f"{title}: {problem.objective}, in {problem.time_unit}"]
    chosen = found.chosen
    if chosen is not None and chosen.objective is not None:
        parts.append(
            f"Use {chosen.name}, placement {chosen.placement}: {text(chosen.objective, 3)} "
            f"{problem.time_unit}, peak memory {text(chosen.memory or 0, 3)} {problem.memory_unit}."
        )
    parts += [found.reason, _table(found)]
    if not found.complete:
        parts.append("Interrupted: not every placement was tried.")
    for candidate in found.candidates:
        parts += [f"{candidate.placement}: {reason}" for reason in candidate.reasons]
    parts.append(
        "Candidates within the capacities. costs: longer than the best. A placement other than "
        "the problem's own cuts every stage into equal pieces."
    )
    return parts


def _table(found: Recommendation) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in ("schedule", "placement"):
        table.add_column(name)
    for name in ("time", "costs", "peak memory", "transfers", "bound"):
        table.add_column(name, justify="right")
    table.add_column("status")
    best = None if found.best is None else found.best.objective
    for candidate in found.candidates:
        cost = None if best is None else candidate.cost(best)
        numbers = (candidate.objective, candidate.memory, candidate.bound)
        time, memory, bound = ("" if n is None else text(n, 3) for n in numbers)
        table.add_row(
            Text(candidate.name),
            Text(candidate.placement),
            time,
            "" if cost is None else percent(cost),
            memory,
            str(candidate.transfers) if time else "",
            bound,
            candidate.status,
            style="bold" if candidate is found.chosen else "",
        )
    return table


def _exit_code(found: Recommendation) -> int:
    if found.chosen is not None:
        return SOLVED
    if not found.complete:
        return INTERRUPTED
    infeasible = all(candidate.status == "infeasible" for candidate in found.candidates)
    return INFEASIBLE if infeasible else NOTHING_FOUND
