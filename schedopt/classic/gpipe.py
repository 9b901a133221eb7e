"""GPipe: all forwards, then all backwards."""

from __future__ import annotations

from schedopt.classic.pattern import (
    schedule_of,
    whole_step,
)
from schedopt.op import Op
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.variants import fused


@whole_step
def gpipe(problem: Problem) -> Schedule:
    """All forwards of a device, then all its backwards, with the backward fused.

    A device with several stages goes through them one by one: the microbatches of the first
    stage, then those of the next. So it is defined for any placement.

    References
    ----------
    Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline
    Parallelism", 2019. Several stages on a device: Lamy-Poirier, "Breadth-First
    Pipeline Parallelism", 2023.
    """
    microbatches = range(problem.microbatches)
    sequences = (
        [Op("F", stage, i) for stage in stages for i in microbatches]
        + [Op("B", stage, i) for stage in reversed(stages) for i in microbatches]
        for stages in problem.stages_on
    )
    return schedule_of(fused(problem), "GPipe", sequences)
