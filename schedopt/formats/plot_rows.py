"""The rows of a plot: ops, transfers and memory of each device; a row is 1 high, device by device.

With few ops each is a box with its microbatch where that fits. With many a row is an image, and
a pixel the mean colour of what happens in its span of time, so that no op and no idle time is
lost or invented.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection

from schedopt.exact import text
from schedopt.formats.palette import (
    CAPACITY_COLOUR,
    MEMORY_COLOUR,
    OVER_CAPACITY_COLOUR,
    TRANSFER_COLOUR,
    Shade,
    shade,
)
from schedopt.formats.rows import rows_of
from schedopt.formats.view import View
from schedopt.memory import MemoryCurve
from schedopt.op import Op
from schedopt.schedule import Schedule, TimedOp

DASHES = (5, 3)
"""Of the line of the capacity."""

MOST_BOXES = 4000
"""Ops that are drawn one by one."""

_MARGIN = 0.08  # of a row, above and below
_DIGIT = 0.64  # width of a digit, in font sizes
_BACKGROUND = (1.0, 1.0, 1.0)

Line = tuple[tuple[float, float], tuple[float, float]]
Array = npt.NDArray[np.float64]


class _Box(NamedTuple):
    """An op in a view: times in the unit of the problem, cut off at the ends of the view."""

    row: int
    start: float
    end: float
    microbatch: int
    look: Shade


def draw_ops(axes: Axes, schedule: Schedule, view: View, *, row_points: float) -> None:
    """Ops of each device, and its share of idle time in the view on the right.

    Parameters
    ----------
    axes
        With the view as its limits.
    schedule, view
        What is drawn.
    row_points
        Height of a row in points.
    """
    boxes = list(_boxes(schedule, view))
    if len(boxes) > MOST_BOXES:
        _draw_image(axes, boxes, view, len(rows_of(schedule, view.devices)))
    else:
        _draw_boxes(axes, boxes)
        size = min(7.0, row_points * 0.5)
        _draw_labels(axes, boxes, size, len(str(schedule.problem.microbatches - 1)))
    for row in range(len(rows_of(schedule, view.devices))):
        busy = sum(box.end - box.start for box in boxes if box.row == row)
        idle = max(0.0, 1 - busy / float(view.end - view.start))
        _at_right(axes, row, f"{100 * idle:.1f} %")


def _boxes(schedule: Schedule, view: View) -> Iterator[_Box]:
    problem = schedule.problem
    chunk_of = {s: k for stages in problem.stages_on for k, s in enumerate(stages)}
    chunks = max(map(len, problem.stages_on))
    looks: dict[tuple[str, int, bool], Shade] = {}
    first, last = (float(time / schedule.resolution) for time in (view.start, view.end))
    unit = float(schedule.resolution)
    for row, shown in enumerate(rows_of(schedule, view.devices)):
        for (kind, stage, microbatch), start, end in shown.timed_ops:
            if start >= last or end <= first:
                continue
            key = kind, chunk_of.get(stage, 0), microbatch % 2 == 1
            if key not in looks:
                looks[key] = shade(kind, chunk=key[1], chunks=chunks, odd=key[2])
            span = max(start, first) * unit, min(end, last) * unit
            yield _Box(row, *span, microbatch, looks[key])


def _draw_boxes(axes: Axes, boxes: Sequence[_Box]) -> None:
    points = _points_per_unit(axes)
    corners = [
        [(box.start, top), (box.end, top), (box.end, bottom), (box.start, bottom)]
        for box in boxes
        for top, bottom in [(box.row + _MARGIN, box.row + 1 - _MARGIN)]
    ]
    axes.add_collection(
        PolyCollection(
            corners,
            facecolors=[box.look.background for box in boxes],
            edgecolors="white",
            linewidths=[min(0.6, 0.1 * (box.end - box.start) * points) for box in boxes],
        ),
        autolim=False,
    )


def _draw_labels(axes: Axes, boxes: Sequence[_Box], size: float, digits: int) -> None:
    """Microbatches, on every op with room for the longest one."""
    needed = (digits * _DIGIT * size + 1.5) / _points_per_unit(axes)
    for box in boxes:
        if box.end - box.start >= needed:
            axes.text(
                (box.start + box.end) / 2,
                box.row + 0.52,
                str(box.microbatch),
                size=size,
                color=box.look.text,
                ha="center",
                va="center",
            )


def _draw_image(axes: Axes, boxes: Sequence[_Box], view: View, rows: int) -> None:
    columns = round(_points_per_unit(axes) * float(view.end - view.start) / 72 * axes.figure.dpi)
    edges = np.linspace(float(view.start), float(view.end), columns + 1)
    lines, gap = 11, 1
    image = np.zeros((rows * (lines + 2 * gap), columns, 4))
    for row in range(rows):
        top = row * (lines + 2 * gap) + gap
        own = [box for box in boxes if box.row == row]
        image[top : top + lines, :, :3] = _mean_colours(own, edges)
        image[top : top + lines, :, 3] = 1
    axes.imshow(
        image,
        extent=(float(view.start), float(view.end), rows, 0),
        aspect="auto",
        interpolation="none",
        zorder=2,
    )


def _mean_colours(boxes: Sequence[_Box], edges: Array) -> Array:
    """Mean colour between two edges each, idle time included; shape (columns, 3)."""
    if not boxes:
        return np.ones((len(edges) - 1, 3))
    boxes = sorted(boxes, key=lambda box: box.start)
    times = np.array([time for box in boxes for time in (box.start, box.end)])
    times = np.maximum.accumulate(times)  # where ops overlap the later one counts from its end on
    difference = np.array([_rgb(box.look.background) for box in boxes]) - _BACKGROUND
    # the integral of the colours over time is linear between starts and ends of ops
    until_end = np.cumsum(difference * np.diff(times)[::2, None], axis=0)
    integral = np.vstack([np.zeros((1, 3)), np.repeat(until_end, 2, axis=0)[:-1]])
    at_edges = np.column_stack([np.interp(edges, times, integral[:, i]) for i in range(3)])
    mean: Array = np.diff(at_edges, axis=0) / np.diff(edges)[:, None] + _BACKGROUND
    return np.clip(mean, 0, 1)


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(part / 255 for part in bytes.fromhex(colour[1:]))


# ---------------------------------------------------------------------- transfers


def transfers_in(schedule: Schedule, view: View, *, most: int | None) -> tuple[Line, ...]:
    """Transfers between two devices of a view, from the end of an op to the start of the next.

    Parameters
    ----------
    schedule, view
        What is drawn.
    most
        Give none if there are more than this.
    """
    rows_shown, unit = rows_of(schedule, view.devices), float(schedule.resolution)
    times: dict[Op, TimedOp] = {timed.op: timed for row in rows_shown for timed in row.timed_ops}
    row_of = {timed.op: place for place, row in enumerate(rows_shown) for timed in row.timed_ops}
    first, last = (float(time / schedule.resolution) for time in (view.start, view.end))
    lines: list[Line] = []
    for source, target, arc in schedule.graph.edges(data=True):
        rows = row_of.get(source), row_of.get(target)
        if arc["reason"] not in ("activation", "gradient") or rows[0] is None or rows[1] is None:
            continue
        if rows[0] == rows[1]:
            continue
        begin, end = times[source].end, times[target].start
        if begin > last or end < first:
            continue
        if len(lines) == most:
            return ()
        down = rows[1] > rows[0]
        near = rows[0] + (1 - _MARGIN if down else _MARGIN)
        far = rows[1] + (_MARGIN if down else 1 - _MARGIN)
        lines.append(((begin * unit, near), (end * unit, far)))
    return tuple(lines)


def draw_transfers(axes: Axes, lines: Sequence[Line]) -> None:
    """Thin lines over the ops."""
    axes.add_collection(
        LineCollection(
            list(lines), colors=TRANSFER_COLOUR, linewidths=0.45, alpha=0.7, capstyle="round"
        ),
        autolim=False,
    )


# ---------------------------------------------------------------------- memory


def draw_memory(axes: Axes, schedule: Schedule, view: View, curves: Sequence[MemoryCurve]) -> None:
    """Memory of each device under its capacity, on one scale, and on the right its peak there."""
    problem = schedule.problem
    limits = [problem.capacity[device] for device in view.devices]
    shown = [curves[device] for device in view.devices]
    most = max([curve.peak for curve in shown] + [c for c in limits if c is not None])
    scale = (1 - 2 * _MARGIN) / float(most or 1)
    many = sum(len(curve.points) for curve in shown) > 2 * MOST_BOXES
    for row, (curve, limit) in enumerate(zip(shown, limits, strict=True)):
        floor = row + 1 - _MARGIN
        times = np.array([float(time) for time, _ in curve.points] + [float(view.end)])
        amounts = np.array([float(amount) for _, amount in curve.points])
        amounts = np.append(amounts, amounts[-1])
        inside = amounts if limit is None else np.minimum(amounts, float(limit))
        style: dict[str, Any] = {"step": "post", "linewidth": 0, "rasterized": many}
        axes.fill_between(
            times, floor, floor - inside * scale, color=MEMORY_COLOUR, alpha=0.55, **style
        )
        peak = curve.peak_in(view.start, view.end)
        over = limit is not None and peak > limit
        if over:
            axes.fill_between(
                times,
                floor - inside * scale,
                floor - amounts * scale,
                color=OVER_CAPACITY_COLOUR,
                **style,
            )
        ends = [float(view.start), float(view.end)]
        axes.plot(ends, [floor, floor], color="#BBBBBB", linewidth=0.5)
        if limit is not None:
            height = floor - float(limit) * scale
            width = 0.7 if len(shown) <= 16 else 0.4
            axes.plot(ends, [height] * 2, color=CAPACITY_COLOUR, linewidth=width, dashes=DASHES)
        share = text(peak, 1) if not limit else f"{float(100 * peak / limit):.1f} %"
        _at_right(axes, row, share, colour=OVER_CAPACITY_COLOUR if over else "#333333")


# ---------------------------------------------------------------------- axes


def _at_right(axes: Axes, row: int, words: str, *, colour: str = "#333333") -> None:
    axes.annotate(
        words,
        (1, row + 0.5),
        (5, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        size=min(7.5, axes.yaxis.get_ticklabels()[0].get_fontsize()),
        color=colour,
    )


def _points_per_unit(axes: Axes) -> float:
    """Points per unit of time."""
    left, right = axes.get_xlim()
    figure = axes.figure
    width: float = axes.get_position().width * figure.get_figwidth()  # type: ignore[union-attr]
    return 72 * width / (right - left)
