"""What is known of a problem, and the text of its file, of which nothing is taken on trust.

A schedule is checked against the problem. A bound can not be checked: the checksum tells whether
it is as it was written, and who can have written the file is asked when it is read
(`schedopt.cache.folder`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

from schedopt.check import check
from schedopt.exact import steps, text, to_json
from schedopt.fields import LARGEST_RESULT, Exact, Index
from schedopt.op import Op, Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule, TimedOp

FORMAT = "schedopt.cache/1"
NO_BOUND = Fraction(0), "nothing"
"""Bound that always holds, and its source."""


@dataclass(frozen=True)
class Entry:
    """What is known of a problem.

    Attributes
    ----------
    schedule
        A valid schedule.
    bound
        Proven lower bound of the objective, in the time unit of the problem.
    bound_source, objective_source
        What proved the bound, and what found the schedule.
    """

    schedule: Schedule
    bound: Fraction
    bound_source: str
    objective_source: str

    @property
    def objective(self) -> Fraction:
        """Objective of the schedule, in the time unit of the problem."""
        return self.schedule.objective

    @property
    def status(self) -> Literal["optimal", "feasible"]:
        """Whether the schedule is proven optimal."""
        return "optimal" if self.objective <= self.bound else "feasible"


def fault_of(schedule: Schedule) -> str:
    """What is wrong with a schedule, "" if nothing.

    Besides being valid it has to keep equal microbatches in the order of their index, as every
    search does (`schedopt.graph`), unless what is recomputed makes them unequal.
    """
    violations = check(schedule)
    if violations:
        return str(violations[0])
    return "" if schedule.problem.decides else _out_of_order(schedule)


def keeps_order(schedule: Schedule, *, all_lengths: bool) -> bool:
    """Whether microbatches are in the order of their index everywhere, whatever is recomputed.

    Those of one length, or of all lengths.
    """
    return not _out_of_order(schedule, all_lengths=all_lengths)


def _out_of_order(schedule: Schedule, *, all_lengths: bool = False) -> str:
    factors = schedule.problem.factors
    for timed_ops in schedule.timeline.values():
        latest: dict[tuple[str, int, Fraction | None], int] = {}
        for op, _, _ in timed_ops:
            equal = op.kind, op.stage, None if all_lengths else factors[op.microbatch]
            if op.microbatch < latest.get(equal, 0):
                return f"{op} comes after the same op of a later, equal microbatch"
            latest[equal] = op.microbatch
    return ""


def encode(entry: Entry, key: str) -> bytes:
    """JSON of an entry under the key of its problem, as `decode` reads it."""
    schedule = entry.schedule
    data = {
        "format": FORMAT,
        "key": key,
        "objective": to_json(entry.objective),
        "objective_source": entry.objective_source,
        "bound": to_json(entry.bound),
        "bound_source": entry.bound_source,
        "resolution": to_json(schedule.resolution),
        "timeline": [
            {
                "resource": resource.kind,
                "device": resource.device,
                "ops": " ".join(str(timed.op) for timed in timed_ops),
                "starts": [timed.start for timed in timed_ops],
            }
            for resource, timed_ops in schedule.timeline.items()
            if timed_ops
        ],
    }
    return json.dumps(data | {"sha256": checksum(data)}).encode()


def decode(content: bytes, key: str, problem: Problem) -> Entry:
    """Read what `encode` wrote for a problem with this key, whatever else it may be.

    A bound that contradicts the schedule is left out.

    Raises
    ------
    ValueError, RecursionError, MemoryError
        If it is no valid entry of this problem.
    """
    data = json.loads(content)
    if not isinstance(data, dict) or data.pop("sha256", None) != checksum(data):
        raise ValueError("it is damaged")
    file = _File.model_validate(data)
    if file.key != key:
        raise ValueError("it is of another problem or another version")
    schedule = _schedule(file, problem)
    fault = fault_of(schedule)
    if fault:
        raise ValueError(fault)
    if schedule.objective != file.objective:
        raise ValueError(f"the objective of its schedule is not {text(file.objective)}")
    proven = 0 <= file.bound <= file.objective
    bound, bound_source = (file.bound, file.bound_source) if proven else NO_BOUND
    return Entry(schedule, bound, bound_source, file.objective_source)


def checksum(data: dict[str, Any]) -> str:
    """Digest of the data of a file."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _one_line(value: str) -> str:
    if len(value) > 1000 or not value.isprintable():
        raise ValueError("must be one short line")
    return value


_Line = Annotated[str, AfterValidator(_one_line)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Row(_Strict):
    """The ops of a resource in their order ("0F0 0F1 0B0"), and their starts in steps."""

    resource: _Line
    device: Index
    ops: str
    starts: list[int]


class _File(_Strict):
    format: Literal["schedopt.cache/1"]
    key: str
    objective: Exact
    objective_source: _Line
    bound: Exact
    bound_source: _Line
    resolution: Exact
    timeline: list[_Row]


def _schedule(file: _File, problem: Problem) -> Schedule:
    """The schedule of a file, in which any op may still be wrong."""
    step, factors = file.resolution, problem.factors
    if step <= 0:
        raise ValueError(f"its resolution is {text(step)}")
    lengths = {
        (kind, stage, factor): steps(duration * factor, step)
        for stage, data in enumerate(problem.stage_data)
        for kind, duration in data.durations.items()
        for factor in set(factors)
    }
    timeline: dict[Resource, tuple[TimedOp, ...]] = {}
    for row in file.timeline:
        ops = [Op.parse(label) for label in row.ops.split()]
        if not ops or not all(0 <= start <= LARGEST_RESULT for start in row.starts):
            raise ValueError(f"its row of {row.resource} {row.device} is not valid")
        try:
            timeline[Resource(row.resource, row.device)] = tuple(
                TimedOp(op, start, start + lengths[op.kind, op.stage, factors[op.microbatch]])
                for op, start in zip(ops, row.starts, strict=True)
            )
        except LookupError:
            raise ValueError("it has an op that the problem does not have") from None
    return Schedule(problem, timeline, step, "solved")
