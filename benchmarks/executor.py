"""The executor on processes of this machine: measured against predicted, and against torch.

Tables go to stdout, progress to stderr; docs/benchmarks.md explains parts and columns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # where the parts are, also without make

from benchmarks.boundary import most_alive
from benchmarks.tables import Table, markdown
from schedopt.classic import CLASSIC
from schedopt.executor.bench import Report, Row, bench, entries_of
from schedopt.executor.bench_rank import Source
from schedopt.executor.local import LocalRanks
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.solvers import solve

MLP = "schedopt.executor.models:mlp"
TRANSFORMER = "schedopt.executor.models:transformer"

NO_TIME = 1e-9
"""Seconds of a time unit in which ops of one unit take no time; yet they are planned in turn."""


class Settings:
    """Steps of each schedule, and the processes, which are started once for each number."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self._ranks: dict[int, LocalRanks] = {}

    def ranks(self, count: int) -> LocalRanks:
        """Processes for so many devices."""
        if count not in self._ranks:
            self._ranks[count] = LocalRanks(count)
        return self._ranks[count]

    def run(
        self, schedules: Sequence[Schedule], source: Source, *, against_torch: bool = False
    ) -> Report:
        """Run schedules in turn."""
        return bench(
            schedules,
            source,
            rounds=self.rounds,
            against_torch=against_torch,
            ranks=self.ranks(schedules[0].problem.devices),
        )

    def close(self) -> None:
        """End the processes."""
        for ranks in self._ranks.values():
            ranks.close()


# ---------------------------------------------------------------------- predicted and measured


def emulated(settings: Settings) -> Table:
    """Emulated ops of 5 to 20 ms, 16 microbatches on 4 and 8 devices: within 3 % of predicted."""
    rows = []
    for devices in (4, 8):
        linear = Problem(
            devices=devices,
            microbatches=16,
            durations={"F": 10, "B": 11, "W": 8},
            memory={"capacity": devices},
            time_unit="ms",
        )
        v = linear.replace(
            placement="v", stages=2 * devices, durations={"F": 6, "B": 7, "W": 5}, memory={}
        )
        schedules = [CLASSIC["1F1B"](linear), CLASSIC["ZB-H1"](linear), CLASSIC["ZB-V"](v)]
        rows += _predicted_rows(f"p={devices} m=16", settings.run(schedules, Source()), 0.03)
    return PREDICTED, rows


def real(settings: Settings) -> Table:
    """Real compute on 2 devices, durations from a run before: within 8 % of predicted."""
    rows = []
    for name, factory, options in MODELS:
        source = Source(factory, options)
        unknown = Problem(
            devices=2, microbatches=8, durations={"F": 1, "B": 1, "W": 1}, memory={"capacity": 2}
        )
        problem = measured_problem(unknown, settings, source)
        solved = solve(problem, workers=1, deterministic_limit=2).schedule
        schedules = [CLASSIC["1F1B"](problem), CLASSIC["ZB-H1"](problem)]
        schedules += [] if solved is None else [solved]
        rows += _predicted_rows(name, settings.run(schedules, source), 0.08)
    return PREDICTED, rows


def measured_problem(problem: Problem, settings: Settings, source: Source) -> Problem:
    """A problem with the durations in us that its ops have in a step of ZB-H1, and the lag."""
    report = settings.run([CLASSIC["ZB-H1"](problem)], source)
    expected = report.rows[0].from_ops
    if expected is None:
        raise SystemExit("no op was timed")
    data = expected.schedule.problem.stage_data
    kinds = ("F", "B", "W")
    return problem.replace(
        durations={k: [float(stage.durations[k]) for stage in data] for k in kinds},
        lag=round(report.lag_us),
        time_unit="us",
    )


MODELS = (
    ("MLP, width 1024", MLP, {"layers": 8, "width": 1024, "rows": 64}),
    ("transformer, width 256", TRANSFORMER, {"layers": 4, "width": 256, "length": 64, "rows": 2}),
)
"""Real models for 2 devices: name, factory, options. The same layers for any number of stages."""

PREDICTED = ["problem", "schedule", "predicted ms", "measured ms", "difference", "wanted"]
PREDICTED += ["min to max", "from op times"]


