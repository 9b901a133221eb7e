"""Idle time by cause, and what would help, as tables for the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from schedopt.exact import exact, text
from schedopt.formats.tables import percent
from schedopt.idle import CAUSES, DeviceIdle
from schedopt.measured import Measured
from schedopt.problem import Problem
from schedopt.schedule import Schedule


def verdict(
    schedule: Schedule, devices: Sequence[DeviceIdle], bound: Fraction | None, source: str
) -> list[str]:
    """What a schedule is, which device is busiest, and the largest cause of idle time."""
    problem = schedule.problem
    unit, length = problem.time_unit, schedule.makespan
    most = max(device.work for device in devices)
    busy = [device.device for device in devices if device.work == most]
    title = f"{schedule.name or 'schedule'}" + (f" for {problem.name}" if problem.name else "")
    lines = [f"{title}: makespan {text(length, 3)} {unit}, objective: {problem.objective}"]
    if bound is not None:
        lines.append(f"Bound of the {problem.objective}: {text(bound, 3)} {unit}, from {source}.")
    if len(busy) == len(devices):
        lines.append(f"All devices have equal work, {text(most, 3)} {unit}.")
    else:
        stages = [stage for device in busy for stage in problem.stages_on[device]]
        lines.append(
            f"Busiest: {_numbers('device', busy)} ({_numbers('stage', stages)}) with "
            f"{text(most, 3)} of {text(length, 3)} {unit}."
        )
        lines += _extras(problem, stages, most)
    total = totals(devices)
    idle = sum(total.values(), Fraction(0))
    if not idle:
        return [*lines, "No device is ever idle."]
    cause = max(total, key=lambda name: total[name])
    share = percent(idle / (len(devices) * length))
    lines.append(
        f"Devices are idle {share} of the step; {percent(total[cause] / idle)} of that is "
        f"{cause}: {CAUSES[cause]}."
    )
    return lines


def _extras(problem: Problem, stages: Sequence[int], most: Fraction) -> list[str]:
    """What the extras of the busiest stages take of their work."""
    lines = []
    for extra in problem.extras:
        if extra.stage in stages:
            kinds = ("F",) if problem.forward_only else ("F", "B", "W")
            each = sum((exact(getattr(extra, kind)) for kind in kinds), Fraction(0))
            time = each * sum(problem.factors)
            if time:
                lines.append(
                    f"Of that the extra {extra.name!r} takes {text(time, 3)}, "
                    f"{percent(time / most)}; --move {shlex.quote(extra.name)}=STAGE moves it."
                )
    return lines


def totals(devices: Iterable[DeviceIdle]) -> dict[str, Fraction]:
    """Idle time of all devices by cause."""
    result = dict.fromkeys(CAUSES, Fraction(0))
    for device in devices:
        for cause, time in device.causes.items():
            result[cause] += time
    return result


def cause_table(devices: Sequence[DeviceIdle], makespan: Fraction, unit: str) -> Table:
    """A row for each device, and one for the share of all; causes that never occur are left out."""
    shown = [cause for cause, time in totals(devices).items() if time]
    bounded = all(device.unavoidable is not None for device in devices)
    table = _table()
    for name in ("device", "work", "idle", *shown, *(("unavoidable",) if bounded else ())):
        table.add_column(name, justify="right")
    for device in devices:
        cells = [text(device.work, 3), text(device.idle, 3)]
        cells += [text(device.causes[cause], 3) for cause in shown]
        if device.unavoidable is not None and bounded:
            cells.append(text(device.unavoidable, 3))
        table.add_row(str(device.device), *cells)
    whole = len(devices) * makespan
    if whole:
        idle = sum((device.idle for device in devices), Fraction(0))
        cells = [percent(1 - idle / whole), percent(idle / whole)]
        cells += [percent(totals(devices)[cause] / whole) for cause in shown]
        if bounded:
            parts = (device.unavoidable or Fraction(0) for device in devices)
            cells.append(percent(sum(parts, Fraction(0)) / whole))
        table.add_row("all", *cells, style="bold")
    table.caption = f"Times in {unit}; the causes of a device sum to its idle time."
    return table


def comparison_of_causes(
    schedule: Schedule, devices: Sequence[DeviceIdle], measured: Measured
) -> Table:
    """Predicted and measured idle time of all devices by cause, as shares of the step."""
    steps = (
        (totals(devices), schedule.makespan),
        (totals(measured.causes()), measured.makespan),
    )
    table = _table()
    table.add_column("")
    for name in ("predicted", "measured"):
        table.add_column(name, justify="right")
    shares = [
        {cause: time / (len(devices) * length) for cause, time in of.items()}
        for of, length in steps
    ]
    lengths = [f"{text(schedule.makespan, 3)} {schedule.problem.time_unit}"]
    table.add_row("length of the step", *lengths, f"{text(measured.makespan, 1)} us")
    table.add_row("work", *(percent(1 - sum(of.values(), Fraction(0))) for of in shares))
    for cause in CAUSES:
        if any(of[cause] for of in shares):
            table.add_row(cause, *(percent(of[cause]) for of in shares))
    return table


def path_table(rows: Iterable[Sequence[str]]) -> Table:
    """The critical path (`schedopt.formats.path.path_rows`)."""
    table = _table()
    table.add_column("time")
    table.add_column("device", justify="right")
    table.add_column("ops")
    table.add_column("")
    for row in rows:
        table.add_row(*row)
    return table


def advice_table(found: Iterable[Mapping[str, Any]]) -> Table:
    """What changes of a problem save (`schedopt.advice.Outcome.to_dict`)."""
    table = _table()
    table.add_column("change")
    for name in ("time", "saved", "bound"):
        table.add_column(name, justify="right")
    table.add_column("status")
    for outcome in found:
        time, saved = outcome["time"], outcome["saved"]
        table.add_row(
            str(outcome["change"]),
            "none" if time is None else text(Fraction(time), 3),
            "" if saved is None else percent(saved),
            text(Fraction(outcome["bound"]), 3),
            str(outcome["status"]),
        )
    return table


def notes(devices: Sequence[DeviceIdle], problem: Problem, *, found: bool) -> list[str]:
    """What the tables mean."""
    total = totals(devices)
    result = [f"{cause}: {CAUSES[cause]}." for cause, time in total.items() if time]
    if any(device.unavoidable is not None for device in devices):
        result.append("unavoidable: bound - work; the rest is what a better schedule could save.")
    if problem.objective == "period":
        result.append("Idle time is that of the makespan, although the period is the objective.")
    if found:
        result.append(
            f"time, bound: {problem.objective} of the changed problem, and what no schedule of it "
            "is below, for as many microbatches as now."
        )
    return result


def _numbers(word: str, numbers: Sequence[int]) -> str:
    return f"{word}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _table() -> Table:
    return Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), caption_justify="left")
