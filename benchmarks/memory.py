"""Memory that order models and the processes of the window search take; prints one table.

Each row runs in a fresh process and stands beside the estimate of `schedopt.solvers.resident`,
which is made from this table.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from schedopt.graph import build_graph
from schedopt.problem import Problem
from schedopt.solvers.capacity import smallest_passages
from schedopt.solvers.instance import Instance, build_instance
from schedopt.solvers.list_schedule import list_schedule
from schedopt.solvers.order_model import OrderModel
from schedopt.solvers.ordered import OrderedInstance
from schedopt.solvers.portfolio import priorities
from schedopt.solvers.resident import (
    bytes_of_model,
    bytes_of_process,
    peak_resident,
    size_text,
)
from schedopt.solvers.team import Team

SECONDS = 60


class Job(NamedTuple):
    """A problem with equal stages; the order model by so many threads, or 0: a process."""

    devices: int
    microbatches: int
    capacity: int
    threads: int


JOBS = (
    *(Job(8, 24, 8, threads) for threads in (1, 2, 8)),
    *(Job(16, 48, 16, threads) for threads in (1, 2, 4)),
    Job(16, 64, 64, 2),
    *(Job(devices, microbatches, devices, 0) for devices, microbatches in ((8, 24), (32, 256))),
)


class Measured(NamedTuple):
    """Ops, order Booleans, and bytes: measured and estimated."""

    ops: int
    booleans: int
    taken: int
    estimate: int


def measure(job: Job) -> Measured:
    """Run a job in this process, which has done nothing else."""
    problem = Problem.uniform(
        devices=job.devices,
        microbatches=job.microbatches,
        F=100,
        B=100,
        W=100,
        lag=10,
        capacity=job.capacity,
    )
    instance = build_instance(build_graph(problem))
    rule = priorities(instance)["farthest from its end"]
    start = OrderedInstance(
        instance, list_schedule(instance, smallest_passages(instance), rule).sequences
    )
    if job.threads:
        return _of_model(instance, start, job.threads)
    with Team(problem, index_order=False, size=1, seed=0) as team:
        team.run(start.sequences, value=start.value, bound=0, seconds=SECONDS)
        taken = (peak_resident(team.pids) or 0) - (peak_resident() or 0)
    return Measured(len(instance.ops), 0, taken, bytes_of_process(len(instance.ops)))


def _of_model(instance: Instance, start: OrderedInstance, threads: int) -> Measured:
    before = peak_resident() or 0
    model = OrderModel(instance, horizon=start.value, bound=0)
    model.build()
    model.hint(start.starts, start.sequences)
    model.solve(time_limit=SECONDS, workers=threads)
    taken = (peak_resident() or 0) - before
    return Measured(len(instance.ops), model.size, taken, bytes_of_model(model.size, threads))


def main() -> None:
    """Run every job in its own process and print the table."""
    if len(sys.argv) > 1:
        sys.stdout.write(json.dumps(measure(JOBS[int(sys.argv[1])])))
        return
    table = Table(title=f"peak after {SECONDS} seconds")
    for heading in ("ops", "order Booleans", "threads", "measured", "estimate"):
        table.add_column(heading, justify="right")
    for number, job in enumerate(JOBS):
        run = subprocess.run(
            [sys.executable, __file__, str(number)], check=True, capture_output=True, text=True
        )
        found = Measured(*json.loads(run.stdout))
        model = f"{found.booleans:,}" if job.threads else "a process of the window search"
        sizes = map(size_text, (found.taken, found.estimate))
        table.add_row(f"{found.ops:,}", model, str(job.threads or ""), *sizes)
    Console().print(table)


if __name__ == "__main__":
    main()
