"""`schedopt import`."""

from __future__ import annotations

from pathlib import Path

import click

from schedopt.analysis import summary
from schedopt.check import check
from schedopt.cli.inputs import check_output, load_problem
from schedopt.cli.options import quiet_option
from schedopt.cli.output import message, show
from schedopt.cli.report import schedule_report
from schedopt.errors import DeadlockError
from schedopt.formats.torch_csv import read_torch_csv


@click.command("import")
@click.argument("table", metavar="FILE")
@click.option(
    "--problem",
    metavar="PROBLEM",
    required=True,
    help="Has the durations and the memory: a problem or schedule file, or a bundled name.",
)
@click.option("--output", "-o", metavar="FILE", required=True, help="Schedule file to write.")
@quiet_option
def command(*, table: str, problem: str, output: str, quiet: bool) -> int:
    """Read a table of actions of torch.distributed.pipelining (compute only) as a schedule.

    In the table F is a forward, I the gradient of the input, W that of the weights, and B a full
    backward. Each op starts as soon as it can with the durations of the problem.

    \b
    Examples:
      schedopt import best.csv --problem zb-1.5b-p8-m24 -o schedule.json

    Exit code: 0 written, 2 wrong input, or a schedule that breaks a rule of the problem.
    """
    check_output(output)
    given = load_problem(problem)
    try:
        text = Path(table).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{table!r} can not be read: {error}") from None
    try:
        schedule = read_torch_csv(text, given, source=table, name=Path(table).stem)
    except DeadlockError as error:
        raise click.UsageError(f"{table}: {error}") from None
    violations = check(schedule)
    if violations:
        raise click.UsageError(
            f"{table} breaks rules of the problem, {len(violations)} times; first: {violations[0]}"
        )
    schedule.save(output)
    if not quiet:
        message("B in the table is read as a full backward, I as the gradient of the input only")
        show(*schedule_report(schedule, summary(schedule)))
    return 0
