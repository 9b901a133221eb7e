"""Rows of a picture: what each device computes, and the networks and links beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from schedopt.op import COMPUTE, NETWORK, Resource
from schedopt.schedule import Schedule, TimedOp

LABEL = 6
"""Most characters of a label."""


class Row(NamedTuple):
    """A row of a picture.

    Attributes
    ----------
    label
        At its left end: the number of a device, "net" below it, "0>1" for the link from device 0
        to 1, or the name of a shared link.
    name
        The same in words.
    device
        The device of a row of compute, None for other rows.
    timed_ops
        Its ops, in the order of their starts.
    """

    label: str
    name: str
    device: int | None
    timed_ops: tuple[TimedOp, ...]


def rows_of(schedule: Schedule, devices: Sequence[int]) -> list[Row]:
    """A row for each of these devices with its network and links below it, then shared links."""
    beside: dict[int, list[Resource]] = {}
    for resource, timed_ops in schedule.timeline.items():
        if resource.kind != COMPUTE and timed_ops:
            beside.setdefault(resource.device, []).append(resource)
    rows, shared = [], []
    for device in devices:
        ops = schedule.by_device[device]
        rows.append(Row(str(device), f"device {device}", device, ops))
        for resource in sorted(beside.get(device, ()), key=_place):
            row = Row(_label(resource), str(resource), None, _in_time(schedule, resource))
            if resource.kind == NETWORK or resource.kind.startswith("link to "):
                rows.append(row)
            else:
                shared.append(row)
    return rows + shared


def _in_time(schedule: Schedule, resource: Resource) -> tuple[TimedOp, ...]:
    return tuple(sorted(schedule.timeline[resource], key=lambda timed: timed.start))


def _place(resource: Resource) -> tuple[int, int, str]:
    """Links first, by the device to which they lead, then the network."""
    kind = resource.kind
    target = kind.removeprefix("link to ")
    return (1, 0, kind) if kind == NETWORK else (0, int(target) if target.isdigit() else -1, kind)


def _label(resource: Resource) -> str:
    kind, device = resource
    if kind == NETWORK:
        return "net"
    target = kind.removeprefix("link to ")
    return (f"{device}>{target}" if target != kind else kind.removeprefix("link "))[:LABEL]