def _predicted_rows(name: str, report: Report, wanted: float) -> list[list[str]]:
    rows = []
    for row in report.rows:
        if row.predicted is None or row.from_ops is None or row.error is None:
            continue
        met = "met" if abs(row.error) <= wanted else "missed"
        rows.append(
            [
                name,
                row.name,
                f"{row.predicted.milliseconds:.1f}",
                f"{row.measured:.1f}",
                f"{100 * row.error:+.1f} %",
                f"{100 * wanted:g} %: {met}",
                f"{min(row.milliseconds):.1f} to {max(row.milliseconds):.1f}",
                f"{row.from_ops.milliseconds:.1f}",
            ]
        )
    return rows


# ---------------------------------------------------------------------- against torch


def against_torch(settings: Settings) -> Table:
    """Step times of both runtimes in turn, the same modules and ranks: a ratio of at most 1."""
    headings = ["problem", "schedule", "schedopt ms", "torch ms", "ratio", "pairs", "wanted"]
    rows = []
    for name, problem, source in _torch_problems():
        report = settings.run([_own(problem)], source, against_torch=True)
        ours, theirs = report.rows
        ratio = paired_ratio(ours, theirs)
        pairs = sum(a <= b for a, b in zip(ours.milliseconds, theirs.milliseconds, strict=True))
        rows.append(
            [
                name,
                ours.name,
                f"{ours.measured:.1f}",
                f"{theirs.measured:.1f}",
                f"{ratio:.3f}",
                f"{pairs} of {len(ours.milliseconds)} not slower",
                f"1: {'met' if ratio <= 1 else 'missed'}",
            ]
        )
    return headings, rows


def overhead(settings: Settings) -> Table:
    """Ops that take no time, on 2 devices: what is left is the runtime."""
    headings = ["schedule", "ops", "runtime", "us per op", "CPU us per op", "CPU ratio"]
    rows = []
    for placement in ("linear", "interleaved", "v"):
        problem = _problem(2, 64, placement, {"F": 1, "B": 1, "W": 1})
        report = settings.run([_own(problem)], Source(unit_seconds=NO_TIME), against_torch=True)
        ours, theirs = report.rows
        ops = sum(len(ops) for ops in _own(problem).by_device.values())
        for row in (ours, theirs):
            # A step lasts as long as the ops of one rank.
            each = [row.name, str(ops), row.runtime, f"{1e3 * row.measured / ops * 2:.0f}"]
            ratio = row.cpu_milliseconds / theirs.cpu_milliseconds
            each += [f"{1e3 * row.cpu_milliseconds / ops:.0f}", f"{ratio:.2f}"]
            rows.append(each)
    return headings, rows


def boundary(settings: Settings) -> Table:
    """Most tensors of the size of a boundary on a rank, for 8, 32 and 128 microbatches."""
    headings = ["schedule", "runtime", "m=8", "m=32", "m=128", "wanted"]
    source = Source(unit_seconds=NO_TIME, boundary_bytes=4096)
    rows = []
    for placement in ("linear", "v"):
        found: dict[str, list[int]] = {"schedopt": [], "torch": []}
        for microbatches in (8, 32, 128):
            problem = _problem(2, microbatches, placement, {"F": 1, "B": 1, "W": 1})
            entries = entries_of([_own(problem)], against_torch=True)
            counts = settings.ranks(2).run(most_alive, entries, source)
            for runtime, count in zip(found, map(max, zip(*counts, strict=True)), strict=True):
                found[runtime].append(count)
        for runtime, counts_of in found.items():
            verdict = "flat: " + ("met" if len(set(counts_of)) == 1 else "missed")
            wanted = verdict if runtime == "schedopt" else "-"
            rows.append([_own(problem).name, runtime, *map(str, counts_of), wanted])
    return headings, rows


def paired_ratio(ours: Row, theirs: Row) -> float:
    """Median over the rounds of our step over theirs in the same round."""
    pairs = zip(ours.milliseconds, theirs.milliseconds, strict=True)
    return median(a / b for a, b in pairs)


def _torch_problems() -> list[tuple[str, Problem, Source]]:
    durations = {"F": 10, "B": 10, "W": 10}
    halves = {"F": 6, "B": 6, "W": 6}
    problems = [
        ("emulated, p=4 m=16", _problem(4, 16, "linear", durations), Source()),
        ("emulated, p=4 m=16", _problem(4, 16, "interleaved", halves), Source()),
        ("emulated, p=4 m=16", _problem(4, 16, "v", halves), Source()),
    ]
    for name, factory, options in MODELS:
        for placement in ("linear", "interleaved", "v"):
            problem = _problem(2, 8, placement, {"F": 1, "B": 1, "W": 1})
            problems.append((f"{name}, p=2 m=8", problem, Source(factory, options)))
    return problems


