"""Relaxations: only some devices are limited, the ops of all others run whenever they like.

The optimum of a relaxation is a lower bound, and so is every bound of its search. A device
alone is a small problem whose bound is often tight, because it already says what the memory of
the device costs while its microbatches travel through the others.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import replace

from schedopt.op import Resource
from schedopt.solvers.instance import Instance


def relaxed(instance: Instance, devices: Collection[int]) -> Instance:
    """The instance with resources and memory of these devices only.

    Every other op has a resource of its own. For the period the spans of all devices still
    count.
    """
    kept = [r for r, resource in enumerate(instance.resources) if resource.device in devices]
    number = {r: position for position, r in enumerate(kept)}
    resources = [instance.resources[r] for r in kept]
    of_op = []
    for a, r in enumerate(instance.resource):
        if r in number:
            of_op.append(number[r])
        else:
            of_op.append(len(resources))
            kind, device = instance.resources[r]
            resources.append(Resource(f"{kind} free {a}", device))
    return replace(
        instance,
        resource=tuple(of_op),
        resources=tuple(resources),
        available={d: limit for d, limit in instance.available.items() if d in devices},
    )


def growing(devices: Sequence[int]) -> Generator[frozenset[int], int, None]:
    """Sets of devices to relax to, each grown from the one with the best bound so far.

    Starts with the two ends and the middle alone, then adds to the best set every other device
    in turn, the ends and its neighbours first. Ends when a whole turn improves nothing.

    Yields
    ------
    A set of devices, fewer than all; send the bound that it gave.
    """
    best, best_set = -1, frozenset[int]()
    ends = (devices[0], devices[-1], devices[len(devices) // 2])
    turn = list(dict.fromkeys(frozenset((device,)) for device in ends))
    while len(devices) > 1:
        improved = False
        for kept in turn:
            bound = yield kept
            if bound > best:
                best, best_set, improved = bound, kept, True
        if not improved or len(best_set) + 1 >= len(devices):
            return
        near = sorted(
            (device for device in devices if device not in best_set),
            key=lambda d: (d not in ends[:2], min(abs(d - kept) for kept in best_set), d),
        )
        turn = [best_set | {device} for device in near]
