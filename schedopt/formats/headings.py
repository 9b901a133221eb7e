"""What pictures and reports say of a schedule: what it achieves, and where it is from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

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


def said(schedule: Schedule) -> Iterator[tuple[str, str]]:
    """What the file of a schedule says about how it was found; nothing else vouches for it."""
    info, unit = schedule.info, schedule.problem.time_unit
    source = f", from {info['bound_source']}" if "bound_source" in info else ""
    versions = info.get("versions")
    parts = [f"{key} {info[key]}" for key in ("seed", "workers") if key in info]
    if isinstance(versions, dict):
        parts.append(versions_text(versions))
    if "status" in info:
        yield "status", f"{info['status']}, as its file says"
    if "bound" in info:
        yield "bound", f"{info['bound']} {unit}{source}"
    if isinstance(info.get("gap"), (int, float)):
        yield "gap", gap_text(info["gap"])
    yield "solved with", ", ".join(parts)


def gap_text(gap: float | None) -> str:
    """A gap as a percentage; only a closed one is "0 %"."""
    return "unknown" if gap is None else percent(gap)


def versions_text(versions: Mapping[str, Any]) -> str:
    """Versions in a line."""
    return ", ".join(f"{name} {value}" for name, value in versions.items())
