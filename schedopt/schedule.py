"""Schedule: the order of ops on each resource, with start times, for one problem."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from schedopt.choices import Orders, recomputed_in
from schedopt.errors import Fault, ProblemError, ScheduleError
from schedopt.exact import resolution, steps, text, to_json
from schedopt.fields import Exact, Index
from schedopt.graph import attribute, build_graph
from schedopt.op import COMPUTE, KINDS, Op, Resource
from schedopt.problem import Problem
from schedopt.reading import read_data
from schedopt.timing import earliest_starts, shortest_period_starts
from schedopt.validation import faults_of

FORMAT = "schedopt.schedule/1"
ROUNDING = Fraction(1, 10**9)
"""By how much a stated gap may differ from that of the objective and the bound."""


class TimedOp(NamedTuple):
    """An op with its start and end, in steps of the schedule's resolution."""

    op: Op
    start: int
    end: int


@dataclass(frozen=True)
class Schedule:
    """The order of ops on each resource, with start times, for one problem.

    A schedule can be wrong (one that was edited by hand, say); `schedopt.check` tells.

    Attributes
    ----------
    problem
        The problem it is for.
    timeline
        The ops of each resource in their order.
    resolution
        Unit of the problem per step of the times in `timeline`.
    name
        What made it: the name of a classic schedule, or "solved".
    info
        Further facts for JSON: status, bound, seed, versions.
    """

    problem: Problem
    timeline: Mapping[Resource, tuple[TimedOp, ...]]
    resolution: Fraction
    name: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_order(
        cls,
        graph: nx.DiGraph[Op],
        orders: Orders,
        *,
        name: str = "",
        info: Mapping[str, Any] | None = None,
    ) -> Schedule:
        """Time an order: as early as possible, or for the shortest period if that is the
        objective.

        Parameters
        ----------
        graph
            From `schedopt.graph.build_graph`.
        orders
            Every op of the graph once, on its own resource.
        name, info
            Kept in the schedule.

        Raises
        ------
        ScheduleError
            If an op is missing, unknown, doubled, or on a resource that is not its own.
        DeadlockError
            If the orders wait for each other in a circle.
        """
        faults = _order_faults(graph, orders)
        if faults:
            raise ScheduleError(faults)
        problem: Problem = graph.graph["problem"]
        timing = shortest_period_starts if problem.objective == "period" else earliest_starts
        starts = timing(graph, orders)
        duration = attribute(graph, "duration")
        timeline = {
            resource: tuple(TimedOp(op, starts[op], starts[op] + duration[op]) for op in ops)
            for resource, ops in sorted(orders.items())
        }
        return cls(problem, timeline, graph.graph["resolution"], name, info or {})

    # ------------------------------------------------------------------ reading it

    @property
    def orders(self) -> dict[Resource, tuple[Op, ...]]:
        """Order of the ops of each resource."""
        return {
            resource: tuple(timed.op for timed in timed_ops)
            for resource, timed_ops in self.timeline.items()
        }

    @cached_property
    def graph(self) -> nx.DiGraph[Op]:
        """Graph of the problem with the recomputation that the schedule has chosen."""
        return build_graph(self.problem, recomputed=recomputed_in(self.orders))

    @cached_property
    def by_device(self) -> dict[int, tuple[TimedOp, ...]]:
        """The ops that each device of the problem computes, in order of their start."""
        result: dict[int, list[TimedOp]] = {d: [] for d in range(self.problem.devices)}
        for resource, timed_ops in self.timeline.items():
            if resource.kind == COMPUTE:
                result.setdefault(resource.device, []).extend(timed_ops)
        return {d: tuple(sorted(ops, key=lambda t: t.start)) for d, ops in result.items()}

    @cached_property
    def makespan(self) -> Fraction:
        """End of the last op, counted from 0, in the unit of the problem."""
        ends = (timed.end for ops in self.timeline.values() for timed in ops)
        return max(ends, default=0) * self.resolution

    @cached_property
    def period(self) -> Fraction:
        """Largest span of a device, or of an occupied link, from first start to last end."""
        spans: dict[str, list[TimedOp]] = {}
        for resource, timed_ops in self.timeline.items():
            spans.setdefault(resource.span, []).extend(timed_ops)
        lengths = (
            max(timed.end for timed in ops) - min(timed.start for timed in ops)
            for ops in spans.values()
            if ops
        )
        return max(lengths, default=0) * self.resolution

    @property
    def objective(self) -> Fraction:
        """Value of the problem's objective."""
        return self.period if self.problem.objective == "period" else self.makespan

    @property
    def stated_bound(self) -> Fraction | None:
        """The bound of the objective that `info` states, None if it states none."""
        return _figure(self.info.get("bound"))

    # ------------------------------------------------------------------ files

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to use the schedule alone, ready for JSON."""
        timeline = [
            {
                "resource": resource.kind,
                "device": resource.device,
                "ops": [
                    {
                        "kind": timed.op.kind,
                        "stage": timed.op.stage,
                        "microbatch": timed.op.microbatch,
                        "start": to_json(timed.start * self.resolution),
                        "end": to_json(timed.end * self.resolution),
                    }
                    for timed in timed_ops
                ],
            }
            for resource, timed_ops in self.timeline.items()
        ]
        return {
            "format": FORMAT,
            "versions": {"schedopt": version("schedopt")},
            "name": self.name,
            "problem": self.problem.to_dict(),
            "placement": list(self.problem.device_of),
            "kinds": KINDS,
            "time_unit": self.problem.time_unit,
            "makespan": to_json(self.makespan),
            "period": to_json(self.period),
            "timeline": timeline,
            "info": dict(self.info),
        }

    def to_json(self) -> str:
        """JSON text: one line per op, the problem and the rest readable."""
        data = self.to_dict()
        timeline = data.pop("timeline")
        head = json.dumps(data, indent=1).removesuffix("\n}")
        rows = []
        for entry in timeline:
            ops = ",\n   ".join(json.dumps(op) for op in entry.pop("ops"))
            rows.append(f'{json.dumps(entry)[:-1]}, "ops": [\n   {ops}]}}')
        body = ",\n  ".join(rows)
        return f'{head},\n "timeline": [\n  {body}\n ]\n}}\n'

    def save(self, path: str | Path) -> None:
        """Write JSON; `load` gives an equal schedule."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def from_dict(cls, data: Any, source: str = "") -> Schedule:
        """Read parsed JSON.

        Figures that the file states, such as its makespan, must be those of its times.

        Raises
        ------
        ScheduleError
            Naming `source`, with every fault.
        """
        try:
            file = ScheduleFile.model_validate(data)
        except ValidationError as error:
            raise ScheduleError(faults_of(error, ScheduleFile), source) from None
        try:
            problem = Problem.from_dict(file.problem)
        except ProblemError as error:
            nested = [Fault(f"problem.{f.field}", f.value, f.valid) for f in error.faults]
            raise ScheduleError(nested, source) from None
        faults = list(_file_faults(file, problem))
        if faults:
            raise ScheduleError(faults, source)
        times = {time for row in file.timeline for op in row.ops for time in (op.start, op.end)}
        step = resolution([problem.time_resolution, *times])
        timeline: dict[Resource, tuple[TimedOp, ...]] = {}
        for entry in file.timeline:
            timeline[Resource(entry.resource, entry.device)] = tuple(
                TimedOp(
                    Op(op.kind, op.stage, op.microbatch),
                    steps(op.start, step),
                    steps(op.end, step),
                )
                for op in entry.ops
            )
        schedule = cls(problem, timeline, step, file.name, file.info)
        faults = list(_stated_faults(file, schedule))
        if faults:
            raise ScheduleError(faults, source)
        return schedule

    @classmethod
    def load(cls, path: str | Path) -> Schedule:
        """Read a file written by `save`.

        Raises
        ------
        ScheduleError
            If the file can not be read or parsed, or is not a schedule.
        """
        try:
            data = read_data(path)
        except ProblemError as error:
            raise ScheduleError(error.faults, str(path)) from None
        return cls.from_dict(data, str(path))


