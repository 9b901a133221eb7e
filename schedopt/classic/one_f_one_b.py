"""1F1B: one forward, one backward."""

from __future__ import annotations

from schedopt.classic.pattern import (
    one_forward_one_backward,
    require_placement,
    schedule_of,
    whole_step,
)
from schedopt.op import Op
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.variants import fused


@whole_step
def one_f_one_b(problem: Problem) -> Schedule:
    """1F1B with flushes: stage s never holds more than p - s microbatches; fused backward.

    Raises
    ------
    NotApplicableError
        If the placement is not linear.

    References
    ----------
    Fan et al., "DAPPLE: A Pipelined Data Parallel Approach for Training Large Models", 2021;
    Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
    Megatron-LM", 2021, section 2.2.1.
    """
    require_placement(problem, "1F1B", "linear")
    p, microbatches = problem.devices, range(problem.microbatches)
    sequences = (
        one_forward_one_backward(
            [Op("F", stage, i) for i in microbatches],
            [Op("B", stage, i) for i in microbatches],
            p - stage - 1,
        )
        for stage in range(p)
    )
    return schedule_of(fused(problem), "1F1B", sequences)
