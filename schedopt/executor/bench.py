"""Runs several schedules in turn on the same ranks: measured beside predicted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from schedopt.analysis import summary
from schedopt.classic import CLASSIC
from schedopt.errors import Fault, InputError
from schedopt.executor.bench_rank import WARM_UP, Entry, RankReport, Source, Step, measure
from schedopt.executor.chrome import side_by_side
from schedopt.executor.held import MemoryStats
from schedopt.executor.launch import answers
from schedopt.executor.launch_rank import answer_of
from schedopt.executor.local import LocalRanks, require_device
from schedopt.executor.prediction import timed_with, with_fused_stages
from schedopt.executor.program import training_program
from schedopt.executor.torch_baseline import counterpart
from schedopt.executor.trace import Trace
from schedopt.problem import Problem
from schedopt.schedule import Schedule

EQUAL_LOSSES = 1e-6
"""Largest relative difference of losses that are equal."""

_PATIENCE = 120.0
"""Seconds beyond ten times what is expected, after which ranks are ended."""

Durations = list[dict[str, float]]
"""By stage and kind, in us."""


@dataclass(frozen=True)
class Expected:
    """What a schedule promises: makespan in ms, its idle share, and the times of the ops."""

    schedule: Schedule

    @property
    def milliseconds(self) -> float:
        return float(self.schedule.makespan) / 1e3

    @property
    def bubble(self) -> float:
        return float(summary(self.schedule).makespan_bubble)


@dataclass(frozen=True)
class Row:
    """One schedule of a benchmark.

    Attributes
    ----------
    name
        Of the schedule.
    runtime
        "schedopt" or "torch".
    problem
        That of the schedule.
    predicted
        By the durations of the problem; None if they are not times, and for torch.
    from_ops
        By the measured durations of its ops and the measured lag: what differs from this is the
        executor's; None for torch.
    steps
        By round and rank.
    memory
        By rank; empty for torch.
    """

    name: str
    runtime: str
    problem: Problem
    predicted: Expected | None
    from_ops: Expected | None
    steps: tuple[tuple[Step, ...], ...]
    memory: tuple[MemoryStats, ...]

    @property
    def milliseconds(self) -> tuple[float, ...]:
        """Length of each step: until the last rank has ended."""
        return tuple(1e3 * max(step.seconds for step in ranks) for ranks in self.steps)

    @property
    def measured(self) -> float:
        """Median of the lengths in ms."""
        return median(self.milliseconds)

    @property
    def error(self) -> float | None:
        """(measured - predicted) / predicted."""
        return None if self.predicted is None else self.measured / self.predicted.milliseconds - 1

    @property
    def cpu_milliseconds(self) -> float:
        """CPU time of a step on all ranks, median."""
        return median(1e3 * sum(step.cpu_seconds for step in ranks) for ranks in self.steps)

    @property
    def bubble(self) -> float | None:
        """Share of the step in which no op ran, median; None for torch."""
        shares = []
        for ranks, length in zip(self.steps, self.milliseconds, strict=True):
            traces = [step.trace for step in ranks]
            busy = sum(op.end - op.start for trace in traces if trace for op in trace.ops)
            shares.append(1 - 1e3 * busy / (len(ranks) * length))
        return median(shares) if self.runtime == "schedopt" else None

    @property
    def losses(self) -> tuple[float, ...]:
        """Of the microbatches, in the last step."""
        return next((step.losses for step in self.steps[-1] if step.losses), ())

    @property
    def loss(self) -> float:
        """Their mean."""
        return sum(self.losses) / len(self.losses)

    @property
    def within_plan(self) -> bool | None:
        """Whether no rank held more microbatches or messages than planned; None for torch."""
        if not self.memory:
            return None
        return all(
            stats.boundary_messages <= stats.planned_boundary_messages
            and stats.activation_bytes_left == stats.boundary_messages_left == 0
            and all(n <= stats.planned_microbatches[s] for s, n in stats.held_microbatches.items())
            for stats in self.memory
        )

    @property
    def held_microbatches(self) -> tuple[int, int]:
        """Of the stage that held most microbatches: how many, and how many were planned."""
        return max(
            (held, stats.planned_microbatches[stage])
            for stats in self.memory
            for stage, held in stats.held_microbatches.items()
        )

    @property
    def boundary_messages(self) -> tuple[int, int]:
        """Of the rank that had room for most messages: how many, and how many were planned."""
        return max((s.boundary_messages, s.planned_boundary_messages) for s in self.memory)

    @property
    def traces(self) -> tuple[Trace, ...]:
        """Of the step whose length is nearest to the median, by rank; empty for torch."""
        middle = min(
            zip(self.milliseconds, self.steps, strict=True),
            key=lambda pair: abs(pair[0] - self.measured),
        )[1]
        return tuple(step.trace for step in middle if step.trace is not None)

    def to_dict(self) -> dict[str, Any]:
        """All but the ops, ready for JSON."""
        first = self.predicted
        return {
            "name": self.name,
            "runtime": self.runtime,
            "microbatches": self.problem.microbatches,
            "stages": self.problem.stage_count,
            "predicted_ms": None if first is None else first.milliseconds,
            "measured_ms": self.measured,
            "difference": self.error,
            "steps_ms": list(self.milliseconds),
            "from_op_times_ms": None if self.from_ops is None else self.from_ops.milliseconds,
            "predicted_bubble": None if first is None else first.bubble,
            "measured_bubble": self.bubble,
            "cpu_ms": self.cpu_milliseconds,
            "loss": self.loss,
            "within_plan": self.within_plan,
            "memory": [_memory_to_dict(stats) for stats in self.memory],
        }


@dataclass(frozen=True)
class Report:
    """What a benchmark found.

    Attributes
    ----------
    rows
        In the order of the schedules, then torch.
    lag_us
        Measured lag of a boundary tensor, the mean of both directions; 0 with one rank.
    loss_difference
        Largest relative difference of the loss of a microbatch between rows that cut one batch
        into equally many; only those of as many stages are compared if the stages are emulated.
    """

    rows: tuple[Row, ...]
    lag_us: float
    loss_difference: float

    @property
    def losses_equal(self) -> bool:
        """Whether all schedules have computed the same."""
        return self.loss_difference <= EQUAL_LOSSES

    def trace(self) -> dict[str, Any]:
        """A Chrome trace: for each schedule its rows as predicted and as measured."""
        events: list[dict[str, Any]] = []
        for number, row in enumerate(self.rows):
            predicted = row.predicted or row.from_ops
            if predicted is not None:
                events += side_by_side(number, row.name, predicted.schedule, row.traces)
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def to_dict(self) -> dict[str, Any]:
        """All of it but the ops, ready for JSON."""
        return {
            "lag_us": self.lag_us,
            "losses_equal": self.losses_equal,
            "loss_difference": self.loss_difference,
            "rows": [row.to_dict() for row in self.rows],
        }


def bench(
    schedules: Sequence[Schedule],
    source: Source,
    *,
    rounds: int = 10,
    against_torch: bool = False,
    ranks: LocalRanks | None = None,
) -> Report:
    """Run schedules in turn, once in each round, on one process of this machine for each device.

    Parameters
    ----------
    schedules
        At least one; all for as many devices.
    source
        Of the modules, or of the times of emulated ones.
    rounds
        Timed steps of each schedule, after `WARM_UP` others.
    against_torch
        Also run what torch.distributed.pipelining has for the placement of each problem, and the
        classic schedule of that name if it is not among the schedules. Emulated stages then wait by
        themselves in both runtimes.
    ranks
        Processes that are there already, as many as devices.

    Raises
    ------
    InputError
        If a schedule is not valid, or the schedules or the model do not fit; names each fault.
    DeadlockError
        If the ranks would wait for each other.
    NotApplicableError
        If torch has no schedule for a placement.
    ExecutorError
        If a rank fails; with its traceback.
    """
    entries = entries_of(schedules, against_torch=against_torch)
    source = replace(source, stages_wait=source.stages_wait or against_torch)
    devices = _devices(schedules)
    require_device(source.device)
    for schedule in schedules:  # faults are found here and not by every rank
        training_program(schedule)
        source.model(schedule.problem, source.device)
        source.links(schedule.problem)
    timeout = _PATIENCE + 10 * (rounds + 2 * WARM_UP) * sum(
        float(entry.schedule.makespan) * (source.seconds_per_unit(entry.schedule.problem) or 0)
        for entry in entries
    )
    if ranks is None:
        with LocalRanks(devices) as started:
            outcomes = started.outcomes(
                answer_of, measure, entries, source, rounds, timeout=timeout
            )
    else:
        outcomes = ranks.outcomes(answer_of, measure, entries, source, rounds, timeout=timeout)
    return _report(entries, source, answers(outcomes))


def entries_of(schedules: Sequence[Schedule], *, against_torch: bool) -> list[Entry]:
    """What is to be run: the schedules, and for each problem what torch has for it.

    Raises
    ------
    NotApplicableError
        If torch has no schedule for a placement.
    """
    entries = [Entry(schedule) for schedule in schedules]
    for schedule in schedules if against_torch else ():
        classic = CLASSIC[counterpart(schedule.problem)](schedule.problem)
        same = [e for e in entries if _same(e.schedule, classic)]
        entries += [] if same else [Entry(classic)]
        entries += [] if any(e.by_torch for e in same) else [Entry(classic, by_torch=True)]
    return entries


def _same(one: Schedule, other: Schedule) -> bool:
    return one.problem == other.problem and one.orders == other.orders


def _devices(schedules: Sequence[Schedule]) -> int:
    counts = [schedule.problem.devices for schedule in schedules]
    faults = [
        Fault(f"schedules[{place}].devices", str(count), f"must be {counts[0]}, as of the first")
        for place, count in enumerate(counts)
        if count != counts[0]
    ]
    if faults:
        raise InputError("set of schedules", faults)
    return counts[0]


# ---------------------------------------------------------------------- from what ranks say


def _report(entries: Sequence[Entry], source: Source, reports: Sequence[RankReport]) -> Report:
    lag_us = _lag_us(source, reports)
    rows = []
    for place, entry in enumerate(entries):
        steps = tuple(zip(*(report.steps[place] for report in reports), strict=True))
        memory = tuple(stats for r in reports if (stats := r.memory[place]) is not None)
        fused = {stage for report in reports for stage in report.fused[place]}
        name, runtime = entry.schedule.name or f"schedule {place + 1}", "schedopt"
        predicted = from_ops = None
        if entry.by_torch:
            runtime = "torch"
        else:
            schedule = with_fused_stages(entry.schedule, fused)
            predicted = _predicted(schedule, source, lag_us)
            from_ops = _from_ops(schedule, source, lag_us, steps)
        problem = entry.schedule.problem
        rows.append(Row(name, runtime, problem, predicted, from_ops, steps, memory))
    return Report(tuple(rows), lag_us, _loss_difference(rows, source))


def _lag_us(source: Source, reports: Sequence[RankReport]) -> float:
    """Of a boundary tensor: the mean of what all pairs of ranks measured at the same time."""
    links = [link for report in reports for link in report.links]
    if not links:
        return 0.0
    size = float(source.boundary_bytes)
    if not source.is_emulated:
        stats = [s for r in reports for s in r.memory if s is not None and s.boundary_messages]
        size = max((s.boundary_bytes / s.boundary_messages for s in stats), default=0.0)
    return sum(link.lag_us(round(size)) for link in links) / len(links)


def _predicted(schedule: Schedule, source: Source, lag_us: float) -> Expected | None:
    problem = schedule.problem
    unit = source.seconds_per_unit(problem)
    if unit is None:
        return None
    durations = [
        {kind: float(d) * unit * 1e6 for kind, d in data.durations.items()}
        for data in problem.stage_data
    ]
    return _expected(schedule, source, lag_us, durations)


def _from_ops(
    schedule: Schedule, source: Source, lag_us: float, steps: Sequence[Sequence[Step]]
) -> Expected:
    found: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
    for trace in (step.trace for ranks in steps for step in ranks if step.trace is not None):
        for op, _, _, start, end in trace.ops:
            found[op.stage, op.kind].append(1e6 * (end - start))
    durations: Durations = [{} for _ in range(schedule.problem.stage_count)]
    for (stage, kind), values in found.items():
        durations[stage][kind] = median(values)
    return _expected(schedule, source, lag_us, durations)


def _expected(
    schedule: Schedule, source: Source, lag_us: float, durations: Sequence[Mapping[str, float]]
) -> Expected:
    """With a lag that is at least the measured one, and what the problem says if it is emulated."""
    slow = source.links(schedule.problem)
    return Expected(
        timed_with(schedule, durations, lambda d, e: max(lag_us, 1e6 * slow.get((d, e), 0.0)))
    )


def _loss_difference(rows: Sequence[Row], source: Source) -> float:
    """Rows that are to have equal losses are compared with the first of their kind."""
    first: dict[tuple[int, int], tuple[float, ...]] = {}
    worst = 0.0
    for row in rows:
        stages = row.problem.stage_count if source.is_emulated else 0
        expected = first.setdefault((row.problem.microbatches, stages), row.losses)
        for ours, theirs in zip(row.losses, expected, strict=True):
            worst = max(worst, abs(ours - theirs) / (abs(theirs) or 1.0))
    return worst


def _memory_to_dict(stats: MemoryStats) -> dict[str, Any]:
    return {
        "held_microbatches": {str(s): n for s, n in stats.held_microbatches.items()},
        "planned_microbatches": {str(s): n for s, n in stats.planned_microbatches.items()},
        "boundary_messages": stats.boundary_messages,
        "planned_boundary_messages": stats.planned_boundary_messages,
        "boundary_bytes": stats.boundary_bytes,
        "activation_bytes": stats.activation_bytes,
        "allocated_bytes": stats.allocated_bytes,
    }
