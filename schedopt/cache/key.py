"""The name of a problem in the cache: a digest of all that decides its optimum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from fractions import Fraction
from importlib.metadata import version

from schedopt.exact import exact
from schedopt.problem import Problem


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
            (
                stage.device,
                [
                    (kind, duration, stage.memory[kind], stage.transient[kind])
                    for kind, duration in stage.durations.items()
                ],
            )
            for stage in problem.stage_data
        ],
        "microbatches": problem.factors,
        "links": sorted(_links(problem)),
    }
    return hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()


def _links(problem: Problem) -> Iterator[tuple[int, int, Fraction, Fraction]]:
    """Pairs of stages of which the later needs the earlier, with the lags forward and backward.

    Of several lags between the same stages the longest decides.
    """

    def lags(early: int, late: int) -> tuple[Fraction, Fraction]:
        return problem.lag_between(early, late), problem.lag_between(late, early)

    links = {(stage, stage + 1): lags(stage, stage + 1) for stage in range(problem.stage_count - 1)}
    for edge in problem.edges:
        pair = edge.from_stage, edge.to_stage
        forward, backward = lags(*pair) if edge.lag is None else (exact(edge.lag),) * 2
        known = links.get(pair, (forward, backward))
        links[pair] = max(forward, known[0]), max(backward, known[1])
    for pair, both in links.items():
        yield *pair, *both
