"""A plain table of ops as CSV: for spreadsheets, and for runtimes of one's own."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from schedopt.core import whole
from schedopt.errors import Fault, InputError
from schedopt.exact import resolution, steps, to_json
from schedopt.op import COMPUTE, KINDS, Op, Resource
from schedopt.problem import Problem
from schedopt.rules import Rules
from schedopt.schedule import Schedule, TimedOp

WHAT = "table of ops"
PLACE = ("device", "position", "kind", "stage", "microbatch")
"""Columns that a table needs; the kind is that of this project, the meaning beside it says so."""


def write_op_table(schedule: Schedule) -> str:
    """One line for each op: device, its position there, kind, meaning, stage, microbatch, times.

    Lines are by device and position. If links or networks are busy too, a column "resource" comes
    first, and their lines after those of the devices. The headings of the times name their unit;
    times are exact: 12, 0.5, or 1/3 where no decimal is.
    """
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    headings = ["device", "position", "kind", "meaning", "stage", "microbatch"]
    rows = {Resource(COMPUTE, device): ops for device, ops in schedule.by_device.items()}
    others = {r: ops for r, ops in schedule.timeline.items() if r.kind != COMPUTE and ops}
    first = ["resource"] if others else []
    writer.writerow([*first, *headings, *_time_headings(schedule.problem)])
    for resource, timed_ops in {**rows, **others}.items():
        for position, (op, start, end) in enumerate(timed_ops):
            what = [op.kind, KINDS[op.kind], op.stage, op.microbatch]
            times = [to_json(time * schedule.resolution) for time in (start, end)]
            place = [resource.kind] if others else []
            writer.writerow([*place, resource.device, position, *what, *times])
    return lines.getvalue()


def read_op_table(text: str, problem: Problem, *, source: str = "", name: str = "") -> Schedule:
    """A schedule for a problem from a table as `write_op_table` writes it.

    Columns may stand in any order. The meaning of a kind can be left out, and is compared if it
    is there. With times, the schedule has these, right or wrong (`schedopt.check` tells); a table
    without both columns of times is timed as early as possible, and then needs only what devices
    compute: what links and networks do follows from it (`schedopt.core.completed`).

    Raises
    ------
    InputError
        With the line and the column of each fault. Lines are counted from 1, the headings too.
    DeadlockError
        If there are no times, and the orders wait for each other.
    """
    try:
        rows = list(csv.reader(io.StringIO(text, newline=None)))
    except csv.Error as error:
        fault = Fault("(table)", "", f"must be comma-separated values: {error}")
        raise InputError(WHAT, [fault], source) from None
    headings = [heading.strip() for heading in rows[0]] if rows else []
    faults = list(_heading_faults(headings, problem))
    if faults:
        raise InputError(WHAT, faults, source)
    timed = _time_headings(problem)[0] in headings
    lines: list[_Line] = []
    for number, row in enumerate(rows[1:], start=2):
        if any(cell.strip() for cell in row):
            cells = dict(zip(headings, map(str.strip, row), strict=False))
            found = _Line.read(number, cells, problem, timed=timed)
            if isinstance(found, _Line):
                lines.append(found)
            else:
                faults += found
    faults += _line_faults(lines, problem, timed=timed)
    if faults:
        raise InputError(WHAT, faults, source)
    orders: dict[Resource, list[_Line]] = {
        Resource(COMPUTE, device): [] for device in range(problem.devices)
    }
    for line in sorted(lines, key=lambda line: line.position):
        orders.setdefault(line.resource, []).append(line)
    if not timed:
        only_ops = {
            resource: [line.op for line in of]
            for resource, of in orders.items()
            if resource.kind == COMPUTE
        }
        return whole(problem, only_ops, name=name)
    step = resolution([problem.time_resolution, *(t for line in lines for t in line.times)])
    timeline = {
        resource: tuple(TimedOp(line.op, *(steps(t, step) for t in line.times)) for line in of)
        for resource, of in orders.items()
    }
    return Schedule(problem, timeline, step, name)


class _Line(NamedTuple):
    """One line of a table: an op, where it stands and when."""

    number: int
    resource: Resource
    position: int
    op: Op
    times: tuple[Fraction, ...]

    @classmethod
    def read(
        cls, number: int, cells: Mapping[str, str], problem: Problem, *, timed: bool
    ) -> _Line | list[Fault]:
        """Read the cells of a line by their headings; the faults if there are any."""
        faults = []

        def whole(heading: str, count: int) -> int:
            given = cells.get(heading, "")
            value = int(given) if _INDEX.fullmatch(given) else count
            if value >= count:
                valid = f"must be a whole number from 0 to {count - 1}"
                faults.append(_fault(number, heading, given, valid))
            return value

        def time(heading: str) -> Fraction:
            given = cells.get(heading, "")
            if _TIME.fullmatch(given) is None:
                faults.append(_fault(number, heading, given, "must be a number, or 1/3"))
                return Fraction(0)
            return Fraction(given)

        stage = whole("stage", problem.stage_count)
        microbatch = whole("microbatch", problem.microbatches)
        device = whole("device", problem.devices)
        most = 4 * problem.stage_count * problem.microbatches + bool(problem.end_of_step)
        position = whole("position", most)
        kind, meaning = cells.get("kind", ""), cells.get("meaning", "")
        rules = Rules(problem, {(stage, microbatch)})
        known = [k for k in KINDS if stage >= problem.stage_count or _has(rules, k, stage)]
        if kind not in known:
            valid = f"must be one of {', '.join(known)}, as this stage has in the problem"
            faults.append(_fault(number, "kind", kind, valid))
        elif meaning and meaning != KINDS[kind]:
            valid = f"must be {KINDS[kind]!r}: that is what {kind} means here"
            faults.append(_fault(number, "meaning", meaning, valid))
        op = Op(kind, stage, microbatch)
        given = Resource(cells.get("resource", COMPUTE), device)
        if not faults:
            home = rules.home(op)
            if given.kind != home.kind:
                valid = f"must be {home.kind!r}, where {op} runs"
                faults.append(_fault(number, "resource", given.kind, valid))
            elif given != home:
                where = f"the device of stage {stage}" if home.kind == COMPUTE else f"as {home}"
                valid = f"must be {home.device}, {where}"
                faults.append(_fault(number, "device", str(device), valid))
        times = tuple(map(time, _time_headings(problem))) if timed else ()
        return faults or cls(number, given, position, op, times)


def _has(rules: Rules, kind: str, stage: int) -> bool:
    """Whether a stage has ops of a kind in the problem."""
    return rules.knows(Op(kind, stage, 0))


_RANK = {kind: rank for rank, kind in enumerate(KINDS)}
_INDEX = re.compile(r"\d{1,9}", re.ASCII)
_TIME = re.compile(r"-?\d{1,100}(/[1-9]\d{0,99}|(\.\d{1,100})?([eE][+-]?\d{1,2})?)", re.ASCII)
"""Numbers that are far from too large for a float."""


def _time_headings(problem: Problem) -> tuple[str, str]:
    return f"start ({problem.time_unit})", f"end ({problem.time_unit})"


def _fault(line: int, heading: str, given: str, valid: str) -> Fault:
    return Fault(f"line {line}, {heading}", repr(given), valid)


def _heading_faults(headings: Sequence[str], problem: Problem) -> Iterator[Fault]:
    times = _time_headings(problem)
    for heading in dict.fromkeys(headings):
        if heading not in (*PLACE, "meaning", "resource", *times):
            valid = f"must be one of {', '.join((*PLACE, 'meaning', 'resource', *times))}"
            yield Fault("line 1", repr(heading), valid)
        elif headings.count(heading) > 1:
            yield Fault("line 1", repr(heading), "must be there once")
    needed = [*PLACE, *(times if set(times) & set(headings) else ())]
    for heading in needed:
        if heading not in headings:
            yield Fault(
                "line 1", f"without {heading!r}", f"must have the columns {', '.join(needed)}"
            )


def _line_faults(lines: Sequence[_Line], problem: Problem, *, timed: bool) -> Iterator[Fault]:
    """What lines are in conflict, and what ops are missing."""
    ops: dict[Op, int] = {}
    positions: dict[tuple[Resource, int], int] = {}
    for line in lines:
        if line.op in ops:
            yield Fault(
                f"line {line.number}", str(line.op), f"is there already: line {ops[line.op]}"
            )
        place = line.resource, line.position
        if place in positions:
            valid = f"is there already: line {positions[place]}"
            yield Fault(f"line {line.number}", f"position {line.position}", valid)
        ops.setdefault(line.op, line.number)
        positions.setdefault(place, line.number)
    rules = Rules(problem, {op[1:] for op in ops if op.kind == "R"})
    missing: dict[tuple[str, int], list[Op]] = {}
    for op in rules.ops():
        if op not in ops and (timed or op.kind in ("F", "B", "W", "BW")):
            missing.setdefault(op[:2], []).append(op)
    for _, absent in sorted(missing.items(), key=lambda item: (item[0][1], _RANK[item[0][0]])):
        shown = ", ".join(map(str, absent[:3]))
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        yield Fault("(table)", f"without {shown}{more}", "must have each op once")
