"""Zero-bubble schedules with one stage per device: ZB-H1 and ZB-H2."""

from __future__ import annotations

from collections.abc import Iterator

from schedopt.classic.pattern import (
    require_placement,
    schedule_of,
    whole_step,
)
from schedopt.op import Op
from schedopt.problem import Problem
from schedopt.schedule import Schedule


@whole_step
def zb_h1(problem: Problem) -> Schedule:
    """1F1B with B and W split, and W of stage s put off by s microbatches.

    No device then holds more than p microbatches, as the first one does in 1F1B.

    Raises
    ------
    NotApplicableError
        If the placement is not linear.

    References
    ----------
    Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2.1.
    """
    return _handcrafted(problem, "ZB-H1", 1)


@whole_step
def zb_h2(problem: Problem) -> Schedule:
    """ZB-H1 with twice as many forwards at the start, and W put off by twice as many.

    Every device holds up to 2p - 1 microbatches. Without transfers it has no bubble between its
    first and its last op if F = B = W, as long as the optimizer step is no global barrier.

    Raises
    ------
    NotApplicableError
        If the placement is not linear.

    References
    ----------
    Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2.2.
    """
    return _handcrafted(problem, "ZB-H2", 2)


def _handcrafted(problem: Problem, name: str, ahead: int) -> Schedule:
    require_placement(problem, name, "linear")
    sequences = (_sequence(problem, stage, ahead) for stage in range(problem.devices))
    return schedule_of(problem, name, sequences)


def _sequence(problem: Problem, stage: int, ahead: int) -> Iterator[Op]:
    m, put_off = problem.microbatches, ahead * stage
    warm_up = min(ahead * (problem.devices - 1 - stage), m)
    for i in range(warm_up):
        yield Op("F", stage, i)
    for i in range(m + put_off):
        if warm_up + i < m:
            yield Op("F", stage, warm_up + i)
        if i < m:
            yield Op("B", stage, i)
        if i >= put_off:
            yield Op("W", stage, i - put_off)
