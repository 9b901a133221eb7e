"""`schedopt explain`."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import click
from rich.console import RenderableType

from schedopt.advice import Change, Outcome, changes, outcomes
from schedopt.binding import critical_path
from schedopt.check import check
from schedopt.cli.inputs import load_schedule
from schedopt.cli.options import (
    SolveOptions,
    json_option,
    many_solves_options,
    quiet_option,
)
from schedopt.cli.output import message, print_json, show
from schedopt.cli.solve import run
from schedopt.exact import exact, text, to_json
from schedopt.formats.causes import (
    advice_table,
    cause_table,
    comparison_of_causes,
    notes,
    path_table,
    verdict,
)
from schedopt.formats.path import path_rows, path_sum
from schedopt.idle import DeviceIdle, causes
from schedopt.measured import Measured, read_trace
from schedopt.schedule import Schedule
from schedopt.solvers.solution import Solution


@click.command("explain")
@click.argument("schedule", metavar="SCHEDULE")
@click.option(
    "--trace",
    metavar="FILE",
    help="A measured step, from `bench` or `run --trace`: its idle time beside the predicted.",
)
@click.option(
    "--advice/--no-advice",
    default=True,
    show_default=True,
    help="Whether to solve what would help.",
)
@many_solves_options
@json_option
@quiet_option
def command(
    *,
    schedule: str,
    trace: str | None,
    advice: bool,
    options: SolveOptions,
    as_json: bool,
    quiet: bool,
) -> int:
    """Say where the time of a schedule goes, and what would help.

    Idle time of every device by cause, exactly; the critical path; the busiest device; and
    changes of the problem, each solved: more memory, faster links and stages, one microbatch
    more, backward fused or split. SCHEDULE is a schedule file.

    \b
    Examples:
      schedopt explain best.json
      schedopt explain best.json --no-advice --json
      schedopt explain best.json --trace trace.json --no-advice

    Ctrl-C ends the solve that runs, and with it the list of what would help.
    """
    given = load_schedule(schedule)
    if violations := check(given):
        raise click.UsageError(
            f"{schedule!r} is not valid, {violations[0]}; `schedopt check` lists every violation"
        )
    measured = None if trace is None else read_trace(trace, given.problem, name=given.name)
    found = _advice(given, options, quiet=quiet) if advice else []
    bound, source = _bound(given, found)
    devices = causes(given, bound)
    if as_json:
        print_json(_json(given, devices, measured, found, bound, source))
    else:
        show(*_report(given, devices, measured, found, bound, source))
    return 0


def _advice(schedule: Schedule, options: SolveOptions, *, quiet: bool) -> list[Outcome]:
    count = len(changes(schedule))
    number = 0

    def solve_one(change: Change) -> Solution:
        nonlocal number
        number += 1
        if not quiet:
            message(f"solving {number} of {count}: {change.what}")
        return run(change.problem, options, quiet=quiet)

    return list(outcomes(schedule, solve_one))


def _bound(schedule: Schedule, found: Sequence[Outcome]) -> tuple[Fraction | None, str]:
    """The bound that was proven now, or else what the file says."""
    if found:
        solution = found[0].solution
        return solution.bound, solution.bound_source
    said = schedule.info.get("bound")
    if not isinstance(said, (int, float)) or exact(said) > schedule.objective:
        return None, ""
    return exact(said), f"{schedule.info.get('bound_source', '')}, as its file says"


def _report(
    schedule: Schedule,
    devices: Sequence[DeviceIdle],
    measured: Measured | None,
    found: Sequence[Outcome],
    bound: Fraction | None,
    source: str,
) -> list[RenderableType]:
    path = critical_path(schedule)
    parts: list[RenderableType] = [
        *verdict(schedule, devices, bound, source),
        "",
        "Idle time of each device by cause",
        cause_table(devices, schedule.makespan, schedule.problem.time_unit),
    ]
    if measured is not None:
        parts += [
            "Measured beside predicted, in % of the step on all devices",
            comparison_of_causes(schedule, devices, measured),
        ]
    parts += [
        f"Critical path: {path_sum(schedule, path)}",
        path_table(path_rows(schedule, path)),
    ]
    if found:
        parts += [
            f"What would help, each solved; now {schedule.problem.objective} "
            f"{text(schedule.objective, 3)} {schedule.problem.time_unit}",
            advice_table([outcome.to_dict() for outcome in found]),
        ]
    return [*parts, *notes(devices, schedule.problem, found=bool(found))]


def _json(
    schedule: Schedule,
    devices: Sequence[DeviceIdle],
    measured: Measured | None,
    found: Sequence[Outcome],
    bound: Fraction | None,
    source: str,
) -> dict[str, Any]:
    path = critical_path(schedule)
    problem = schedule.problem
    busiest = max(device.work for device in devices)
    return {
        "problem": problem.name,
        "name": schedule.name,
        "objective_name": problem.objective,
        "objective": to_json(schedule.objective),
        "makespan": to_json(schedule.makespan),
        "time_unit": problem.time_unit,
        "bound": None if bound is None else to_json(bound),
        "bound_source": source,
        "devices": [device.to_dict() for device in devices],
        "busiest": [device.device for device in devices if device.work == busiest],
        "critical_path": [
            {
                "op": str(link.op),
                "held_by": None if link.binding.op is None else str(link.binding.op),
                "reason": link.binding.reason,
                "slack": to_json(link.binding.slack),
            }
            for link in path
        ],
        "measured": None
        if measured is None
        else {
            "time_unit": "us",
            "makespan": to_json(measured.makespan),
            "devices": [device.to_dict() for device in measured.causes()],
        },
        "advice": [outcome.to_dict() for outcome in found],
    }
