"""Variants of a problem: backward fused or split, stages cut into pieces, more or less of
something; and the way back for orders.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import networkx as nx

from schedopt.errors import NotApplicableError
from schedopt.exact import Number, exact, plain
from schedopt.op import Op, Resource
from schedopt.parts import LagByDirection
from schedopt.placement import named_placement
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.stage import KIND_NAMES, StageData


def fused(problem: Problem) -> Problem:
    """The problem with B and W of every stage fused into one op BW.

    BW takes as long as B and W together and releases what they release. Its transient memory is
    the most that B directly followed by W needs above the memory before B, so a fused schedule
    fits exactly when the same schedule with B, W in the place of each BW fits. A problem without
    split stages is returned as it is.
    """
    if all(data.backward != "B" for data in problem.stage_data):
        return problem
    return with_stages(problem, [_fused_stage(data) for data in problem.stage_data], ("F",))


def recut(problem: Problem, placement: str, chunks: int) -> Problem:
    """The same model and devices with each stage cut into `chunks` equal pieces.

    Piece g of the model is placed by the named `placement` (`schedopt.placement`). A piece takes
    1/chunks of the duration and the memory of its stage. Where that is no number with a finite
    decimal form, it is rounded down to a neighbouring float, so that the pieces of a stage never
    need more than the stage. Lags between devices, static memory and capacity stay. A skip
    connection leads from the last piece of its source to the first piece of its target.

    Raises
    ------
    NotApplicableError
        If the problem does not have one stage per device in the order of the devices.
    ValueError
        If the placement is unknown, or can not have that many chunks.
    """
    devices = problem.devices
    if problem.device_of != tuple(range(devices)):
        raise NotApplicableError(
            f"only a linear placement (stage s on device s) can be cut into chunks; this one has "
            f"{problem.stage_count} stages on devices {list(problem.device_of)}"
        )
    device_of = named_placement(placement, devices, chunks)
    if chunks == 1:
        return problem
    bare = problem.replace(extras=())
    pieces = [_piece(data, chunks) for data in bare.stage_data for _ in range(chunks)]
    # the last release is left out: it follows, so that memory sums to zero in spite of rounding
    cut = {
        "stages": len(device_of),
        "placement": placement,
        "durations": _columns(pieces, "durations"),
        "memory": {
            **_columns(pieces, "memory", ("F",) if problem.forward_only else ("F", "B")),
            "transient": _columns(pieces, "transient"),
            "static": problem.memory.static,
            "capacity": problem.memory.capacity,
        },
        "lag": _lag_of_devices(problem),
        "edges": [
            {
                "from": edge.from_stage * chunks + chunks - 1,
                "to": edge.to_stage * chunks,
                "lag": edge.lag,
            }
            for edge in problem.edges
        ],
    }
    return problem.replace(**cut, **_cut_parts(problem, chunks))


def _cut_parts(problem: Problem, chunks: int) -> dict[str, Any]:
    """The tables that say something about stages, for stages cut into chunks.

    What a stage has besides its layers is in its first piece if it is the first stage, else in
    its last one.
    """

    def end(stage: int) -> int:
        return stage * chunks + (chunks - 1 if stage else 0)

    def each(value: Any, divide: bool) -> Any:
        if isinstance(value, (list, tuple)):
            return [each(part, divide) for part in value for _ in range(chunks)]
        return plain(_share(exact(value), chunks)) if divide and value is not None else value

    data = problem.model_dump(by_alias=True)
    parts: dict[str, Any] = {
        "extras": [{**extra, "stage": end(extra["stage"])} for extra in data["extras"]]
    }
    if data["recompute"]:
        part = data["recompute"]
        parts["recompute"] = {
            "mode": each(part["mode"], divide=False),
            "R": each(part["R"], divide=True),
            "kept": each(part["kept"], divide=True),
        }
    if data["links"]:
        sizes = {name: each(data["links"][name], divide=False) for name in _SIZES}
        parts["links"] = {**data["links"], **sizes}
    if data["end_of_step"]:
        part = data["end_of_step"]
        tied = [
            {**entry, "stages": [end(stage) for stage in entry["stages"]]} for entry in part["tied"]
        ]
        reduction = each(part["reduction"], divide=True)
        parts["end_of_step"] = {**part, "reduction": reduction, "tied": tied}
    return parts


_SIZES = ("size", "gradient_size")


def split(problem: Problem) -> Problem:
    """The problem with every BW split into B and W, each of half its duration.

    That is an assumption: what B and W of a stage take has to be measured. W releases what F has
    acquired; the transient memory of BW is that of both. A problem without fused stages is
    returned as it is.
    """
    if all(data.backward != "BW" for data in problem.stage_data):
        return problem
    return with_stages(problem, [_split_stage(data) for data in problem.stage_data], ("F", "B"))


def activation(problem: Problem, device: int) -> Fraction:
    """What one microbatch holds on a device: the memory that F of all its stages acquires."""
    stages = (problem.stage_data[stage] for stage in problem.stages_on[device])
    amount = sum((data.memory["F"] for data in stages), Fraction(0))
    return amount * max(problem.factors)


def with_activations_added(problem: Problem, devices: Iterable[int], count: int = 1) -> Problem:
    """The problem with room for `count` more activations (`activation`) on some devices."""
    chosen = set(devices)
    return problem.with_capacity(
        [
            None
            if capacity is None
            else plain(capacity + (count * activation(problem, device) if device in chosen else 0))
            for device, capacity in enumerate(problem.capacity)
        ]
    )


def with_lags_times(problem: Problem, factor: Fraction) -> Problem:
    """The problem with every lag multiplied, and every latency and size / bandwidth of links."""

    def scaled(lag: Any) -> Any:
        if isinstance(lag, LagByDirection):
            return {"forward": scaled(lag.forward), "backward": scaled(lag.backward)}
        if isinstance(lag, tuple):
            return [scaled(part) for part in lag]
        return None if lag is None else plain(exact(lag) * factor)

    edges = [
        {"from": edge.from_stage, "to": edge.to_stage, "lag": scaled(edge.lag)}
        for edge in problem.edges
    ]
    links = problem.links and {
        **problem.links.model_dump(),
        "size": scaled(problem.links.size),
        "gradient_size": scaled(problem.links.gradient_size),
        "latency": scaled(problem.links.latency),
    }
    return problem.replace(lag=scaled(problem.lag), edges=edges, links=links)


def moved(problem: Problem, name: str, stage: int) -> Problem:
    """The problem with one of its extras on another stage.

    Raises
    ------
    ValueError
        If there is no extra of that name, or no such stage.
    """
    names = [extra.name for extra in problem.extras]
    if name not in names:
        known = ", ".join(names) or "none"
        raise ValueError(f"{name!r} is no extra of the problem; it has: {known}")
    if not 0 <= stage < problem.stage_count:
        raise ValueError(f"there is no stage {stage}; must be 0 to {problem.stage_count - 1}")
    extras = [extra.model_dump() for extra in problem.extras]
    extras[names.index(name)]["stage"] = stage
    return problem.replace(extras=extras)


def uniform_choices(problem: Problem) -> dict[str, Problem]:
    """The problem with nothing and with everything recomputed, where that is decided, by a label.

    The problem itself, with the label "", if nothing is decided.
    """
    if not problem.decides:
        return {"": problem}

    def all_with(mode: str) -> Problem:
        modes = [mode if each == "decide" else each for each in problem.recompute_modes]
        return with_recompute_mode(problem, modes)

    return {", nothing recomputed": all_with("never"), ", all recomputed": all_with("always")}


def with_recompute_mode(problem: Problem, mode: str | Sequence[str]) -> Problem:
    """The problem with another mode of recomputation: never, always or decide, or one per stage.

    Raises
    ------
    ValueError
        If the problem says nothing about recomputation.
    """
    if problem.recompute is None:
        raise ValueError("the problem has no recompute table, which says what R takes and F keeps")
    return problem.replace(recompute={**problem.recompute.model_dump(), "mode": mode})


def with_stage_times(problem: Problem, stage: int, factor: Fraction) -> Problem:
    """The problem with the durations of one stage multiplied."""
    stages = [
        data._replace(durations={kind: time * factor for kind, time in data.durations.items()})
        if index == stage
        else data
        for index, data in enumerate(problem.stage_data)
    ]
    return with_stages(problem, stages)


def with_microbatches(problem: Problem, count: int) -> Problem:
    """The problem with another number of microbatches; further ones have the length factor 1."""
    factors = problem.microbatch_factors
    if factors is not None:
        factors = (*factors, *[1] * (count - len(factors)))[:count]
    return problem.replace(microbatches=count, microbatch_factors=factors)


def with_stages(
    problem: Problem,
    stages: Sequence[StageData],
    memory_kinds: Iterable[str] = ("F", "B", "W", "BW"),
) -> Problem:
    """The problem with other durations and memory of its stages, their extras included.

    Parameters
    ----------
    problem
        The problem.
    stages
        As `Problem.stage_data`, one for each stage.
    memory_kinds
        Kinds whose memory is written; the rest follows, so that all sum to zero.
    """
    return problem.replace(
        stages=problem.stage_count,
        durations=_columns(stages, "durations"),
        memory={
            **_columns(stages, "memory", memory_kinds),
            "transient": _columns(stages, "transient"),
            "static": _static(problem),
            "capacity": problem.memory.capacity,
        },
        extras=(),
    )


def _static(problem: Problem) -> Any:
    """Static memory of the devices with that of the extras, as a field of a problem file."""
    if not any(extra.static for extra in problem.extras):
        return problem.memory.static
    return [plain(amount) for amount in problem.static]


def refine_orders(schedule: Schedule, graph: nx.DiGraph[Op]) -> dict[Resource, tuple[Op, ...]]:
    """Orders of a schedule with each BW that `graph` does not have written as B, W.

    Parameters
    ----------
    schedule
        A schedule for the problem of `graph`, or for its `fused` variant.
    graph
        From `schedopt.graph.build_graph`.
    """

    def refined(op: Op) -> Iterable[Op]:
        if op.kind == "BW" and op not in graph:
            return op._replace(kind="B"), op._replace(kind="W")
        return (op,)

    return {
        resource: tuple(part for op in ops for part in refined(op))
        for resource, ops in schedule.orders.items()
    }


def _fused_stage(data: StageData) -> StageData:
    if data.backward != "B":
        return data
    durations, memory, transient = data.durations, data.memory, data.transient
    most = max(max(memory["B"], Fraction(0)) + transient["B"], memory["B"] + transient["W"])
    return StageData(
        data.device,
        {"F": durations["F"], "BW": durations["B"] + durations["W"]},
        {"F": memory["F"], "BW": -memory["F"]},
        {"F": transient["F"], "BW": most},
    )


def _split_stage(data: StageData) -> StageData:
    if data.backward != "BW":
        return data
    half, acquired = data.durations["BW"] / 2, data.memory["F"]
    transient = data.transient
    return StageData(
        data.device,
        {"F": data.durations["F"], "B": half, "W": half},
        {"F": acquired, "B": Fraction(0), "W": -acquired},
        {"F": transient["F"], "B": transient["BW"], "W": transient["BW"]},
    )


def _piece(data: StageData, chunks: int) -> StageData:
    def divided(amounts: dict[str, Fraction]) -> dict[str, Fraction]:
        return {kind: _share(amount, chunks) for kind, amount in amounts.items()}

    return StageData(
        data.device, divided(data.durations), divided(data.memory), divided(data.transient)
    )


def _share(amount: Fraction, chunks: int) -> Fraction:
    """One of `chunks` equal parts, rounded towards zero if it has no finite decimal form."""
    share = amount / chunks
    value = plain(share)
    if abs(exact(value)) > abs(share):
        value = math.nextafter(value, 0)
    return exact(value)


def _columns(
    stages: Sequence[StageData], part: str, kinds: Iterable[str] = KIND_NAMES
) -> dict[str, Any]:
    """Fields of a problem file for one part of the stages: one number, or a list per stage."""
    result: dict[str, Any] = {}
    for kind in kinds:
        column = [getattr(stage, part).get(kind) for stage in stages]
        missing = 0 if part == "transient" else None  # a stage without this kind
        values = [missing if value is None else plain(value) for value in column]
        if values.count(missing) < len(values):
            result[kind] = values[0] if len(set(values)) == 1 else values
    return result


def _lag_of_devices(problem: Problem) -> Any:
    """The lag without reference to stages: a list per boundary becomes a table of devices."""
    lag = problem.lag
    if isinstance(lag, LagByDirection):
        return {
            "forward": _by_device(problem, lag.forward, forward=True),
            "backward": _by_device(problem, lag.backward, forward=False),
        }
    return _by_device(problem, lag, forward=True)


def _by_device(problem: Problem, lag: Any, *, forward: bool) -> Any:
    """One lag of a linear placement; a path that turns back takes the same lags."""
    if not isinstance(lag, tuple) or any(isinstance(row, tuple) for row in lag):
        return lag

    def between(source: int, target: int) -> Number:
        ends = sorted((source, target), reverse=not forward)
        return plain(problem.lag_between(*ends))

    devices = range(problem.devices)
    return [[between(source, target) for target in devices] for source in devices]
