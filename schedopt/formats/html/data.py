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

After the devices come their networks and the links, which have no memory.

What an op needs is the same for every microbatch: ``edges`` are [form, form, lag].

Memory is [time, amount] as two arrays of differences, each from the value before, the first from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from schedopt.analysis import Summary, summary
from schedopt.binding import REASONS, binding
from schedopt.check import check
from schedopt.errors import Fault, InputError
from schedopt.exact import steps
from schedopt.formats.headings import achieved, said, title
from schedopt.formats.html.tables import comparison, device_table, figures, problem_tables
from schedopt.formats.palette import CAUSE_COLOURS, MEMORY_COLOUR, OVER_CAPACITY_COLOUR, shade
from schedopt.formats.rows import rows_of
from schedopt.formats.tables import headline, model_notes, objective_facts
from schedopt.graph import FIFO
from schedopt.idle import CAUSES, causes
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
        "notes": model_notes(*(schedule.problem for schedule in schedules)),
        "comparison": comparison(found),
        "schedules": [_schedule(*pair) for pair in found],
    }


def _schedule(schedule: Schedule, facts: Summary) -> dict[str, Any]:
    problem = schedule.problem
    violations = check(schedule)
    pairs = [*said(schedule), *objective_facts(facts)]
    return {
        "title": title(schedule),
        "achieved": achieved(schedule),
        "figures": figures(schedule, facts),
        "headline": headline(facts),
        "facts": [[name, value] for name, value in pairs if value],
        "device_table": device_table(facts),
        "violations": len(violations),
        "violation": str(violations[0]) if violations else "",
        "time_step": _ratio(schedule.resolution),
        "memory_step": _ratio(problem.memory_resolution),
        "memory_unit": problem.memory_unit,
        "makespan": steps(schedule.makespan, schedule.resolution),
        **_ops(schedule, valid=not violations),
        "idle": [] if violations else _idle(schedule),
        "history": _history(schedule),
        "problem": problem_tables(problem),
    }


def _ratio(step: Fraction) -> list[int]:
    return [step.numerator, step.denominator]


# ---------------------------------------------------------------------- ops and memory


def _ops(schedule: Schedule, *, valid: bool) -> dict[str, Any]:
    """The forms of ops, and the arrays of each device."""
    problem = schedule.problem
    shown = rows_of(schedule, range(problem.devices))
    shown.sort(key=lambda row: problem.devices if row.device is None else row.device)
    rows = [row.timed_ops for row in shown]
    forms = sorted({timed.op[:2] for row in rows for timed in row}, key=lambda f: (f[1], f[0]))
    number = {form: index for index, form in enumerate(forms)}
    position = {op: index for index, op in enumerate(t.op for row in rows for t in row)}
    holds = binding(schedule) if valid else {}
    reasons = list(REASONS)
    curves = memory_curves(schedule)
    devices = []
    for place_of_row, row in enumerate(rows):
        label, name, device, _ = shown[place_of_row]
        held = [holds[timed.op] for timed in row] if valid else []
        ends = [0, *(timed.end for timed in row)]
        devices.append(
            {
                "label": label,
                "name": name,
                "stages": [] if device is None else list(problem.stages_on[device]),
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
                "memory": None if device is None else _memory(schedule, curves[device]),
            }
        )
    return {
        "forms": [_form(problem, *form) for form in forms],
        "edges": _edges(schedule, number),
        "devices": devices,
    }


def _edges(schedule: Schedule, number: Mapping[tuple[str, int], int]) -> list[list[int]]:
    """What the ops of a microbatch give to each other, as forms, and the lag between them.

    What waits for all microbatches at the end of the step is not among them.
    """
    graph = schedule.graph
    scale = graph.graph["resolution"] / schedule.resolution
    lags = {
        (number[source[:2]], number[target[:2]]): int(arc["lag"] * scale)
        for source, target, arc in graph.edges(data=True)
        if arc["reason"] not in (FIFO, "step") and {source[:2], target[:2]} <= number.keys()
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


# ---------------------------------------------------------------------- idle time and search


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
    found = []
    for news in kept if isinstance(kept, list) else []:
        if isinstance(news, dict):
            entry = {name: _number(news.get(name)) for name in ("elapsed", "objective", "bound")}
            if entry["objective"] is not None or entry["bound"] is not None:
                source = news.get("source")
                found.append({**entry, "source": source if isinstance(source, str) else ""})
    return found


def _number(value: Any) -> float | None:
    """A number of a file, also one written as "20/3"; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(Fraction(value))
    except (ValueError, OverflowError, ZeroDivisionError):
        return None
