"""Ops and resources: the nodes of the graph and what they occupy."""

from __future__ import annotations

import re
from typing import NamedTuple

KINDS = {
    "F": "forward",
    "B": "backward, gradient of the input only",
    "W": "backward, gradient of the weights only",
    "BW": "backward, gradients of input and weights fused",
    "R": "recompute, the forward once more for its backward",
    "SF": "send the output of the stage on",
    "SB": "send the gradient of the output of the stage back",
    "RED": "reduce the gradients of the stage over the data-parallel replicas",
    "TIE": "sum the gradients of tied parameters",
    "OPT": "optimizer step of the device",
}
"""Kinds of op and their meaning; every file that names kinds carries it.

RED, TIE and OPT have microbatch 0; TIE has the first of the tied stages, OPT the first of its
device.
"""

COMPUTE, NETWORK = "compute", "network"
"""Kinds of resource of a device: its compute stream, and its network for the end of the step."""

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
    """Something that runs one op at a time.

    The compute stream or the network of a device; a link from a device to another one ("link to
    3" of device 2), or one that several pairs share ("link" with its name).
    """

    kind: str
    device: int

    def __str__(self) -> str:
        if self.kind.startswith("link to "):
            return f"link {self.device} to {self.kind.removeprefix('link to ')}"
        return self.kind if self.kind.startswith("link ") else f"{self.kind} {self.device}"

    @property
    def span(self) -> str:
        """What its ops belong to for the period: the device, or the link itself.

        All that repeats with the period runs one step at a time: a device with its network
        begins the next one after its last op, and a link likewise.
        """
        return str(self) if self.kind.startswith("link ") else f"device {self.device}"


class MemoryUse(NamedTuple):
    """What an op does to the memory of one device, in steps of the memory resolution.

    `acquired` is taken at the start, `transient` is held from start to end, `released` is
    given back at the end; none is negative.
    """

    device: int
    acquired: int
    released: int
    transient: int