def _order_faults(graph: nx.DiGraph[Op], orders: Orders) -> list[Fault]:
    resource_of = attribute(graph, "resource")
    count: Counter[Op] = Counter()
    faults = []
    for resource, ops in orders.items():
        count.update(ops)
        for op in ops:
            if op not in graph:
                faults.append(Fault(str(resource), str(op), "is no op of this problem"))
            elif resource_of[op] != resource:
                faults.append(Fault(str(resource), str(op), f"belongs on {resource_of[op]}"))
    for op in graph:
        if count[op] != 1:
            faults.append(Fault(str(resource_of[op]), str(op), f"is there {count[op]} times"))
    return faults


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class OpEntry(_Strict):
    kind: str = Field(pattern="^(" + "|".join(KINDS) + ")$")
    stage: Index
    microbatch: Index
    start: Exact
    end: Exact


class TimelineEntry(_Strict):
    resource: str
    device: Index
    ops: list[OpEntry]


class ScheduleFile(_Strict):
    """A schedule file (see `Schedule.to_dict`)."""

    format: str = Field(pattern=f"^{FORMAT}$")
    versions: dict[str, str] = {}
    name: str = ""
    problem: dict[str, Any]
    placement: list[Index] = []
    kinds: dict[str, str] = {}
    time_unit: str = ""
    makespan: Exact | None = None
    period: Exact | None = None
    timeline: list[TimelineEntry]
    info: dict[str, Any] = {}


def _file_faults(file: ScheduleFile, problem: Problem) -> Iterator[Fault]:
    if file.placement not in ([], list(problem.device_of)):
        valid = f"must be that of the problem, {list(problem.device_of)}"
        yield Fault("placement", str(file.placement), valid)
    seen: set[Resource] = set()
    for position, entry in enumerate(file.timeline):
        resource = Resource(entry.resource, entry.device)
        if resource in seen:
            valid = "is there twice; all ops of a resource are in one list"
            yield Fault(f"timeline[{position}]", str(resource), valid)
        seen.add(resource)


def _stated_faults(file: ScheduleFile, schedule: Schedule) -> Iterator[Fault]:
    """Figures of a file that are not those of its times; facts that are no figures are free."""
    name, objective = schedule.problem.objective, schedule.objective
    stated, bound, gap = (_figure(file.info.get(key)) for key in ("objective", "bound", "gap"))
    figures = (
        ("makespan", file.makespan, schedule.makespan, "the end of its last op"),
        ("period", file.period, schedule.period, "the largest span of a device in it"),
        ("info.objective", stated, objective, f"its {name}"),
    )
    for place, value, right, meaning in figures:
        if value is not None and value != right:
            valid = f"must be {to_json(right)}, {meaning}, or left out"
            yield Fault(place, str(to_json(value)), valid)
    if gap is not None and bound is not None:
        right_gap = (objective - bound) / objective if objective else Fraction(0)
        if abs(gap - right_gap) > ROUNDING:
            valid = f"must be {text(right_gap)}, (objective - bound) / objective, or left out"
            yield Fault("info.gap", text(gap), valid)


def _figure(value: Any) -> Fraction | None:
    """A number as `schedopt.exact.to_json` writes it; None for anything else."""
    try:
        return _EXACT.validate_python(value)
    except ValidationError:
        return None


_EXACT: TypeAdapter[Fraction] = TypeAdapter(Exact)
