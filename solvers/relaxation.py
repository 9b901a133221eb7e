"""Relaxations: only some devices are limited, the ops of all others run whenever they like.

The optimum of a relaxation is a lower bound, and so is every bound of its search. A device
alone is a small problem whose bound is often tight, because it already says what the memory of
the device costs while its microbatches travel through the others.
"""

from __future__ import annotations

from collections.abc import Collection
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
            resources.append(Resource(f"free {a}", instance.resources[r].device))
    return replace(
        instance,
        resource=tuple(of_op),
        resources=tuple(resources),
        available={d: limit for d, limit in instance.available.items() if d in devices},
    )
