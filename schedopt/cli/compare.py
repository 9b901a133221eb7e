"""`schedopt compare`."""

from __future__ import annotations

from contextlib import nullcontext

import click

from schedopt.analysis import compare
from schedopt.check import check
from schedopt.cli.inputs import load
from schedopt.cli.options import SolveOptions, json_option, quiet_option, solve_options
from schedopt.cli.output import message_console, print_json, show, warn
from schedopt.cli.report import exit_code, objective_text, run_text
from schedopt.cli.solve import run
from schedopt.exact import text
from schedopt.formats.headings import gap_text, said
from schedopt.formats.tables import comparison_notes, comparison_table
from schedopt.progress import steps
from schedopt.schedule import Schedule
from schedopt.solvers.solution import Solution


@click.command("compare")
@click.argument("problem", metavar="PROBLEM")
@click.option(
    "--solve/--no-solve",
    "solved",
    default=True,
    show_default=True,
    help="Whether to solve the problem too; not needed for a schedule file.",
)
@solve_options
@json_option
@quiet_option
def command(
    *, problem: str, solved: bool, options: SolveOptions, as_json: bool, quiet: bool
) -> int:
    """Compare every classic schedule with the solved one.

    PROBLEM is a file (.toml or .json) or the name of a bundled problem; or a schedule file,
    which is then compared as it is with the classic schedules of its problem.

    \b
    Examples:
      schedopt compare zb-1.5b-p8-m24
      schedopt compare problem.toml --no-solve
      schedopt compare schedule.json --json

    A classic schedule that needs several stages per device is made for the same model with each
    stage cut into equal pieces; its row says so.
    """
    item = load(problem)
    schedules = [item] if isinstance(item, Schedule) else []
    given = options.change(item.problem if isinstance(item, Schedule) else item)
    if schedules and given != schedules[0].problem:
        raise click.UsageError(
            "a schedule file is compared as it is: --objective, --capacity, --microbatches, "
            "--recompute and --move are for problems"
        )
    for schedule in schedules:
        if violations := check(schedule):
            raise click.UsageError(
                f"{problem!r} is not valid, {violations[0]}; `schedopt check` lists every violation"
            )
    warn(given, quiet=quiet)
    solution = run(given, options, quiet=quiet) if solved and not schedules else None
    if solution is not None and solution.schedule is not None:
        schedules = [solution.schedule]
    with (
        nullcontext() if quiet else steps(message_console(), "timing the classic schedules")
    ) as step:
        rows = compare(given, *schedules, progress=step)
    if as_json:
        print_json(
            {
                "problem": given.name,
                "objective": given.objective,
                "rows": [row.to_dict() for row in rows],
                "solution": None if solution is None else solution.to_dict(),
                "info": [dict(schedule.info) for schedule in schedules],
            }
        )
    else:
        devices, microbatches = given.devices, given.microbatches
        title = f"{devices} devices, {microbatches} microbatches, 1 copy of the parameters"
        show(
            f"{given.name or problem}: {title}; objective: {given.objective}",
            comparison_table(rows, objective=given.objective),
            *comparison_notes(rows),
            "",
            *([_proof(solution)] if solution is not None else map(_claim, schedules)),
        )
    return 0 if solution is None else exit_code(solution)


def _claim(schedule: Schedule) -> str:
    claims = ", ".join(f"{name} {value}" for name, value in said(schedule) if value)
    return f"{schedule.name}: {claims or 'its file does not say how it was found'}"


def _proof(solution: Solution) -> str:
    bound = f"bound {text(solution.bound)} {solution.problem.time_unit}"
    reasons = "".join(f"\n  {reason}" for reason in solution.reasons)
    return (
        f"solved: {solution.status}, {objective_text(solution)}, {bound}, "
        f"gap {gap_text(solution.gap)}; {run_text(solution)}{reasons}"
    )
