"""`schedopt plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from schedopt.check import check
from schedopt.cli.inputs import check_output, load_schedule
from schedopt.cli.options import quiet_option
from schedopt.cli.output import message, warn_of_violations
from schedopt.cli.views import ViewOptions, view_options


@click.command("plot")
@click.argument("schedule", metavar="SCHEDULE")
@click.option(
    "--output", "-o", metavar="FILE", required=True, help="File to write: .svg, .png or .pdf."
)
@view_options
@click.option(
    "--transfers/--no-transfers",
    default=None,
    help="Draw a line for each transfer between devices, or none; when omitted, if there are not "
    "too many.",
)
@click.option(
    "--width",
    type=click.FloatRange(4, 100),
    default=12,
    show_default=True,
    metavar="IN",
    help="Width in inches.",
)
@click.option(
    "--height",
    type=click.FloatRange(3, 100),
    metavar="IN",
    help="Height in inches; follows from the number of devices when omitted.",
)
@click.option(
    "--dpi",
    type=click.IntRange(50, 600),
    default=150,
    show_default=True,
    metavar="N",
    help="Pixels per inch.",
)
@quiet_option
def command(*, schedule: str, output: str, view: ViewOptions, quiet: bool, **options: Any) -> int:
    """Draw a schedule as a picture: its ops, transfers, and the memory of each device.

    The same schedule and options give the same bytes. Needs matplotlib:
    pip install schedopt[plot].

    \b
    Examples:
      schedopt plot schedule.json -o schedule.svg
      schedopt plot schedule.json -o begin.png --to 200 --device 0 --device 1 --dpi 300
    """
    try:
        from schedopt.formats.plot import SUFFIXES, plot
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        raise click.UsageError(
            "this command needs matplotlib, which is not installed: pip install schedopt[plot]"
        ) from None
    if Path(output).suffix.lower() not in SUFFIXES:
        raise click.BadParameter(
            f"{output!r} must end in one of {', '.join(SUFFIXES)}", param_hint="'--output' / '-o'"
        )
    check_output(output)
    drawn = load_schedule(schedule)
    part = view.of(drawn)
    warn_of_violations(drawn, check(drawn), quiet=quiet)
    plot(drawn, output, view=part, **options)
    if not quiet:
        message(f"picture written to {output}")
    return 0
