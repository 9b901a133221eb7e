"""Pictures of a schedule as SVG, PNG or PDF: ops, transfers, and the memory of each device.

The same schedule and options give the same bytes. Needs matplotlib, the extra `plot`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from schedopt.exact import text
from schedopt.formats.headings import achieved, title
from schedopt.formats.palette import (
    CAPACITY_COLOUR,
    MEMORY_COLOUR,
    OVER_CAPACITY_COLOUR,
    TRANSFER_COLOUR,
    shade,
)
from schedopt.formats.plot_rows import DASHES, draw_memory, draw_ops, draw_transfers, transfers_in
from schedopt.formats.rows import rows_of
from schedopt.formats.view import View
from schedopt.memory import MemoryCurve, memory_curves
from schedopt.op import KINDS
from schedopt.schedule import Schedule

SUFFIXES = (".svg", ".png", ".pdf")
"""Endings of the files that can be written."""

LEGEND_COLUMNS = 4
"""Most columns of the legend; with few kinds of op it has two lines."""

MOST_TRANSFERS = 600
"""Transfers that are drawn without being asked for."""

_DETERMINISTIC: dict[Any, Any] = {
    "svg.hashsalt": "schedopt",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
}
_METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None},
}
_QUIET = "#555555"
_POINTS = 72  # per inch


def plot(
    schedule: Schedule,
    path: str | Path,
    *,
    view: View | None = None,
    width: float = 12,
    height: float | None = None,
    dpi: int = 150,
    transfers: bool | None = None,
) -> None:
    """Draw a schedule into a file.

    Parameters
    ----------
    schedule
        Any schedule, also one that breaks rules.
    path
        File to write, ending in one of `SUFFIXES`.
    view
        What to show of it, all of it when omitted.
    width, height
        Size in inches; without a height it follows from the number of devices.
    dpi
        Pixels per inch.
    transfers
        Draw a line for each transfer between devices; when omitted, if there are not too many.

    Raises
    ------
    ValueError
        If the file has another ending.
    OSError
        If it can not be written.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{str(path)!r} must end in one of {', '.join(SUFFIXES)}")
    with rc_context(_DETERMINISTIC):
        figure = draw(schedule, view=view, width=width, height=height, dpi=dpi, transfers=transfers)
        figure.savefig(path, dpi=dpi, metadata=_METADATA[suffix])


