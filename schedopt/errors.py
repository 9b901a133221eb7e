"""Exceptions. Each derives from the built-in it resembles, and carries the facts as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong in an input.

    Attributes
    ----------
    field
        Where: ``durations.F[3]``.
    value
        What was given, as text.
    valid
        What would be valid.
    """

    field: str
    value: str
    valid: str

    def __str__(self) -> str:
        given = f" = {self.value}" if self.value else ""
        return f"{self.field}{given}: {self.valid}"


class InputError(ValueError):
    """A file or an argument is not valid; lists every fault found.

    Attributes
    ----------
    what
        The kind of thing that was read: "problem", "schedule".
    source
        File it came from, or "" if it was built in code.
    faults
        All faults, in the order of the fields.
    """

    def __init__(self, what: str, faults: Sequence[Fault], source: str = "") -> None:
        self.what = what
        self.source = source
        self.faults = tuple(faults)
        count = f"{len(self.faults)} fault" + ("s" if len(self.faults) != 1 else "")
        head = f"{source}: " if source else ""
        lines = "".join(f"\n  {fault}" for fault in self.faults)
        super().__init__(f"{head}{what} is not valid, {count}:{lines}")


class ProblemError(InputError):
    """A problem is not valid."""

    def __init__(self, faults: Sequence[Fault], source: str = "") -> None:
        super().__init__("problem", faults, source)


class ScheduleError(InputError):
    """A schedule can not be read, or does not belong to its problem."""

    def __init__(self, faults: Sequence[Fault], source: str = "") -> None:
        super().__init__("schedule", faults, source)


class DeadlockError(ValueError):
    """The orders of the devices wait for each other in a circle.

    Attributes
    ----------
    cycle
        The ops of one circle; each waits for the one before it, the first for the last.
    """

    def __init__(self, cycle: Sequence[object]) -> None:
        self.cycle = tuple(cycle)
        super().__init__(
            "deadlock: these ops wait for each other: " + " -> ".join(map(str, self.cycle))
        )


class NotApplicableError(ValueError):
    """A classic schedule or a runtime is not made for this problem; says what it needs."""


class SplitError(TypeError):
    """The backward of a module can not be split into B and W; says why."""
