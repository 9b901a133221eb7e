"""What the fields of a problem file mean for one stage.

The functions read plain data, so that they can be asked about a file of which some fields are
wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from schedopt.exact import exact, text
from schedopt.placement import default_chunks, named_placement

KIND_NAMES = ("F", "B", "W", "BW")
SPLIT, FUSED, FORWARD = ("F", "B", "W"), ("F", "BW"), ("F",)


class StageData(NamedTuple):
    """What one stage needs, exact, per kind in the order of execution."""

    device: int
    durations: dict[str, Fraction]
    memory: dict[str, Fraction]
    transient: dict[str, Fraction]

    @property
    def backward(self) -> str:
        """The kind that gives the gradient of the input: B or BW; none is "" (forward only)."""
        return next((kind for kind in ("BW", "B") if kind in self.durations), "")

    @property
    def last(self) -> str:
        """The kind after which nothing of a microbatch is left to do on the stage."""
        return list(self.durations)[-1]


def item(value: Any, index: int) -> Any:
    """The value for one stage or device of a field that is one number or a list."""
    return value[index] if isinstance(value, (list, tuple)) else value


def stage_count(data: Mapping[str, Any]) -> int:
    """Number of stages: given, or from the placement, or from the lists, or the default."""
    if data.get("stages") is not None:
        return int(data["stages"])
    placement = data.get("placement", "linear")
    if isinstance(placement, (list, tuple)):
        return len(placement)
    if placement in ("linear", "v"):
        return int(data["devices"]) * default_chunks(placement)
    for name in KIND_NAMES:
        values = (data.get("durations") or {}).get(name)
        if isinstance(values, (list, tuple)):
            return len(values)
    return int(data["devices"]) * default_chunks(placement)


def device_of_stages(data: Mapping[str, Any]) -> tuple[int, ...]:
    """Device of each stage.

    Raises
    ------
    ValueError
        If a named placement does not fit the number of stages.
    """
    placement, devices = data.get("placement", "linear"), int(data["devices"])
    if not isinstance(placement, str):
        return tuple(placement)
    count = stage_count(data)
    if count % devices:
        raise ValueError(
            f"places equally many stages on each device, but {count} stages do not divide by "
            f"{devices} devices; give a list with the device of each stage"
        )
    return named_placement(placement, devices, count // devices)


def kinds_of_stage(durations: Mapping[str, Any], stage: int) -> tuple[str, ...]:
    """Kinds of a stage: F, B, W or F, BW (see `schedopt.parts.Durations`).

    Raises
    ------
    ValueError
        If both forms or neither are given.
    """

    def given(name: str, *, by_list: bool) -> bool:
        value = durations.get(name)
        if by_list and not isinstance(value, (list, tuple)):
            return False
        return item(value, stage) is not None

    for by_list in (True, False):
        fused = given("BW", by_list=by_list)
        split = [name for name in ("B", "W") if given(name, by_list=by_list)]
        if fused and split:
            raise ValueError(f"stage {stage} has both BW and {' and '.join(split)}")
        if fused:
            return FUSED
        if split:
            missing = [name for name in ("B", "W") if not given(name, by_list=False)]
            if missing:
                raise ValueError(f"stage {stage} has no {missing[0]} (and no BW)")
            return SPLIT
    raise ValueError(f"stage {stage} has neither B and W nor BW")


def memory_of_stage(
    memory: Mapping[str, Any], stage: int, kinds: Sequence[str]
) -> dict[str, Fraction]:
    """Signed change of memory by each kind of a stage, what was left out filled in.

    Raises
    ------
    ValueError
        If the changes do not sum to zero, or more is released than is held.
    """
    forward = exact(item(memory.get("F", 1), stage))
    given = {kind: item(memory.get(kind), stage) for kind in kinds[1:]}
    values = {kind: None if v is None else exact(v) for kind, v in given.items()}
    result = {"F": forward}
    for position, kind in enumerate(kinds[1:]):
        value = values[kind]
        if value is None:
            rest = [values[k] for k in kinds[position + 2 :]]
            known = sum((v for v in rest if v is not None), Fraction(0))
            last = not rest
            value = -sum(result.values(), known) if last or known else Fraction(0)
        result[kind] = value
    total = sum(result.values())
    if total:
        shown = ", ".join(f"{kind} {text(value)}" for kind, value in result.items())
        raise ValueError(
            f"of stage {stage} sums to {text(total)}, not 0 ({shown}); leave out "
            f"{kinds[-1]} to release what is left"
        )
    if "B" in result and forward + result["B"] < 0:
        raise ValueError(
            f"of stage {stage}: B releases {text(-result['B'])}, but F acquired only "
            f"{text(forward)}"
        )
    return result


def data_of_stage(data: Mapping[str, Any], stage: int, device: int) -> StageData:
    """What a stage needs, its extras included, without recomputation.

    If there are forward passes only, nothing is kept: the memory of F is transient.
    """
    durations, memory = data["durations"], data["memory"]
    transient = memory["transient"]
    if data["forward_only"]:
        held = sum((exact(item(part["F"], stage)) for part in (memory, transient)), Fraction(0))
        base = StageData(
            device, {"F": exact(item(durations["F"], stage))}, {"F": Fraction(0)}, {"F": held}
        )
    else:
        kinds = kinds_of_stage(durations, stage)
        base = StageData(
            device,
            {kind: exact(item(durations[kind], stage)) for kind in kinds},
            memory_of_stage(memory, stage, kinds),
            {kind: exact(item(transient[kind], stage)) for kind in kinds},
        )
    for extra in data["extras"]:
        if extra["stage"] == stage:
            base = _with_extra(base, {k: exact(v) for k, v in extra.items() if k not in _NAMES})
    return base


_NAMES = ("name", "stage")


def _with_extra(base: StageData, extra: Mapping[str, Fraction]) -> StageData:
    amounts = {**extra, "BW": extra["B"] + extra["W"]}
    durations = {kind: time + amounts[kind] for kind, time in base.durations.items()}
    if not base.backward:
        transient = {"F": base.transient["F"] + extra["memory"]}
        return base._replace(durations=durations, transient=transient)
    memory = dict(base.memory)
    memory["F"] += extra["memory"]
    memory[base.last] -= extra["memory"]
    return base._replace(durations=durations, memory=memory)


def recomputed_stage(base: StageData, duration: Fraction, kept: Fraction) -> StageData:
    """The stage with R before its backward."""

    def with_r(values: Mapping[str, Fraction], forward: Fraction, r: Fraction) -> Any:
        rest = {kind: value for kind, value in values.items() if kind != "F"}
        return {"F": forward, "R": r, **rest}

    return StageData(
        base.device,
        with_r(base.durations, base.durations["F"], duration),
        with_r(base.memory, kept, base.memory["F"] - kept),
        with_r(base.transient, base.transient["F"], base.transient["F"]),
    )
