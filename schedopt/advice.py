"""What would help: changed problems, each solved, and what that saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from schedopt.exact import to_json
from schedopt.idle import DeviceIdle, causes
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.solvers.solution import Solution
from schedopt.variants import (
    activation,
    fused,
    moved,
    split,
    with_activations_added,
    with_lags_times,
    with_microbatches,
    with_recompute_mode,
    with_stage_times,
)

ALL_DEVICES = 4
"""Largest number of devices of which each is given more memory."""
MOST_STAGES = 2
"""Largest number of stages that are made faster, one at a time."""


class Change(NamedTuple):
    """A change and the problem that it leads to."""

    what: str
    problem: Problem


@dataclass(frozen=True)
class Outcome:
    """A changed problem, solved.

    Attributes
    ----------
    change
        What was changed.
    solution
        Of the changed problem.
    before
        Objective of the schedule that is to be improved, in the time unit of the problem.
    microbatches
        Of that schedule.
    """

    change: Change
    solution: Solution
    before: Fraction
    microbatches: int

    @property
    def time(self) -> Fraction | None:
        """Objective of the solution for as many microbatches as before; None if it has none."""
        objective = self.solution.objective
        return None if objective is None else self._for_as_many(objective)

    @property
    def bound(self) -> Fraction:
        """What no schedule of the changed problem is below, for as many microbatches as before."""
        return self._for_as_many(self.solution.bound)

    @property
    def saved(self) -> Fraction | None:
        """Share of the time before that is saved; negative if it is longer."""
        if self.time is None or not self.before:
            return None
        return 1 - self.time / self.before

    def _for_as_many(self, time: Fraction) -> Fraction:
        return time * self.microbatches / self.change.problem.microbatches

    def to_dict(self) -> dict[str, Any]:
        """All but the problem and the schedule, ready for JSON."""
        solution, time = self.solution, self.time
        return {
            "change": self.change.what,
            "microbatches": self.change.problem.microbatches,
            "status": solution.status,
            "objective": None if solution.objective is None else to_json(solution.objective),
            "objective_bound": to_json(solution.bound),
            "time": None if time is None else to_json(time),
            "bound": to_json(self.bound),
            "saved": None if self.saved is None else float(self.saved),
        }


def changes(schedule: Schedule) -> tuple[Change, ...]:
    """The problem of a schedule as it is, and changes of it that may help.

    More memory: one activation of a device (`schedopt.variants.activation`) on each device with
    a capacity if there are at most `ALL_DEVICES`, else on those that are longest idle for want
    of room; and on all of them. A link twice as fast: all lags halved. A stage 10 % faster: the
    longest stage of each of the busiest devices. An extra on the first stage, on the last, or on
    the one with the least work. Other modes of recomputation. One microbatch more. Backward fused,
    or split.

    Parameters
    ----------
    schedule
        Without violations (`schedopt.check`).
    """
    problem = schedule.problem
    devices = causes(schedule)
    found = [Change("the same problem, solved", problem)]
    found += _memory_changes(problem, devices)
    halved = with_lags_times(problem, Fraction(1, 2))
    if halved != problem:
        found.append(Change("links twice as fast", halved))
    for stage in _slowest_stages(problem, devices):
        faster = with_stage_times(problem, stage, Fraction(9, 10))
        found.append(Change(f"stage {stage} 10 % faster", faster))
    found += [
        Change(f"extra {extra.name!r} on stage {stage}", moved(problem, extra.name, stage))
        for extra in problem.extras
        for stage in _places_for(problem, extra.stage)
    ]
    if problem.recompute is not None:
        for mode, what in _MODES.items():
            variant = with_recompute_mode(problem, mode)
            if variant != problem:
                found.append(Change(what, variant))
    more = problem.microbatches + 1
    found.append(Change("one microbatch more", with_microbatches(problem, more)))
    for what, variant in (
        ("backward fused", fused(problem)),
        ("backward split into halves", split(problem)),
    ):
        if variant is not problem:
            found.append(Change(what, variant))
    return tuple(found)


def outcomes(
    schedule: Schedule,
    solve_one: Callable[[Change], Solution],
) -> Iterator[Outcome]:
    """Solve every change of a schedule (`changes`), one after the other.

    Parameters
    ----------
    schedule
        Without violations.
    solve_one
        Solves the problem of a change. After an interrupted solution the rest is left out.
    """
    for change in changes(schedule):
        solution = solve_one(change)
        yield Outcome(change, solution, schedule.objective, schedule.problem.microbatches)
        if solution.interrupted:
            return


_MODES = {
    "decide": "recomputation decided for each microbatch",
    "always": "everything recomputed",
    "never": "nothing recomputed",
}


def _places_for(problem: Problem, now: int) -> list[int]:
    """Stages to which an extra may be moved."""
    work = [sum(data.durations.values()) for data in problem.stage_data]
    lightest = work.index(min(work))
    return sorted({0, lightest, problem.stage_count - 1} - {now})


def _memory_changes(problem: Problem, devices: tuple[DeviceIdle, ...]) -> Iterator[Change]:
    limited = [d for d in devices if problem.capacity[d.device] is not None]
    limited = [d for d in limited if activation(problem, d.device)]
    if len(limited) > ALL_DEVICES:
        short = sorted((d for d in limited if d.no_room), key=lambda d: (-d.no_room, d.device))
        chosen = sorted(d.device for d in short[:ALL_DEVICES])
    else:
        chosen = [d.device for d in limited]
    for device in chosen:
        what = f"one activation more on device {device}"
        yield Change(what, with_activations_added(problem, [device]))
    if len(limited) > 1:
        everywhere = [d.device for d in limited]
        what = "one activation more on every device"
        yield Change(what, with_activations_added(problem, everywhere))


def _slowest_stages(problem: Problem, devices: tuple[DeviceIdle, ...]) -> list[int]:
    """The stage with the longest ops of each of the busiest devices."""
    most = max(device.work for device in devices)

    def length(stage: int) -> Fraction:
        return sum(problem.stage_data[stage].durations.values(), Fraction(0))

    busiest = [device.device for device in devices if device.work == most and device.work]
    return [max(problem.stages_on[device], key=length) for device in busiest[:MOST_STAGES]]
