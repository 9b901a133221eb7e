"""Problem: everything that is given, validated, read from and written to files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from schedopt.errors import Fault, ProblemError
from schedopt.exact import Number, exact, resolution
from schedopt.fields import (
    Count,
    Index,
    NotNegative,
    NotNegativeOrNull,
    PerItem,
    PerItemOrNull,
    Positive,
    SignedPerItemOrNull,
    shape_of,
)
from schedopt.placement import name_of_placement
from schedopt.reading import read_data
from schedopt.validation import (
    cross_field_faults,
    device_of_stages,
    faults_of,
    item,
    kinds_of_stage,
    memory_of_stage,
    stage_count,
)

PlacementName = Literal["linear", "interleaved", "v", "wave"]
Objective = Literal["makespan", "period"]
Lag = Annotated[
    Annotated[NotNegative, Tag("<one>")]
    | Annotated[tuple[NotNegative, ...], Tag("<list>")]
    | Annotated[tuple[tuple[NotNegative, ...], ...], Tag("<table>")],
    Discriminator(shape_of),
]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Durations(_Part):
    """Duration of each kind of op: one number for all stages, or a list with one per stage.

    A stage has B and W, or the fused BW. In lists, null marks the stages of the other form;
    a single number counts for every stage whose form is not given by a list.
    """

    F: PerItem
    B: PerItemOrNull = None
    W: PerItemOrNull = None
    BW: PerItemOrNull = None


class Transient(_Part):
    """Memory held only while an op runs, per stage."""

    F: PerItem = 0
    B: PerItem = 0
    W: PerItem = 0
    BW: PerItem = 0


class Memory(_Part):
    """Change of a device's memory by each kind of op of a stage, and the limits of the devices.

    F (not negative) is acquired at the start of F. B is acquired at its start if positive and
    released at its end if negative. W and BW release at their end. The kinds of a stage sum to
    zero; what is left out follows from that, with B = 0 if B and W are both left out.

    static is always there, capacity (null: unlimited) is a hard limit for each device.
    """

    F: PerItem = 1
    B: SignedPerItemOrNull = None
    W: SignedPerItemOrNull = None
    BW: SignedPerItemOrNull = None
    transient: Transient = Transient()
    static: PerItem = 0
    capacity: PerItemOrNull = None


class LagByDirection(_Part):
    """Lags that differ for activations (forward) and gradients (backward)."""

    forward: Lag
    backward: Lag


class Edge(_Part):
    """A skip connection: stage `to` also needs the output of stage `from`.

    F of `to` waits for F of `from`, and B of `from` for the backward of `to`. Without a lag of
    its own it takes the lag between the two devices.
    """

    from_stage: Index = Field(alias="from")
    to_stage: Index = Field(alias="to")
    lag: NotNegativeOrNull = None


class StageData(NamedTuple):
    """What one stage needs, exact, per kind in the order of execution."""

    device: int
    durations: dict[str, Fraction]
    memory: dict[str, Fraction]
    transient: dict[str, Fraction]

    @property
    def backward(self) -> str:
        """The kind that gives the gradient of the input: B or BW."""
        return "BW" if "BW" in self.durations else "B"


class Problem(_Part):
    """A pipeline-parallel training step to be scheduled.

    Raises
    ------
    ProblemError
        With every fault found: field, value and what would be valid.

    Examples
    --------
    >>> problem = Problem(
    ...     devices=4,
    ...     microbatches=8,
    ...     durations={"F": 10, "B": 10, "W": 10},
    ...     lag=1,
    ...     memory={"capacity": 4},
    ... )
    >>> problem.stage_count, problem.device_of
    (4, (0, 1, 2, 3))
    """

    format: Literal["schedopt.problem/1"] = "schedopt.problem/1"
    name: str = ""
    source: str = Field("", description="where the numbers come from, and what was guessed")
    devices: Count
    stages: Count | None = Field(None, description="follows from placement and lists if omitted")
    placement: Annotated[
        Annotated[PlacementName, Tag("<name>")] | Annotated[tuple[Index, ...], Tag("<list>")],
        Discriminator(lambda value: "<list>" if isinstance(value, (list, tuple)) else "<name>"),
    ] = Field("linear", description="a name, or the device of each stage")
    microbatches: Count
    durations: Durations
    microbatch_factors: tuple[Positive, ...] | None = Field(
        None, description="one per microbatch; multiplies durations and memory of its ops"
    )
    lag: Annotated[
        Annotated[Lag, Tag("<one>")] | Annotated[LagByDirection, Tag("<directions>")],
        Discriminator(
            lambda v: "<directions>" if isinstance(v, (Mapping, LagByDirection)) else "<one>"
        ),
    ] = Field(
        0,
        description="between different devices: a number; a list, one per boundary between "
        "stages s and s+1; a table [from device][to device]; or {forward, backward} of these",
    )
    edges: tuple[Edge, ...] = ()
    memory: Memory = Memory()
    objective: Objective = "makespan"
    time_unit: str = "units"
    memory_unit: str = "activations"

    def __init__(self, **data: Any) -> None:
        faults: list[Fault] = []
        try:
            super().__init__(**data)
        except ValidationError as error:
            faults = faults_of(error, type(self))
        faults += cross_field_faults(data, faults)
        if faults:
            raise ProblemError(faults)

    # ------------------------------------------------------------------ derived, exact

    @cached_property
    def stage_count(self) -> int:
        """Number of stages S."""
        return stage_count(self._data)

    @cached_property
    def device_of(self) -> tuple[int, ...]:
        """Device of each stage."""
        return device_of_stages(self._data)

    @cached_property
    def stages_on(self) -> tuple[tuple[int, ...], ...]:
        """Stages of each device, in model order."""
        stages: list[list[int]] = [[] for _ in range(self.devices)]
        for stage, device in enumerate(self.device_of):
            stages[device].append(stage)
        return tuple(map(tuple, stages))

    @property
    def placement_name(self) -> str | None:
        """Name of the placement, also when it was given as a list."""
        return name_of_placement(self.device_of, self.devices)

    @cached_property
    def stage_data(self) -> tuple[StageData, ...]:
        """Device, durations and memory of each stage."""
        durations, memory = self._data["durations"], self._data["memory"]
        result = []
        for stage in range(self.stage_count):
            kinds = kinds_of_stage(durations, stage)
            result.append(
                StageData(
                    self.device_of[stage],
                    {kind: exact(item(durations[kind], stage)) for kind in kinds},
                    memory_of_stage(memory, stage, kinds),
                    {kind: exact(item(memory["transient"][kind], stage)) for kind in kinds},
                )
            )
        return tuple(result)

    @cached_property
    def factors(self) -> tuple[Fraction, ...]:
        """Length factor of each microbatch."""
        given = self.microbatch_factors or (1,) * self.microbatches
        return tuple(map(exact, given))

    @cached_property
    def static(self) -> tuple[Fraction, ...]:
        """Static memory of each device."""
        return tuple(exact(item(self.memory.static, d)) for d in range(self.devices))

    @cached_property
    def capacity(self) -> tuple[Fraction | None, ...]:
        """Capacity of each device, None where it is unlimited."""
        values = [item(self.memory.capacity, d) for d in range(self.devices)]
        return tuple(None if value is None else exact(value) for value in values)

    def lag_between(self, source: int, target: int) -> Fraction:
        """Lag of the transfer from stage `source` to stage `target` (0 on one device).

        Activations go to a later stage, gradients to an earlier one.
        """
        devices = self.device_of[source], self.device_of[target]
        if devices[0] == devices[1]:
            return Fraction(0)
        lag = self.lag
        if isinstance(lag, LagByDirection):
            lag = lag.forward if source < target else lag.backward
        if not isinstance(lag, tuple):
            return exact(lag)
        row = lag[devices[0]] if isinstance(lag[0], tuple) else None
        if isinstance(row, tuple):
            return exact(row[devices[1]])
        boundaries = range(min(source, target), max(source, target))
        return sum((exact(item(lag, b)) for b in boundaries), Fraction(0))

    @cached_property
    def time_resolution(self) -> Fraction:
        """Step in which all times are whole: 1 for integer data, 1/10 for tenths, ..."""
        durations = [d for stage in self.stage_data for d in stage.durations.values()]
        count = self.stage_count
        lags = [self.lag_between(s, s + 1) for s in range(count - 1)]
        lags += [self.lag_between(s + 1, s) for s in range(count - 1)]
        for edge in self.edges:
            if edge.lag is not None:
                lags.append(exact(edge.lag))
            else:
                lags.append(self.lag_between(edge.from_stage, edge.to_stage))
                lags.append(self.lag_between(edge.to_stage, edge.from_stage))
        return resolution([d * f for d in set(durations) for f in set(self.factors)] + lags)

    @cached_property
    def memory_resolution(self) -> Fraction:
        """Step in which all amounts of memory are whole."""
        amounts = {
            amount
            for stage in self.stage_data
            for part in (stage.memory, stage.transient)
            for amount in part.values()
        }
        limits = [*self.static, *(c for c in self.capacity if c is not None)]
        return resolution([a * f for a in amounts for f in set(self.factors)] + limits)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Things that are allowed and probably not meant."""
        result = []
        used = sum(1 for stages in self.stages_on if stages)
        for device, stages in enumerate(self.stages_on):
            if not stages:
                result.append(f"device {device} has no stage and stays idle")
        if self.microbatches < used:
            result.append(
                f"microbatches = {self.microbatches} is less than the {used} devices in use: "
                "some devices wait in every phase of the step"
            )
        return tuple(result)

    @cached_property
    def _data(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True)

    # ------------------------------------------------------------------ variants

    def replace(self, **changes: Any) -> Problem:
        """A copy with some fields changed, validated again."""
        return Problem(**{**self.model_dump(by_alias=True), **changes})

    def with_capacity(self, capacity: Number | Sequence[Number | None] | None) -> Problem:
        """A copy with another capacity per device."""
        memory = self.model_dump(by_alias=True)["memory"]
        return self.replace(memory={**memory, "capacity": capacity})

    # ------------------------------------------------------------------ files

    @classmethod
    def uniform(
        cls,
        *,
        devices: int,
        microbatches: int,
        F: Number = 1,
        B: Number = 1,
        W: Number = 1,
        lag: Number = 0,
        capacity: Number | None = None,
        **fields: Any,
    ) -> Self:
        """A problem with equal stages; other fields as in `Problem`.

        Examples
        --------
        >>> Problem.uniform(devices=2, microbatches=4, capacity=2).stage_count
        2
        """
        memory = {**fields.pop("memory", {}), "capacity": capacity}
        durations = {"F": F, "B": B, "W": W}
        return cls(
            devices=devices,
            microbatches=microbatches,
            durations=durations,
            lag=lag,
            memory=memory,
            **fields,
        )

    @classmethod
    def from_dict(cls, data: Any, source: str = "") -> Self:
        """Validate parsed JSON or TOML.

        Raises
        ------
        ProblemError
            Naming `source`, with every fault.
        """
        if not isinstance(data, dict):
            fault = Fault("(top level)", type(data).__name__, "must be a table of fields")
            raise ProblemError([fault], source)
        try:
            return cls(**{str(key): value for key, value in data.items()})
        except ProblemError as error:
            raise ProblemError(error.faults, source) from None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a .toml or .json file.

        Raises
        ------
        ProblemError
            If the file can not be read or parsed, or is not a valid problem.
        """
        return cls.from_dict(read_data(path), str(path))

    def to_dict(self) -> dict[str, Any]:
        """The fields that differ from their defaults, ready for JSON."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True) | {
            "format": self.format
        }

    def save(self, path: str | Path) -> None:
        """Write JSON; `load` gives an equal problem."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")
