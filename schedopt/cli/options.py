"""Options that several commands share."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import click

from schedopt.errors import ProblemError
from schedopt.exact import Number
from schedopt.problem import Problem
from schedopt.variants import moved, with_recompute_mode

Command = Callable[..., Any]

TIME_LIMIT_EACH = 10.0
"""Seconds for each solve of a command that solves many problems."""


def number(value: str) -> Number:
    """A finite number of at least 0, kept as it is written: 4 stays an int.

    Raises
    ------
    click.BadParameter
        For any other text.
    """
    result: Number
    try:
        result = int(value)
    except ValueError:
        try:
            result = float(value)
        except ValueError:
            result = math.nan
    if not 0 <= result < math.inf:
        raise click.BadParameter(f"{value!r} is not a number of at least 0")
    return result


def size(value: str) -> int:
    """A number of bytes: 4GiB, 512 MiB, 2e9, 1.5GB.

    Raises
    ------
    click.BadParameter
        For any other text, and for less than a byte.
    """
    match = _SIZE.fullmatch(value.strip().lower())
    scale = _UNITS.get(match[2]) if match else None
    if match is None or scale is None or not 1 <= float(match[1]) * scale < math.inf:
        raise click.BadParameter(f"{value!r} is not a size, such as 4GiB, 512MiB or 2000000000")
    return int(float(match[1]) * scale)


_SIZE = re.compile(r"(\d+\.?\d*(?:e\d+)?)\s*([a-z]*)", re.ASCII)
_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)}
_UNITS |= {f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
quiet_option = click.option(
    "--quiet", "-q", is_flag=True, help="No progress, warnings or notes on stderr."
)


class SolveOptions(NamedTuple):
    """Values of `solve_options`."""

    objective: str | None
    capacity: Number | None
    microbatches: int | None
    recompute: str | None
    moves: tuple[tuple[str, int], ...] | None
    time_limit: float | None
    workers: int | None
    seed: int
    deterministic_limit: float | None
    index_order: bool
    no_cache: bool
    memory_limit: int | None

    def change(self, problem: Problem) -> Problem:
        """The problem with the fields that options replace.

        Raises
        ------
        ProblemError
            If it is not valid any more.
        """
        given = (("objective", self.objective), ("microbatches", self.microbatches))
        changes = {name: value for name, value in given if value is not None}
        try:
            problem = problem.replace(**changes) if changes else problem
            for name, stage in self.moves or ():
                problem = _changed("--move", partial(moved, problem, name, stage))
            if self.recompute is not None:
                change = partial(with_recompute_mode, problem, self.recompute)
                problem = _changed("--recompute", change)
            return problem if self.capacity is None else problem.with_capacity(self.capacity)
        except ProblemError as error:
            raise ProblemError(error.faults, "problem with the options given") from None


def _changed(option: str, change: Callable[[], Problem]) -> Problem:
    try:
        return change()
    except ProblemError:
        raise
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def move(value: str) -> tuple[str, int]:
    """An extra and the stage that it is moved to: NAME=STAGE.

    Raises
    ------
    click.BadParameter
        For any other text.
    """
    name, separator, stage = value.rpartition("=")
    if not separator or not name or not re.fullmatch(r"\d{1,9}", stage, re.ASCII):
        raise click.BadParameter(f"{value!r} is not NAME=STAGE, such as loss=3")
    return name, int(stage)


objective_option = click.option(
    "--objective",
    type=click.Choice(["makespan", "period"]),
    help="What to minimise, instead of the problem's own objective.",
)
_PART_OPTIONS = (
    click.option(
        "--recompute",
        type=click.Choice(["never", "always", "decide"]),
        help="What is recomputed, instead of the problem's own mode; decide leaves it to the "
        "solver, for each microbatch.",
    ),
    click.option(
        "--move",
        "moves",
        type=move,
        multiple=True,
        metavar="NAME=STAGE",
        help="Move an extra of the problem (embedding, loss, ...) to a stage; can be given several "
        "times.",
    ),
)
_PROBLEM_OPTIONS = (
    objective_option,
    click.option(
        "--capacity",
        type=number,
        metavar="N",
        help="Memory capacity of every device, instead of the problem's own.",
    ),
    click.option(
        "--microbatches",
        type=click.IntRange(min=1),
        metavar="N",
        help="Number of microbatches, instead of the problem's own.",
    ),
    *_PART_OPTIONS,
)
_TIME_LIMIT_OPTION = click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Stop after S seconds with the best schedule found.  [default: 60, or none with "
    "--deterministic-limit]",
)
_TIME_LIMIT_EACH_OPTION = click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help=f"Stop each solve after S seconds.  [default: {TIME_LIMIT_EACH:g}, or none with "
    "--deterministic-limit]",
)
_SEARCH_OPTIONS = (
    click.option(
        "--workers",
        type=click.IntRange(min=1),
        metavar="N",
        help="Threads of the search; one per processor when omitted.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(min=0, max=2**31 - 1),
        default=0,
        show_default=True,
        metavar="N",
        help="Seed of the search.",
    ),
    click.option(
        "--deterministic-limit",
        type=click.FloatRange(min=0, min_open=True),
        metavar="X",
        help="Limit the work of the search instead of its time; with --workers 1 every run "
        "then gives the same result.",
    ),
    click.option(
        "--index-order",
        is_flag=True,
        help="Keep microbatches of unequal length in the order of their index: a smaller search "
        "that can lose the optimum.",
    ),
    click.option(
        "--no-cache",
        is_flag=True,
        help="Neither use nor keep what earlier solves have found; always so with "
        "--deterministic-limit.",
    ),
    click.option(
        "--memory-limit",
        type=size,
        metavar="SIZE",
        help="What the search should take at most, such as 4GiB; 3/4 of the machine's memory when "
        "omitted.",
    ),
)


def solve_options(command: Command) -> Command:
    """Give a command the options of `SolveOptions`, as one argument `options`."""
    return _gathered(command, (*_PROBLEM_OPTIONS, _TIME_LIMIT_OPTION, *_SEARCH_OPTIONS))


def many_solves_options(command: Command) -> Command:
    """The same for a command that solves many problems, and changes them itself.

    The fields of `SolveOptions` that replace fields of the problem are None, but for the
    objective if it has `objective_option` too.
    """

    @functools.wraps(command)
    def limited(*, options: SolveOptions, **values: Any) -> Any:
        if options.time_limit is None and options.deterministic_limit is None:
            options = options._replace(time_limit=TIME_LIMIT_EACH)
        return command(options=options, **values)

    return _gathered(limited, (_TIME_LIMIT_EACH_OPTION, *_SEARCH_OPTIONS))


def part_options(command: Command) -> Command:
    """The options `--recompute` and `--move`, for a command with `many_solves_options`."""
    for option in reversed(_PART_OPTIONS):
        command = option(command)
    return command


def _gathered(command: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    @functools.wraps(command)
    def gathered(**values: Any) -> Any:
        found = SolveOptions(**{name: values.pop(name, None) for name in SolveOptions._fields})
        return command(options=found, **values)

    decorated: Command = gathered
    for option in reversed(options):
        decorated = option(decorated)
    return decorated
