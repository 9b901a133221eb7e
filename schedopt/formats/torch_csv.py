"""Tables of actions as torch.distributed.pipelining reads them with ``format="compute_only"``.

One cell for each op of a device in its order (`schedopt.formats.torch_actions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from schedopt.core import whole
from schedopt.errors import Fault, InputError
from schedopt.formats.torch_actions import (
    LETTERS,
    WHAT,
    Action,
    BMeans,
    Cell,
    cells_of,
    table_of,
)
from schedopt.op import KINDS, Op, Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.torch_limits import require_torch

EXPECTED = "must be stage, F, I (gradient of the input), W or B (full backward), microbatch: 0F11"


def write_torch_csv(schedule: Schedule) -> str:
    """The order of a schedule as a table of actions; it has no times.

    Raises
    ------
    NotApplicableError
        If the runtime of torch can not run it.

    Examples
    --------
    >>> from schedopt import Problem, classic
    >>> print(write_torch_csv(classic.one_f_one_b(Problem.uniform(devices=2, microbatches=1))))
    0F0,0B0
    1F0,1B0
    <BLANKLINE>
    """
    require_torch(schedule)
    devices = range(schedule.problem.devices)
    return table_of([[Action.of(t.op) for t in schedule.by_device[d]] for d in devices])


def read_torch_csv(
    text: str,
    problem: Problem,
    *,
    b_means: BMeans | None = None,
    source: str = "",
    name: str = "",
) -> Schedule:
    """A schedule for a problem from a table of actions; each op starts as soon as it can.

    Blanks around a cell and empty cells (idle time) are left out.

    Parameters
    ----------
    text
        The table.
    problem
        Has the durations; its stages have the kinds of op that the table has for them.
    b_means
        What "B" is. Needed only for a table that has B and no I for stages with B and W in the
        problem: it can be of torch until 2.5.
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
    cells = cells_of(text, problem, source=source)
    found = ComputeOps.read(cells, problem, b_means)
    if found.faults:
        raise InputError(WHAT, found.faults, source)
    return whole(problem, found.orders, name=name)


class ComputeOps(NamedTuple):
    """The ops in a table.

    Attributes
    ----------
    orders
        Of each device.
    places
        Where each is.
    faults
        In the order of the table.
    """

    orders: dict[Resource, list[Op]]
    places: dict[Op, Cell]
    faults: list[Fault]

    @classmethod
    def read(cls, cells: Sequence[Cell], problem: Problem, b_means: BMeans | None) -> ComputeOps:
        """Take the ops out of cells that hold nothing else."""
        actions = [(cell, Action.parse(cell.text)) for cell in cells]
        devices = range(problem.devices)
        found = cls({Resource("compute", d): [] for d in devices}, {}, [])
        kind_of = {letter: kind for kind, letter in LETTERS.items()}
        found.faults.extend(_faults_of_b([a for _, a in actions if a], problem, b_means))
        if found.faults:
            return found
        if b_means == "input-gradient":
            kind_of["B"] = "B"
        for cell, action in actions:
            if action is None:
                found.faults.append(cell.fault(EXPECTED))
            elif action.word not in kind_of:
                found.faults.append(cell.fault("must be an op: only tables with transfers have it"))
            else:
                op = Op(kind_of[action.word], action.stage, action.microbatch)
                found._take(op, cell, problem, kind_of)
        found.faults.extend(_missing(found.places, problem, kind_of))
        return found

    def _take(self, op: Op, cell: Cell, problem: Problem, kind_of: Mapping[str, str]) -> None:
        reason = misplaced(op.stage, op.microbatch, cell, problem)
        if not reason:
            kinds = problem.stage_data[op.stage].durations
            if op.kind not in kinds:
                letters = ", ".join(_letter(kind, kind_of) for kind in KINDS if kind in kinds)
                reason = f"must be one of {letters}: the backward of this stage in the problem"
            elif op in self.places:
                reason = f"is there already: {self.places[op].place}"
        if reason:
            self.faults.append(cell.fault(reason))
        else:
            self.places[op] = cell
            self.orders[Resource("compute", cell.row - 1)].append(op)


def misplaced(stage: int, microbatch: int, cell: Cell, problem: Problem) -> str:
    """Why a cell can not be in its row, whatever it does; "" if it can."""
    if stage >= problem.stage_count:
        return f"must be of a stage from 0 to {problem.stage_count - 1}"
    if microbatch >= problem.microbatches:
        return f"must be of a microbatch from 0 to {problem.microbatches - 1}"
    row = problem.device_of[stage] + 1
    return "" if row == cell.row else f"must be in row {row}, that of the device of its stage"


def _faults_of_b(
    actions: Sequence[Action], problem: Problem, b_means: BMeans | None
) -> Iterator[Fault]:
    """Whether it is clear what B means."""
    with_i = any(action.word == "I" for action in actions)
    if b_means == "input-gradient" and with_i:
        yield Fault(
            "B", "", "must be a full backward: the table has I for the gradient of the input"
        )
    of_split = any(
        action.word == "B"
        and action.stage < problem.stage_count
        and "B" in problem.stage_data[action.stage].durations
        for action in actions
    )
    if b_means is None and of_split and not with_i:
        yield Fault(
            "B",
            "",
            "must be told what it means, for the table has no I and the problem has B and W: "
            "full-backward, or input-gradient as until torch 2.5",
        )


def _letter(kind: str, kind_of: Mapping[str, str]) -> str:
    """How a table has a kind of op: "B" and not "I" where both are the gradient of the input."""
    letters = [letter for letter, each in kind_of.items() if each == kind]
    return letters[-1] if letters else f"(no letter for {kind})"


def _missing(
    places: Mapping[Op, Cell], problem: Problem, kind_of: Mapping[str, str]
) -> Iterator[Fault]:
    for stage, data in enumerate(problem.stage_data):
        for kind in data.durations:
            absent = [i for i in range(problem.microbatches) if Op(kind, stage, i) not in places]
            if absent:
                row = problem.device_of[stage] + 1
                letter = _letter(kind, kind_of)
                shown = ", ".join(f"{stage}{letter}{i}" for i in absent[:3])
                more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
                yield Fault(f"row {row}", f"without {shown}{more}", "must have each op once")
