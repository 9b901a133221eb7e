"""How every CP-SAT model of the search is run: its parameters, and Ctrl-C."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from ortools.sat.python import cp_model

MAX_SECONDS = 1e9
"""What CP-SAT is told instead of no limit."""


def new_solver(
    *, time_limit: float, workers: int, seed: int, deterministic_limit: float | None
) -> cp_model.CpSolver:
    """A solver with the limits of a solve.

    Parameters
    ----------
    time_limit
        Seconds; may be infinite.
    workers, seed, deterministic_limit
        As CP-SAT's num_workers, random_seed and max_deterministic_time.
    """
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.max_time_in_seconds = min(max(time_limit, 0.01), MAX_SECONDS)
    parameters.num_workers = workers
    parameters.random_seed = seed
    # both eat the time limit on long pipelines and win nothing there
    parameters.cp_model_probing_level = 0
    parameters.symmetry_level = 0
    parameters.catch_sigint_signal = False
    if deterministic_limit is not None:
        parameters.max_deterministic_time = deterministic_limit
    return solver


def run_solver(
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    report: cp_model.CpSolverSolutionCallback | None = None,
) -> cp_model.CpSolverStatus:
    """Solve in a thread, so that Ctrl-C reaches Python and stops the search at once."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(solver.solve, model, report)
        try:
            return future.result()
        except KeyboardInterrupt:
            solver.stop_search()
            raise
