"""`schedopt export`."""

from __future__ import annotations

from pathlib import Path

import click

from schedopt.check import check
from schedopt.cli.inputs import check_output, load_schedule
from schedopt.cli.output import message
from schedopt.formats.op_table import write_op_table
from schedopt.formats.torch_csv import write_torch_csv

WRITERS = {"torch-compute-only": write_torch_csv, "ops-csv": write_op_table}


@click.command("export")
@click.argument("schedule", metavar="SCHEDULE")
@click.option("--to", "form", type=click.Choice(list(WRITERS)), required=True, help="Format.")
@click.option("--output", "-o", metavar="FILE", help="Write to FILE instead of the terminal.")
def command(*, schedule: str, form: str, output: str | None) -> int:
    """Write a schedule in the format of another program.

    \b
    torch-compute-only  table of actions of torch.distributed.pipelining: F forward,
                        I gradient of the input, W of the weights, B full backward
    ops-csv             one line for each op, with its times

    \b
    Examples:
      schedopt export best.json --to torch-compute-only -o best.csv
      schedopt export best.json --to ops-csv

    Exit code: 0 written, 2 wrong input, or a schedule that breaks a rule of its problem.
    """
    if output is not None:
        check_output(output)
    given = load_schedule(schedule)
    violations = check(given)
    if violations:
        raise click.UsageError(
            f"{schedule} breaks rules of its problem, {len(violations)} times, and is not "
            f"exported; first: {violations[0]}; `schedopt check` lists all of them"
        )
    written = WRITERS[form](given)
    if output is None:
        click.echo(written, nl=False)
    else:
        Path(output).write_text(written, encoding="utf-8")
        message(f"written to {output}")
    return 0
