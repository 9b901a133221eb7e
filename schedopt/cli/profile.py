"""`schedopt profile`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from math import isfinite
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table

from schedopt.cli.inputs import check_output
from schedopt.cli.models import device_option, executor_module, options_of, settings_option
from schedopt.cli.options import json_option, number, quiet_option
from schedopt.cli.output import message, message_console, print_json, show, warn
from schedopt.exact import Number, text
from schedopt.executor.errors import ExecutorError
from schedopt.formats.tables import facts
from schedopt.placement import PLACEMENT_NAMES, default_chunks
from schedopt.problem import Problem
from schedopt.progress import steps
from schedopt.units import size_in_bytes

if TYPE_CHECKING:
    from schedopt.executor.profile import Profile

FAILED = 1


def _sizes(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    try:
        return None if value is None else [size_in_bytes(part) for part in value.split(",")]
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("profile")
@click.argument("model", metavar="MODULE:FACTORY")
@click.option("--output", "-o", metavar="FILE", help="Write the problem to FILE, as JSON.")
@click.option(
    "--stages",
    type=click.IntRange(min=1),
    metavar="S",
    help="Number of stages; as the placement has them on the devices when omitted.",
)
@click.option(
    "--devices",
    type=click.IntRange(min=1),
    metavar="P",
    help="Number of devices; as many as the placement needs for the stages when omitted.",
)
@click.option(
    "--placement",
    default="linear",
    show_default=True,
    metavar="NAME",
    help=f"{', '.join(PLACEMENT_NAMES)}; or the device of each stage: 0,1,1,0.",
)
@click.option(
    "--microbatches",
    type=click.IntRange(min=1),
    metavar="M",
    help="Microbatches of a step; twice as many as devices when omitted.",
)
@click.option(
    "--capacity",
    callback=_sizes,
    metavar="SIZE",
    help="Memory of each device, such as 80GiB; or one size for each: 80GiB,40GiB.",
)
@settings_option
@device_option
@click.option(
    "--optimizer-factor",
    type=number,
    default="2",
    show_default=True,
    metavar="X",
    help="Bytes of optimizer state for each byte of trained parameters: 0 for plain gradient "
    "descent, 2 for Adam.",
)
@click.option("--fused", is_flag=True, help="Let every stage have BW instead of B and W.")
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes that measure at the same time, as ranks do that share a machine.",
)
@click.option(
    "--link/--no-link",
    default=True,
    show_default=True,
    help="Whether to measure lag and bandwidth between two ranks of this machine.",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="Ops of each kind that are timed; the median counts.",
)
@click.option(
    "--warm-up",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    metavar="N",
    help="Ops of each kind that are run before.",
)
@json_option
@quiet_option
def command(
    *,
    model: str,
    output: str | None,
    stages: int | None,
    devices: int | None,
    placement: str,
    microbatches: int | None,
    capacity: list[int] | None,
    settings: tuple[str, ...],
    device: str,
    optimizer_factor: Number,
    fused: bool,
    ranks: int,
    link: bool,
    repeat: int,
    warm_up: int,
    as_json: bool,
    quiet: bool,
) -> int:
    """Measure what the stages of a model cost, and write the problem to solve.

    MODULE:FACTORY is a function that returns a schedopt.executor.models.PipelineModel. Times are
    in us, memory in bytes.

    \b
    Examples:
      schedopt profile schedopt.executor.models:transformer --devices 4 -o problem.json
      schedopt profile schedopt.executor.models:mlp --set width=512 --devices 2 --placement v
      schedopt profile my_model:factory --stages 8 --device cuda --capacity 80GiB -o problem.json

    Exit code: 0 done, 1 a process failed, 2 wrong input, or the model raised.
    """
    if output is not None:
        check_output(output)
    layout = _layout(devices, stages, placement, microbatches)
    if capacity is not None:
        limits = capacity * layout.devices if len(capacity) == 1 else capacity
        layout = layout.with_capacity(limits)
    warn(layout, quiet=quiet)
    options = options_of(model, settings)
    profile = executor_module("profile")
    activity = f"profiling {model}"
    with nullcontext() if quiet else steps(message_console(), activity) as progress:
        try:
            found: Profile = profile.profile_model(
                model,
                layout.stage_count,
                options=options,
                device=device,
                ranks=ranks,
                links=link,
                warm_up=warm_up,
                repeats=repeat,
                progress=progress,
            )
        except (ExecutorError, TimeoutError) as error:
            message(f"Error: {error}")
            return FAILED
    problem = found.problem(layout, split=not fused, optimizer_factor=optimizer_factor)
    lost = "" if output is None else _save(problem, output)
    if as_json:
        print_json({"profile": found.to_dict(), "problem": problem.to_dict()})
    else:
        show(*_report(found, problem))
    if lost:
        raise click.UsageError(f"{output!r} could not be written: {lost}")
    if output is not None and not quiet:
        message(f"problem written to {output}; next: schedopt solve {output} -o schedule.json")
    return 0


def _layout(
    devices: int | None, stages: int | None, placement: str, microbatches: int | None
) -> Problem:
    """A problem with what the options say, and nothing measured yet."""
    place: Any = placement
    if placement not in PLACEMENT_NAMES:
        parts = placement.split(",")
        if not all(part.strip().isdecimal() for part in parts):
            valid = f"must be {', '.join(PLACEMENT_NAMES)}, or the device of each stage: 0,1,1,0"
            raise click.BadParameter(f"{placement!r} {valid}", param_hint="'--placement'")
        place = [int(part) for part in parts]
        devices = devices or max(place) + 1
    if devices is None:
        if stages is None:
            raise click.UsageError("give --devices, --stages or both")
        devices = max(1, stages // default_chunks(placement))
    given = {} if stages is None else {"stages": stages}
    return Problem(
        devices=devices,
        placement=place,
        microbatches=microbatches or 2 * devices,
        durations={"F": 1, "B": 1, "W": 1},
        **given,
    )


def _save(problem: Problem, path: str) -> str:
    """Write a problem; the reason if that is not possible, so that the report is not lost."""
    try:
        problem.save(path)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _report(profile: Profile, problem: Problem) -> Iterator[RenderableType]:
    yield f"{profile.model}: {problem.stage_count} stages on {problem.devices} devices"
    yield _time_table(profile, problem)
    yield "Times in us: median, and the distance of the quartiles as a part of it."
    yield _memory_table(profile)
    yield "Bytes; those that are held or sent are of one microbatch."
    yield ""
    yield facts(_notes(profile, problem))


def _time_table(profile: Profile, problem: Problem) -> Table:
    table = _table("stage", "device", "F", "B", "W", "F (fused)", "BW")
    for costs in profile.stages:
        split = {} if costs.split is None else costs.split.timings
        shown = [*(split.get(kind) for kind in ("F", "B", "W")), *costs.fused.timings.values()]
        cells = [
            "" if timing is None else f"{timing.median_us:.1f} ±{100 * timing.spread:.0f} %"
            for timing in shown
        ]
        table.add_row(str(costs.stage), str(problem.device_of[costs.stage]), *cells)
    return table


def _memory_table(profile: Profile) -> Table:
    table = _table("stage", "parameters", "held after F", "after B", "output", "input gradient")
    for costs in profile.stages:
        form = costs.fused if costs.split is None else costs.split
        held = [form.held_bytes["F"], form.held_bytes.get("B", 0)]
        sizes = [costs.parameter_bytes, *held, costs.output_bytes, costs.input_gradient_bytes]
        table.add_row(str(costs.stage), *map(str, sizes))
    return table


def _table(*names: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in names:
        table.add_column(name, justify="right")
    return table


def _notes(profile: Profile, problem: Problem) -> Iterator[tuple[str, str]]:
    for way, link in zip(("link", "link back"), profile.links or (), strict=False):
        rate = (
            f"{link.bytes_per_us:.0f} bytes per us" if isfinite(link.bytes_per_us) else "any size"
        )
        yield way, f"{link.latency_us:.0f} us and {rate}"
    for costs in profile.stages:
        parts = "; ".join(f"{name or 'all of it'}: {reason}" for name, reason in costs.unsplit)
        if parts:
            yield f"stage {costs.stage}", f"not split: {parts}"
    yield "static", f"{', '.join(text(amount) for amount in problem.static)} bytes by device"
    yield "measured", profile.source()
