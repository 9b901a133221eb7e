"""`schedopt export`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from schedopt.check import check
from schedopt.cli.inputs import check_output, load_schedule
from schedopt.cli.output import message
from schedopt.formats.chrome_trace import write_chrome_trace
from schedopt.formats.op_table import write_op_table
from schedopt.formats.torch_comms import write_torch_comms
from schedopt.formats.torch_csv import write_torch_csv
from schedopt.schedule import Schedule
from schedopt.schema import schedule_schema, schema_text

ONE_SCHEDULE: dict[str, Callable[[Schedule], str]] = {
    "torch-compute-only": write_torch_csv,
    "torch-compute-comms": write_torch_comms,
    "ops-csv": write_op_table,
}
FORMS = (*ONE_SCHEDULE, "chrome", "schema")


@click.command("export")
@click.argument("schedules", metavar="[SCHEDULE]...", nargs=-1)
@click.option("--to", "form", type=click.Choice(FORMS), required=True, help="Format.")
@click.option("--output", "-o", metavar="FILE", help="Write to FILE instead of the terminal.")
def command(*, schedules: Sequence[str], form: str, output: str | None) -> int:
    """Write a schedule in the format of another program.

    \b
    torch-compute-only   table of actions of torch.distributed.pipelining: F forward,
                         I gradient of the input, W of the weights, B full backward
    torch-compute-comms  the same with transfers and reductions
    ops-csv              one line for each op, with its times
    chrome               trace for Perfetto and chrome://tracing, of one or several schedules
    schema               JSON schema of schedule files; needs no schedule

    \b
    Examples:
      schedopt export best.json --to torch-compute-only -o best.csv
      schedopt export best.json --to ops-csv
      schedopt export best.json 1f1b.json --to chrome -o trace.json
      schedopt export --to schema

    Exit code: 0 written, 2 wrong input, a schedule that breaks a rule of its problem, or one that
    the other program can not run.
    """
    if output is not None:
        check_output(output)
    written = _text(form, schedules)
    if output is None:
        click.echo(written, nl=False)
    else:
        Path(output).write_text(written, encoding="utf-8")
        message(f"written to {output}")
    return 0


def _text(form: str, files: Sequence[str]) -> str:
    wanted = {"schema": "no schedule", "chrome": "at least one schedule"}.get(form, "one schedule")
    if (form == "schema") == bool(files) or (form in ONE_SCHEDULE and len(files) > 1):
        raise click.UsageError(f"--to {form} is for {wanted}, not for {len(files)}")
    if form == "schema":
        return schema_text(schedule_schema())
    given = [_valid(file) for file in files]
    return write_chrome_trace(given) if form == "chrome" else ONE_SCHEDULE[form](given[0])


def _valid(file: str) -> Schedule:
    schedule = load_schedule(file)
    violations = check(schedule)
    if violations:
        raise click.UsageError(
            f"{file} breaks rules of its problem, {len(violations)} times, and is not "
            f"exported; first: {violations[0]}; `schedopt check` lists all of them"
        )
    return schedule
