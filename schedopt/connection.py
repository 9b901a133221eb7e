"""Connections of stages, and the transfers that they need."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from schedopt.exact import exact
from schedopt.op import Resource
from schedopt.parts import Links
from schedopt.stage import item

if TYPE_CHECKING:
    from schedopt.problem import Problem


class Transfer(NamedTuple):
    """One direction of a connection, in the unit of the problem.

    Attributes
    ----------
    duration
        Time for the data to pass, for a microbatch of length factor 1.
    latency
        Time after that until they are there, whatever their size.
    resource
        What is occupied for the duration; None if the transfer is a pure delay.
    """

    duration: Fraction
    latency: Fraction
    resource: Resource | None

    def lag(self, factor: Fraction) -> Fraction:
        """Time from the end of the op that sends, or of its transfer op, to the next op."""
        return self.latency + (self.duration * factor if self.resource is None else 0)


class Connection(NamedTuple):
    """Stage `target` needs the output of stage `source`, and returns its gradient."""

    source: int
    target: int
    forward: Transfer
    backward: Transfer


def connections_of(problem: Problem) -> Iterator[Connection]:
    """Connections of a problem: its chain of stages, if it is one, and its edges.

    Only the first connection of a stage occupies links, because it is the one that its transfer
    ops stand for; further ones are pure delays.
    """
    pairs = list(pairwise(range(problem.stage_count))) if problem.chain else []
    seen: set[int] = set()
    for source, target, own in [
        *((source, target, None) for source, target in pairs),
        *((edge.from_stage, edge.to_stage, edge.lag) for edge in problem.edges),
    ]:
        if own is not None:
            fixed = Transfer(Fraction(0), exact(own), None)
            yield Connection(source, target, fixed, fixed)
            continue
        occupies = source not in seen
        seen.add(source)
        yield Connection(
            source,
            target,
            _transfer(problem, source, source, target, occupies=occupies),
            _transfer(problem, source, target, source, occupies=occupies),
        )


def _transfer(
    problem: Problem, output: int, source: int, target: int, *, occupies: bool
) -> Transfer:
    """Transfer of the output of a stage (or its gradient) from stage `source` to `target`."""
    links = problem.links
    devices = problem.device_of[source], problem.device_of[target]
    if links is None or devices[0] == devices[1]:
        return Transfer(Fraction(0), problem.lag_between(source, target), None)
    size = item(links.size, output)
    if source != output and links.gradient_size is not None:
        gradient = item(links.gradient_size, output)
        size = size if gradient is None else gradient
    duration = exact(size) / exact(_of_pair(links.bandwidth, devices))
    latency = exact(_of_pair(links.latency, devices))
    occupied = links.occupy and occupies and duration > 0
    return Transfer(duration, latency, link(links, *devices) if occupied else None)


def _of_pair(value: object, devices: tuple[int, int]) -> int | float:
    number: int | float = (
        value[devices[0]][devices[1]] if isinstance(value, tuple) else value  # type: ignore[assignment]
    )
    return number


def link(links: Links, source: int, target: int) -> Resource:
    """The link between two devices in one direction, or the shared one that it is part of."""
    for shared in links.shared:
        if (source, target) in shared.links:
            return Resource(f"link {shared.name}", min(pair[0] for pair in shared.links))
    return Resource(f"link to {target}", source)
