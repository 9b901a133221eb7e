"""Titles of pictures and reports: what a schedule is for, and what it achieves."""

from __future__ import annotations

from schedopt.exact import text
from schedopt.formats.tables import percent
from schedopt.schedule import Schedule


def title(schedule: Schedule) -> str:
    """Name of a schedule and of its problem: "1F1B for zb-1.5b-p8-m24"."""
    name = schedule.name or "schedule"
    return f"{name} for {schedule.problem.name}" if schedule.problem.name else name


def achieved(schedule: Schedule) -> str:
    """Objective, and bound and gap if its file states a bound."""
    unit, bound = schedule.problem.time_unit, schedule.stated_bound
    parts = [f"{schedule.problem.objective} {text(schedule.objective)} {unit}"]
    if bound is None:
        parts.append("no bound known")
    else:
        gap = (schedule.objective - bound) / schedule.objective if schedule.objective else 0
        proven = " (proven optimal)" if gap == 0 else ""
        parts += [f"bound {text(bound)} {unit}", f"gap {percent(gap)}{proven}"]
    return ", ".join(parts)
