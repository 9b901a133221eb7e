"""The named sets of problems of the solver benchmark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from benchmarks.peers import Objective, PeerRow, memory_text, read_rows
from schedopt.bundled import bundled_names, load_bundled
from schedopt.exact import Number, exact, plain, text
from schedopt.problem import Problem
from schedopt.variants import recut, with_recompute_mode

MEASURED = tuple(name for name in bundled_names() if re.match(r"zb-\d", name))
"""The published measurements of the zero-bubble paper: zb-1.5b-p8-m24, ..."""


class Instance(NamedTuple):
    """A problem with the name it has in the tables."""

    name: str
    problem: Problem


def measured(
    name: str,
    share: Number = 1,
    *,
    objective: Objective = "makespan",
    microbatches: int | None = None,
    placement: str = "linear",
) -> Instance:
    """A published measurement with memory for `share` x p activations on each device.

    `microbatches` replaces their number; placement "v" cuts each stage into two equal chunks.
    """
    problem = load_bundled(name)
    if microbatches is not None:
        name = name.replace(f"-m{problem.microbatches}", f"-m{microbatches}")
        problem = problem.replace(microbatches=microbatches)
    activation = max(data.memory["F"] for data in problem.stage_data)
    problem = problem.with_capacity(plain(activation * problem.devices * exact(share)))
    problem = problem.replace(name=name, objective=objective)
    if placement != "linear":
        name = f"{name} {placement}"
        problem = recut(problem, placement, 2)
    return Instance(f"{name} at {text(exact(share))}p", problem)


def equal(
    devices: int,
    microbatches: int,
    activations: Number,
    *,
    placement: str = "linear",
    duration: Number = 100,
    lag: Number = 10,
    memory: tuple[Number, Number] = (2, -1),
) -> Instance:
    """Equal stages, F = B = W = `duration` per device, and memory for some activations.

    `memory` is the change by F and B; W releases the rest.
    """
    forward, backward = memory
    problem = Problem.uniform(
        devices=devices,
        microbatches=microbatches,
        F=duration,
        B=duration,
        W=duration,
        lag=lag,
        memory={"F": forward, "B": backward},
        capacity=plain(exact(forward) * exact(activations)),
    )
    parts = [f"p={devices} m={microbatches}"]
    if placement != "linear":
        problem = recut(problem, placement, 2)
        parts.append(placement)
    if duration != 100:
        parts.append(f"F=B=W={text(duration)}")
    parts += [f"lag={text(lag)}", memory_text(forward, backward), f"at {text(activations)}"]
    return Instance(" ".join(parts), problem)


def zb() -> Iterator[Instance]:
    """The published rows: the memory of 1F1B, both objectives; 1.5 and 2 times that memory."""
    for name in MEASURED:
        yield measured(name)
        yield measured(name, objective="period")
    for share in (1.5, 2):
        yield from (measured(name, share) for name in MEASURED)


def tight() -> Iterator[Instance]:
    """Up to 8 devices with one stage each, equal costs, memory from one activation on."""
    yield from _distinct(
        row
        for row in read_rows()
        if row.group in ("uniform", "lowmem") and row.placement == "linear" and row.devices <= 8
    )
    yield equal(8, 32, 4, duration=1, lag=0, memory=(1, 0))


def v() -> Iterator[Instance]:
    """Two chunks on each device, placed as a V, down to the least memory of the patterns."""
    for microbatches in (8, 16):
        for activations in (4, 3, 2):
            yield equal(4, microbatches, activations, placement="v")
    for activations in (8, 5, 4):
        yield equal(8, 24, activations, placement="v")
    for devices, microbatches in ((16, 48), (32, 96)):
        for algorithm in ("V-Half", "V-Min"):
            activations = _peak_in_activations(algorithm, devices, microbatches)
            yield equal(devices, microbatches, activations, placement="v")


def unequal() -> Iterator[Instance]:
    """Unequal stages or capacities with a lag, and the measured profile."""
    yield from _distinct(row for row in read_rows() if row.group == "hetero" and row.lag)


def large() -> Iterator[Instance]:
    """Many devices with little memory, and many microbatches."""
    for devices, microbatches, activations in ((16, 48, 12), (16, 48, 8), (32, 96, 24)):
        yield equal(devices, microbatches, activations)
    yield equal(32, 96, 16)
    for microbatches in (256, 1024):
        for placement in ("linear", "v"):
            yield measured("zb-28.3b-p32-m256", microbatches=microbatches, placement=placement)


def period() -> Iterator[Instance]:
    """The published rows at 1.5 and 2 times the memory of 1F1B, for the period."""
    for share in (1.5, 2):
        yield from (measured(name, share, objective="period") for name in MEASURED)


def recompute() -> Iterator[Instance]:
    """Recomputation never, always, per stage and decided, at equal memory; links; a whole step.

    What a stage keeps is its input: an eighth of an activation of the measured model, which has
    about eight tensors of that size in a layer.
    """
    for name in ("recompute-p4-m8", "zb-1.5b-p8-m24"):
        shares: tuple[Number, ...] = (0.5, 0.25) if name.startswith("zb") else (1,)
        for share in shares:
            for objective in OBJECTIVES:
                yield from _recomputing(name, share, objective)
    for name in ("links-p4-m24-fast", "links-p4-m24-slow"):
        problem = load_bundled(name)
        yield Instance(f"{name} linear", problem)
        yield Instance(f"{name} interleaved", recut(problem, "interleaved", 2))
    problem = measured("zb-1.5b-p8-m24").problem
    ends = {"reduction": 20000, "optimizer": 5000, "tied": [{"stages": [0, 7], "duration": 4000}]}
    for objective in OBJECTIVES:
        whole = problem.replace(end_of_step=ends, objective=objective)
        yield Instance("zb-1.5b-p8-m24 at 1p, reductions and optimizer", whole)


OBJECTIVES: tuple[Objective, ...] = ("makespan", "period")


def _recomputing(name: str, share: Number, objective: Objective) -> Iterator[Instance]:
    problem = load_bundled(name)
    if problem.recompute is None:
        name, problem = measured(name, share)
        kept = [plain(data.memory["F"] / 8) for data in problem.stage_data]
        problem = problem.replace(recompute={"mode": "decide", "kept": kept})
    half = problem.stage_count // 2
    first_half = ["always"] * half + ["never"] * (problem.stage_count - half)
    modes: dict[str, str | list[str]] = {
        "nothing recomputed": "never",
        "all recomputed": "always",
        "first half recomputed": first_half,
        "decided": "decide",
    }
    for what, mode in modes.items():
        variant = with_recompute_mode(problem.replace(objective=objective), mode)
        yield Instance(f"{name}, {what}", variant)


def ablation() -> Iterator[Instance]:
    """A few of different kinds, to see what each stage of the search adds."""
    yield measured("zb-1.5b-p8-m24", 0.75)
    yield measured("zb-1.5b-p8-m24", 1.5, objective="period")
    yield equal(8, 24, 6)
    yield equal(16, 48, 8)
    yield equal(8, 24, 5, placement="v")
    yield equal(8, 24, 4, placement="v")
    yield equal(16, 48, 6, placement="v")


SETS: dict[str, Callable[[], Iterator[Instance]]] = {
    "zb": zb,
    "tight": tight,
    "v": v,
    "unequal": unequal,
    "large": large,
    "period": period,
    "recompute": recompute,
    "ablation": ablation,
}
"""Every named set."""


def _distinct(rows: Iterable[PeerRow]) -> Iterator[Instance]:
    """The problems of rows, each once, for the makespan."""
    yield from {row.name: Instance(row.name, row.problem()) for row in rows}.values()


def _peak_in_activations(algorithm: str, devices: int, microbatches: int) -> Number:
    """The peak of a published pattern, of the rows with a lag and memory 2/-1/-1."""
    peaks = {
        exact(row.peak) / exact(2)
        for row in read_rows()
        if (row.algorithm, row.devices, row.microbatches) == (algorithm, devices, microbatches)
        and row.group == "uniform"
        and (row.lag, row.forward_memory) == (10, 2)
    }
    (peak,) = peaks
    return plain(peak)
