"""The name of a problem in the cache: a digest of all that decides its optimum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from fractions import Fraction
from importlib.metadata import version
from typing import Any

from schedopt.exact import exact
from schedopt.problem import Problem
from schedopt.stage import StageData, item


def problem_key(problem: Problem) -> str:
    """Digest of a problem: 64 hexadecimal digits.

    It depends on all that decides the optimum, in exact numbers, and on the versions of
    schedopt and ortools; not on names and units, nor on the way in which a problem is written.

    Examples
    --------
    >>> one = Problem(devices=2, microbatches=4, durations={"F": 1, "BW": 2})
    >>> same = one.replace(name="same", durations={"F": [1, 1.0], "BW": [2, 2]})
    >>> problem_key(one) == problem_key(same)
    True
    """
    content = {
        "versions": {name: version(name) for name in ("schedopt", "ortools")},
        "objective": problem.objective,
        "devices": list(zip(problem.static, problem.capacity, strict=True)),
        "stages": [
            (mode, _costs(data), _costs(recomputed) if mode != "never" else [])
            for mode, data, recomputed in zip(
                problem.recompute_modes,
                problem.stage_data,
                problem.recomputed_stage_data,
                strict=True,
            )
        ],
        "microbatches": problem.factors,
        "links": sorted(_links(problem)),
        "end of the step": _end_of_step(problem),
    }
    return hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()


def _costs(data: StageData) -> list[Any]:
    kinds = [
        (kind, duration, data.memory[kind], data.transient[kind])
        for kind, duration in data.durations.items()
    ]
    return [data.device, kinds]


def _end_of_step(problem: Problem) -> list[Any]:
    part = problem.end_of_step
    if part is None:
        return []
    return [
        [exact(item(part.reduction, stage)) for stage in range(problem.stage_count)],
        [exact(item(part.optimizer, device)) for device in range(problem.devices)],
        [(tied.stages, exact(tied.duration)) for tied in part.tied],
    ]


def _links(problem: Problem) -> Iterator[tuple[int, int, str]]:
    """Pairs of stages of which the later needs the earlier, with their transfers.

    Of several pure delays between the same stages the longest decides.
    """
    delays: dict[tuple[int, int], tuple[Fraction, Fraction]] = {}
    for source, target, *both in problem.connections:
        forward, backward = both
        if forward.duration or backward.duration:
            yield source, target, str(both)
            continue
        known = delays.get((source, target), (Fraction(0), Fraction(0)))
        longest = max(forward.latency, known[0]), max(backward.latency, known[1])
        delays[source, target] = longest
    for (source, target), longest in delays.items():
        yield source, target, str(longest)
