"""Reading what a command is given: files, bundled problems, places to write to."""

from __future__ import annotations

import os
from pathlib import Path

import click

from schedopt.bundled import UnknownProblemError, bundled_names, load_bundled
from schedopt.problem import Problem
from schedopt.reading import read_data
from schedopt.schedule import FORMAT, Schedule


def load(argument: str) -> Problem | Schedule:
    """What a file holds, or a bundled problem by its name.

    Raises
    ------
    ProblemError, ScheduleError
        If the file can not be read, or is not valid.
    click.BadParameter
        If there is no such file or bundled problem.
    """
    looks_like_file = os.path.lexists(argument) or Path(argument).suffix in (".json", ".toml")
    if not Path(argument).is_file() and (argument in bundled_names() or not looks_like_file):
        return bundled_problem(argument)
    data = read_data(argument)
    kind = data.get("format") if isinstance(data, dict) else None
    if isinstance(kind, str) and kind.split("/")[0] == FORMAT.split("/")[0]:
        return Schedule.from_dict(data, argument)
    return Problem.from_dict(data, argument)


def load_problem(argument: str) -> Problem:
    """A problem: from a file, bundled, or the one that a schedule is for.

    Raises
    ------
    ProblemError, ScheduleError, click.BadParameter
        As `load`.
    """
    item = load(argument)
    return item.problem if isinstance(item, Schedule) else item


def load_schedule(argument: str) -> Schedule:
    """A schedule from a file.

    Raises
    ------
    ProblemError, ScheduleError, click.BadParameter
        As `load`.
    click.UsageError
        If it is a problem.
    """
    item = load(argument)
    if isinstance(item, Schedule):
        return item
    raise click.UsageError(
        f"{argument!r} is a problem, not a schedule; solve it first: "
        f"schedopt solve {argument} -o schedule.json"
    )


def bundled_problem(name: str) -> Problem:
    """A bundled problem.

    Raises
    ------
    click.BadParameter
        If there is none of that name; suggests close ones.
    """
    try:
        return load_bundled(name)
    except UnknownProblemError as error:
        hint = f"did you mean {' or '.join(error.close)}? " if error.close else ""
    reason = f"is no file and no bundled problem; {hint}`schedopt problems` lists the bundled ones"
    raise click.BadParameter(f"{name!r} {reason}", param_hint="PROBLEM")


def check_output(path: str, *, option: str = "'--output' / '-o'") -> None:
    """Find out before a long search that its result could not be written.

    Parameters
    ----------
    path
        Where to write to.
    option
        That gave it, as it is named in the error.

    Raises
    ------
    click.BadParameter
        If `path` is a directory, or can not be written.
    """
    target = Path(path)
    folder = target.parent
    reason = ""
    if target.is_dir():
        reason = "is a directory; give the name of a file"
    elif not folder.is_dir():
        reason = f"can not be written, there is no directory {str(folder)!r}"
    elif not os.access(target if target.exists() else folder, os.W_OK):
        reason = "can not be written, permission denied"
    if reason:
        raise click.BadParameter(f"{path!r} {reason}", param_hint=option)
