"""Parameters that stand in several stages, such as an embedding that is the head as well.

Each stage has a copy. At the end of a step the gradients of all copies are added, so that every
copy gets the gradient of the one parameter, and equal optimizers keep the copies equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from schedopt.executor.collectives import Collectives
from schedopt.executor.data_parallel import Replicas, flat_with_flags, gradients_in
from schedopt.executor.errors import ExecutorError

Places = Sequence[tuple[int, str]]
"""Where one parameter stands: (stage, name in the module of the stage)."""

Connect = Callable[[str, int, int], Collectives]
"""Name, place of this rank, number of ranks -> their collectives."""


class _Shared(NamedTuple):
    """A shared parameter on this rank: its copies here, and the ranks that have others."""

    name: str
    copies: list[nn.Parameter]
    others: Collectives | None
    has_first: bool


class SharedParameters:
    """The shared parameters that this rank has copies of.

    Parameters
    ----------
    shared
        All of them, on all ranks alike.
    modules
        Of this rank, by stage.
    device_of
        Rank of each stage.
    rank
        This one.
    connect
        Makes the collectives of ranks that have copies of the same parameter.
    """

    def __init__(
        self,
        shared: Sequence[Places],
        modules: Mapping[int, nn.Module],
        device_of: Sequence[int],
        rank: int,
        connect: Connect,
    ) -> None:
        self._all: list[_Shared] = []
        self._before: dict[nn.Parameter, Tensor | None] = {}
        for number, places in enumerate(shared):
            # The ranks with copies, the one with the first place first.
            holders = list(dict.fromkeys(device_of[stage] for stage, _ in places))
            if rank not in holders:
                continue
            own = [modules[s].get_parameter(name) for s, name in places if s in modules]
            others = None
            if len(holders) > 1:
                others = connect(f"shared/{number}", holders.index(rank), len(holders))
            name = " = ".join(f"{stage}.{name}" for stage, name in places)
            self._all.append(_Shared(name, list(dict.fromkeys(own)), others, rank == holders[0]))

    def parameters(self) -> Iterator[nn.Parameter]:
        """All copies on this rank."""
        for shared in self._all:
            yield from shared.copies

    def counted_elsewhere(self) -> set[nn.Parameter]:
        """The copies to leave out where each parameter counts once."""
        first = {shared.copies[0] for shared in self._all if shared.has_first}
        return set(self.parameters()) - first

    def equalise(self) -> None:
        """Give all copies the values of the first place."""
        for shared in self._all:
            values = shared.copies[0].detach()
            if shared.others is not None:
                shared.others.copy_from_first(values, f"the values of {shared.name}")
            for copy in shared.copies[1:]:
                copy.detach().copy_(values)

    def begin(self) -> None:
        """A step begins. Gradients of earlier steps are put aside: they are added up already."""
        for parameter in self.parameters():
            self._before[parameter] = parameter.grad
            parameter.grad = None

    def finish(self, replicas: Replicas | None) -> None:
        """Add the gradients of the step over all copies, and average them over the replicas."""
        sums = []
        for shared in self._all:
            flat = _sum(shared.copies)
            started = None
            if shared.others is not None:
                started = shared.others.start_sum(flat, f"the gradients of {shared.name}")
            sums.append((shared, flat, started))
        for shared, flat, started in sums:
            if shared.others is not None and started is not None:
                shared.others.finish(started)
            if replicas is not None:
                replicas.wait(replicas.start_average(flat, f"the replicas of {shared.name}"))
            self._put(shared.copies, flat)

    def _put(self, copies: Sequence[nn.Parameter], flat: Tensor) -> None:
        unknown = all(copy.grad is None for copy in copies)
        (gradient,) = gradients_in(flat, copies[:1], [unknown])
        for copy in copies:
            before = self._before.pop(copy)
            if gradient is None or before is None:
                copy.grad = before if gradient is None else gradient.clone()
            else:
                copy.grad = before.add_(gradient)


def _sum(copies: Sequence[nn.Parameter]) -> Tensor:
    """The gradients of the copies of a rank, added, with a flag (`flat_with_flags`)."""
    first, *rest = (flat_with_flags([copy.grad], [copy]) for copy in copies)
    for other in rest:
        first += other
    return first


def require_possible(
    shared: Sequence[Places], modules: Mapping[int, nn.Module], stages: int
) -> None:
    """Raise an ExecutorError if a place does not exist, or is there twice.

    Parameters
    ----------
    shared
        Places of each parameter.
    modules
        Of this rank, by stage: only their places are looked for.
    stages
        Number of stages.
    """
    faults = []
    seen: set[tuple[int, str]] = set()
    for stage, name in (place for places in shared for place in places):
        where = f"shared parameter ({stage}, {name!r})"
        if not 0 <= stage < stages:
            faults.append(f"{where}: there are the stages 0 to {stages - 1}")
        elif (stage, name) in seen:
            faults.append(f"{where} stands in the list twice")
        elif stage in modules:
            known = [each for each, _ in modules[stage].named_parameters(remove_duplicate=False)]
            if name not in known:
                faults.append(f"{where}: stage {stage} has the parameters {', '.join(known)}")
        seen.add((stage, name))
    if faults:
        raise ExecutorError("; ".join(faults))
