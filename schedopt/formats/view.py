"""The part of a schedule that a picture shows: a span of time and some of the devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from schedopt.errors import Fault, InputError
from schedopt.exact import text
from schedopt.schedule import Schedule


class View(NamedTuple):
    """A span of time, in the unit of the problem, and the devices, in the order they are drawn."""

    start: Fraction
    end: Fraction
    devices: tuple[int, ...]

    def part_of(self, schedule: Schedule) -> str:
        """In words what of its time is shown: nothing if that is all of it."""
        if self.start == 0 and self.end >= schedule.makespan:
            return ""
        return f"{text(self.start)} to {text(self.end)} {schedule.problem.time_unit}"

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        *,
        start: Fraction | None = None,
        end: Fraction | None = None,
        devices: Sequence[int] = (),
    ) -> View:
        """The part of a schedule that is asked for, by default all of it.

        Parameters
        ----------
        schedule
            Any schedule.
        start, end
            Span of time in the unit of the problem; an end after the makespan means the makespan.
        devices
            Devices to show; each is shown once.

        Raises
        ------
        InputError
            If nothing of the schedule is in that span, or there is no such device.
        """
        last = schedule.makespan or schedule.resolution  # a picture without length shows nothing
        faults = list(_time_faults(schedule, start, end))
        count = schedule.problem.devices
        faults += [
            Fault("device", str(device), f"must be a device of the problem, 0 to {count - 1}")
            for device in devices
            if not 0 <= device < count
        ]
        if faults:
            raise InputError("view", faults)
        return cls(
            Fraction(0) if start is None else start,
            last if end is None else min(end, last),
            tuple(dict.fromkeys(devices)) or tuple(range(count)),
        )


def _time_faults(
    schedule: Schedule, start: Fraction | None, end: Fraction | None
) -> Iterator[Fault]:
    makespan = schedule.makespan
    last = f"{text(makespan)} {schedule.problem.time_unit}"
    if start is not None and not 0 <= start < makespan:
        yield Fault("from", text(start), f"must be at least 0 and before the makespan, {last}")
    if end is not None and end <= (start or 0):
        yield Fault("to", text(end), f"must be after {text(start or 0)}, where the view begins")
