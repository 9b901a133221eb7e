"""`schedopt report`."""

from __future__ import annotations

from pathlib import Path

import click

from schedopt.check import check
from schedopt.cli.inputs import check_output, load_schedule
from schedopt.cli.options import quiet_option
from schedopt.cli.output import message, warn_of_violations
from schedopt.formats.html import report


@click.command("report")
@click.argument("schedules", metavar="SCHEDULE...", nargs=-1, required=True)
@click.option("--output", "-o", metavar="FILE", required=True, help="HTML file to write.")
@quiet_option
def command(*, schedules: tuple[str, ...], output: str, quiet: bool) -> int:
    """Write a page to look into schedules with a browser; it needs no network.

    It shows ops and memory to zoom into, why each op does not start earlier, idle time by cause,
    the history of the search, and the data of the problem. Several schedules stand on one time
    axis.

    \b
    Examples:
      schedopt report schedule.json -o report.html
      schedopt report one.json other.json -o comparison.html
    """
    check_output(output)
    shown = [load_schedule(name) for name in schedules]
    for schedule in shown:
        warn_of_violations(schedule, check(schedule), quiet=quiet)
    Path(output).write_text(report(shown), encoding="utf-8")
    if not quiet:
        message(f"report written to {output}")
    return 0
