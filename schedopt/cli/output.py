"""Writing: data on stdout, messages on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.text import Text

from schedopt.check import Violation
from schedopt.problem import Problem
from schedopt.schedule import Schedule

PIPE_WIDTH = 100
"""Characters per line where the output is no terminal."""


def print_json(data: Any) -> None:
    """Print JSON on stdout."""
    _write(json.dumps(data, indent=1))


def show(*parts: RenderableType) -> None:
    """Print text, tables and pictures on stdout, one below the other.

    On a terminal sentences are wrapped; nothing else is, and nothing is squeezed.
    """
    console = output_console()
    terminal, unlimited = console.width, console.options.update(max_width=100_000)
    with console.capture() as capture:
        for part in parts:
            item = Text(part) if isinstance(part, str) else part
            console.width = max(terminal, console.measure(item, options=unlimited).maximum)
            if isinstance(part, str) and console.is_terminal:
                console.width = terminal
            console.print(item, crop=False)
    lines = capture.get().splitlines()
    lines = lines if console.is_terminal else [line.rstrip() for line in lines]
    _write("\n".join(lines))


def output_console() -> Console:
    """Console on stdout: colours only on a terminal and without NO_COLOR."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_WIDTH
    return console


def picture_style(width: int | None) -> dict[str, Any]:
    """Options of the pictures in `schedopt.formats.text` that suit stdout."""
    console = output_console()
    return {
        "width": width or console.width,
        "colour": console.color_system is not None and not console.no_color,
        "ascii_only": not console.encoding.lower().startswith("utf"),
    }


def message_console() -> Console:
    """Console on stderr."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def message(text: str) -> None:
    """Print on stderr."""
    click.echo(text, err=True)


def warn(problem: Problem, *, quiet: bool) -> None:
    """Print the warnings of a problem on stderr."""
    for warning in () if quiet else problem.warnings:
        message(f"warning: {warning}")


def warn_of_violations(schedule: Schedule, violations: Sequence[Violation], *, quiet: bool) -> None:
    """Say on stderr that what is drawn breaks rules of its problem."""
    if violations and not quiet:
        name = f"{schedule.name}: " if schedule.name else ""
        message(f"warning: {name}breaks rules of its problem, {len(violations)} times; first:")
        message(f"  {violations[0]}")
        message("`schedopt check` lists all of them for a schedule file")


def accept_any_encoding() -> None:
    """Let characters that stdout or stderr can not encode become "?" instead of an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def forget_stdout() -> None:
    """Send what is still to be written to nowhere, so that it can not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _write(text: str) -> None:
    """Write on stdout; a reader that has left (`| head`) has what it wanted."""
    try:
        click.echo(text, color=True)  # whoever made the text has decided about colours
    except BrokenPipeError:
        forget_stdout()
