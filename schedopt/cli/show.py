"""`schedopt show`."""

from __future__ import annotations

import click

from schedopt.analysis import summary
from schedopt.check import check
from schedopt.classic import CLASSIC
from schedopt.cli.inputs import load_problem, load_schedule
from schedopt.cli.options import json_option, quiet_option
from schedopt.cli.output import picture_style, print_json, show, warn_of_violations
from schedopt.cli.report import schedule_report
from schedopt.cli.views import ViewOptions, view_options
from schedopt.formats.text import SMALLEST_WIDTH, gantt, memory_chart

CLASSIC_NAMES = {name.lower().replace(" ", "-"): name for name in CLASSIC}
"""Names of the classic schedules as they are typed."""


@click.command("show")
@click.argument("schedule", metavar="SCHEDULE")
@click.option(
    "--classic",
    type=click.Choice(list(CLASSIC_NAMES), case_sensitive=False),
    metavar="NAME",
    help=f"Show a classic schedule for a problem: {', '.join(CLASSIC_NAMES)}.",
)
@click.option(
    "--width",
    type=click.IntRange(min=SMALLEST_WIDTH),
    metavar="N",
    help="Characters per line; the width of the terminal when omitted.",
)
@view_options
@json_option
@quiet_option
def command(
    *,
    schedule: str,
    classic: str | None,
    width: int | None,
    view: ViewOptions,
    as_json: bool,
    quiet: bool,
) -> int:
    """Draw a schedule in the terminal: its ops and the memory of each device.

    SCHEDULE is a schedule file; with --classic, a problem: a file or a bundled name.

    \b
    Examples:
      schedopt show schedule.json
      schedopt show zb-1.5b-p8-m24 --classic 1f1b --width 160
      schedopt show schedule.json --from 100 --to 150 --device 0 --device 7
      NO_COLOR=1 schedopt show schedule.json > schedule.txt
    """
    if classic is None:
        drawn = load_schedule(schedule)
    else:
        drawn = CLASSIC[CLASSIC_NAMES[classic]](load_problem(schedule))
    part = view.of(drawn)
    violations = check(drawn)
    warn_of_violations(drawn, violations, quiet=quiet)
    achieved = summary(drawn)
    if as_json:
        print_json({**achieved.to_dict(), "valid": not violations, "info": dict(drawn.info)})
        return 0
    style = {**picture_style(width), "view": part}
    show(gantt(drawn, **style), memory_chart(drawn, **style), *schedule_report(drawn, achieved))
    return 0
