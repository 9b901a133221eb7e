"""Tables of actions as torch.distributed.pipelining reads them with ``format="compute_only"``.

One row for each device, one cell for each op in its order, written as stage, letter, microbatch:
``11F3``. A letter does not mean what it means elsewhere in this project:

=======  =====================================  ====
in torch  meaning                                here
=======  =====================================  ====
F        forward                                F
I        gradient of the input only             B
W        gradient of the weights only           W
B        full backward                          BW
=======  =====================================  ====

Until torch 2.5 "B" was the gradient of the input only; such tables have no "I" and are refused,
because their stages then have no op for one of the gradients.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

from schedopt.errors import Fault, InputError
from schedopt.graph import build_graph
from schedopt.op import KINDS, Op, Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule

LETTERS = {"F": "F", "B": "I", "W": "W", "BW": "B"}
"""Kind of op -> letter in a table."""

_KIND_OF = {letter: kind for kind, letter in LETTERS.items()}
_CELL = re.compile(r"(\d{1,9})([FIWB])(\d{1,9})", re.ASCII)
_EXPECTED = "must be stage, F, I (gradient of the input), W or B (full backward), microbatch: 0F11"


def write_torch_csv(schedule: Schedule) -> str:
    """The order of a schedule as a table of actions; it has no times.

    Examples
    --------
    >>> from schedopt import Problem, classic
    >>> print(write_torch_csv(classic.one_f_one_b(Problem.uniform(devices=2, microbatches=1))))
    0F0,0B0
    1F0,1B0
    <BLANKLINE>
    """
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    for device in range(schedule.problem.devices):
        ops = [timed.op for timed in schedule.by_device[device]]
        writer.writerow(f"{op.stage}{LETTERS[op.kind]}{op.microbatch}" for op in ops)
    return lines.getvalue()


def read_torch_csv(text: str, problem: Problem, *, source: str = "", name: str = "") -> Schedule:
    """A schedule for a problem from a table of actions; each op starts as soon as it can.

    Blanks around a cell and empty cells (idle time) are left out.

    Parameters
    ----------
    text
        The table.
    problem
        Has the durations; its stages have the kinds of op that the table has for them.
    source
        Name of the file, for errors.
    name
        Of the schedule.

    Raises
    ------
    InputError
        If the table is not one of this problem; names row, column and text of each fault, counted
        from 1.
    DeadlockError
        If the rows wait for each other.
    """
    try:
        rows = list(csv.reader(io.StringIO(text, newline=None)))
    except csv.Error as error:
        fault = Fault("(table)", "", f"must be comma-separated values: {error}")
        raise InputError("table of actions", [fault], source) from None
    while rows and not any(cell.strip() for cell in rows[-1]):
        rows.pop()
    if len(rows) != problem.devices:
        valid = f"must be {problem.devices}, one for each device of the problem"
        raise InputError("table of actions", [Fault("rows", str(len(rows)), valid)], source)
    orders: dict[Resource, list[Op]] = {}
    places: dict[Op, str] = {}
    faults = []
    for device, row in enumerate(rows):
        ops = orders.setdefault(Resource("compute", device), [])
        for column, cell in enumerate(row, start=1):
            place, label = f"row {device + 1}, column {column}", cell.strip()
            if not label:
                continue
            match = _CELL.fullmatch(label)
            if match is None:
                faults.append(Fault(place, repr(label), _EXPECTED))
                continue
            op = Op(_KIND_OF[match[2]], int(match[1]), int(match[3]))
            reason = _reason(op, device, problem) or (
                f"is there already: {places[op]}" if op in places else ""
            )
            if reason:
                faults.append(Fault(place, repr(label), reason))
            else:
                places[op] = place
                ops.append(op)
    faults += _missing(places, problem)
    if faults:
        raise InputError("table of actions", faults, source)
    return Schedule.from_order(build_graph(problem), orders, name=name)


def _reason(op: Op, device: int, problem: Problem) -> str:
    """What is wrong with an op on a device; "" if nothing is."""
    if op.stage >= problem.stage_count:
        return f"must be of a stage from 0 to {problem.stage_count - 1}"
    if op.microbatch >= problem.microbatches:
        return f"must be of a microbatch from 0 to {problem.microbatches - 1}"
    if problem.device_of[op.stage] != device:
        return f"must be in row {problem.device_of[op.stage] + 1}, that of the device of its stage"
    kinds = problem.stage_data[op.stage].durations
    if op.kind not in kinds:
        letters = ", ".join(LETTERS[kind] for kind in KINDS if kind in kinds)
        return f"must be one of {letters}: the backward of this stage in the problem"
    return ""


def _missing(places: dict[Op, str], problem: Problem) -> Iterator[Fault]:
    for stage, data in enumerate(problem.stage_data):
        for kind in data.durations:
            absent = [i for i in range(problem.microbatches) if Op(kind, stage, i) not in places]
            if absent:
                row = problem.device_of[stage] + 1
                shown = ", ".join(f"{stage}{LETTERS[kind]}{i}" for i in absent[:3])
                more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
                yield Fault(f"row {row}", f"without {shown}{more}", "must have each op once")
