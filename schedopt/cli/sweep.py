"""`schedopt sweep`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click

from schedopt.cli.inputs import check_output, load_problem
from schedopt.cli.options import (
    SolveOptions,
    json_option,
    many_solves_options,
    objective_option,
    part_options,
    quiet_option,
)
from schedopt.cli.output import message, picture_style, print_json, show, warn
from schedopt.cli.report import INFEASIBLE, INTERRUPTED, NOTHING_FOUND, SOLVED
from schedopt.cli.solve import run
from schedopt.exact import to_json
from schedopt.formats.front import ENDINGS, front_chart, front_table, result_table, write_picture
from schedopt.front import Mark, front
from schedopt.grid import Cut, Point, Room, counts, cuts, grid, rooms
from schedopt.problem import Problem
from schedopt.solvers.solution import Solution
from schedopt.sweep import Result, classic_marks, load, save, sweep

Value = TypeVar("Value")


def read_option(read: Callable[[str], Value]) -> Callable[..., Value | None]:
    """A callback of click that reads an option with a function that raises `ValueError`."""

    def callback(context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else read(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


@click.command("sweep")
@click.argument("problem", metavar="PROBLEM")
@click.option(
    "--capacity",
    "capacities",
    callback=read_option(rooms),
    metavar="LIST",
    help="Capacities of each device: activations beside static memory (2:16, 2:4:0.5, 4,8), or "
    "sizes (24GiB,40GiB); the problem's own when omitted.",
)
@click.option(
    "--microbatches",
    "numbers",
    callback=read_option(counts),
    metavar="LIST",
    help="Numbers of microbatches: 8,16,32 or 8:32:8.",
)
@click.option(
    "--placement",
    "placements",
    callback=read_option(cuts),
    metavar="LIST",
    help="Placements: own, linear, v, interleaved:2, wave:4; the number is that of chunks.",
)
@click.option("--results", metavar="FILE", help="Keep results in FILE, and go on from what it has.")
@click.option("--output", "-o", metavar="FILE", help="Draw into FILE: .svg, .png, .pdf or .html.")
@objective_option
@part_options
@many_solves_options
@json_option
@quiet_option
def command(
    *,
    problem: str,
    capacities: tuple[Room, ...] | None,
    numbers: tuple[int, ...] | None,
    placements: tuple[Cut, ...] | None,
    results: str | None,
    output: str | None,
    options: SolveOptions,
    as_json: bool,
    quiet: bool,
) -> int:
    """Solve a grid of variants: memory against time, with the classic schedules as points.

    PROBLEM is a file (.toml or .json) or the name of a bundled problem. An activation of a device
    is what one microbatch holds there, in all its stages.

    \b
    Examples:
      schedopt sweep problem.toml --capacity 2:8 --results sweep.json -o front.svg
      schedopt sweep problem.toml --capacity 4 --microbatches 8,16,32
      schedopt sweep problem.toml --capacity 2:6 --placement linear,v,interleaved:2 --json

    Ctrl-C ends the sweep and shows what is done; the same command with --results goes on. Exit
    code: 0 done, 2 bad input, 3 nothing is feasible, 4 nothing found, 130 interrupted before
    anything was found.
    """
    if results is not None:
        check_output(results, option="'--results'")
    if output is not None:
        check_output(output)
        _check_picture(output)
    given = options.change(load_problem(problem))
    warn(given, quiet=quiet)
    try:
        points = grid(
            given,
            placements=placements or (Cut("own", 0),),
            microbatches=numbers or (),
            capacities=capacities or (Room(),),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    found = _solve(given, points, results, options, quiet=quiet)
    done = [mark for result in found if (mark := result.mark) is not None]
    marks = [*done, *classic_marks(given, dict.fromkeys(p.microbatches for p in points))]
    if output is not None and done:
        _draw(output, marks, given, problem)
    if as_json:
        print_json(_json(given, found, marks, len(points)))
    elif done:
        style = picture_style(None)
        units = {"unit": given.time_unit, "memory_unit": given.memory_unit}
        show(
            f"{given.name or problem}: {len(found)} of {len(points)} points; objective: "
            f"{given.objective}, in {given.time_unit}; memory in {given.memory_unit}",
            result_table([result.to_dict() for result in found]),
            front_chart(marks, width=style["width"], colour=style["colour"], **units),
            front_table(marks),
            "Memory: peak of the fullest device, static memory included. * on the front.",
        )
    else:
        show(result_table([result.to_dict() for result in found]))
    return _exit_code(found, len(points))


def _solve(
    problem: Problem,
    points: tuple[Point, ...],
    path: str | None,
    options: SolveOptions,
    *,
    quiet: bool,
) -> list[Result]:
    """Solve the points, keep each result in the file at once."""
    kept = {r.key: r for r in load(path)} if path is not None and Path(path).exists() else {}
    found: list[Result] = []

    def solve_one(point: Point) -> Solution:
        if not quiet:
            message(
                f"{len(found) + 1} of {len(points)}: {point.placement}, {point.microbatches} "
                f"microbatches, capacity {point.capacity}"
            )
        return run(point.problem, options, quiet=quiet)

    limit = options.deterministic_limit or options.time_limit
    try:
        for result in sweep(points, solve_one, limit=limit, known=kept.values()):
            found.append(result)
            if path is not None and kept.get(result.key) != result:
                kept[result.key] = result
                save(path, problem, kept.values())
    except KeyboardInterrupt:
        pass
    if len(found) < len(points) and not quiet:
        more = f"; the same command goes on from {path}" if path is not None else ""
        message(f"interrupted after {len(found)} of {len(points)} points{more}")
    return found


def _check_picture(path: str) -> None:
    if Path(path).suffix not in ENDINGS:
        valid = f"must end in one of {', '.join(ENDINGS)}"
        raise click.BadParameter(f"{path!r} {valid}", param_hint="'--output' / '-o'")
    if find_spec("matplotlib") is None:
        raise click.UsageError("a picture needs matplotlib: pip install 'schedopt[plot]'")


def _draw(path: str, marks: list[Mark], problem: Problem, name: str) -> None:
    units = {"unit": problem.time_unit, "memory_unit": problem.memory_unit}
    title = f"{problem.name or name}: {problem.objective} against memory"
    try:
        write_picture(path, marks, title=title, **units)
    except OSError as error:
        raise click.UsageError(f"{path!r} could not be written: {error.strerror}") from None


def _json(problem: Problem, found: list[Result], marks: list[Mark], points: int) -> dict[str, Any]:
    best = set(front(marks))
    return {
        "problem": problem.name,
        "objective_name": problem.objective,
        "time_unit": problem.time_unit,
        "memory_unit": problem.memory_unit,
        "points": points,
        "results": [result.to_dict() for result in found],
        "marks": [
            {
                "schedule": mark.name,
                "placement": mark.placement,
                "microbatches": mark.microbatches,
                "memory": to_json(mark.memory),
                "time_per_microbatch": to_json(mark.time),
                "solved": mark.solved,
                "front": mark in best,
            }
            for mark in marks
        ],
    }


def _exit_code(found: list[Result], points: int) -> int:
    if any(result.objective is not None for result in found):
        return SOLVED
    if len(found) < points:
        return INTERRUPTED
    return INFEASIBLE if all(r.status == "infeasible" for r in found) else NOTHING_FOUND
