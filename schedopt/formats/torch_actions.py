"""The cells of tables of actions of torch.distributed.pipelining (2.13).

One row for each device; a cell is stage, action, microbatch: ``11F3``. A letter does not mean what
it means elsewhere in this project:

=======  =====================================  ====
in torch  meaning                                here
=======  =====================================  ====
F        forward                                F
I        gradient of the input only             B
W        gradient of the weights only           W
B        full backward                          BW
=======  =====================================  ====

Until torch 2.5 "B" was the gradient of the input only, and there was no "I" (pull request 138886).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from schedopt.errors import Fault, InputError
from schedopt.op import Op
from schedopt.problem import Problem

LETTERS = {"F": "F", "B": "I", "W": "W", "BW": "B"}
"""Kind of op -> letter in a table."""

TRANSFERS = ("SEND_F", "RECV_F", "SEND_B", "RECV_B")
"""Of activations (F) and of gradients (B); with the stage and microbatch of the own rank."""

REDUCE_GRAD, SHARDING = "REDUCE_GRAD", ("UNSHARD", "RESHARD")
"""What is done for a whole stage: scales and reduces its gradients; gathers its parameters."""

BMeans = Literal["full-backward", "input-gradient"]
"""What "B" in a table means: as since torch 2.6, or as until torch 2.5."""

WHAT = "table of actions"

_WORDS = "|".join([*LETTERS.values(), *TRANSFERS, REDUCE_GRAD, *SHARDING])
_ACTION = re.compile(rf"(\d{{1,9}})({_WORDS})(\d{{1,9}})?", re.ASCII)


class Cell(NamedTuple):
    """One cell of a table that is not empty; row and column are counted from 1."""

    row: int
    column: int
    text: str

    @property
    def place(self) -> str:
        """Where it is."""
        return f"row {self.row}, column {self.column}"

    def fault(self, valid: str) -> Fault:
        """A fault of this cell."""
        return Fault(self.place, repr(self.text), valid)


class Action(NamedTuple):
    """What a cell says; what is done for a whole stage has no microbatch (-1)."""

    stage: int
    word: str
    microbatch: int = -1

    def __str__(self) -> str:
        return f"{self.stage}{self.word}{self.microbatch if self.microbatch >= 0 else ''}"

    @classmethod
    def parse(cls, text: str) -> Action | None:
        """The action of a text; None if it is none.

        Examples
        --------
        >>> Action.parse("11SEND_F3")
        Action(stage=11, word='SEND_F', microbatch=3)
        """
        match = _ACTION.fullmatch(text)
        if match is None or (match[3] is None) != (match[2] in (REDUCE_GRAD, *SHARDING)):
            return None
        return cls(int(match[1]), match[2], -1 if match[3] is None else int(match[3]))

    @classmethod
    def of(cls, op: Op) -> Action:
        """The action that runs an op."""
        return cls(op.stage, LETTERS[op.kind], op.microbatch)


def table_of(rows: Iterable[Sequence[Action]]) -> str:
    """The text of a table with a row for each device."""
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(rows)
    return lines.getvalue()


def cells_of(text: str, problem: Problem, *, source: str) -> list[Cell]:
    """The cells of a table, row by row, without blanks around them and without empty ones.

    Raises
    ------
    InputError
        If it is no table with a row for each device.
    """
    try:
        rows = list(csv.reader(io.StringIO(text, newline=None)))
    except csv.Error as error:
        fault = Fault("(table)", "", f"must be comma-separated values: {error}")
        raise InputError(WHAT, [fault], source) from None
    while rows and not any(cell.strip() for cell in rows[-1]):
        rows.pop()
    if len(rows) != problem.devices:
        valid = f"must be {problem.devices}, one for each device of the problem"
        raise InputError(WHAT, [Fault("rows", str(len(rows)), valid)], source)
    return [
        Cell(row, column, cell.strip())
        for row, cells in enumerate(rows, start=1)
        for column, cell in enumerate(cells, start=1)
        if cell.strip()
    ]