def draw(
    schedule: Schedule,
    *,
    view: View | None = None,
    width: float = 12,
    height: float | None = None,
    dpi: int = 150,
    transfers: bool | None = None,
) -> Figure:
    """The picture as a figure; parameters as for `plot`."""
    view = view or View.of(schedule)
    curves = memory_curves(schedule)
    most = None if transfers else MOST_TRANSFERS
    lines = () if transfers is False else transfers_in(schedule, view, most=most)
    rows = [row.label for row in rows_of(schedule, view.devices)]
    entries = list(_legend(schedule, view, curves, transfers=bool(lines)))
    columns = min(-(-len(entries) // 2), LEGEND_COLUMNS)
    frame = _Frame.of(
        len(rows), len(view.devices), width, height, legend=-(-len(entries) // columns)
    )
    figure = Figure(figsize=(frame.width, frame.height), dpi=dpi, facecolor="white")
    left = frame.LEFT / frame.width
    figure.text(left, 1 - 0.32 / frame.height, title(schedule), weight="bold", size=12)
    part = view.part_of(schedule)
    shown = f"; shown: {part}, with its idle time and peak" if part else ""
    figure.text(left, 1 - 0.56 / frame.height, achieved(schedule) + shown, size=9, color=_QUIET)
    ops = figure.add_axes(frame.upper)
    memory = figure.add_axes(frame.lower, sharex=ops)
    _style(ops, schedule, view, rows, frame.row)
    _style(memory, schedule, view, list(map(str, view.devices)), frame.memory_row)
    ops.tick_params(labelbottom=False)
    memory.set_xlabel(f"time in {schedule.problem.time_unit}", size=8, color=_QUIET)
    _heading(ops, "ops", "idle")
    _heading(memory, f"memory in {schedule.problem.memory_unit}", "peak")
    draw_ops(ops, schedule, view, row_points=frame.row * _POINTS)
    draw_transfers(ops, lines)
    draw_memory(memory, schedule, view, curves)
    figure.legend(
        handles=entries,
        loc="lower left",
        bbox_to_anchor=(left, 0.1 / frame.height),
        ncols=columns,
        fontsize=8,
        frameon=False,
        borderpad=0,
        borderaxespad=0,
        handlelength=1.4,
        columnspacing=1.6,
    )
    return figure


@dataclass(frozen=True)
class _Frame:
    """Where things stand; all in inches."""

    width: float
    height: float
    row: float
    memory_row: float
    rows: int
    devices: int

    LEFT, RIGHT, TOP, BETWEEN, BOTTOM, LEGEND = 0.62, 0.72, 0.92, 0.36, 0.94, 0.19

    @classmethod
    def of(
        cls, rows: int, devices: int, width: float, height: float | None, *, legend: int
    ) -> _Frame:
        margins = cls.TOP + cls.BETWEEN + cls.BOTTOM + max(0, legend - 2) * cls.LEGEND
        if height is None:
            row = 0.3 if rows <= 8 else 0.24 if rows <= 16 else 0.18
        else:
            row = max(height - margins, 0.5) / (rows + 0.75 * devices)
        memory_row = 0.75 * row
        whole = margins + rows * row + devices * memory_row
        return cls(width, whole, row, memory_row, rows, devices)

    @property
    def upper(self) -> tuple[float, float, float, float]:
        """Rectangle of the ops, as a share of the figure."""
        return self._rectangle(self.TOP, self.rows * self.row)

    @property
    def lower(self) -> tuple[float, float, float, float]:
        """Rectangle of the memory."""
        top = self.TOP + self.rows * self.row + self.BETWEEN
        return self._rectangle(top, self.devices * self.memory_row)

    def _rectangle(self, top: float, height: float) -> tuple[float, float, float, float]:
        width = self.width - self.LEFT - self.RIGHT
        bottom = self.height - top - height
        return (
            self.LEFT / self.width,
            bottom / self.height,
            width / self.width,
            height / self.height,
        )


def _style(axes: Axes, schedule: Schedule, view: View, labels: Sequence[str], row: float) -> None:
    """Rows with their labels from the top down, on the time axis."""
    count = len(labels)
    axes.set_xlim(float(view.start), float(view.end))
    axes.set_ylim(count, 0)
    size = min(8.0, row * _POINTS * 0.6)
    axes.set_yticks([row + 0.5 for row in range(count)], labels, size=size)
    axes.set_ylabel("device", size=8, color=_QUIET)
    axes.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text(float(value))))
    axes.tick_params(length=0, labelsize=8, colors=_QUIET)
    axes.tick_params(axis="y", labelsize=size, pad=4)
    axes.grid(axis="x", color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)


def _heading(axes: Axes, left: str, right: str) -> None:
    for place, words, side in ((0.0, left, "left"), (1.0, right, "left")):
        axes.annotate(
            words,
            (place, 1),
            (0 if place == 0 else 5, 4),
            xycoords="axes fraction",
            textcoords="offset points",
            ha=side,
            va="bottom",
            size=8,
            color=_QUIET,
            weight="bold",
        )


def _legend(
    schedule: Schedule, view: View, curves: tuple[MemoryCurve, ...], *, transfers: bool
) -> Iterator[Artist]:
    problem = schedule.problem
    rows = rows_of(schedule, view.devices)
    kinds = {timed.op.kind for row in rows for timed in row.timed_ops}
    chunks = max(map(len, problem.stages_on))
    for kind in KINDS:
        if kind in kinds:
            yield Patch(color=shade(kind, chunks=chunks).background, label=f"{kind}  {KINDS[kind]}")
    if chunks > 1:
        dark = shade("F", chunk=chunks - 1, chunks=chunks).background
        yield Patch(color=dark, label="darker: later stage of the device")
    if transfers:
        yield Line2D([], [], color=TRANSFER_COLOUR, linewidth=0.8, label="transfer")
    yield Patch(facecolor=MEMORY_COLOUR, alpha=0.55, linewidth=0, label="memory in use")
    capacities = {device: problem.capacity[device] for device in view.devices}
    if any(capacity is not None for capacity in capacities.values()):
        yield Line2D([], [], color=CAPACITY_COLOUR, linewidth=0.8, dashes=DASHES, label="capacity")
    peaks = {device: curves[device].peak_in(view.start, view.end) for device in view.devices}
    if any(c is not None and peaks[device] > c for device, c in capacities.items()):
        yield Patch(color=OVER_CAPACITY_COLOUR, label="over the capacity")
