"""Rules of the tables for recomputation, links, extras and the end of the step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from schedopt.errors import Fault
from schedopt.exact import exact, text
from schedopt.stage import item


class Fields(Protocol):
    """What a rule may ask about a file of which some fields are wrong."""

    data: dict[str, Any]

    def sound(self, *places: str) -> bool:
        """Whether no known fault lies in any of these fields."""

    def length(self, place: str, count: int, unit: str) -> Iterator[Fault]:
        """The fault of a list that has not one item for each of the unit."""


def part_faults(fields: Fields, stages: int | None, devices: int | None) -> Iterator[Fault]:
    """Faults of the tables, as far as the numbers of stages and devices are known."""
    if fields.data.get("forward_only") is True:
        yield from _not_used(fields, "without a backward", "recompute", "end_of_step")
    yield from _recompute(fields, stages)
    yield from _links(fields, stages, devices)
    yield from _extras(fields, stages)
    yield from _end_of_step(fields, stages, devices)
    if fields.data.get("chain") is False and fields.sound("chain", "lag"):
        yield from _no_chain(fields)


def _table(fields: Fields, name: str) -> Mapping[str, Any]:
    value = fields.data.get(name)
    return value if isinstance(value, Mapping) else {}


def _not_used(fields: Fields, why: str, *names: str) -> Iterator[Fault]:
    for name in names:
        if fields.data.get(name) and fields.sound(name):
            yield Fault(name, "", f"would not be used {why}; leave it out")


def _recompute(fields: Fields, stages: int | None) -> Iterator[Fault]:
    part = _table(fields, "recompute")
    if not part or stages is None:
        return
    wrong = [
        fault
        for name in ("mode", "R", "kept")
        for fault in fields.length(f"recompute.{name}", stages, "stages")
    ]
    yield from wrong
    if wrong or not fields.sound("recompute", "memory.F"):
        return
    held, kept = _table(fields, "memory").get("F", 1), part.get("kept", 0)
    if isinstance(held, list) and len(held) != stages:
        return
    for stage in range(stages):
        most, amount = exact(item(held, stage)), exact(item(kept, stage))
        if amount > most:
            place = f"recompute.kept[{stage}]" if isinstance(kept, list) else "recompute.kept"
            valid = f"must be at most {text(most)}, what F of stage {stage} acquires"
            yield Fault(place, text(amount), valid)
            if not isinstance(kept, list) and not isinstance(held, list):
                return


def _links(fields: Fields, stages: int | None, devices: int | None) -> Iterator[Fault]:
    part = _table(fields, "links")
    if not part:
        return
    if fields.data.get("lag") and fields.sound("lag"):
        valid = "must be left out: with links every transfer takes size / bandwidth + latency"
        yield Fault("lag", "", valid)
    if stages is not None:
        for name in ("size", "gradient_size"):
            yield from fields.length(f"links.{name}", stages, "stages")
    if devices is None:
        return
    for name in ("bandwidth", "latency"):
        place, value = f"links.{name}", part.get(name)
        if not fields.sound(place):
            continue
        if isinstance(value, list):
            yield from _table_of_pairs(place, value, devices, positive=name == "bandwidth")
        elif name == "bandwidth" and value == 0:
            yield Fault(place, "0", "must be greater than 0")
    shared = part.get("shared")
    seen: dict[tuple[int, int], str] = {}
    for position, entry in enumerate(shared if isinstance(shared, list) else []):
        place = f"links.shared[{position}]"
        if not fields.sound(place) or not isinstance(entry, Mapping):
            continue
        for source, target in map(tuple, entry["links"]):
            shown = f"{source}, {target}"
            if max(source, target) >= devices or source == target:
                valid = f"must be two different devices, 0 to {devices - 1}"
                yield Fault(f"{place}.links", shown, valid)
            elif (source, target) in seen:
                valid = f"belongs to {seen[source, target]} already"
                yield Fault(f"{place}.links", shown, valid)
            seen[source, target] = entry["name"]


def _table_of_pairs(
    place: str, table: list[Any], devices: int, *, positive: bool
) -> Iterator[Fault]:
    if len(table) != devices or any(len(row) != devices for row in table):
        valid = f"must have {devices} rows of {devices} items, [from device][to device]"
        yield Fault(place, "", valid)
        return
    for source, row in enumerate(table):
        for target, value in enumerate(row):
            if positive and source != target and value == 0:
                yield Fault(f"{place}[{source}][{target}]", "0", "must be greater than 0")


def _extras(fields: Fields, stages: int | None) -> Iterator[Fault]:
    extras = fields.data.get("extras")
    names: set[str] = set()
    for position, extra in enumerate(extras if isinstance(extras, list) else []):
        place = f"extras[{position}]"
        if not isinstance(extra, Mapping) or not fields.sound(place):
            continue
        if stages is not None and extra["stage"] >= stages:
            valid = f"must be a stage, 0 to {stages - 1}"
            yield Fault(f"{place}.stage", str(extra["stage"]), valid)
        if extra["name"] in names:
            yield Fault(f"{place}.name", repr(extra["name"]), "is the name of another one already")
        names.add(extra["name"])


def _end_of_step(fields: Fields, stages: int | None, devices: int | None) -> Iterator[Fault]:
    part = _table(fields, "end_of_step")
    if not part:
        return
    if stages is not None:
        yield from fields.length("end_of_step.reduction", stages, "stages")
    if devices is not None:
        yield from fields.length("end_of_step.optimizer", devices, "devices")
    tied = part.get("tied")
    first: set[int] = set()
    for position, entry in enumerate(tied if isinstance(tied, list) else []):
        place = f"end_of_step.tied[{position}]"
        if not isinstance(entry, Mapping) or not fields.sound(place):
            continue
        members = list(entry["stages"])
        if stages is not None and max(members) >= stages:
            yield Fault(f"{place}.stages", str(members), f"must be stages, 0 to {stages - 1}")
        if len(set(members)) < len(members):
            yield Fault(f"{place}.stages", str(members), "must be different stages")
        if min(members) in first:
            valid = f"has the same first stage as another one, {min(members)}; join them"
            yield Fault(f"{place}.stages", str(members), valid)
        first.add(min(members))


def _no_chain(fields: Fields) -> Iterator[Fault]:
    lag = fields.data.get("lag")
    parts = {"lag": lag}
    if isinstance(lag, Mapping):
        parts = {f"lag.{name}": lag.get(name) for name in ("forward", "backward")}
    for place, value in parts.items():
        if isinstance(value, list) and not any(isinstance(row, list) for row in value):
            valid = "has one item per boundary of a chain of stages, but chain is false; must be "
            yield Fault(place, "", valid + "one number or a table [from device][to device]")
