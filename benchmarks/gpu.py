"""The executor on one GPU that several ranks share: gradients, costs, memory, overhead.

Tables go to stdout, progress to stderr. Without a GPU it says so and ends with exit code 2;
`--device cpu` tries the script itself. The ranks exchange their tensors over gloo, through pinned
memory, because NCCL needs a GPU for each rank.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # where the parts are, also without make

import torch
import torch.distributed as dist

from benchmarks.tables import Table, markdown
from schedopt.classic import CLASSIC
from schedopt.errors import NotApplicableError
from schedopt.executor import PipelineExecutor
from schedopt.executor.bench import Report, bench
from schedopt.executor.bench_rank import Source
from schedopt.executor.local import LocalRanks, device_of_rank
from schedopt.executor.models import model_of
from schedopt.executor.one_process import LIMIT, largest_difference
from schedopt.executor.profile import profile_model
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.solvers import solve

TRANSFORMER = "schedopt.executor.models:transformer"
MLP = "schedopt.executor.models:mlp"
RANKS = 4
NO_GPU = 2
LAYERS = 8
LARGE = {"layers": LAYERS, "width": 2048, "heads": 16, "length": 1024, "vocabulary": 32000}
"""A transformer whose ops take milliseconds on a large GPU."""
SMALL = {"layers": LAYERS, "width": 64, "length": 32, "vocabulary": 128}
"""The same for `--device cpu`."""


class Settings:
    """Where it runs, and the ranks, which are started once."""

    def __init__(self, device: str, rounds: int, ranks: LocalRanks) -> None:
        self.device, self.rounds, self.ranks = device, rounds, ranks

    @property
    def options(self) -> dict[str, object]:
        """Of the transformer."""
        return {**(SMALL if self.device == "cpu" else LARGE), "dtype": torch.bfloat16}

    def run(self, schedules: Sequence[Schedule]) -> Report:
        """Run schedules of the transformer in turn."""
        source = Source(TRANSFORMER, self.options, device=self.device)
        return bench(schedules, source, rounds=self.rounds, ranks=self.ranks)


# ---------------------------------------------------------------------- correctness


def gradients(settings: Settings) -> Table:
    """Every kind of schedule against the whole model in one process, in float64."""
    headings = ["schedule", "stages", "backward", "largest difference", "wanted"]
    rows = []
    for name, schedule in _every_kind():
        problem = schedule.problem
        found = max(settings.ranks.run(_difference, schedule, settings.device))
        kinds = sorted({op.kind for ops in schedule.orders.values() for op in ops} - {"F"})
        verdict = f"{LIMIT:g}: {'met' if found <= LIMIT else 'missed'}"
        cells = [name, str(problem.stage_count), ", ".join(kinds), f"{found:.1e}", verdict]
        rows.append(cells)
    return headings, rows


def _every_kind() -> list[tuple[str, Schedule]]:
    """Each classic schedule, split where it can be, and a solved one for two placements."""
    found = []
    for placement, chunks in (("linear", 1), ("interleaved", 2), ("v", 2)):
        problem = Problem.uniform(
            devices=RANKS,
            stages=RANKS * chunks,
            placement=placement,
            microbatches=8,
        )
        for name, build in CLASSIC.items():
            try:
                found.append((f"{name}, {placement}", build(problem)))
            except NotApplicableError:
                continue
        tight = problem.with_capacity(RANKS * chunks)
        solved = solve(tight, workers=1, deterministic_limit=1).schedule
        found += [] if solved is None else [(f"solved, {placement}", solved)]
    return found


def _difference(schedule: Schedule, device: str) -> float:
    rank = dist.get_rank()
    own = device_of_rank(device, rank)
    options = {"layers": LAYERS, "width": 64, "dtype": torch.float64}
    model = model_of(TRANSFORMER, schedule.problem.stage_count, device=own, **options)
    return largest_difference(TRANSFORMER, model, schedule, rank, device=own, timeout=60.0)


# ---------------------------------------------------------------------- costs


def profile(settings: Settings) -> Table:
    """Ops of the stages of a transformer in bf16, alone on the GPU, timed by its own clock."""
    found = profile_model(
        TRANSFORMER, RANKS, options=settings.options, device=settings.device, links=False
    )
    headings = ["stage", "kind", "us", "spread", "MiB held after it"]
    rows = []
    for costs in found.stages:
        for form in (costs.split, costs.fused):
            for kind, timing in form.timings.items() if form is not None else ():
                held = form.held_bytes.get(kind, 0) / 2**20 if form is not None else 0
                cells = [str(costs.stage), kind, f"{timing.median_us:.0f}"]
                rows.append([*cells, f"{100 * timing.spread:.0f} %", f"{held:.1f}"])
    return headings, rows


def memory(settings: Settings) -> Table:
    """Held microbatches and messages beside the plan, and what the allocator gave out at most."""
    headings = ["schedule", "m", "held", "planned", "messages", "planned", "activations MiB"]
    headings += ["allocated MiB", "within plan"]
    rows = []
    for microbatches in (8, 32):
        problem = Problem.uniform(devices=RANKS, microbatches=microbatches, capacity=RANKS)
        report = settings.run([CLASSIC["1F1B"](problem), CLASSIC["ZB-H1"](problem)])
        for row in report.rows:
            activations = max(stats.activation_bytes or 0 for stats in row.memory)
            allocated = max(stats.allocated_bytes or 0 for stats in row.memory)
            cells = [row.name, str(microbatches), *map(str, row.held_microbatches)]
            cells += [*map(str, row.boundary_messages), f"{activations / 2**20:.1f}"]
            cells += [f"{allocated / 2**20:.1f}", "yes" if row.within_plan else "no"]
            rows.append(cells)
    return headings, rows


# ---------------------------------------------------------------------- time


def overhead(settings: Settings) -> Table:
    """Small ops on one rank: what a step of the executor takes beyond the ops themselves."""
    headings = ["schedule", "ops", "us per op", "us per op, plain PyTorch"]
    rows = []
    for split in (False, True):
        durations = {"F": 1, "B": 1, "W": 1} if split else {"F": 1, "BW": 2}
        problem = Problem(devices=1, microbatches=32, durations=durations)
        schedule = CLASSIC["GPipe" if split else "1F1B"](problem)
        ops = len(schedule.by_device[0])
        executor_us, plain_us = settings.ranks.run(_small_steps, schedule, settings.device)[0]
        name = f"{schedule.name}, {'B and W' if split else 'BW'}"
        rows.append([name, str(ops), f"{executor_us / ops:.0f}", f"{plain_us / ops:.0f}"])
    return headings, rows


def _small_steps(schedule: Schedule, device: str) -> tuple[float, float]:
    """Time in us of a step by the executor, and by a loop over the microbatches; on rank 0."""
    group = dist.new_group([0])  # every rank takes part in making it
    if dist.get_rank():
        return 0.0, 0.0
    own = device_of_rank(device, 0)
    model = model_of(MLP, 1, device=own, width=64)
    count = schedule.problem.microbatches
    inputs, target = model.inputs(count), model.target(count)
    executor = PipelineExecutor(
        {0: model.build(0)}, schedule, loss_fn=model.loss_fn, group=group, device=own
    )
    module = model.build(0)

    def plain() -> None:
        for x, y in zip(inputs[0].chunk(count), target.chunk(count), strict=True):
            model.loss_fn(module(x), y).backward()

    found = [
        _shortest(lambda: executor.step(*inputs, target=target), own),
        _shortest(plain, own),
    ]
    executor.close()
    return found[0], found[1]


def _shortest(call: Callable[[], object], device: torch.device) -> float:
    """Of 20 calls, in us."""
    times = []
    for _ in range(20):
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(1e6 * (time.perf_counter() - start))
    return min(times)


def steps(settings: Settings) -> Table:
    """Steps with ranks that share the GPU: ops by CUDA events, and the step by the host."""
    problem = Problem.uniform(devices=RANKS, microbatches=8, capacity=RANKS)
    report = settings.run([CLASSIC["1F1B"](problem), CLASSIC["ZB-H1"](problem)])
    headings = ["schedule", "step ms", "min to max", "longest rank by events ms", "loss"]
    rows = []
    for row in report.rows:
        by_events = max(1e3 * trace.seconds for trace in row.traces)
        lengths = f"{min(row.milliseconds):.1f} to {max(row.milliseconds):.1f}"
        rows.append(
            [row.name, f"{row.measured:.1f}", lengths, f"{by_events:.1f}", f"{row.loss:.6g}"]
        )
    rows.append(["equal losses" if report.losses_equal else "LOSSES DIFFER", "", "", "", ""])
    return headings, rows


# ---------------------------------------------------------------------- the script

PARTS: dict[str, Callable[[Settings], Table]] = {
    "gradients": gradients,
    "profile": profile,
    "memory": memory,
    "overhead": overhead,
    "steps": steps,
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
    parser.add_argument("--steps", type=int, default=5, metavar="K", help="timed, of a schedule")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a try of the script"
    )
    given = parser.parse_args(arguments)
    if given.steps < 1:
        parser.error(f"--steps: must be at least 1, got {given.steps}")
    if given.device == "cuda" and not torch.cuda.is_available():
        print("Error: there is no GPU here that torch can use", file=sys.stderr)
        sys.exit(NO_GPU)
    where = torch.cuda.get_device_name() if given.device == "cuda" else "the CPU, as a try"
    print(f"{RANKS} ranks on {where}; torch {torch.__version__}")
    with LocalRanks(RANKS) as ranks:
        settings = Settings(given.device, given.steps, ranks)
        for name in dict.fromkeys(given.only):
            print(f"{name} ...", file=sys.stderr, flush=True)
            start = time.monotonic()
            headings, rows = PARTS[name](settings)
            seconds = time.monotonic() - start
            print(f"\n{name}: {PARTS[name].__doc__} ({seconds:.0f} s)\n")
            print(markdown(headings, rows), flush=True)


if __name__ == "__main__":
    main()
