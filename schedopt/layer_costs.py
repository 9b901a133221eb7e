"""Costs per layer, and the stages they add up to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from schedopt.errors import Fault, ProblemError
from schedopt.exact import Number, exact, plain, text
from schedopt.fields import PerItem, SignedPerItemOrNull
from schedopt.parts import Durations, Transient
from schedopt.problem import Problem
from schedopt.stage import item, kinds_of_stage, memory_of_stage
from schedopt.validation import faults_of

Costs = Mapping[str, Any]
"""A table with ``durations`` and ``memory`` of one or more layers, an embedding or a head."""


class _Memory(BaseModel):
    """As `schedopt.problem.Memory`, but for a layer; static is its weights."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    F: PerItem = 1
    B: SignedPerItemOrNull = None
    W: SignedPerItemOrNull = None
    BW: SignedPerItemOrNull = None
    transient: Transient = Transient()
    static: PerItem = 0


class _Costs(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    durations: Durations
    memory: _Memory = _Memory()


@dataclass(frozen=True)
class Layer:
    """What a layer, an embedding or a head adds to its stage, per kind, and its weights."""

    durations: dict[str, Fraction]
    memory: dict[str, Fraction]
    transient: dict[str, Fraction]
    static: Fraction


def read_layers(costs: Costs, count: int, *, place: str = "") -> list[Layer]:
    """Read a table in which each entry is one number, or a list with one for each layer.

    Parameters
    ----------
    costs
        Tables ``durations`` (F, and B and W or BW) and ``memory`` (F, B, W, BW, transient,
        static), in the meaning of a `Problem`.
    count
        Number of layers.
    place
        Stands before the names of fields in faults.

    Raises
    ------
    ProblemError
        With every fault found.
    """
    try:
        table = _Costs.model_validate(costs).model_dump()
    except ValidationError as error:
        found = faults_of(error, _Costs)
        raise ProblemError(
            [Fault((place + f.field).rstrip("."), f.value, f.valid) for f in found]
        ) from None
    durations, memory = table["durations"], table["memory"]
    faults = [
        Fault(place + name, "", f"has {len(values)} items, must have {count}, one for each layer")
        for name, values in _lists(table)
        if len(values) != count
    ]
    layers = []
    for index in range(0 if faults else count):
        try:
            kinds = kinds_of_stage(durations, index)
            changes = memory_of_stage(memory, index, kinds)
        except ValueError as error:
            # what holds for a stage holds for a layer; only the word differs
            words = str(error).replace("stage", "layer")
            faults.append(Fault(place.rstrip(".") or "layers", "", words))
            continue
        layers.append(
            Layer(
                {kind: exact(item(durations[kind], index)) for kind in kinds},
                changes,
                {kind: exact(item(memory["transient"][kind], index)) for kind in kinds},
                exact(item(memory["static"], index)),
            )
        )
    if faults:
        raise ProblemError(faults)
    return layers


def read_layer(costs: Costs, *, place: str, activations: int = 0) -> Layer:
    """Read a table of a single layer, which takes `activations` at its F unless that is given.

    Raises
    ------
    ProblemError
        As `read_layers`.
    """
    if isinstance(costs, Mapping) and isinstance(costs.get("memory", {}), Mapping):
        costs = {**costs, "memory": {"F": activations, **costs.get("memory", {})}}
    return read_layers(costs, 1, place=f"{place}.")[0]


def _lists(table: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, tuple[Any, ...]]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _lists(value, f"{place}{name}.")
        elif isinstance(value, tuple):
            yield f"{place}{name}", value


def problem_of_stages(
    stages: Sequence[Sequence[Layer]],
    *,
    capacity: Number | Sequence[Number | None] | None = None,
    **fields: Any,
) -> Problem:
    """Add up the layers of each stage, and the weights of each device.

    The layers of a stage run one after another: what is transient does not add up, the largest
    counts.

    Parameters
    ----------
    stages
        Layers of each stage, in model order. A stage may be empty; it takes no time.
    capacity
        Memory of each device.
    **fields
        Further fields of `Problem`.

    Raises
    ------
    ProblemError
        If a stage has layers of both forms (B and W, and BW), if a sum can not be written as an
        exact number, or from `Problem`.
    """
    form = next((tuple(layer.durations) for stage in stages for layer in stage), ())
    durations: dict[str, list[Number | None]] = {}
    memory: dict[str, list[Number | None]] = {}
    transient: dict[str, list[Number]] = {}
    for number, stage in enumerate(stages):
        forms = {tuple(layer.durations) for layer in stage} or {form}
        if len(forms) > 1:
            valid = f"stage {number} has layers with B and W and layers with BW; it needs one form"
            raise ProblemError([Fault("layers", "", valid)])
        for kind in forms.pop():
            for table, values in (
                (durations, [layer.durations[kind] for layer in stage]),
                (memory, [layer.memory[kind] for layer in stage]),
            ):
                table.setdefault(kind, [None] * len(stages))[number] = _number(sum(values))
            largest = max((layer.transient[kind] for layer in stage), default=Fraction(0))
            transient.setdefault(kind, [0] * len(stages))[number] = _number(largest)
    tables: dict[str, Any] = {**memory, "transient": transient, "capacity": capacity}
    problem = Problem(stages=len(stages), durations=durations, memory=tables, **fields)
    static = [Fraction(0)] * problem.devices
    for stage, device in zip(stages, problem.device_of, strict=True):
        static[device] += sum(layer.static for layer in stage)
    return problem.replace(memory=tables | {"static": [_number(amount) for amount in static]})


def _number(total: Fraction | int) -> Number:
    """A sum as a number of a problem, if that is exact."""
    number = plain(Fraction(total))
    if exact(number) != total:
        raise ProblemError([Fault("sum over layers", text(total), "has too many digits")])
    return number
