"""What it takes to build, time, check and weigh a large schedule; prints one table.

Each row runs in a fresh process with all steps before it, so that its peak memory is that of
the whole job up to there.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from schedopt.check import check
from schedopt.graph import build_graph
from schedopt.memory import peak_memory
from schedopt.op import Op, Resource
from schedopt.problem import Problem
from schedopt.schedule import Schedule

DEVICES, MICROBATCHES = 32, 256
LIMIT_SECONDS, LIMIT_MEGABYTES = 2, 500


def one_f_one_b(device: int) -> list[Op]:
    """Order of a device: p - d forwards first, then in turns, each W directly after its B."""
    ahead = min(DEVICES - device, MICROBATCHES)
    order = [Op("F", device, i) for i in range(ahead)]
    for i in range(MICROBATCHES):
        order += [Op("B", device, i), Op("W", device, i)]
        if i + ahead < MICROBATCHES:
            order.append(Op("F", device, i + ahead))
    return order


def gpipe(device: int) -> list[Op]:
    """Order of a device: all forwards, then all backwards."""
    backward = [Op(kind, device, i) for i in range(MICROBATCHES) for kind in ("B", "W")]
    return [Op("F", device, i) for i in range(MICROBATCHES)] + backward


def measure(order_of: Callable[[int], list[Op]], objective: str) -> list[tuple[str, float, int]]:
    """Name, seconds and peak megabytes so far of each step."""
    problem = Problem.uniform(
        devices=DEVICES,
        microbatches=MICROBATCHES,
        F=10,
        B=11,
        W=12,
        lag=1,
        capacity=MICROBATCHES,
        objective=objective,
    )
    rows = []
    begin = time.perf_counter()

    def done(step: str) -> None:
        nonlocal begin
        # kilobytes on Linux, bytes on macOS
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        megabytes = peak // (1024 * 1024 if sys.platform == "darwin" else 1024)
        rows.append((step, time.perf_counter() - begin, megabytes))
        begin = time.perf_counter()

    done("problem")
    graph = build_graph(problem)
    done("graph")
    orders = {Resource("compute", d): order_of(d) for d in range(DEVICES)}
    schedule = Schedule.from_order(graph, orders)
    done("timing")
    peak_memory(schedule)
    done("memory")
    if check(schedule):
        raise SystemExit("the schedule is not valid")
    done("check")
    return rows


JOBS = {
    "GPipe, makespan": (gpipe, "makespan"),
    "1F1B, makespan": (one_f_one_b, "makespan"),
    "1F1B, period": (one_f_one_b, "period"),
}


def main() -> None:
    """Run every job in its own process and print the table."""
    if len(sys.argv) > 1:
        sys.stdout.write(json.dumps(measure(*JOBS[sys.argv[1]])))
        return
    ops = 3 * DEVICES * MICROBATCHES
    table = Table(title=f"p={DEVICES} m={MICROBATCHES}: {ops:,} ops")
    for heading in ("schedule, objective", "step", "seconds", "peak MB so far"):
        table.add_column(heading, justify="left" if heading in ("step",) else "right")
    for name in JOBS:
        run = subprocess.run(
            [sys.executable, __file__, name], check=True, capture_output=True, text=True
        )
        rows = json.loads(run.stdout)
        for step, seconds, megabytes in rows[1:]:
            table.add_row(name, step, f"{seconds:.2f}", str(megabytes))
        total, most = sum(seconds for _, seconds, _ in rows[1:]), rows[-1][2]
        met = total <= LIMIT_SECONDS and most <= LIMIT_MEGABYTES
        verdict = "met" if met else "missed"
        table.add_row(name, f"all ({verdict})", f"{total:.2f}", str(most), end_section=True)
    table.caption = f"wanted: {LIMIT_SECONDS} s and {LIMIT_MEGABYTES} MB together"
    Console().print(table)


if __name__ == "__main__":
    main()
