"""Everything that searches. `solve` is the one entrance."""

from __future__ import annotations

import math
import os

from schedopt.cache import Cache
from schedopt.problem import Problem
from schedopt.solvers.engine import Search
from schedopt.solvers.resident import Budget
from schedopt.solvers.solution import Progress, ProgressCallback, Solution, StageRecord
from schedopt.solvers.state import State

__all__ = ["Progress", "ProgressCallback", "Solution", "StageRecord", "solve"]

DEFAULT_TIME_LIMIT = 60.0
"""Seconds."""


def solve(
    problem: Problem,
    *,
    time_limit: float | None = None,
    workers: int | None = None,
    seed: int = 0,
    deterministic_limit: float | None = None,
    index_order: bool = False,
    progress: ProgressCallback | None = None,
    cache: Cache | None = None,
    memory_limit: int | None = None,
) -> Solution:
    """Find the best schedule of a problem and a bound that proves how good it is.

    A feasible problem always gets a schedule, never worse than a classic one that fits.

    Parameters
    ----------
    problem
        The problem; its objective is minimised.
    time_limit
        Seconds after which the best schedule so far is returned; 60 by default, or no limit
        if there is a `deterministic_limit`.
    workers
        Threads and processes of the search; all cores by default. With one worker, a
        `deterministic_limit` and no limit of time the result is reproducible.
    seed
        Seed of the search.
    deterministic_limit
        Limit in CP-SAT's deterministic time, which does not depend on the machine's load.
    index_order
        Keep unequal microbatches in the order of their index: a smaller search that can lose
        the optimum; its bound is then not used.
    progress
        Called with a `Progress` whenever the best schedule or the bound changes.
    cache
        Where to look for what earlier solves have found, and to keep what this one finds; the
        result then depends on what is there. None: neither.
    memory_limit
        Bytes that this process and its helper processes should not take more than; 3/4 of the
        machine's memory by default. Where an estimate goes past it, fewer threads and processes
        run or a model is not built, and the record of that stage says so. The problem itself
        and what the process holds already count, but are not limited.

    Returns
    -------
    Solution
        With the schedule, its objective, the bound, the status and what each stage did.

    Raises
    ------
    ValueError
        If a limit or the number of workers is not positive.

    Examples
    --------
    >>> from schedopt import Problem, solve
    >>> problem = Problem.uniform(devices=4, microbatches=8, capacity=4)
    >>> solution = solve(problem, workers=1)
    >>> solution.status, int(solution.objective), solution.bound_source
    ('optimal', 27, 'fill and drain of compute 0')
    """
    limits = {
        "time_limit": time_limit,
        "workers": workers,
        "deterministic_limit": deterministic_limit,
        "memory_limit": memory_limit,
    }
    for name, value in limits.items():
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be greater than 0, got {value}")
    if time_limit is None:
        time_limit = DEFAULT_TIME_LIMIT if deterministic_limit is None else math.inf
    workers = workers or os.cpu_count() or 1
    state = State(
        problem,
        time_limit=time_limit,
        workers=workers,
        seed=seed,
        deterministic_limit=deterministic_limit,
        index_order=index_order,
        progress=progress,
        budget=Budget(memory_limit, workers=workers),
    )
    return Search(state, cache=cache).run()
