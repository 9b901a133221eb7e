"""`schedopt solve`."""

from __future__ import annotations

from contextlib import nullcontext

import click

from schedopt.analysis import summary
from schedopt.cache import Cache
from schedopt.cli.inputs import check_output, load_problem
from schedopt.cli.options import SolveOptions, json_option, quiet_option, solve_options
from schedopt.cli.output import message, message_console, print_json, show, warn
from schedopt.cli.report import exit_code, solution_report
from schedopt.problem import Problem
from schedopt.progress import ProgressDisplay
from schedopt.schedule import Schedule
from schedopt.solvers import solve
from schedopt.solvers.solution import Solution


def run(problem: Problem, options: SolveOptions, *, quiet: bool) -> Solution:
    """Solve with the options of the command line, showing progress unless it is quiet."""
    display = None if quiet else ProgressDisplay(message_console(), problem.time_unit)
    reproducible = options.deterministic_limit is not None
    cache = None if options.no_cache or reproducible else Cache()
    with display or nullcontext():
        solution = solve(
            problem,
            time_limit=options.time_limit,
            workers=options.workers,
            seed=options.seed,
            deterministic_limit=options.deterministic_limit,
            index_order=options.index_order,
            progress=display,
            cache=cache,
            memory_limit=options.memory_limit,
        )
    for note in () if quiet or cache is None else cache.notes:
        message(f"cache: {note}")
    return solution


@click.command("solve")
@click.argument("problem", metavar="PROBLEM")
@click.option("--output", "-o", metavar="FILE", help="Write the schedule to FILE, as JSON.")
@solve_options
@json_option
@quiet_option
def command(
    *, problem: str, output: str | None, options: SolveOptions, as_json: bool, quiet: bool
) -> int:
    """Find an optimal schedule, or the best one within the time limit.

    PROBLEM is a file (.toml or .json) or the name of a bundled problem.

    \b
    Examples:
      schedopt solve zb-1.5b-p8-m24 -o schedule.json
      schedopt solve problem.toml --capacity 6 --time-limit 20
      schedopt solve problem.toml --objective period --json > solution.json
      schedopt solve vocabulary-p8-m32 --move "output and loss=0"
      schedopt solve recompute-p4-m8 --recompute always

    Exit code: 0 solved (optimal or feasible), 2 bad input, 3 proven infeasible, 4 nothing found
    in time, 130 interrupted before anything was found. Ctrl-C ends the search and returns the
    best schedule found.
    """
    if output is not None:
        check_output(output)
    given = options.change(load_problem(problem))
    warn(given, quiet=quiet)
    solution = run(given, options, quiet=quiet)
    found = solution.schedule
    lost = "" if found is None or output is None else _save(found, output)
    achieved = None if found is None else summary(found)
    if as_json:
        shown = None if achieved is None else achieved.to_dict()
        print_json({**solution.to_dict(), "summary": shown})
    else:
        show(*solution_report(solution, achieved, title=given.name or problem))
    if lost:
        raise click.UsageError(f"{output!r} could not be written: {lost}")
    if found is not None and output is not None and not quiet:
        message(f"schedule written to {output}")
    return exit_code(solution)


def _save(schedule: Schedule, path: str) -> str:
    """Write a schedule; the reason if that is not possible, so that its report is not lost."""
    try:
        schedule.save(path)
    except OSError as error:
        return error.strerror or str(error)
    return ""
