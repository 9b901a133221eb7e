"""Frames: from where to where the objective counts, and how far each op is from both.

The makespan has one frame, from time 0 to the end of everything. The period has one per device,
from the first start there to the last end there. An op on another device is bound by a frame as
well, if it comes after an op of that device and before another one: so a device says something
about all others, although each may start when it likes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from schedopt.solvers.instance import Instance

FAR = -(2**60)
"""Head or tail of an op that a frame does not bind; sums with it stay below `UNBOUND`."""
UNBOUND = FAR // 2
"""Every head or tail above it is one of an op that the frame binds."""


class Frame(NamedTuple):
    """Least distances of each op from the begin and to the end of a frame, in steps.

    Attributes
    ----------
    span, ops
        The device (or link) and its ops, whose span it is; None and all ops for the makespan.
    head
        From the begin of the frame to the start of each op of the instance.
    tail
        From the end of each op of the instance to the end of the frame.
    """

    span: str | None
    ops: tuple[int, ...]
    head: list[int]
    tail: list[int]


def frames(instance: Instance, *, most: int | None = None) -> Iterator[Frame]:
    """The frames of the objective, with what is known before any arc.

    Parameters
    ----------
    instance
        The instance.
    most
        Take no more than these, spread over the devices and the first one among them.
    """
    spans = list(instance.spans.items())
    if most is not None and len(spans) > most:
        spans = [spans[k * len(spans) // most] for k in range(most)]
    for span, ops in spans:
        if span is None:
            yield Frame(span, ops, list(instance.release), list(instance.delivery))
            continue
        head, tail = [FAR] * len(instance.ops), [FAR] * len(instance.ops)
        for a in ops:
            head[a] = tail[a] = 0
        yield Frame(span, ops, head, tail)


def follow_arcs(instance: Instance, frame: Frame) -> None:
    """Raise heads and tails to the longest paths along the arcs of the instance."""
    head, tail = frame.head, frame.tail
    duration = instance.duration
    for a, after in enumerate(instance.successors):
        end = head[a] + duration[a]
        for b, lag in after:
            if end + lag > head[b]:
                head[b] = end + lag
    for a in range(len(instance.ops) - 1, -1, -1):
        for b, lag in instance.successors[a]:
            before = lag + duration[b] + tail[b]
            if before > tail[a]:
                tail[a] = before


def start_limits(
    instance: Instance, known: Sequence[Frame], horizon: int
) -> tuple[list[int], list[int]]:
    """Earliest and latest start of each op in some schedule with no frame above the horizon.

    Times count from the begin of a frame that begins before every op, where there is one. A
    frame begins no later than any of its ops starts, so each frame that is bound hands its
    limit on to the next. Otherwise only this is sure: the spans of the devices, shifted as early
    as the arcs allow, leave no gap longer than a lag between them.
    """
    anchor = next((f for f in known if min(f.head, default=0) > UNBOUND), None)
    if anchor is not None:
        latest = _latest_starts(instance, known, anchor, horizon)
        if max(latest, default=0) < -FAR:
            return anchor.head, latest
    lag = max((lag for after in instance.successors for _, lag in after), default=0)
    end = len(instance.spans) * (horizon + lag)
    return instance.heads(), [
        end - duration - tail
        for duration, tail in zip(instance.duration, instance.tails(), strict=True)
    ]


def _latest_starts(
    instance: Instance, known: Sequence[Frame], anchor: Frame, horizon: int
) -> list[int]:
    """Latest start of each op, from the begin of the anchor; -FAR where nothing bounds it."""
    begins = [0 if frame is anchor else -FAR for frame in known]
    latest = [-FAR] * len(instance.ops)
    waiting = [known.index(anchor)]
    while waiting:
        k = waiting.pop(0)
        for a, tail in enumerate(known[k].tail):
            if tail > UNBOUND:
                latest[a] = min(latest[a], begins[k] + horizon - instance.duration[a] - tail)
        for j, other in enumerate(known):
            limit = min(latest[a] for a in other.ops)
            if limit < begins[j]:
                begins[j] = limit
                waiting.append(j)
    return latest
