"""Stages from layers: how many layers each stage has, and problems from costs per layer.

Every layer is assigned exactly once, or the partition is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any

from schedopt.errors import Fault, InputError, ProblemError
from schedopt.layer_costs import Costs, Layer, problem_of_stages, read_layer, read_layers
from schedopt.layout import parse_layout
from schedopt.placement import default_chunks
from schedopt.problem import Problem

MAX_LAYERS = 100_000

_COUNT = re.compile(r"[0-9]{1,9}")


# ---------------------------------------------------------------------- partitions


def parse_partition(text: str, *, layers: int | None = None) -> tuple[int, ...]:
    """Read the number of layers of each stage.

    Parameters
    ----------
    text
        Whole numbers separated by commas, with or without square brackets around them.
    layers
        Number of layers of the model, if the sum is to be checked.

    Raises
    ------
    InputError
        A `ValueError` with every item that is not a number and its position, counted from 1.

    Examples
    --------
    >>> parse_partition("[7, 9]", layers=16)
    (7, 9)
    """
    start, end = 0, len(text)
    if text.strip().startswith("[") and text.strip().endswith("]"):
        start, end = text.index("[") + 1, text.rindex("]")
    counts: list[int] = []
    faults: list[Fault] = []
    position = start
    for number, part in enumerate(text[start:end].split(","), start=1):
        token = part.strip()
        if _COUNT.fullmatch(token):
            counts.append(int(token))
        else:
            indent = len(part) - len(part.lstrip()) if token else 0
            place = f"item {number}, character {position + indent + 1}"
            valid = "must be a whole number of layers; single commas separate the numbers"
            faults.append(Fault(place, repr(token), valid))
        position += len(part) + 1
    return _complete(counts, layers, faults)


def _complete(counts: Sequence[int], layers: int | None, faults: list[Fault]) -> tuple[int, ...]:
    total = sum(counts)
    if not faults and layers is not None and total != layers:
        valid = f"{total} != {layers}, the number of layers"
        faults = [Fault("sum of all stages", str(total), valid)]
    elif not faults and total > MAX_LAYERS:
        faults = [Fault("sum of all stages", str(total), f"must be at most {MAX_LAYERS}")]
    if faults:
        raise InputError("partition", faults)
    return tuple(counts)


def even_partition(layers: int, devices: int, *, chunks: int = 1) -> tuple[int, ...]:
    """Give each stage the same number of layers.

    Parameters
    ----------
    layers
        Number of layers of the model.
    devices
        Number of devices.
    chunks
        Stages on each device.

    Raises
    ------
    InputError
        A `ValueError` if the layers do not divide, with the numbers of chunks that would do.

    Examples
    --------
    >>> even_partition(12, 2, chunks=3)
    (2, 2, 2, 2, 2, 2)
    """
    given = {"layers": layers, "devices": devices, "chunks": chunks}
    faults = [
        Fault(name, repr(value), f"must be a whole number, 1 to {MAX_LAYERS}")
        for name, value in given.items()
        if not isinstance(value, Integral) or not 1 <= value <= MAX_LAYERS
    ]
    if faults:
        raise InputError("partition", faults)
    stages = devices * chunks
    if layers % stages == 0:
        return (layers // stages,) * stages
    sentence = f"{layers} layers do not divide by {devices} devices x {chunks} chunks"
    per_device, rest = divmod(layers, devices)
    if rest:
        valid = f"{sentence}, nor by {devices} devices; give the layers of each stage"
    else:
        possible = [v for v in range(1, per_device + 1) if per_device % v == 0]
        valid = f"{sentence}; valid numbers of chunks: {', '.join(map(str, possible))}"
    raise InputError("partition", [Fault("chunks", str(chunks), valid)])


# ---------------------------------------------------------------------- problems


def from_layers(
    *,
    durations: Mapping[str, Any],
    memory: Mapping[str, Any] | None = None,
    layers: int | None = None,
    partition: str | Sequence[int] | None = None,
    embedding: Costs | None = None,
    head: Costs | None = None,
    devices: int,
    placement: str | Sequence[int] = "linear",
    chunks: int | None = None,
    **fields: Any,
) -> Problem:
    """Build a problem from costs per layer. Every layer is assigned exactly once.

    Parameters
    ----------
    durations
        As in `Problem`, with one number for all layers or a list with one for each layer.
    memory
        F, B, W, BW, transient and static (the weights) in the same way; a layer takes 1 at its
        F unless this says otherwise. The layers of a stage add up, except in what is transient:
        they run one after another, and the largest counts.
    layers
        Number of layers; follows from the lists or the partition if omitted.
    partition
        Layers of each stage, as a list or a text (`parse_partition`); equally many if omitted.
    embedding, head
        What the first and the last stage have besides their layers: a table with ``durations``
        and ``memory`` of single numbers; no memory unless it is given.
    devices, placement
        As in `Problem`.
    chunks
        Stages on each device, where neither a partition nor a list as placement tells.
    **fields
        Further fields of `Problem` (microbatches, lag, edges, objective, name, ...), and
        ``capacity``, the memory of each device: one number or a list.

    Raises
    ------
    ProblemError
        With the faults found.

    Examples
    --------
    >>> problem = from_layers(
    ...     durations={"F": 10, "B": 10, "W": 10},
    ...     partition="7,9",
    ...     head={"durations": {"F": 5, "B": 5, "W": 5}},
    ...     devices=2,
    ...     microbatches=4,
    ... )
    >>> problem.durations.F
    (70, 95)
    """
    costs: Costs = {"durations": durations} | ({} if memory is None else {"memory": memory})
    faults: list[Fault] = []
    counts: tuple[int, ...] = ()
    body: list[Layer] = []
    ends: dict[str, list[Layer]] = {"embedding": [], "head": []}
    known = _known_layers(layers, costs)
    with _collected(faults):
        counts = _stage_counts(partition, known, devices, placement, chunks)
    total = sum(counts) if counts else known
    if isinstance(total, int) and 0 < total <= MAX_LAYERS:
        with _collected(faults):
            body = read_layers(costs, total)
    for name, table in (("embedding", embedding), ("head", head)):
        if table is not None:
            with _collected(faults):
                ends[name].append(read_layer(table, place=name))
    if faults:
        raise ProblemError(faults)
    rest = iter(body)
    stages = [[next(rest) for _ in range(count)] for count in counts]
    stages[0] = ends["embedding"] + stages[0]
    stages[-1] += ends["head"]
    return problem_of_stages(stages, devices=devices, placement=placement, **fields)


def from_layout(
    layout: str,
    costs: Mapping[str, Costs],
    *,
    layers: int | None = None,
    placement: str | Sequence[int] = "interleaved",
    **fields: Any,
) -> Problem:
    """Build a problem from a layout text.

    Parameters
    ----------
    layout
        As `schedopt.layout.parse_layout` reads it.
    costs
        For each symbol of the layout a table with ``durations`` and ``memory`` of single numbers
        (see `from_layers`). By default t and m take 1 at their F, E and L nothing.
    layers
        Number of layers of the model, if the layout is to be checked against it.
    placement
        As in `Problem`; the meaning of a layout is interleaved.
    **fields
        As in `from_layers`, and ``devices``.

    Raises
    ------
    ProblemError
        With the faults found.

    Examples
    --------
    >>> one = {"durations": {"F": 1, "B": 1, "W": 1}}
    >>> problem = from_layout(
    ...     "Et*2|t|t|tL", {"E": one, "t": one, "L": one}, devices=2, microbatches=4
    ... )
    >>> problem.durations.F, problem.device_of
    ((3, 1, 1, 2), (0, 1, 0, 1))
    """
    faults: list[Fault] = []
    stages: list[list[str]] = []
    layer_of: dict[str, Layer] = {}
    with _collected(faults):
        stages = parse_layout(layout, layers=layers)
    for symbol in sorted({symbol for stage in stages for symbol in stage}):
        with _collected(faults):
            if symbol not in costs:
                raise ProblemError([Fault(f"costs.{symbol}", "", "required by the layout")])
            activations = 1 if symbol in "tm" else 0
            layer_of[symbol] = read_layer(
                costs[symbol], place=f"costs.{symbol}", activations=activations
            )
    if faults:
        raise ProblemError(faults)
    pieces = [[layer_of[symbol] for symbol in stage] for stage in stages]
    return problem_of_stages(pieces, placement=placement, **fields)


@contextmanager
def _collected(faults: list[Fault]) -> Iterator[None]:
    """Add the faults of an error to a list; those of a text say which text."""
    try:
        yield
    except InputError as error:
        place = "" if error.what == "problem" else f"{error.what}, "
        faults += [Fault(place + f.field, f.value, f.valid) for f in error.faults]


def _known_layers(layers: int | None, costs: Costs) -> int | None:
    """Number of layers as given, or else the length of the first list."""
    if layers is not None:
        return layers
    for table in costs.values():
        for value in table.values() if isinstance(table, Mapping) else ():
            if isinstance(value, (list, tuple)):
                return len(value)
    return None


def _stage_counts(
    partition: str | Sequence[int] | None,
    layers: int | None,
    devices: int,
    placement: str | Sequence[int],
    chunks: int | None,
) -> tuple[int, ...]:
    if isinstance(partition, str):
        return parse_partition(partition, layers=layers)
    if partition is not None:
        faults = [
            Fault(f"item {number}", repr(count), "must be a whole number of layers")
            for number, count in enumerate(partition, start=1)
            if not isinstance(count, Integral) or count < 0
        ]
        return _complete([] if faults else partition, layers, faults)
    if layers is None:
        valid = "required: a number, a partition, or lists with one item for each layer"
        raise ProblemError([Fault("layers", "", valid)])
    if isinstance(placement, str):
        return even_partition(
            layers, devices, chunks=default_chunks(placement) if chunks is None else chunks
        )
    if layers % len(placement):
        valid = f"do not divide by the {len(placement)} stages; give the layers of each stage"
        raise ProblemError([Fault("layers", str(layers), valid)])
    return (layers // len(placement),) * len(placement)
