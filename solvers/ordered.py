"""An instance together with an order for each resource: starts, and paths to the end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from schedopt.solvers.instance import Instance

Sequences = Sequence[Sequence[int]]
"""Orders of the resources, by op numbers."""


class CircleError(ValueError):
    """Orders wait for each other in a circle."""


class OrderedInstance:
    """Earliest starts and longest paths to the end of an instance with given orders.

    For the period, the first start of each device is chosen by a few passes that let it begin
    as late as the end of all devices allows; a path to the end then counts from that start. So
    the value of both objectives is the same thing: the largest start + duration + tail.

    Attributes
    ----------
    sequences, topological
        Order of each resource, and of all ops.
    duration
        Duration of each op in these orders.
    starts
        Earliest start of each op, after the first starts of the devices.
    tails
        Longest time from the end of each op to the end of everything after it; for the period
        to the end of each device, less the first start of that device.
    release, delivery
        As in `Instance`, with the first starts of the devices put in.
    value
        Value of the objective.

    Raises
    ------
    CircleError
        If the orders wait for each other in a circle.
    """

    PASSES = 4

    def __init__(self, instance: Instance, sequences: Sequences) -> None:
        self.instance = instance
        self.sequences = tuple(map(tuple, sequences))
        count = len(instance.ops)
        self._following = [-1] * count
        for sequence in self.sequences:
            for a, b in pairwise(sequence):
                self._following[a] = b
        self.duration = instance.durations(self.sequences)
        self.topological = self._topological()
        self.release = list(instance.release)
        self.starts = self._forwards()
        self.delivery = list(instance.delivery)
        if instance.period:
            self._start_late()
        self.tails = self._backwards(self.delivery)
        self.value = max(
            start + duration + tail
            for start, duration, tail in zip(self.starts, self.duration, self.tails, strict=True)
        )

    def _topological(self) -> list[int]:
        waiting = [len(before) for before in self.instance.predecessors]
        for b in self._following:
            if b >= 0:
                waiting[b] += 1
        order = [a for a, number in enumerate(waiting) if not number]
        for a in order:
            b = self._following[a]
            if b >= 0:
                waiting[b] -= 1
                if not waiting[b]:
                    order.append(b)
            for b, _ in self.instance.successors[a]:
                waiting[b] -= 1
                if not waiting[b]:
                    order.append(b)
        if len(order) < len(waiting):
            raise CircleError("the orders wait for each other in a circle")
        return order

    def _forwards(self) -> list[int]:
        duration, successors = self.duration, self.instance.successors
        starts, following = list(self.release), self._following
        for a in self.topological:
            end = starts[a] + duration[a]
            b = following[a]
            if b >= 0 and end > starts[b]:
                starts[b] = end
            for b, lag in successors[a]:
                if end + lag > starts[b]:
                    starts[b] = end + lag
        return starts

    def _backwards(self, delivery: list[int]) -> list[int]:
        duration, successors = self.duration, self.instance.successors
        tails, following = list(delivery), self._following
        for a in reversed(self.topological):
            tail = tails[a]
            b = following[a]
            if b >= 0:
                tail = max(tail, duration[b] + tails[b])
            for b, lag in successors[a]:
                if lag + duration[b] + tails[b] > tail:
                    tail = lag + duration[b] + tails[b]
            tails[a] = tail
        return tails

    def _start_late(self) -> None:
        """Move the first start of each device as late as its successors allow, and repeat."""
        instance = self.instance
        span_of = [instance.resources[r].span for r in instance.resource]
        firsts: dict[str, list[int]] = {}
        lasts: dict[str, list[int]] = {}
        for resource, sequence in zip(instance.resources, self.sequences, strict=True):
            if sequence:
                firsts.setdefault(resource.span, []).append(sequence[0])
                lasts.setdefault(resource.span, []).append(sequence[-1])
        begin = {span: min(self.starts[a] for a in ops) for span, ops in firsts.items()}
        for _ in range(self.PASSES):
            end = {
                span: max(self.starts[a] + self.duration[a] for a in ops)
                for span, ops in lasts.items()
            }
            period = max(end[span] - begin[span] for span in begin)
            # latest starts with every device ending by its begin + period
            delivery = [-begin[span] for span in span_of]
            tails = self._backwards(delivery)
            moved = False
            for span, ops in firsts.items():
                latest = min(period - tails[a] - self.duration[a] for a in ops)
                if latest > begin[span]:
                    begin[span] = latest
                    moved = True
            if not moved:
                break
            self.release = [begin[span] for span in span_of]
            self.starts = self._forwards()
        self.delivery = [-begin[span] for span in span_of]
