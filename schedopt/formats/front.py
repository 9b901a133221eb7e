"""Memory against time: a picture for the terminal, for files, and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from schedopt.exact import text
from schedopt.formats.palette import IDLE_COLOUR, KIND_COLOURS, MEMORY_COLOUR, OVER_CAPACITY_COLOUR
from schedopt.front import Mark, front

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = (".svg", ".png", ".pdf", ".html")
"""Files that `write_picture` can write."""

HEIGHT = 16
"""Lines of a picture in the terminal, without axes."""

_CLASSIC, _SOLVED, _ON_FRONT = "x", "o", "*"
_COLOURS = {
    _CLASSIC: KIND_COLOURS["B"],
    _SOLVED: MEMORY_COLOUR,
    _ON_FRONT: OVER_CAPACITY_COLOUR,
}
_LINES = ("-", "--", ":", "-.")
_SERIES = (MEMORY_COLOUR, *(KIND_COLOURS[kind] for kind in ("W", "BW", "F", "B")), "#000000")


def front_chart(
    marks: Sequence[Mark], *, unit: str, memory_unit: str, width: int = 100, colour: bool = True
) -> Text:
    """Time per microbatch over peak memory, one picture for each number of microbatches.

    Parameters
    ----------
    marks
        Of schedules; those on the front are marked, whether solved or classic.
    unit, memory_unit
        Of the problem.
    width
        Characters per line.
    colour
        Whether marks have colours; the characters are the same.
    """
    result = Text(no_wrap=True)
    for count in sorted({mark.microbatches for mark in marks}):
        chosen = [mark for mark in marks if mark.microbatches == count]
        _append_chart(result, chosen, f"{count} microbatches, {unit}", memory_unit, width, colour)
    result.append(
        f"{_SOLVED} solved   {_CLASSIC} classic   {_ON_FRONT} on the front: nothing needs as "
        "little memory and time\n"
    )
    return result


def _append_chart(
    result: Text, marks: Sequence[Mark], title: str, memory_unit: str, width: int, colour: bool
) -> None:
    lowest, highest = _span([mark.time for mark in marks])
    least, most = _span([mark.memory for mark in marks])
    labels = [text(highest, 2), text(lowest, 2)]
    margin = max(map(len, labels)) + 1
    columns = max(width - margin - 2, 10)
    cells: dict[tuple[int, int], str] = {}
    best = set(front(marks))
    for mark in sorted(marks, key=lambda mark: (mark in best, mark.solved)):
        column = round((mark.memory - least) / (most - least) * (columns - 1))
        row = round((highest - mark.time) / (highest - lowest) * (HEIGHT - 1))
        shape = _ON_FRONT if mark in best else _SOLVED if mark.solved else _CLASSIC
        cells[row, column] = shape
    result.append(f"time per microbatch, {title}\n")
    for row in range(HEIGHT):
        label = labels[0] if row == 0 else labels[1] if row == HEIGHT - 1 else ""
        result.append(f"{label:>{margin}}|")
        for column in range(columns):
            shape = cells.get((row, column), " ")
            result.append(shape, _COLOURS.get(shape, "") if colour else "")
        result.append("\n")
    result.append(" " * margin + "+" + "-" * columns + "\n")
    low, high = text(least, 2), text(most, 2)
    middle = f"peak memory, {memory_unit}"
    line = low + middle.center(max(columns - len(low) - len(high), len(middle) + 2)) + high
    result.append(" " * (margin + 1) + line + "\n\n")


def _span(values: Sequence[Fraction]) -> tuple[Fraction, Fraction]:
    """Lowest and highest of some values, never the same."""
    low, high = min(values), max(values)
    return (low, high) if low < high else (low, low + 1)


def front_table(marks: Sequence[Mark]) -> Table:
    """The marks as a table, those on the front in bold and with a star."""
    best = set(front(marks))
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), caption_justify="left")
    for name in ("microbatches", "peak memory", "time per microbatch"):
        table.add_column(name, justify="right")
    for name in ("schedule", "placement", "front"):
        table.add_column(name)
    for mark in sorted(marks, key=lambda mark: (mark.microbatches, mark.memory, mark.time)):
        table.add_row(
            str(mark.microbatches),
            text(mark.memory, 3),
            text(mark.time, 3),
            Text(mark.name),
            Text(mark.placement),
            _ON_FRONT if mark in best else "",
            style="bold" if mark in best else "",
        )
    return table


def result_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Every point of a grid, as `schedopt.sweep.Result.to_dict` gives it."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), caption_justify="left")
    table.add_column("placement")
    for name in ("microbatches", "capacity", "peak memory", "objective", "bound"):
        table.add_column(name, justify="right")
    table.add_column("status")
    for row in rows:
        numbers = (row["memory"], row["objective"], row["bound"])
        table.add_row(
            row["placement"],
            str(row["microbatches"]),
            row["capacity"],
            *("" if number is None else text(Fraction(number), 3) for number in numbers),
            row["status"],
        )
    return table


def write_picture(
    path: str | Path, marks: Sequence[Mark], *, title: str, unit: str, memory_unit: str
) -> None:
    """Draw memory against time into a file, by the ending of its name (`ENDINGS`).

    Parameters
    ----------
    path
        The file; an .html file has the picture within itself.
    marks
        Of schedules; those on the front are joined by steps, one line for each number of
        microbatches. Colours tell these numbers apart, or the placements if there is only one.
    title, unit, memory_unit
        Of the problem.

    Raises
    ------
    ImportError
        If matplotlib is not installed (the extra ``plot``).
    OSError
        If the file can not be written.
    ValueError
        If the name has another ending.
    """
    from io import StringIO

    from matplotlib import rc_context

    path = Path(path)
    if path.suffix not in ENDINGS:
        raise ValueError(f"{str(path)!r} must end in one of {', '.join(ENDINGS)}")
    settings: dict[Any, Any] = {"svg.hashsalt": "schedopt", "svg.fonttype": "none"}
    with rc_context(settings):
        figure = _figure(marks, title, unit, memory_unit)
        if path.suffix != ".html":
            metadata = {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(path, dpi=150, metadata=metadata)
            return
        buffer = StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    picture = buffer.getvalue()
    picture = picture[picture.index("<svg") :]
    head = (
        f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{_safe(title)}</title>'
    )
    path.write_text(f"{head}\n<body>\n{picture}</body>\n</html>\n", encoding="utf-8")


def _safe(title: str) -> str:
    return title.replace("&", "&amp;").replace("<", "&lt;")


def _figure(marks: Sequence[Mark], title: str, unit: str, memory_unit: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.add_subplot()
    numbers = sorted({mark.microbatches for mark in marks})
    for count, line in zip(numbers, cycle(_LINES), strict=False):
        best = front([mark for mark in marks if mark.microbatches == count])
        label = f"front, {count} microbatches"
        axes.step(*_coordinates(best), line, where="post", color=IDLE_COLOUR, label=label)
    series: dict[str, list[Mark]] = {}
    for mark in marks:
        what = f"{mark.microbatches} microbatches" if len(numbers) > 1 else mark.placement
        series.setdefault(what, []).append(mark)
    for (what, chosen), colour in zip(series.items(), cycle(_SERIES), strict=False):
        for solved, shape, size, layer in ((True, "o", 45, 3), (False, "x", 30, 4)):
            of_kind = [mark for mark in chosen if mark.solved == solved]
            if of_kind:
                label = f"{'solved' if solved else 'classic'}, {what}"
                x, y = _coordinates(of_kind)
                axes.scatter(x, y, size, colour, marker=shape, label=label, zorder=layer)
    names: dict[tuple[float, float], list[str]] = {}
    for mark in marks:
        if not mark.solved:
            names.setdefault((float(mark.memory), float(mark.time)), []).append(mark.name)
    for at, there in names.items():
        label = ", ".join(dict.fromkeys(there))
        axes.annotate(label, at, textcoords="offset points", xytext=(6, 5), fontsize=7)
    axes.set(
        xlabel=f"peak memory of the fullest device, {memory_unit}",
        ylabel=f"time per microbatch, {unit}",
        title=title,
    )
    axes.grid(alpha=0.3)
    axes.margins(x=0.09)
    axes.legend(fontsize=8)
    return figure


def _coordinates(marks: Sequence[Mark]) -> tuple[list[float], list[float]]:
    return [float(mark.memory) for mark in marks], [float(mark.time) for mark in marks]
