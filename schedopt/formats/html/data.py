"""What the page is given: arrays of whole numbers for ops and memory, text for the rest.

Times of ops are in steps of the schedule, amounts of memory in steps of the problem; the page
multiplies with ``time_step`` and ``memory_step``, [numerator, denominator]. Arrays of one device
have an item for each of its ops, in order.

==============  ==================================================================
form            index into ``forms``: kind, stage, and colours of an op
microbatch      of the op
gap             its start, counted from the end of the op before it (from 0 for the first)
length          its end - its start
reason          index into ``reasons``: why it does not start earlier; empty if rules are broken
source          position, over all devices, of the op that it waits for; -1 for none
slack           {position in the device: time by which it starts later than that}
==============  ==================================================================

What an op needs is the same for every microbatch: ``edges`` are [form, form, lag]. Memory is [time, amount] as two arrays of differences, each from the value before, the first from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from schedopt.analysis import Summary, placement_text, summary
from schedopt.check import check
from schedopt.errors import Fault, InputError
from schedopt.exact import steps, text
from schedopt.formats.headings import achieved, said, title
from schedopt.formats.palette import CAUSE_COLOURS, MEMORY_COLOUR, OVER_CAPACITY_COLOUR, shade
from schedopt.formats.tables import MODEL_NOTES, headline, objective_facts, percent
from schedopt.graph import FIFO, build_graph
from schedopt.idle import CAUSES, REASONS, binding, causes
from schedopt.memory import MemoryCurve, memory_curves
from schedopt.op import KINDS
from schedopt.problem import Problem
from schedopt.schedule import Schedule


def page_data(schedules: Sequence[Schedule]) -> dict[str, Any]:
    """Everything the page shows, ready for JSON.

    Raises
    ------
    InputError
        If there is no schedule, or the time units differ.
    """
    units = list(dict.fromkeys(schedule.problem.time_unit for schedule in schedules))
    if len(units) != 1:
        valid = "must be that of all schedules, which share one time axis"
        faults = [Fault("time_unit", unit, valid) for unit in units]
        raise InputError("report", faults or [Fault("schedules", "none", "give at least one")])
    found = [(schedule, summary(schedule)) for schedule in schedules]
    kinds = {t.op.kind for s in schedules for timed_ops in s.timeline.values() for t in timed_ops}
    return {
        "unit": units[0],
        "kinds": [
            {"name": kind, "meaning": meaning, "colour": shade(kind).background}
            for kind, meaning in KINDS.items()
            if kind in kinds
        ],
        "reasons": [{"name": name, "meaning": meaning} for name, meaning in REASONS.items()],
        "causes": [
            {"name": name, "meaning": meaning, "colour": CAUSE_COLOURS[name]}
            for name, meaning in CAUSES.items()
        ],
        "colours": {"memory": MEMORY_COLOUR, "over": OVER_CAPACITY_COLOUR},
        "notes": list(MODEL_NOTES),
        "comparison": _comparison(found),
        "schedules": [_schedule(*pair) for pair in found],
    }


def _schedule(schedule: Schedule, facts: Summary) -> dict[str, Any]:
    problem = schedule.problem
    violations = check(schedule)
    pairs = [*said(schedule), *objective_facts(facts)]
    return {
        "title": title(schedule),
        "achieved": achieved(schedule),
        "figures": _figures(schedule, facts),
        "headline": headline(facts),
        "facts": [[name, value] for name, value in pairs if value],
        "violations": len(violations),
        "violation": str(violations[0]) if violations else "",
        "time_step": _ratio(schedule.resolution),
        "memory_step": _ratio(problem.memory_resolution),
        "memory_unit": problem.memory_unit,
        "makespan": steps(schedule.makespan, schedule.resolution),
        **_ops(schedule, valid=not violations),
        "idle": [] if violations else _idle(schedule),
        "history": _history(schedule),
        "problem": _problem(problem),
    }


def _figures(schedule: Schedule, facts: Summary) -> list[list[str]]:
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


def _ratio(step: Fraction) -> list[int]:
    return [step.numerator, step.denominator]


# ---------------------------------------------------------------------- ops and memory


def _ops(schedule: Schedule, *, valid: bool) -> dict[str, Any]:
    """The forms of ops, and the arrays of each device."""
    problem = schedule.problem
    rows = [schedule.by_device[device] for device in range(problem.devices)]
    forms = sorted({timed.op[:2] for row in rows for timed in row}, key=lambda f: (f[1], f[0]))
    number = {form: index for index, form in enumerate(forms)}
    position = {op: index for index, op in enumerate(t.op for row in rows for t in row)}
    holds = binding(schedule) if valid else {}
    reasons = list(REASONS)
    curves = memory_curves(schedule)
    devices = []
    for device, row in enumerate(rows):
        held = [holds[timed.op] for timed in row] if valid else []
        ends = [0, *(timed.end for timed in row)]
        devices.append(
            {
                "stages": list(problem.stages_on[device]),
                "form": [number[timed.op[:2]] for timed in row],
                "microbatch": [timed.op.microbatch for timed in row],
                "gap": [timed.start - end for timed, end in zip(row, ends, strict=False)],
                "length": [timed.end - timed.start for timed in row],
                "reason": [reasons.index(hold.reason) for hold in held],
                "source": [-1 if hold.op is None else position[hold.op] for hold in held],
                "slack": {
                    place: steps(hold.slack, schedule.resolution)
                    for place, hold in enumerate(held)
                    if hold.slack
                },
                "memory": _memory(schedule, curves[device]),
            }
        )
    return {
        "forms": [_form(problem, *form) for form in forms],
        "edges": _edges(schedule, number),
        "devices": devices,
    }


def _edges(schedule: Schedule, number: Mapping[tuple[str, int], int]) -> list[list[int]]:
    """What the ops of a microbatch give to each other, as forms, and the lag between them."""
    graph = build_graph(schedule.problem)
    scale = graph.graph["resolution"] / schedule.resolution
    lags = {
        (number[source[:2]], number[target[:2]]): int(arc["lag"] * scale)
        for source, target, arc in graph.edges(data=True)
        if arc["reason"] != FIFO and source[:2] in number and target[:2] in number
    }
    return [[*forms, lag] for forms, lag in sorted(lags.items())]


def _form(problem: Problem, kind: str, stage: int) -> dict[str, Any]:
    chunk_of = {s: (k, len(on)) for on in problem.stages_on for k, s in enumerate(on)}
    chunk, chunks = chunk_of.get(stage, (0, 1))
    chunks = max(chunks, max(map(len, problem.stages_on)))
    looks = [shade(kind, chunk=chunk, chunks=chunks, odd=odd) for odd in (False, True)]
    return {
        "kind": kind,
        "stage": stage,
        "colours": [look.background for look in looks],
        "text": [look.text for look in looks],
        "darker": chunk > 0,
    }


def _memory(schedule: Schedule, curve: MemoryCurve) -> dict[str, Any]:
    problem = schedule.problem
    step, capacity = problem.memory_resolution, problem.capacity[curve.device]
    times = [steps(time, schedule.resolution) for time, _ in curve.points]
    amounts = [steps(amount, step) for _, amount in curve.points]
    return {
        "time": _differences(times),
        "amount": _differences(amounts),
        "peak": steps(curve.peak, step),
        "capacity": None if capacity is None else steps(capacity, step),
    }


def _differences(values: Sequence[int]) -> list[int]:
    return [after - before for before, after in pairwise([0, *values])]


# ---------------------------------------------------------------------- tables


def _idle(schedule: Schedule) -> list[dict[str, Any]]:
    """Idle time of each device by cause, in the unit of the problem."""
    bound = schedule.stated_bound
    if bound is not None and bound > schedule.makespan:
        bound = None
    return [
        {
            "causes": [float(found.causes[cause]) for cause in CAUSES],
            "total": float(found.idle),
            "unavoidable": None if found.unavoidable is None else float(found.unavoidable),
            "work": float(found.work),
        }
        for found in causes(schedule, bound)
    ]


def _history(schedule: Schedule) -> list[dict[str, Any]]:
    """Improvements of objective and bound, as far as the file of the schedule has them."""
    kept = schedule.info.get("history")
    entries = [news for news in kept if isinstance(news, dict)] if isinstance(kept, list) else []
    return [
        {
            name: news[name] if isinstance(news.get(name), (int, float, str)) else None
            for name in ("elapsed", "objective", "bound", "source")
        }
        for news in entries
    ]


def _comparison(found: Sequence[tuple[Schedule, Summary]]) -> dict[str, Any]:
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


def _problem(problem: Problem) -> dict[str, Any]:
    """The data of a problem: facts, and a table of its stages and of its devices."""
    lags = {
        problem.lag_between(*pair)
        for a, b in pairwise(range(problem.stage_count))
        for pair in ((a, b), (b, a))
    }
    lengths = set(problem.factors)
    facts = [
        ["name", problem.name],
        ["source", problem.source],
        ["devices", str(problem.devices)],
        ["stages", f"{problem.stage_count}, placement {placement_text(problem)}"],
        ["microbatches", str(problem.microbatches)],
        ["objective", problem.objective],
        ["lags between neighbours", _range(lags, problem.time_unit)],
        ["further edges", str(len(problem.edges)) if problem.edges else ""],
        [
            "lengths of microbatches",
            _range(set(problem.factors), "") if len(set(problem.factors)) > 1 else "",
        ],
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
                    "unlimited" if capacity is None else text(capacity, 3),
                ]
                for device, capacity in enumerate(problem.capacity)
            ],
        },
    }


def _cells(values: Iterable[Fraction | None]) -> list[str]:
    return ["" if value is None else text(value, 3) for value in values]


def _range(values: set[Fraction], unit: str) -> str:
    """One value, or the least and the largest; nothing if there is none."""
    shown = [text(value, 3) for value in sorted(values)]
    return f"{' to '.join(dict.fromkeys(shown[:1] + shown[-1:]))} {unit}".strip() if shown else ""
