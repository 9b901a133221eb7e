"""What a schedule achieves: objective values, idle time, memory, transfers; and comparisons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

from schedopt.classic import CLASSIC
from schedopt.errors import NotApplicableError, ProblemError
from schedopt.exact import to_json
from schedopt.memory import peak_memory
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.variants import recut, uniform_choices

RECUTS = {
    "Interleaved 1F1B": (("interleaved", 2), ("interleaved", 4)),
    "ZB-V": (("v", 2),),
    "V-Half": (("v", 2),),
    "V-Min": (("v", 2),),
    "DualPipeV": (("v", 2),),
    "Wave": (("wave", 2), ("wave", 4)),
}
"""Placements (name, chunks) of the classic schedules that need several stages per device."""


@dataclass(frozen=True)
class DeviceSummary:
    """One device of a schedule; times and memory in the units of the problem.

    Attributes
    ----------
    stages
        Stages on the device, in model order.
    work
        Time in which it runs ops.
    idle
        The rest of the makespan.
    peak
        Peak memory, static memory included; buffers of transfers are not.
    capacity
        Its limit, None if there is none.
    """

    device: int
    stages: tuple[int, ...]
    work: Fraction
    idle: Fraction
    peak: Fraction
    capacity: Fraction | None

    @property
    def fits(self) -> bool:
        """Whether the peak is within the capacity."""
        return self.capacity is None or self.peak <= self.capacity


@dataclass(frozen=True)
class Summary:
    """What a schedule achieves. Times and memory are exact, in the units of the problem.

    Attributes
    ----------
    objective
        "makespan" or "period": the one that was to be minimised.
    backward
        "BW" (fused), "B, W" (split), "mixed", or "none" (forward only).
    transfers
        Transfers of activations and gradients between different devices in one step.
    parameter_copies
        How many times the parameters of the model are held, 1 for one stage on one device.
    """

    name: str
    objective: str
    time_unit: str
    memory_unit: str
    microbatches: int
    stages: int
    placement: str
    backward: str
    makespan: Fraction
    period: Fraction
    transfers: int
    devices: tuple[DeviceSummary, ...]
    parameter_copies: int = 1

    @property
    def work(self) -> Fraction:
        """Work of all devices."""
        return sum((device.work for device in self.devices), Fraction(0))

    @property
    def makespan_bubble(self) -> Fraction:
        """Idle share of the makespan: 1 - work / (p x makespan)."""
        return self._idle_share(self.makespan)

    @property
    def period_bubble(self) -> Fraction:
        """Idle share of the period: 1 - work / (p x period)."""
        return self._idle_share(self.period)

    @property
    def peak(self) -> Fraction:
        """Largest peak memory of a device."""
        return max(device.peak for device in self.devices)

    @property
    def fits(self) -> bool:
        """Whether every device stays within its capacity."""
        return all(device.fits for device in self.devices)

    @property
    def busiest(self) -> tuple[DeviceSummary, ...]:
        """The devices with the most work: no objective can be less than it."""
        most = max(device.work for device in self.devices)
        return tuple(device for device in self.devices if device.work == most)

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {
            "name": self.name,
            "objective": self.objective,
            "time_unit": self.time_unit,
            "memory_unit": self.memory_unit,
            "microbatches": self.microbatches,
            "stages": self.stages,
            "parameter_copies": self.parameter_copies,
            "placement": self.placement,
            "backward": self.backward,
            "makespan": to_json(self.makespan),
            "period": to_json(self.period),
            "makespan_bubble": float(self.makespan_bubble),
            "period_bubble": float(self.period_bubble),
            "transfers": self.transfers,
            "fits": self.fits,
            "devices": [
                {
                    "device": device.device,
                    "stages": list(device.stages),
                    "work": to_json(device.work),
                    "idle": to_json(device.idle),
                    "peak_memory": to_json(device.peak),
                    "capacity": None if device.capacity is None else to_json(device.capacity),
                    "fits": device.fits,
                }
                for device in self.devices
            ],
        }

    def _idle_share(self, length: Fraction) -> Fraction:
        return 1 - self.work / (len(self.devices) * length) if length else Fraction(0)


def summary(schedule: Schedule) -> Summary:
    """Sum up a schedule; it may be one that breaks rules."""
    problem = schedule.problem
    devices = []
    for device, peak in enumerate(peak_memory(schedule)):
        work = sum(timed.end - timed.start for timed in schedule.by_device[device])
        devices.append(
            DeviceSummary(
                device,
                problem.stages_on[device],
                work * schedule.resolution,
                schedule.makespan - work * schedule.resolution,
                peak,
                problem.capacity[device],
            )
        )
    return Summary(
        name=schedule.name,
        objective=problem.objective,
        time_unit=problem.time_unit,
        memory_unit=problem.memory_unit,
        microbatches=problem.microbatches,
        stages=problem.stage_count,
        placement=placement_text(problem),
        backward=_backward(problem),
        makespan=schedule.makespan,
        period=schedule.period,
        transfers=transfers(problem),
        devices=tuple(devices),
    )


def transfers(problem: Problem) -> int:
    """Transfers between different devices in one step: an activation there, a gradient back."""
    pairs = {(connection.source, connection.target) for connection in problem.connections}
    device_of = problem.device_of
    crossing = sum(device_of[source] != device_of[target] for source, target in pairs)
    directions = 1 if problem.forward_only else 2
    return directions * crossing * problem.microbatches


def placement_text(problem: Problem) -> str:
    """Placement in words: "linear", "v, 2 chunks", "own list"."""
    name = problem.placement_name
    if name is None:
        return "own list"
    chunks = problem.stage_count // problem.devices
    return name if chunks == 1 else f"{name}, {chunks} chunks"


def _backward(problem: Problem) -> str:
    forms = {data.backward for data in problem.stage_data}
    names = {"B": "B, W", "BW": "BW", "": "none"}
    return "mixed" if len(forms) > 1 else names[forms.pop()]


# ---------------------------------------------------------------------- comparison


@dataclass(frozen=True)
class Row:
    """One schedule of a comparison.

    Attributes
    ----------
    schedule, summary
        None if the schedule can not be made for this problem.
    recut
        Whether each stage was cut into equal pieces for it, on the same devices.
    note
        Why there is no schedule.
    """

    name: str
    placement: str
    schedule: Schedule | None
    summary: Summary | None
    recut: bool = False
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """All but the schedule, ready for JSON."""
        return {
            "name": self.name,
            "placement": self.placement,
            "recut": self.recut,
            "note": self.note,
            "summary": None if self.summary is None else self.summary.to_dict(),
        }


def compare(
    problem: Problem, *schedules: Schedule, progress: Callable[[str], None] | None = None
) -> tuple[Row, ...]:
    """Compare every classic schedule for a problem, and `schedules`.

    A classic schedule that needs another placement is made for the same model with each stage
    cut into equal pieces (`schedopt.variants.recut`) where the problem has one stage per device
    in order; otherwise its row says what it needs. Where recomputation is decided, there is a row
    with nothing and one with everything recomputed.

    Parameters
    ----------
    problem
        The problem.
    schedules
        Further schedules to compare.
    progress
        Called with the name of each classic schedule before it is made.

    Returns
    -------
    tuple of Row
        The classic schedules in the order of `schedopt.classic.CLASSIC`, then `schedules`.
    """
    linear = problem.device_of == tuple(range(problem.devices))
    rows: list[Row] = []
    for name in CLASSIC:
        if progress is not None:
            progress(name)
        cuts = RECUTS.get(name, (None,)) if linear else (None,)
        for (label, variant), cut in product(uniform_choices(problem).items(), cuts):
            rows.append(_classic_row(variant, name, cut, label))
    for schedule in schedules:
        facts = summary(schedule)
        rows.append(Row(schedule.name, facts.placement, schedule, facts))
    return tuple(rows)


def _classic_row(problem: Problem, name: str, cut: tuple[str, int] | None, label: str) -> Row:
    placement = placement_text(problem) if cut is None else f"{cut[0]}, {cut[1]} chunks"
    try:
        schedule = CLASSIC[name](problem if cut is None else recut(problem, *cut))
    except NotApplicableError as error:
        needed = RECUTS[name][0][0] if name in RECUTS else "linear"
        return Row(name, f"needs placement {needed}", None, None, note=str(error))
    except ProblemError as error:
        return Row(name, "not applicable", None, None, note=f"{name}: {error}")
    return Row(name + label, placement, schedule, summary(schedule), cut is not None)
