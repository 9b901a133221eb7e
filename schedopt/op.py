"""Ops and resources: the nodes of the graph and what they occupy."""

from __future__ import annotations

import re
from typing import NamedTuple

KINDS = {
    "F": "forward",
    "B": "backward, gradient of the input only",
    "W": "backward, gradient of the weights only",
    "BW": "backward, gradients of input and weights fused",
}
"""Kinds of op and their meaning; every file that names kinds carries it."""

_LABEL = re.compile(r"(\d+)([A-Z]+)(\d+)")


class Op(NamedTuple):
    """One op: `kind` of `stage` for `microbatch`.

    Its text is stage, kind, microbatch (``11F3``: stage 11, forward, microbatch 3).
    """

    kind: str
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"

    @classmethod
    def parse(cls, label: str) -> Op:
        """Inverse of `str`.

        Raises
        ------
        ValueError
            If the text is not an op.

        Examples
        --------
        >>> Op.parse("11F3")
        Op(kind='F', stage=11, microbatch=3)
        """
        match = _LABEL.fullmatch(label)
        if match is None or match[2] not in KINDS:
            raise ValueError(
                f"{label!r} is not an op; expected stage, kind ({', '.join(KINDS)}), "
                "microbatch, as in 11F3"
            )
        return cls(match[2], int(match[1]), int(match[3]))


class Resource(NamedTuple):
    """Something that runs one op at a time: the compute stream of a device."""

    kind: str
    device: int

    def __str__(self) -> str:
        return f"{self.kind} {self.device}"


class MemoryUse(NamedTuple):
    """What an op does to the memory of one device, in steps of the memory resolution.

    `acquired` is taken at the start, `transient` is held from start to end, `released` is
    given back at the end; none is negative.
    """

    device: int
    acquired: int
    released: int
    transient: int
