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
from schedopt.formats.op_table import read_op_table
from schedopt.formats.torch_actions import BMeans
from schedopt.formats.torch_comms import read_torch_comms
from schedopt.formats.torch_csv import read_torch_csv
from schedopt.problem import Problem
from schedopt.schedule import Schedule

TORCH_READERS = {"torch-compute-only": read_torch_csv, "torch-compute-comms": read_torch_comms}
MEANINGS: tuple[BMeans, ...] = ("full-backward", "input-gradient")


@click.command("import")
@click.argument("table", metavar="FILE")
@click.option(
    "--from",
    "form",
    type=click.Choice([*TORCH_READERS, "ops-csv"]),
    default="torch-compute-only",
    show_default=True,
    help="Format.",
)
@click.option(
    "--problem",
    metavar="PROBLEM",
    required=True,
    help="Has the durations and the memory: a problem or schedule file, or a bundled name.",
)
@click.option(
    "--b-means",
    type=click.Choice(MEANINGS),
    help="What B is in a table of torch; needed if it has no I and the problem has B and W.",
)
@click.option("--output", "-o", metavar="FILE", required=True, help="Schedule file to write.")
@quiet_option
def command(
    *, table: str, form: str, problem: str, b_means: BMeans | None, output: str, quiet: bool
) -> int:
    """Read a table of another program as a schedule.

    In tables of torch.distributed.pipelining F is a forward, I the gradient of the input, W that
    of the weights, and B a full backward; until torch 2.5 B was the gradient of the input. Their
    ops start as soon as they can with the durations of the problem, and so do those of a table of
    ops (ops-csv) without times; times that are there are kept, and must obey the problem.

    \b
    Examples:
      schedopt import best.csv --problem zb-1.5b-p8-m24 -o schedule.json
      schedopt import old.csv --problem problem.toml --b-means input-gradient -o schedule.json
      schedopt import ops.csv --from ops-csv --problem problem.toml -o schedule.json

    Exit code: 0 written, 2 wrong input, or a schedule that breaks a rule of the problem.
    """
    check_output(output)
    given = load_problem(problem)
    if form not in TORCH_READERS and b_means is not None:
        raise click.UsageError("--b-means is for tables of torch: ops-csv spells its kinds out")
    schedule = _read(table, form, given, b_means)
    violations = check(schedule)
    if violations:
        raise click.UsageError(
            f"{table} breaks rules of the problem, {len(violations)} times; first: {violations[0]}"
        )
    schedule.save(output)
    if not quiet:
        if form in TORCH_READERS:
            other = "" if b_means == "input-gradient" else ", I as the gradient of the input only"
            meaning = "the gradient of the input only" if not other else "a full backward"
            message(f"B in the table is read as {meaning}{other}")
        show(*schedule_report(schedule, summary(schedule)))
    return 0


def _read(table: str, form: str, problem: Problem, b_means: BMeans | None) -> Schedule:
    try:
        text = Path(table).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{table!r} can not be read: {error}") from None
    name = Path(table).stem
    try:
        if form not in TORCH_READERS:
            return read_op_table(text, problem, source=table, name=name)
        return TORCH_READERS[form](text, problem, b_means=b_means, source=table, name=name)
    except DeadlockError as error:
        raise click.UsageError(f"{table}: {error}") from None
