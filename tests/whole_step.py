"""Tiny problems of a whole step: all ops by the fields of the problem, brute force, random ones.

Recomputation, transfers on links, reductions, tied parameters and the optimizer are read here
from the problem file once more, as plain numbers. What is recomputed is tried in every way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

from hypothesis import strategies as st

from schedopt.exact import exact
from schedopt.problem import Problem
from tests.brute_force import Name, Task, least_makespan, least_period

Pick = Callable[[int, int], int]


def of(value: Any, index: int) -> Fraction:
    return exact(value[index] if isinstance(value, (list, tuple)) else value)


class _Op(NamedTuple):
    resource: str
    device: int
    duration: Fraction
    needs: tuple[tuple[Name, Fraction], ...]
    taken: Fraction = Fraction(0)
    change: Fraction = Fraction(0)


def _all_ops(problem: Problem, recomputed: set[tuple[int, int]]) -> dict[Name, _Op]:
    ops: dict[Name, _Op] = {}
    stages, none = problem.stage_data, Fraction(0)
    m = range(problem.microbatches)
    chain = [(s, s + 1, None) for s in range(len(stages) - 1)] if problem.chain else []
    edges = [(e.from_stage, e.to_stage, e.lag) for e in problem.edges]
    arrivals: dict[tuple[str, int], list[tuple[str, int, str, int, Fraction, Fraction, str]]] = {}
    seen = set()
    for source, target, own in chain + edges:
        carries = own is None and source not in seen
        if own is None:
            seen.add(source)
        for send, ends in (("SF", (source, target)), ("SB", (target, source))):
            kinds = ("F", "F") if send == "SF" else tuple(stages[s].backward for s in ends)
            if not kinds[1]:
                continue
            a, b = problem.device_of[ends[0]], problem.device_of[ends[1]]
            passing = latency = none
            wire, links = "", problem.links
            if own is not None:
                latency = exact(own)
            elif links is None:
                latency = problem.lag_between(*ends)
            elif a != b:
                size = of(links.size, source)
                if send == "SB" and links.gradient_size is not None:
                    size = of(links.gradient_size, source)
                passing, latency = size / exact(links.bandwidth), exact(links.latency)
                if links.occupy and carries and passing:
                    wire = f"{a} to {b}"
                    for shared in links.shared:
                        if (a, b) in shared.links:
                            wire = shared.name
            arrivals.setdefault((kinds[1], ends[1]), []).append(
                (send, source, kinds[0], ends[0], passing, latency, wire)
            )
    for stage, i in product(range(len(stages)), m):
        data, factor = stages[stage], problem.factors[i]
        again = (stage, i) in recomputed
        recompute = problem.recompute
        kept = of(recompute.kept, stage) if recompute and again else data.memory["F"]
        kinds = list(data.durations)
        if again:
            kinds.insert(1, "R")
        for position, kind in enumerate(kinds):
            if kind == "R":
                given = recompute.R if recompute else None
                given = given[stage] if isinstance(given, tuple) else given
                duration = data.durations["F"] if given is None else exact(given)
                change, transient = data.memory["F"] - kept, data.transient["F"]
            else:
                duration, transient = data.durations[kind], data.transient[kind]
                change = kept if kind == "F" else data.memory[kind]
            needs = [((kinds[position - 1], stage, i), none)] if position else []
            for send, output, kind_of, maker, passing, latency, wire in arrivals.get(
                (kind, stage), []
            ):
                made = (kind_of, maker, i)
                if wire:
                    home = problem.device_of[maker]
                    ops[send, output, i] = _Op(wire, home, passing * factor, ((made, none),))
                    needs.append(((send, output, i), latency))
                else:
                    needs.append((made, latency + passing * factor))
            ops[kind, stage, i] = _Op(
                f"device {data.device}",
                data.device,
                duration * factor,
                tuple(needs),
                (max(change, none) + transient) * factor,
                change * factor,
            )
    part = problem.end_of_step
    if part is not None:
        complete = {s: [((data.last, s, i), none) for i in m] for s, data in enumerate(stages)}
        for stage, data in enumerate(stages):
            time = of(part.reduction, stage)
            if time:
                wire = f"network {data.device}"
                ops["RED", stage, 0] = _Op(wire, data.device, time, tuple(complete[stage]))
                complete[stage] = [(("RED", stage, 0), none)]
        finished = {s: list(waits) for s, waits in complete.items()}
        for tied in part.tied:
            first = min(tied.stages)
            waits = tuple(wait for s in tied.stages for wait in complete[s])
            home = problem.device_of[first]
            ops["TIE", first, 0] = _Op(f"network {home}", home, exact(tied.duration), waits)
            for s in tied.stages:
                finished[s].append((("TIE", first, 0), none))
        for device, own_stages in enumerate(problem.stages_on):
            if own_stages:
                waits = tuple(wait for s in own_stages for wait in finished[s])
                time = of(part.optimizer, device)
                ops["OPT", own_stages[0], 0] = _Op(f"device {device}", device, time, waits)
    return ops


def _tasks(problem: Problem, ops: dict[Name, _Op], parts: int) -> tuple[list[Task], Fraction, Any]:
    names = list(ops)
    index = {name: k for k, name in enumerate(names)}
    times = [op.duration for op in ops.values()]
    times += [lag for op in ops.values() for _, lag in op.needs]
    step = Fraction(1, parts * math.lcm(*(time.denominator for time in times)))
    others = sorted({op.resource for op in ops.values() if not op.resource.startswith("device")})
    number = {f"device {device}": device for device in range(problem.devices)}
    number |= {name: problem.devices + k for k, name in enumerate(others)}
    tasks = [
        Task(
            name,
            op.device,
            int(op.duration / step),
            tuple(
                (index[other], int(max(lag for name, lag in op.needs if name == other) / step))
                for other in dict.fromkeys(name for name, _ in op.needs)
            ),
            op.taken,
            op.change,
            number[op.resource],
        )
        for name, op in ops.items()
    ]
    spans = [
        [number[name] for name in (f"device {d}", f"network {d}") if name in number]
        for d in range(problem.devices)
    ]
    spans += [[number[name]] for name in others if not name.startswith("network")]
    return tasks, step, spans


def choices(problem: Problem) -> Iterator[set[tuple[int, int]]]:
    """Every set of (stage, microbatch) that may be recomputed."""
    cells = list(product(range(problem.stage_count), range(problem.microbatches)))
    options = {"never": (False,), "always": (True,), "decide": (False, True)}
    modes = [options[problem.recompute_modes[stage]] for stage, _ in cells]
    for chosen in product(*modes):
        yield {cell for cell, yes in zip(cells, chosen, strict=True) if yes}


def least_objective(problem: Problem) -> Fraction | None:
    """Least objective of all schedules and all choices; None if the memory forbids all."""
    best: Fraction | None = None
    for recomputed in choices(problem):
        parts = 1
        if problem.objective == "period":
            parts = math.lcm(*range(1, 2 * problem.devices + 2))
        tasks, step, spans = _tasks(problem, _all_ops(problem, recomputed), parts)
        if problem.objective == "period":
            period = least_period(problem, tasks, spans)
            found = None if period is None else period * step
        else:
            order = least_makespan(problem, tasks)
            found = None if order is None else order[0] * step
        if found is not None and (best is None or found < best):
            best = found
    return best


def whole_step(pick: Pick, *, most: int = 3, **fields: Any) -> Problem:
    """A random tiny problem with some of the parts of a whole step."""
    devices, placement, stages = [
        (1, "linear", 1),
        (2, "linear", 2),
        (2, "linear", 2),
        (2, [0, 1, 0], 3),
        (3, "linear", 3),
        (1, [0, 0], 2),
    ][pick(0, 5)]
    microbatches = max(1, min(pick(1, most), 5 // stages))
    data: dict[str, Any] = {
        "devices": devices,
        "placement": placement,
        "stages": stages,
        "microbatches": microbatches,
        "durations": {"F": [pick(0, 3) for _ in range(stages)], "B": pick(1, 3), "W": pick(0, 2)},
        "memory": {"F": 2, "B": pick(-1, 1)},
    }
    forward_only = pick(0, 9) == 0
    if forward_only:
        data["forward_only"] = True
    if pick(0, 3) == 0:
        data["microbatch_factors"] = [pick(1, 2) for _ in range(microbatches)]
    if stages == 3 and pick(0, 2) == 0:
        data |= {"chain": False, "edges": [{"from": 0, "to": 2}, {"from": 1, "to": 2}]}
    elif stages > 1 and pick(0, 3) == 0:
        data["edges"] = [
            {"from": 0, "to": stages - 1} | ({"lag": pick(0, 4)} if pick(0, 1) else {})
        ]
    if pick(0, 1):
        data["links"] = {
            "size": [pick(0, 3) for _ in range(stages)],
            "bandwidth": pick(1, 2),
            "latency": pick(0, 1),
            "occupy": pick(0, 3) > 0,
        }
        if pick(0, 1):
            data["links"]["gradient_size"] = pick(0, 3)
        if devices > 1 and pick(0, 1):
            data["links"]["shared"] = [{"name": "wire", "links": [[0, 1], [1, 0]]}]
    else:
        data["lag"] = pick(0, 2)
    if not forward_only and pick(0, 2):
        modes = ("never", "always", "decide", "decide", "decide")
        data["recompute"] = {
            "mode": [modes[pick(0, 4)] for _ in range(stages)],
            "kept": pick(0, 4) / 2,
        }
        if pick(0, 1):
            data["recompute"]["R"] = pick(0, 3)
    if not forward_only and pick(0, 1):
        data["end_of_step"] = {
            "reduction": [pick(0, 2) for _ in range(stages)],
            "optimizer": pick(0, 2),
        }
        if stages > 1 and pick(0, 1):
            data["end_of_step"]["tied"] = [{"stages": [0, stages - 1], "duration": pick(0, 2)}]
    if pick(0, 2) == 0:
        data["extras"] = [
            {"name": "loss", "stage": stages - 1, "F": 1, "B": pick(0, 1), "memory": pick(0, 1)}
        ]
    if pick(0, 3):
        data["memory"]["capacity"] = pick(3, 8)
    return Problem(**data, **fields)


@st.composite
def whole_steps(draw: st.DrawFn, **fields: Any) -> Problem:
    """Hypothesis strategy of `whole_step`."""
    return whole_step(lambda low, high: draw(st.integers(low, high)), **fields)