def _problem(
    devices: int, microbatches: int, placement: str, durations: Mapping[str, float]
) -> Problem:
    chunks = 1 if placement == "linear" else 2
    return Problem(
        devices=devices,
        stages=chunks * devices,
        microbatches=microbatches,
        placement=placement,
        durations=dict(durations),
        time_unit="ms",
    )


def _own(problem: Problem) -> Schedule:
    name = {"linear": "1F1B", "interleaved": "Interleaved 1F1B", "v": "ZB-V"}
    return CLASSIC[name[str(problem.placement)]](problem)


# ---------------------------------------------------------------------- an unequal problem


def unequal(settings: Settings) -> Table:
    """One stage 1.4 times as long, one slow link: the solved schedule against torch's 1F1B."""
    each = [20, 28, 20, 20]
    problem = Problem(
        devices=4,
        microbatches=16,
        durations={"F": each, "B": each, "W": each},
        lag=[[0, 0, 0, 0], [0, 0, 24, 0], [0, 24, 0, 0], [0, 0, 0, 0]],
        memory={"capacity": [4, 3, 2, 1]},
        time_unit="ms",
    )
    solution = solve(problem, workers=1, deterministic_limit=20)
    if solution.schedule is None:
        raise SystemExit("the unequal problem was not solved")
    report = settings.run([solution.schedule], Source(), against_torch=True)
    solved, classic, theirs = report.rows
    if solved.predicted is None or classic.predicted is None:
        raise SystemExit("emulated schedules have a prediction")
    promised = 1 - solved.predicted.milliseconds / classic.predicted.milliseconds
    headings = ["against", "predicted ms", "measured ms", "gain predicted", "gain measured"]
    headings += ["difference in points", "wanted"]
    own = solved.predicted.milliseconds
    rows = [["(solved)", f"{own:.1f}", f"{solved.measured:.1f}", "-", "-", "-", "-"]]
    for name, row in (("1F1B", classic), ("1F1B of torch", theirs)):
        gain = 1 - paired_ratio(solved, row)
        met = "met" if abs(gain - promised) <= 0.02 else "missed"
        rows.append(
            [
                name,
                f"{classic.predicted.milliseconds:.1f}",
                f"{row.measured:.1f}",
                f"{100 * promised:.1f} %",
                f"{100 * gain:.1f} %",
                f"{100 * (gain - promised):+.1f}",
                f"2: {met}",
            ]
        )
    return headings, rows


# ---------------------------------------------------------------------- the script

PARTS: dict[str, Callable[[Settings], Table]] = {
    "emulated": emulated,
    "real": real,
    "torch": against_torch,
    "overhead": overhead,
    "memory": boundary,
    "unequal": unequal,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts that were asked for and print one table for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=PARTS,
        default=list(PARTS),
        metavar="PART",
        help=f"{', '.join(PARTS)} (default: all)",
    )
    parser.add_argument("--steps", type=int, default=15, metavar="K", help="of each schedule")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the tables to FILE")
    given = parser.parse_args(arguments)
    if given.steps < 1:
        parser.error(f"--steps: must be at least 1, got {given.steps}")
    if given.json is not None and not given.json.absolute().parent.is_dir():
        parser.error(f"--json: there is no folder {given.json.parent}")
    settings = Settings(given.steps)
    tables: dict[str, Any] = {}
    try:
        for name in dict.fromkeys(given.only):
            print(f"{name} ...", file=sys.stderr, flush=True)
            before = os.getloadavg()[0]
            headings, rows = PARTS[name](settings)
            load = [before, os.getloadavg()[0]]
            tables[name] = {"headings": headings, "rows": rows, "load": load}
            print(f"\n{name}: {PARTS[name].__doc__}")
            print(f"(load of the machine before {load[0]:.1f}, after {load[1]:.1f})\n")
            print(markdown(headings, rows), flush=True)
            if given.json is not None:
                save(given.json, tables, given.steps)
    finally:
        settings.close()


def save(path: Path, tables: Mapping[str, Any], rounds: int) -> None:
    """Write tables with what they depend on."""
    data = {
        "format": "schedopt.benchmark.executor/1",
        "versions": {name: version(name) for name in ("schedopt", "torch")},
        "machine": {"cores": os.cpu_count(), "platform": platform.platform()},
        "steps": rounds,
        "tables": tables,
    }
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
