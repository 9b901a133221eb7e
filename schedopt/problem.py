"""Problem: everything that is given, validated, read from and written to files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, ValidationError

from schedopt.connection import Connection, connections_of
from schedopt.errors import Fault, ProblemError
from schedopt.exact import Number, exact, resolution
from schedopt.fields import Count, Index, Positive
from schedopt.parts import (
    Durations,
    Edge,
    EndOfStep,
    Extra,
    Lag,
    LagByDirection,
    Links,
    Memory,
    Part,
    Recompute,
)
from schedopt.placement import name_of_placement
from schedopt.reading import read_data
from schedopt.stage import (
    StageData,
    data_of_stage,
    device_of_stages,
    item,
    recomputed_stage,
    stage_count,
)
from schedopt.validation import cross_field_faults, faults_of

PlacementName = Literal["linear", "interleaved", "v", "wave"]
Objective = Literal["makespan", "period"]


class Problem(Part):
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
    chain: bool = Field(
        True, description="false: stages are connected by `edges` alone, not each to the next"
    )
    edges: tuple[Edge, ...] = ()
    links: Links | None = Field(None, description="transfers by size, in the place of lag")
    memory: Memory = Memory()
    recompute: Recompute | None = None
    extras: tuple[Extra, ...] = Field(
        (), description="further work of single stages, given separately: embedding, loss, ..."
    )
    end_of_step: EndOfStep | None = None
    forward_only: bool = Field(
        False, description="inference or evaluation: no backward, nothing is kept for it"
    )
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
        """Device, durations and memory of each stage with its extras, without recomputation."""
        return tuple(
            data_of_stage(self._data, stage, device) for stage, device in enumerate(self.device_of)
        )

    @cached_property
    def recompute_modes(self) -> tuple[str, ...]:
        """Of each stage whether it recomputes: never, always or decide."""
        mode = "never" if self.recompute is None else self.recompute.mode
        return tuple(item(mode, stage) for stage in range(self.stage_count))

    @cached_property
    def recomputed_stage_data(self) -> tuple[StageData, ...]:
        """Like `stage_data`, with R where a stage can recompute."""
        part = self.recompute
        if part is None:
            return self.stage_data
        result = []
        for stage, data in enumerate(self.stage_data):
            if self.recompute_modes[stage] == "never":
                result.append(data)
                continue
            given = item(part.R, stage)
            duration = data.durations["F"] if given is None else exact(given)
            result.append(recomputed_stage(data, duration, exact(item(part.kept, stage))))
        return tuple(result)

    def data_of(self, stage: int, *, recomputed: bool = False) -> StageData:
        """What a stage needs for one microbatch that is recomputed, or not if that is decided."""
        always = self.recompute_modes[stage] == "always"
        return (self.recomputed_stage_data if recomputed or always else self.stage_data)[stage]

    @property
    def decides(self) -> bool:
        """Whether the solver chooses what is recomputed."""
        return "decide" in self.recompute_modes

    @cached_property
    def connections(self) -> tuple[Connection, ...]:
        """Connections of the stages, and their transfers."""
        return tuple(connections_of(self))

    @cached_property
    def factors(self) -> tuple[Fraction, ...]:
        """Length factor of each microbatch."""
        given = self.microbatch_factors or (1,) * self.microbatches
        return tuple(map(exact, given))

    @cached_property
    def static(self) -> tuple[Fraction, ...]:
        """Static memory of each device, that of the extras of its stages included."""
        amounts = [exact(item(self.memory.static, d)) for d in range(self.devices)]
        for extra in self.extras:
            amounts[self.device_of[extra.stage]] += exact(extra.static)
        return tuple(amounts)

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
        factors = set(self.factors)
        durations = {
            duration
            for data in (*self.stage_data, *self.recomputed_stage_data)
            for duration in data.durations.values()
        }
        times = [duration * factor for duration in durations for factor in factors]
        for connection in self.connections:
            for transfer in (connection.forward, connection.backward):
                times += [transfer.latency, *(transfer.duration * factor for factor in factors)]
        return resolution(times + list(self._end_of_step_times()))

    def _end_of_step_times(self) -> Iterator[Fraction]:
        part = self.end_of_step
        if part is not None:
            for stage in range(self.stage_count):
                yield exact(item(part.reduction, stage))
            for device in range(self.devices):
                yield exact(item(part.optimizer, device))
            for tied in part.tied:
                yield exact(tied.duration)

    @cached_property
    def memory_resolution(self) -> Fraction:
        """Step in which all amounts of memory are whole."""
        amounts = {
            amount
            for stage in (*self.stage_data, *self.recomputed_stage_data)
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
