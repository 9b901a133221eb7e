"""Options that say which part of a schedule a picture shows."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import click

from schedopt.cli.options import Command, number
from schedopt.exact import Number, exact
from schedopt.formats.view import View
from schedopt.schedule import Schedule


class ViewOptions(NamedTuple):
    """Values of `view_options`."""

    start: Number | None
    end: Number | None
    devices: tuple[int, ...]

    def of(self, schedule: Schedule) -> View:
        """That part of a schedule.

        Raises
        ------
        InputError
            If there is nothing in it.
        """
        start, end = (None if time is None else exact(time) for time in (self.start, self.end))
        return View.of(schedule, start=start, end=end, devices=self.devices)


_OPTIONS = (
    click.option(
        "--from",
        "start",
        type=number,
        metavar="T",
        help="Begin at T, in the time unit of the problem.",
    ),
    click.option(
        "--to", "end", type=number, metavar="T", help="End at T, in the time unit of the problem."
    ),
    click.option(
        "--device",
        "devices",
        type=int,
        multiple=True,
        metavar="D",
        help="Only device D; can be given several times.",
    ),
)


def view_options(command: Command) -> Command:
    """Give a command the options of `ViewOptions`, as one argument `view`."""

    @functools.wraps(command)
    def gathered(**values: Any) -> Any:
        view = ViewOptions(**{name: values.pop(name) for name in ViewOptions._fields})
        return command(view=view, **values)

    decorated: Command = gathered
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
