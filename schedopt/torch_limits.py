"""What torch.distributed.pipelining can not run, as a table of actions or at all."""

from __future__ import annotations

from collections.abc import Iterator

from schedopt.errors import NotApplicableError
from schedopt.schedule import Schedule


def require_torch(schedule: Schedule) -> None:
    """Raise an error unless the runtime of torch.distributed.pipelining can run a schedule.

    Its loader checks none of this: it hangs, raises far from the cause, or the gradients are
    those of another microbatch.

    Raises
    ------
    NotApplicableError
        With every reason.
    """
    reasons = list(_reasons(schedule))
    if reasons:
        raise NotApplicableError(
            f"torch.distributed.pipelining can not run this schedule: {'; '.join(reasons)}"
        )


def _reasons(schedule: Schedule) -> Iterator[str]:
    problem = schedule.problem
    if problem.forward_only:
        yield "it has no backward, and only whole training steps are run there"
    if not problem.chain:
        yield "its stages are no chain, and each stage sends to the next one there"
    if any(op.kind == "R" for ops in schedule.orders.values() for op in ops):
        yield (
            "recomputation is no action there: give it to the stages' modules "
            "(torch.utils.checkpoint), and its time to their backward"
        )
    for edge in problem.edges:
        yield (
            f"stage {edge.to_stage} needs the output of stage {edge.from_stage}, and only "
            "neighbouring stages send to each other there"
        )
    for device, stages in enumerate(problem.stages_on):
        if not stages:
            yield f"device {device} has no stage, and every rank needs one there"
    last = problem.stage_count - 1
    ops = schedule.by_device[problem.device_of[last]]
    forwards = [t.op.microbatch for t in ops if t.op.stage == last and t.op.kind == "F"]
    if forwards != sorted(forwards):
        yield (
            f"stage {last} has the forwards of microbatches {forwards[:8]}"
            f"{'...' if len(forwards) > 8 else ''} in this order, and losses are counted there "
            "in the order of the microbatches"
        )
