"""`schedopt problems`."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from schedopt.analysis import placement_text
from schedopt.bundled import bundled_names, load_bundled
from schedopt.cli.inputs import bundled_problem
from schedopt.cli.options import json_option
from schedopt.cli.output import print_json, show
from schedopt.exact import text
from schedopt.problem import Problem


def _complete(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [CompletionItem(name) for name in bundled_names() if name.startswith(incomplete)]


@click.command("problems")
@click.argument("name", required=False, metavar="[NAME]", shell_complete=_complete)
@json_option
def command(*, name: str | None, as_json: bool) -> int:
    """List the bundled problems, or print one as a problem file.

    \b
    Examples:
      schedopt problems
      schedopt problems zb-1.5b-p8-m24 > problem.json
    """
    if name is not None:
        print_json(bundled_problem(name).to_dict())
        return 0
    problems = {name: load_bundled(name) for name in bundled_names()}
    if as_json:
        print_json([_facts(name, problem) for name, problem in problems.items()])
        return 0
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True)
    for column in ("devices", "stages", "microbatches"):
        table.add_column(column, justify="right")
    table.add_column("placement", no_wrap=True)
    table.add_column("capacity", justify="right", no_wrap=True)
    for name, problem in problems.items():
        table.add_row(
            name,
            str(problem.devices),
            str(problem.stage_count),
            str(problem.microbatches),
            placement_text(problem),
            Text(_capacity(problem)),
        )
    show(table, "`schedopt problems NAME` prints one with its source.")
    return 0


def _facts(name: str, problem: Problem) -> dict[str, Any]:
    return {
        "name": name,
        "devices": problem.devices,
        "stages": problem.stage_count,
        "microbatches": problem.microbatches,
        "placement": placement_text(problem),
        "objective": problem.objective,
        "source": problem.source,
    }


def _capacity(problem: Problem) -> str:
    limits = sorted({capacity for capacity in problem.capacity if capacity is not None})
    if not limits:
        return "unlimited"
    shown = dict.fromkeys(text(limit, 3) for limit in (limits[0], limits[-1]))
    return f"{' to '.join(shown)} {problem.memory_unit}"
