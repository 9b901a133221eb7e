"""Rules of a problem file that join several fields, and the faults they report.

The functions read the plain data of a file, so that they can look at a problem of which some
fields are wrong: a rule is tested when the fields it needs are there and have no fault.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from schedopt.errors import Fault
from schedopt.fields import TAGS, shape_of
from schedopt.part_validation import part_faults
from schedopt.stage import (
    KIND_NAMES,
    device_of_stages,
    kinds_of_stage,
    memory_of_stage,
    stage_count,
)

_FORWARD_ONLY = "; without a backward set forward_only = true"
MAX_DEVICES = 10_000
MAX_CELLS = 1_000_000
"""Largest number of stages times microbatches that is accepted."""


# ---------------------------------------------------------------------- faults


def _show(value: Any) -> str:
    try:
        shown = repr(value)
    except ValueError:  # Python does not write numbers of so many digits
        shown = "a number of more than 4300 digits"
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _place(parts: Sequence[str | int]) -> str:
    place = ""
    for part in parts:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else part
    return place


def _field_names(model: type[BaseModel], parts: Sequence[str | int]) -> list[str]:
    """Names a table of the file may have, following the place of an error into the model."""
    for part in parts:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        candidates = [field.annotation] if field else []
        while candidates:
            candidate: Any = candidates.pop()
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                model = candidate
                break
            candidates.extend(getattr(candidate, "__args__", ()))
    return [field.alias or name for name, field in model.model_fields.items()]


def faults_of(error: ValidationError, model: type[BaseModel]) -> list[Fault]:
    """Faults of single fields, from a pydantic error of `model`."""
    faults = []
    for detail in error.errors(include_url=False):
        parts = [part for part in detail["loc"] if part not in TAGS]
        valid, kind = detail["msg"], detail["type"]
        value = _show(detail["input"])
        if kind == "extra_forbidden":
            names = _field_names(model, parts[:-1])
            close = difflib.get_close_matches(str(parts[-1]), names, 1)
            valid = f"unknown field; did you mean {close[0]}?" if close else "unknown field"
            valid += "" if close else f"; valid: {', '.join(names)}"
        elif kind == "missing":
            valid, value = "required", ""
        elif kind in ("model_type", "model_attributes_type", "union_tag_not_found"):
            valid = "must be a table of fields"
        elif kind == "tuple_type":
            valid = "must be a list"
        elif kind == "string_type":
            valid = "must be text, in quotes"
        elif kind == "literal_error":
            valid = "must be one of " + str(detail["ctx"]["expected"]).replace(" or ", ", ")
        elif kind == "union_tag_invalid":
            valid = "must be " + str(detail["ctx"]["expected_tags"])
        faults.append(Fault(_place(parts), value, valid[:1].lower() + valid[1:]))
    return faults


def cross_field_faults(data: Mapping[str, Any], known: Sequence[Fault]) -> list[Fault]:
    """Faults that join several fields of a problem of which `known` faults are found already."""
    return list(_CrossFields(_plain(data), {fault.field for fault in known}).faults())


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True)
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value


class _CrossFields:
    def __init__(self, data: dict[str, Any], faulty: set[str]) -> None:
        self.data = data
        self.faulty = faulty

    def sound(self, *places: str) -> bool:
        """Whether no known fault lies in any of these fields."""
        return not any(
            fault == place or fault.startswith((place + ".", place + "["))
            for place in places
            for fault in self.faulty
        )

    def faults(self) -> Iterator[Fault]:
        data = self.data
        devices = data.get("devices") if self.sound("devices") else None
        microbatches = data.get("microbatches") if self.sound("microbatches") else None
        if devices is not None and devices > MAX_DEVICES:
            yield Fault("devices", _show(devices), f"must be at most {MAX_DEVICES}")
            devices = None
        if microbatches is not None:
            yield from self.length("microbatch_factors", microbatches, "microbatches")
        stages = self._stage_count(devices)
        if stages == 0:
            yield Fault("placement", _show(data.get("placement")), "must have at least one stage")
            stages = None
        if stages is not None:
            cells = stages * (microbatches or 1)
            if cells > MAX_CELLS:
                valid = f"stages x microbatches is {cells}, must be at most {MAX_CELLS}"
                yield Fault("microbatches", _show(microbatches), valid)
                stages = None
        if devices is not None:
            for name in ("static", "capacity"):
                yield from self.length(f"memory.{name}", devices, "devices")
            if stages is not None:
                yield from self._placement(stages, devices)
        if stages is not None:
            yield from self._stages(stages)
        yield from self._edges(stages)
        yield from self._lags(stages, devices)
        yield from part_faults(self, stages, devices)

    def _stage_count(self, devices: int | None) -> int | None:
        """Number of stages as far as it can be known in spite of faults."""
        if not self.sound("stages") or not isinstance(self.data.get("durations", {}), dict):
            return None
        try:
            return stage_count(self.data | {"devices": devices})
        except (TypeError, ValueError):
            return None  # it depends on a field that is missing or wrong

    def _field(self, place: str) -> Any:
        value: Any = self.data
        for part in place.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def length(self, place: str, count: int, unit: str) -> Iterator[Fault]:
        """The fault of a list that has not one item for each of the unit."""
        value = self._field(place)
        if isinstance(value, list) and len(value) != count:
            valid = f"has {len(value)} items, must have {count}, one for each of the {unit}"
            yield Fault(place, _show(value), valid)

    def _placement(self, stages: int, devices: int) -> Iterator[Fault]:
        placement = self.data.get("placement", "linear")
        if isinstance(placement, list):
            for stage, device in enumerate(placement):
                if self.sound(f"placement[{stage}]") and device >= devices:
                    valid = f"must be a device, 0 to {devices - 1}"
                    yield Fault(f"placement[{stage}]", str(device), valid)
            if len(placement) != stages:
                valid = f"has {len(placement)} items, must have {stages}, one for each stage"
                yield Fault("placement", _show(placement), valid)
            return
        if not self.sound("placement"):
            return
        try:
            device_of_stages(self.data)
        except ValueError as error:
            yield Fault("placement", _show(placement), str(error))

    def _stages(self, stages: int) -> Iterator[Fault]:
        """Lengths of the lists per stage; kinds and sums of memory, stage by stage."""
        lists: list[Fault] = []
        for table in ("durations", "memory", "memory.transient"):
            for name in KIND_NAMES:
                lists += self.length(f"{table}.{name}", stages, "stages")
        yield from lists
        wrong = {fault.field for fault in lists}
        durations, memory = self._field("durations"), self._field("memory") or {}
        if not isinstance(durations, dict) or not isinstance(memory, dict):
            return
        if any(f"durations.{name}" in wrong for name in KIND_NAMES):
            return
        seen: set[str] = set()
        kinds_of: list[tuple[str, ...]] = []
        for stage in range(stages):
            if self.data.get("forward_only") is True:
                break  # what is given for a backward does not count
            try:
                kinds = kinds_of_stage(durations, stage)
            except ValueError as error:
                if self._by_stage("durations") or "durations" not in seen:
                    valid = f"{error}; each stage has B and W, or BW"
                    if not durations.keys() & {"B", "W", "BW"}:
                        valid += _FORWARD_ONLY
                    yield Fault("durations", "", valid)
                seen.add("durations")
                continue
            kinds_of.append(kinds)
            places = [self._item_place("memory", name, stage) for name in kinds]
            if wrong.intersection(places) or not self.sound(*places):
                continue
            try:
                memory_of_stage(memory, stage, kinds)
            except ValueError as error:
                if self._by_stage("memory") or "memory" not in seen:
                    yield Fault("memory", "", str(error))
                seen.add("memory")
        if len(kinds_of) == stages:
            for table in ("durations", "memory", "memory.transient"):
                for name in KIND_NAMES:
                    if f"{table}.{name}" not in wrong:
                        yield from self._unused(table, name, kinds_of)

    def _unused(self, table: str, name: str, kinds_of: list[tuple[str, ...]]) -> Iterator[Fault]:
        """Amounts of a kind for stages that do not have it: they would not count."""
        place = f"{table}.{name}"
        value = self._field(place)
        if not value or not self.sound(place):
            return
        if not isinstance(value, list):
            if not any(name in kinds for kinds in kinds_of):
                valid = f"would not be used, because no stage has {name}; leave it out"
                yield Fault(place, _show(value), valid)
            return
        nothing = "0" if table == "memory.transient" else "null"
        for stage, amount in enumerate(value):
            if amount and name not in kinds_of[stage]:
                valid = f"would not be used, because stage {stage} has no {name}; must be {nothing}"
                yield Fault(f"{place}[{stage}]", _show(amount), valid)

    def _by_stage(self, table: str) -> bool:
        return any(isinstance(self._field(f"{table}.{name}"), list) for name in KIND_NAMES)

    def _item_place(self, table: str, name: str, stage: int) -> str:
        place = f"{table}.{name}"
        value = self._field(place)
        return f"{place}[{stage}]" if isinstance(value, list) and stage < len(value) else place

    def _edges(self, stages: int | None) -> Iterator[Fault]:
        edges = self.data.get("edges")
        for position, edge in enumerate(edges if isinstance(edges, list) else []):
            place = f"edges[{position}]"
            if not isinstance(edge, Mapping) or not self.sound(place):
                continue
            source = edge.get("from", edge.get("from_stage"))
            target = edge.get("to", edge.get("to_stage"))
            for name, stage in (("from", source), ("to", target)):
                if isinstance(stage, int) and stages is not None and stage >= stages:
                    valid = f"must be a stage, 0 to {stages - 1}"
                    yield Fault(f"{place}.{name}", str(stage), valid)
            if isinstance(source, int) and isinstance(target, int) and source >= target:
                valid = f"must lead to a later stage than from = {source}"
                yield Fault(f"{place}.to", str(target), valid)

    def _lags(self, stages: int | None, devices: int | None) -> Iterator[Fault]:
        lag = self.data.get("lag")
        parts = {"lag": lag}
        if isinstance(lag, Mapping):
            parts = {f"lag.{name}": lag.get(name) for name in ("forward", "backward")}
        for place, value in parts.items():
            if not isinstance(value, list) or not self.sound(place):
                continue
            if shape_of(value) == "<list>":
                if stages is not None and len(value) != stages - 1:
                    valid = (
                        f"has {len(value)} items, must have {stages - 1}, one for each boundary "
                        "between stages"
                    )
                    yield Fault(place, _show(value), valid)
            elif devices is not None:
                yield from self._lag_table(place, value, devices)

    @staticmethod
    def _lag_table(place: str, table: list[Any], devices: int) -> Iterator[Fault]:
        if len(table) != devices:
            valid = f"has {len(table)} rows, must have {devices}, one for each device"
            yield Fault(place, _show(table), valid)
        for row, values in enumerate(table):
            if not isinstance(values, list):
                continue
            if len(values) != devices:
                valid = f"has {len(values)} items, must have {devices}, one for each device"
                yield Fault(f"{place}[{row}]", _show(values), valid)
            elif row < devices and values[row] != 0:
                valid = "must be 0: no transfer within a device"
                yield Fault(f"{place}[{row}][{row}]", str(values[row]), valid)
