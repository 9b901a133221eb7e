from __future__ import annotations

import io
import re
from fractions import Fraction

import pytest
from rich.console import Console

from schedopt import progress
from schedopt.progress import ProgressDisplay, steps
from schedopt.solvers.solution import Progress

NEWS = Progress(1.0, Fraction(10), Fraction(8), 0.2, "portfolio")


def test_without_a_terminal_it_is_a_line_with_best_bound_gap_and_source() -> None:
    stream = io.StringIO()
    with ProgressDisplay(Console(file=stream), "us") as display:
        display(NEWS)
    line = r"^ +0\.\d s   best 10 us   bound 8 us   gap 20\.00%   portfolio\n$"
    assert re.match(line, stream.getvalue())


def test_lines_keep_their_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    stream = io.StringIO()
    with ProgressDisplay(Console(file=stream), "us") as display:
        for clock[0] in (0.0, 1.0, 4.9, 5.0, 5.1, 9.0, 10.0):
            display(NEWS)
    assert [line.split(" s ")[0].strip() for line in stream.getvalue().splitlines()] == [
        "0.0",
        "5.0",
        "10.0",
    ]


def test_what_is_not_known_yet_is_said() -> None:
    stream = io.StringIO()
    with ProgressDisplay(Console(file=stream), "us") as display:
        display(Progress(0.0, None, Fraction(8), None, "bounds"))
    assert "best none yet   bound 8 us   gap unknown   bounds" in stream.getvalue()


def test_on_a_terminal_it_is_one_line_that_disappears() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120)
    with ProgressDisplay(console, "us") as display:
        display(NEWS)
    shown = stream.getvalue()
    assert "best 10 us" in shown
    assert shown.endswith("\x1b[2K")  # the line is erased


def test_steps_are_told_on_a_terminal_and_the_activity_elsewhere() -> None:
    shown = {}
    for terminal in (False, True):
        stream = io.StringIO()
        console = Console(file=stream, force_terminal=terminal, width=80)
        with steps(console, "timing") as step:
            step("1F1B")
            console.print("between")
        shown[terminal] = stream.getvalue()
    assert shown[False] == "timing\nbetween\n"
    assert "timing: 1F1B" in shown[True]
