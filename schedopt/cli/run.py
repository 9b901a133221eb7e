"""`schedopt run`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table

from schedopt.cli.inputs import check_output, load_schedule
from schedopt.cli.models import device_option, executor_module, options_of, settings_option
from schedopt.cli.options import json_option, quiet_option
from schedopt.cli.output import message, message_console, print_json, show
from schedopt.errors import DeadlockError
from schedopt.executor.errors import ExecutorError
from schedopt.formats.tables import facts, percent
from schedopt.progress import steps

if TYPE_CHECKING:
    from schedopt.executor.launch import Report

FAILED = 1


@click.command("run")
@click.argument("schedule", metavar="SCHEDULE")
@click.option(
    "--model", required=True, metavar="MODULE:FACTORY", help="A factory of a PipelineModel."
)
@settings_option
@click.option(
    "--nproc",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes on this machine; one for each device of the schedule, which is the default.",
)
@click.option(
    "--steps",
    "count",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="K",
    help="Training steps.",
)
@click.option(
    "--check", is_flag=True, help="Compare the gradients with those of one process, in float64."
)
@click.option("--trace", metavar="FILE", help="Write a Chrome trace, measured beside predicted.")
@device_option
@click.option(
    "--learning-rate",
    type=click.FloatRange(min=0),
    default=0.01,
    show_default=True,
    metavar="X",
    help="Of the plain gradient descent between the steps.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60,
    show_default=True,
    metavar="S",
    help="Seconds that a rank waits for another one.",
)
@json_option
@quiet_option
def command(
    *,
    schedule: str,
    model: str,
    settings: tuple[str, ...],
    nproc: int | None,
    count: int,
    check: bool,
    trace: str | None,
    device: str,
    learning_rate: float,
    timeout: float,
    as_json: bool,
    quiet: bool,
) -> int:
    """Run training steps of a schedule with a model, one process for each device.

    The schedule's problem says which stages are on which device and how many microbatches a step
    has; MODULE:FACTORY is a function that returns a schedopt.executor.models.PipelineModel.

    \b
    Examples:
      schedopt run best.json --model schedopt.executor.models:transformer --check
      schedopt run best.json --model my_model:factory --set width=512 --steps 10 --trace out.json
      torchrun --nnodes 2 ... --no-python schedopt run best.json --model my_model:factory

    Started by torchrun it is one of the ranks; otherwise it starts them on this machine.

    Exit code: 0 done, 1 gradients differ or a rank failed, 2 wrong input, or the model raised.
    """
    if trace is not None:
        check_output(trace)
    given = load_schedule(schedule)
    options = options_of(model, settings)
    launch = executor_module("launch")
    request = launch.Request(
        given,
        model,
        options,
        steps=count,
        check=check,
        device=device,
        learning_rate=learning_rate,
        timeout=timeout,
    )
    is_rank = launch.is_under_torchrun()
    nproc = launch.ranks_of_torchrun() if is_rank else nproc or given.problem.devices
    try:
        request.require_valid(nproc)
        if is_rank:
            report: Report | None = launch.run_as_rank(request)
        else:
            if not quiet and nproc > 1:
                again = _arguments(schedule, model, settings, count, check, trace, device)
                message(f"on several machines: {launch.torchrun_line(again, nproc)}")
            activity = f"{nproc} processes"
            with nullcontext() if quiet else steps(message_console(), activity) as progress:
                report = launch.run_here(request, progress=progress)
    except DeadlockError as error:
        raise click.UsageError(f"{schedule!r}: {error}") from None
    except (ExecutorError, TimeoutError) as error:
        message(f"Error: {error}")
        return FAILED
    if report is None:
        return 0
    if trace is not None:
        Path(trace).write_text(json.dumps(report.trace()), encoding="utf-8")
    if as_json:
        print_json(report.to_dict())
    else:
        show(*_report(report))
    return 0 if report.is_right else FAILED


def _arguments(
    schedule: str,
    model: str,
    settings: tuple[str, ...],
    count: int,
    check: bool,
    trace: str | None,
    device: str,
) -> list[str]:
    """The same command, for torchrun."""
    options = [part for setting in settings for part in ("--set", setting)]
    options += ["--check"] if check else []
    options += [] if trace is None else ["--trace", trace]
    fixed = ["--model", model, "--steps", str(count), "--device", device]
    return ["schedopt", "run", schedule, *fixed, *options]


def _report(report: Report) -> Iterator[RenderableType]:
    problem = report.request.schedule.problem
    name = report.request.schedule.name or "schedule"
    yield (
        f"{name} with {report.request.model}: {problem.devices} ranks, "
        f"{problem.stage_count} stages, {problem.microbatches} microbatches"
    )
    yield _step_table(report)
    yield "In step 0 the ranks also tell each other what their tensors are."
    yield _rank_table(report)
    yield "Held at most: microbatches of each stage, messages, and what autograd holds."
    yield ""
    yield facts(_facts(report))


def _step_table(report: Report) -> Table:
    table = _table("step", "loss", "ms")
    for place, (loss, seconds) in enumerate(zip(report.losses, report.seconds, strict=True)):
        table.add_row(str(place), f"{loss:.6g}", f"{1e3 * seconds:.2f}")
    return table


def _rank_table(report: Report) -> Table:
    table = _table(
        "rank", "stages", "microbatches", "plan", "messages", "plan", "activation bytes", "plan"
    )
    problem = report.request.schedule.problem
    for rank, (run, planned) in enumerate(zip(report.ranks, report.planned_bytes, strict=True)):
        stats = run.memory
        table.add_row(
            str(rank),
            _listed(problem.stages_on[rank]),
            _listed(stats.held_microbatches.values()),
            _listed(stats.planned_microbatches.values()),
            str(stats.boundary_messages),
            str(stats.planned_boundary_messages),
            str(stats.activation_bytes),
            "" if planned is None else str(planned),
        )
    return table


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    predicted, measured = report.predicted, report.measured
    shown = f"{1e3 * measured:.2f} ms a step"
    if predicted is not None:
        off = percent(abs(measured / predicted - 1))
        way = "longer" if measured >= predicted else "shorter"
        shown += f"; predicted {1e3 * predicted:.2f} ms, {off} {way}"
    else:
        unit = report.request.schedule.problem.time_unit
        shown += f"; no prediction, {unit!r} is no unit of time"
    yield "measured", shown
    fused = [str(stage) for run in report.ranks for stage in run.fused]
    yield "not split", f"stages {', '.join(fused)}: their B is the whole backward" if fused else ""
    if report.difference is not None:
        yield "gradients", _verdict(report)


def _verdict(report: Report) -> str:
    said = "equal to those of one process" if report.is_right else "DIFFERENT from one process"
    return f"{said}: largest relative difference {report.difference:.2g} in float64"


def _listed(values: Any) -> str:
    return ", ".join(map(str, values)) or "none"


def _table(*names: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in names:
        table.add_column(name, justify="right")
    return table
