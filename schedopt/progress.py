"""Live progress on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from schedopt.exact import text
from schedopt.solvers.solution import Progress

PLAIN_INTERVAL = 5.0
"""Least number of seconds between two lines where there is no terminal."""


@contextmanager
def steps(console: Console, activity: str) -> Iterator[Callable[[str], None]]:
    """Show an activity while it runs; gives a function to be told the name of each step.

    On a terminal it is one live line; elsewhere the activity alone is printed.
    """
    if not console.is_terminal:
        console.print(activity)
        yield lambda name: None
        return
    with console.status(activity) as status:
        yield lambda name: status.update(f"{activity}: {name}")


class ProgressDisplay:
    """Shows the state of a search: one line that stays up to date, or a line now and then.

    Use it as a context manager and as the `progress` callback of `schedopt.solve`.

    Parameters
    ----------
    console
        Where to show it: on a terminal as one live line, else as plain lines.
    unit
        Time unit of the problem.
    """

    def __init__(self, console: Console, unit: str) -> None:
        self._console = console
        self._unit = unit
        self._latest: Progress | None = None
        self._begin = time.monotonic()
        self._last_line = float("-inf")
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(
                console=console, get_renderable=self._line, refresh_per_second=4, transient=True
            )

    def __enter__(self) -> Self:
        self._begin = time.monotonic()
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: Progress) -> None:
        """Take the latest state."""
        self._latest = progress
        now = time.monotonic()
        if self._live is None and now >= self._last_line + PLAIN_INTERVAL:
            self._last_line = now
            self._console.print(self._line(), soft_wrap=True)

    def _line(self) -> Text:
        latest = self._latest
        elapsed = time.monotonic() - self._begin
        parts = [f"{elapsed:6.1f} s"]
        if latest is not None:
            for name, value in (("best", latest.objective), ("bound", latest.bound)):
                shown = "none yet" if value is None else f"{text(value, 3)} {self._unit}"
                parts.append(f"{name} {shown}")
            parts.append("gap " + ("unknown" if latest.gap is None else f"{latest.gap:.2%}"))
            parts.append(latest.source)
        return Text("   ".join(parts))
