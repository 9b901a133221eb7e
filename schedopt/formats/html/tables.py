"""Figures and tables of the page, as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from schedopt.analysis import Summary, placement_text
from schedopt.exact import text
from schedopt.formats.headings import title
from schedopt.formats.tables import percent
from schedopt.op import KINDS
from schedopt.problem import Problem
from schedopt.schedule import Schedule


def figures(schedule: Schedule, facts: Summary) -> list[list[str]]:
    """The figures that matter most: name, value, and what to know about it."""
    objective, bound, info = schedule.objective, schedule.stated_bound, schedule.info
    name, unit = facts.objective, facts.time_unit
    figures = [[name, f"{text(objective, 3)} {unit}", "the objective"]]
    if "status" in info:
        figures.append(["status", str(info["status"]), "as its file says"])
    if bound is not None:
        source = info.get("bound_source")
        figures.append(["bound", f"{text(bound, 3)} {unit}", f"from {source}" if source else ""])
        gap = (objective - bound) / objective if objective else Fraction(0)
        figures.append(["gap", percent(gap), "(objective - bound) / objective"])
    bubble = facts.period_bubble if name == "period" else facts.makespan_bubble
    figures.append(["bubble", percent(bubble), f"idle share of the {name}"])
    shares = [(d.peak / d.capacity, -d.device) for d in facts.devices if d.capacity]
    if shares:
        share, device = max(shares)
        figures.append(["peak memory", percent(share), f"of the capacity, on device {-device}"])
    else:
        peak = f"{text(facts.peak, 3)} {facts.memory_unit}"
        figures.append(["peak memory", peak, "no capacity is given"])
    return figures


def device_table(facts: Summary) -> dict[str, Any]:
    """Work, idle time and memory of each device of a schedule."""
    time, memory = facts.time_unit, facts.memory_unit
    return {
        "headings": [
            *("device", "stages", f"work ({time})", f"idle ({time})"),
            *(f"peak memory ({memory})", f"capacity ({memory})", "fits"),
        ],
        "rows": [
            [
                str(device.device),
                ", ".join(map(str, device.stages)) or "none",
                text(device.work, 3),
                text(device.idle, 3),
                text(device.peak, 3),
                _limit(device.capacity),
                "yes" if device.fits else "no",
            ]
            for device in facts.devices
        ],
    }


def comparison(found: Sequence[tuple[Schedule, Summary]]) -> dict[str, Any]:
    best = min(schedule.objective for schedule, _ in found)
    unit = found[0][0].problem.time_unit
    headings = [
        "schedule",
        "placement",
        "objective",
        f"value ({unit})",
        "to the best",
        "bound",
        "gap",
        "bubble",
        "peak memory",
        "fits",
        "transfers",
    ]
    return {"headings": headings, "rows": [_comparison_row(*pair, best) for pair in found]}


def _comparison_row(schedule: Schedule, facts: Summary, best: Fraction) -> list[str]:
    objective, bound = schedule.objective, schedule.stated_bound
    ratio = objective / best - 1 if best else Fraction(0)
    gap = (objective - bound) / objective if bound is not None and objective else None
    bubble = facts.period_bubble if facts.objective == "period" else facts.makespan_bubble
    return [
        title(schedule),
        facts.placement,
        facts.objective,
        text(objective, 3),
        f"+{percent(ratio)}" if ratio else "best",
        "unknown" if bound is None else text(bound, 3),
        "unknown" if gap is None else percent(gap),
        percent(bubble),
        f"{text(facts.peak, 3)} {facts.memory_unit}",
        "yes" if facts.fits else "no",
        str(facts.transfers),
    ]


def problem_tables(problem: Problem) -> dict[str, Any]:
    """The data of a problem: facts, and a table of its stages and of its devices."""
    lags = {
        transfer.latency + transfer.duration
        for connection in problem.connections
        for transfer in (connection.forward, connection.backward)
    }
    equal = set(problem.factors) == {1}
    facts = [
        ["name", problem.name],
        ["source", problem.source],
        ["devices", str(problem.devices)],
        ["stages", f"{problem.stage_count}, placement {placement_text(problem)}"],
        ["microbatches", str(problem.microbatches)],
        ["objective", problem.objective],
        ["transfers take", _range(lags, problem.time_unit)],
        ["links", _links_text(problem)],
        ["edges", str(len(problem.edges)) if problem.edges else ""],
        ["recomputed", _recompute_text(problem)],
        ["extras", "; ".join(f"{e.name} on stage {e.stage}" for e in problem.extras)],
        ["backward", "none: forward only" if problem.forward_only else ""],
        ["lengths of microbatches", "" if equal else _range(set(problem.factors), "")],
    ]
    kinds = [k for k in KINDS if any(k in stage.durations for stage in problem.stage_data)]
    return {
        "facts": [pair for pair in facts if pair[1]],
        "stages": {
            "headings": [
                "stage",
                "device",
                *(f"{kind} ({problem.time_unit})" for kind in kinds),
                *(f"memory by {kind} ({problem.memory_unit})" for kind in kinds),
            ],
            "rows": [
                [
                    str(stage),
                    str(data.device),
                    *_cells(data.durations.get(kind) for kind in kinds),
                    *_cells(data.memory.get(kind) for kind in kinds),
                ]
                for stage, data in enumerate(problem.stage_data)
            ],
        },
        "devices": {
            "headings": [
                "device",
                "stages",
                f"static memory ({problem.memory_unit})",
                f"capacity ({problem.memory_unit})",
            ],
            "rows": [
                [
                    str(device),
                    ", ".join(map(str, problem.stages_on[device])) or "none",
                    text(problem.static[device], 3),
                    _limit(capacity),
                ]
                for device, capacity in enumerate(problem.capacity)
            ],
        },
    }


def _limit(capacity: Fraction | None) -> str:
    return "unlimited" if capacity is None else text(capacity, 3)


def _cells(values: Iterable[Fraction | None]) -> list[str]:
    return ["" if value is None else text(value, 3) for value in values]


def _range(values: set[Fraction], unit: str) -> str:
    """One value, or the least and the largest; nothing if there is none."""
    shown = [text(value, 3) for value in sorted(values)]
    return f"{' to '.join(dict.fromkeys(shown[:1] + shown[-1:]))} {unit}".strip() if shown else ""


def _links_text(problem: Problem) -> str:
    if problem.links is None:
        return ""
    return "busy while they send" if problem.links.occupy else "pure delays by size"


def _recompute_text(problem: Problem) -> str:
    modes = problem.recompute_modes
    if problem.recompute is None:
        return ""
    counts = {mode: modes.count(mode) for mode in ("always", "decide", "never") if mode in modes}
    if len(counts) == 1:
        return modes[0]
    return ", ".join(
        f"{mode} on {count} stage{'s' if count > 1 else ''}" for mode, count in counts.items()
    )
