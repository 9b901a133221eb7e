"""The problems that come with the package: published measurements and configurations."""

from __future__ import annotations

import difflib
import re
from importlib import resources
from pathlib import Path

from schedopt.problem import Problem

_ENDINGS = (".toml", ".json")


class UnknownProblemError(KeyError):
    """There is no bundled problem of this name.

    Attributes
    ----------
    name
        What was asked for.
    close
        Names of bundled problems that look like it, the closest first.
    """

    def __init__(self, name: str, close: tuple[str, ...]) -> None:
        self.name = name
        self.close = close
        super().__init__(name)

    def __str__(self) -> str:
        hint = f"did you mean {' or '.join(self.close)}?" if self.close else "see bundled_names()"
        return f"no bundled problem is called {self.name!r}; {hint}"


def bundled_names() -> tuple[str, ...]:
    """Names of the bundled problems, numbers in them in the order of their value.

    Examples
    --------
    >>> bundled_names()[-1]
    'zb-profile-p8-m32'
    """
    names = [path.stem for path in _folder().iterdir() if path.suffix in _ENDINGS]
    return tuple(sorted(names, key=_by_numbers))


def bundled_path(name: str) -> Path:
    """File of a bundled problem.

    Raises
    ------
    UnknownProblemError
        A `KeyError`, with the names that are close to it.
    """
    for ending in _ENDINGS:
        path = _folder() / f"{name}{ending}"
        if name in bundled_names() and path.is_file():
            return path
    raise UnknownProblemError(name, tuple(difflib.get_close_matches(name, bundled_names(), 3)))


def load_bundled(name: str) -> Problem:
    """A bundled problem.

    Raises
    ------
    UnknownProblemError
        A `KeyError`, with the names that are close to it.

    Examples
    --------
    >>> load_bundled("zb-1.5b-p8-m24").microbatches
    24
    """
    return Problem.load(bundled_path(name))


def _folder() -> Path:
    return Path(str(resources.files("schedopt") / "data" / "problems"))


def _by_numbers(name: str) -> list[tuple[float, str]]:
    parts = re.split(r"(\d+(?:\.\d+)?)", name)
    return [(float(part), "") if index % 2 else (-1.0, part) for index, part in enumerate(parts)]
