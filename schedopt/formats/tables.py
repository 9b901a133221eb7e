"""Reports as tables for the terminal: the devices of one schedule, and a comparison of many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from schedopt.analysis import DeviceSummary, Row, Summary
from schedopt.exact import text
from schedopt.formats.palette import OVER_CAPACITY_COLOUR
from schedopt.problem import Problem

PURE_DELAY = (
    "A transfer between devices is a pure delay: it keeps neither a device nor a link busy."
)
BUSY_LINKS = "A transfer keeps its link busy for size / bandwidth, and no device."


def model_notes(*problems: Problem) -> list[str]:
    """What every figure of these problems assumes."""
    occupied = {problem.links is not None and problem.links.occupy for problem in problems}
    notes = ["B is the gradient of the input, W that of the weights, BW both in one op."]
    notes += [PURE_DELAY] if False in occupied or not occupied else []
    notes += [BUSY_LINKS] if True in occupied else []
    if any(problem.recompute is not None for problem in problems):
        notes.append("R is the forward once more, where activations are recomputed.")
    if any(problem.end_of_step is not None for problem in problems):
        notes.append("Work of a device includes its optimizer step, not reductions on its network.")
    return [*notes, "Peak memory includes static memory, but no buffers of transfers."]


def percent(share: Fraction | float) -> str:
    """A share as text; only what is exactly nothing is "0 %"."""
    if share == 0:
        return "0 %"
    value = float(share)
    return f"{100 * value:.2f} %" if abs(value) >= 0.0001 else "< 0.01 %"


def facts(pairs: Iterable[tuple[str, str]]) -> Table:
    """Names and values in two columns; pairs without a value are left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, value in pairs:
        if value:
            table.add_row(Text(name, "bold"), Text(value))
    return table


def headline(summary: Summary) -> str:
    """What the figures of a schedule are about, in one line."""
    copies = f"{summary.parameter_copies} cop{'y' if summary.parameter_copies == 1 else 'ies'}"
    return (
        f"{_count(len(summary.devices), 'device')}, {_count(summary.stages, 'stage')} "
        f"({summary.placement}), {_count(summary.microbatches, 'microbatch', 'es')}, "
        f"backward {summary.backward}, {copies} of the parameters"
    )


def objective_facts(summary: Summary) -> list[tuple[str, str]]:
    """Both objective values with their idle share, the busiest devices, and the transfers."""
    busiest = summary.busiest
    if len(busiest) == len(summary.devices):
        most = f"all devices have equal work, {text(busiest[0].work)} {summary.time_unit}"
    else:
        devices = ", ".join(str(device.device) for device in busiest)
        stages = ", ".join(str(stage) for device in busiest for stage in device.stages)
        most = f"device {devices} (stage {stages}) with {text(busiest[0].work)} {summary.time_unit}"
    return [
        ("makespan", _length(summary, "makespan", summary.makespan, summary.makespan_bubble)),
        ("period", _length(summary, "period", summary.period, summary.period_bubble)),
        ("most work", most),
        ("transfers", f"{summary.transfers} between devices in one step"),
    ]


def device_table(summary: Summary) -> Table:
    """Work, idle time and memory of each device."""
    table = _table()
    table.add_column("device", justify="right")
    table.add_column("stages")
    for name in ("work", "idle", "of makespan", "peak memory", "capacity"):
        table.add_column(name, justify="right")
    table.add_column("fits")
    for device in summary.devices:
        share = device.idle / summary.makespan if summary.makespan else Fraction(0)
        table.add_row(
            str(device.device),
            ", ".join(map(str, device.stages)) or "none",
            text(device.work, 3),
            text(device.idle, 3),
            percent(share),
            text(device.peak, 3),
            "unlimited" if device.capacity is None else text(device.capacity, 3),
            _yes_no(device.fits),
        )
    table.caption = f"Times in {summary.time_unit}, memory in {summary.memory_unit}."
    return table


def comparison_table(rows: Sequence[Row], *, objective: str) -> Table:
    """One line for each schedule; the best one that fits is bold.

    Parameters
    ----------
    rows
        From `schedopt.analysis.compare`.
    objective
        "makespan" or "period": which of the two decides.
    """
    table = _table()
    for name in ("schedule", "placement"):
        table.add_column(name)
    table.add_column("stages", justify="right")
    table.add_column("backward")
    for name in ("makespan", "period"):
        table.add_column(name + ("*" if name == objective else ""), justify="right")
        table.add_column("bubble", justify="right")
    table.add_column("peak memory", justify="right")
    table.add_column("fits")
    table.add_column("transfers", justify="right")
    made = [(row, row.summary) for row in rows if row.summary is not None]
    fitting = [getattr(facts, objective) for _, facts in made if facts.fits]
    best = min(fitting, default=None)
    for row in rows:
        found = row.summary
        if found is None:
            table.add_row(Text(row.name), Text(row.placement), style="dim")
            continue
        is_best = found.fits and getattr(found, objective) == best
        table.add_row(
            Text(row.name),
            Text(row.placement + (" (re-cut)" if row.recut else "")),
            str(found.stages),
            found.backward,
            text(found.makespan, 3),
            percent(found.makespan_bubble),
            text(found.period, 3),
            percent(found.period_bubble),
            text(found.peak, 3),
            _fits(found.devices),
            str(found.transfers),
            style="bold" if is_best else "",
        )
    return table


def comparison_notes(rows: Sequence[Row]) -> list[str]:
    """What the columns of `comparison_table` mean, and why schedules are missing."""
    made = [row.summary for row in rows if row.summary is not None]
    notes = []
    if made:
        first = made[0]
        limits = sorted({d.capacity for d in first.devices if d.capacity is not None})
        limit = " to ".join(dict.fromkeys(text(c, 3) for c in limits[:1] + limits[-1:]))
        notes.append(
            f"Times in {first.time_unit}; peak memory of the fullest device in "
            f"{first.memory_unit}, capacity {limit or 'unlimited'}."
        )
    notes.append("* the objective; the best schedule that fits is in bold.")
    notes.append("bubble: idle share 1 - work / (devices x time) of the time to its left.")
    notes.extend(model_notes(*(row.schedule.problem for row in rows if row.schedule)))
    notes.append("Each classic order is timed with the durations and lags of this problem.")
    if any(row.recut for row in rows):
        notes.append(
            "re-cut: each stage cut into equal pieces, on the same devices; another problem, that "
            "can be solved too."
        )
    notes.extend(dict.fromkeys(row.note for row in rows if row.note))
    return notes


def _table() -> Table:
    return Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), caption_justify="left")


def _count(number: int, noun: str, ending: str = "s") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{ending}"


def _length(summary: Summary, name: str, length: Fraction, bubble: Fraction) -> str:
    mark = " (objective)" if name == summary.objective else ""
    return f"{text(length)} {summary.time_unit}{mark}, bubble {percent(bubble)} of it"


def _yes_no(fits: bool) -> Text:
    return Text("yes") if fits else Text("no", OVER_CAPACITY_COLOUR)


def _fits(devices: Sequence[DeviceSummary]) -> Text:
    over = sum(not device.fits for device in devices)
    return _yes_no(True) if not over else Text(f"no, {over} over", OVER_CAPACITY_COLOUR)
