"""`schedopt bench`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from schedopt.cli.inputs import check_output, load_schedule
from schedopt.cli.models import device_option, executor_module, options_of, settings_option
from schedopt.cli.options import json_option, quiet_option
from schedopt.cli.output import message, message_console, print_json, show
from schedopt.errors import DeadlockError
from schedopt.executor.errors import ExecutorError
from schedopt.formats.tables import percent
from schedopt.progress import steps

if TYPE_CHECKING:
    from schedopt.executor.bench import Report, Row

FAILED = 1
NOTHING = "-"


@click.command("bench")
@click.argument("schedules", metavar="SCHEDULE...", nargs=-1, required=True)
@click.option("--model", metavar="MODULE:FACTORY", help="A factory of a PipelineModel.")
@settings_option
@click.option(
    "--emulate",
    is_flag=True,
    help="Wait instead of computing: ops take the times of the problem, on any machine.",
)
@click.option(
    "--unit-ms",
    type=click.FloatRange(min=0, min_open=True),
    metavar="X",
    help="Milliseconds that one time unit of the problem takes; by default as its name says "
    "(ns, us, ms, s), and 1 for any other name with --emulate.",
)
@click.option(
    "--boundary-kib",
    type=click.FloatRange(min=0, min_open=True),
    default=64,
    show_default=True,
    metavar="X",
    help="Size in KiB of the tensors between emulated stages.",
)
@click.option(
    "--steps",
    "rounds",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="K",
    help="Timed steps of each schedule.",
)
@click.option(
    "--against-torch",
    is_flag=True,
    help="Also run what torch.distributed.pipelining has for the placement.",
)
@device_option
@click.option("--trace", metavar="FILE", help="Write a Chrome trace, measured beside predicted.")
@json_option
@quiet_option
def command(
    *,
    schedules: tuple[str, ...],
    model: str | None,
    settings: tuple[str, ...],
    emulate: bool,
    unit_ms: float | None,
    boundary_kib: float,
    rounds: int,
    against_torch: bool,
    device: str,
    trace: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Run schedules in turn on processes of this machine: measured beside predicted.

    SCHEDULE is a file that `solve` wrote; all are for equally many devices. Each device is a
    process with one thread.

    \b
    Examples:
      schedopt bench best.json --emulate
      schedopt bench best.json other.json --emulate --against-torch --trace trace.json
      schedopt bench best.json --model schedopt.executor.models:mlp --set width=512

    Exit code: 0 done, 1 losses differ or a rank failed, 2 wrong input, or the model raised.
    """
    if emulate == (model is not None):
        raise click.UsageError("give either --model MODULE:FACTORY or --emulate")
    if emulate and (settings or device != "cpu"):
        raise click.UsageError("--set and --device are for --model, emulated stages only wait")
    if trace is not None:
        check_output(trace)
    given = [load_schedule(schedule) for schedule in schedules]
    executor = executor_module("bench")
    source = executor.Source(
        factory=model or "",
        options={} if model is None else options_of(model, settings),
        device=device,
        unit_seconds=None if unit_ms is None else unit_ms / 1e3,
        boundary_bytes=round(1024 * boundary_kib),
    )
    activity = f"timing {rounds} steps of each schedule on {given[0].problem.devices} processes"
    try:
        with nullcontext() if quiet else steps(message_console(), activity):
            report: Report = executor.bench(
                given, source, rounds=rounds, against_torch=against_torch
            )
    except DeadlockError as error:
        raise click.UsageError(str(error)) from None
    except (ExecutorError, TimeoutError) as error:
        message(f"Error: {error}")
        return FAILED
    if trace is not None:
        Path(trace).write_text(json.dumps(report.trace()), encoding="utf-8")
    if as_json:
        print_json(report.to_dict())
    else:
        show(time_table(report.rows), memory_table(report.rows), *notes(report))
    if not report.losses_equal:
        difference = f"{report.loss_difference:.3g}"
        message(f"Error: the losses of the schedules differ, by {difference} of their size")
        return FAILED
    return 0


def time_table(rows: Sequence[Row]) -> Table:
    """How long each schedule took, beside what was predicted."""
    result = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in ("schedule", "runtime"):
        result.add_column(name)
    for name in ("predicted ms", "measured ms", "difference", "min to max", "from op times"):
        result.add_column(name, justify="right")
    for name in ("predicted bubble", "measured bubble", "CPU ms"):
        result.add_column(name, justify="right")
    for row in rows:
        lengths = row.milliseconds
        result.add_row(
            row.name,
            row.runtime,
            NOTHING if row.predicted is None else f"{row.predicted.milliseconds:.1f}",
            f"{row.measured:.1f}",
            NOTHING if row.error is None else f"{100 * row.error:+.1f} %",
            f"{min(lengths):.1f} to {max(lengths):.1f}",
            NOTHING if row.from_ops is None else f"{row.from_ops.milliseconds:.1f}",
            NOTHING if row.predicted is None else percent(row.predicted.bubble),
            NOTHING if row.bubble is None else percent(row.bubble),
            f"{row.cpu_milliseconds:.1f}",
        )
    return result


def memory_table(rows: Sequence[Row]) -> Table:
    """What each schedule held at most, beside its plan, and what it computed."""
    result = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in ("schedule", "runtime"):
        result.add_column(name)
    for name in ("held microbatches", "planned", "messages", "planned", "activations MiB"):
        result.add_column(name, justify="right")
    result.add_column("within plan")
    result.add_column("loss", justify="right")
    for row in rows:
        cells = [NOTHING] * 6
        if row.memory:
            held, held_plan = row.held_microbatches
            messages, message_plan = row.boundary_messages
            mebibytes = max(stats.activation_bytes or 0 for stats in row.memory) / 2**20
            within = "yes" if row.within_plan else "no"
            cells = [str(n) for n in (held, held_plan, messages, message_plan)]
            cells += [f"{mebibytes:.2f}", within]
        result.add_row(row.name, row.runtime, *cells, f"{row.loss:.6g}")
    return result


def notes(report: Report) -> list[str]:
    """What the columns mean."""
    equal = "equal" if report.losses_equal else "NOT EQUAL"
    return [
        f"Losses: {equal}. Lag of a boundary tensor, measured: {report.lag_us:.0f} us.",
        "measured: median; a step ends when the last rank has ended. CPU: of all ranks.",
        "predicted: by the durations of the problem, and this lag. from op times: by the measured "
        "durations of the ops, so that the rest is the executor's.",
        "bubble: share of the step in which no op runs. held, messages: of the stage and the rank "
        "with most; counted in steps of their own.",
    ]
