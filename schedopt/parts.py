"""The tables of a problem file, each a frozen model that validates its own fields."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from schedopt.fields import (
    Index,
    NotNegative,
    NotNegativeOrNull,
    PerItem,
    PerItemOrNull,
    SignedPerItemOrNull,
    one_or_list,
    shape_of,
)

Mode = Literal["never", "always", "decide"]
ModePerStage = Annotated[
    Annotated[Mode, Tag("<one>")] | Annotated[tuple[Mode, ...], Tag("<list>")],
    Discriminator(one_or_list),
]
Lag = Annotated[
    Annotated[NotNegative, Tag("<one>")]
    | Annotated[tuple[NotNegative, ...], Tag("<list>")]
    | Annotated[tuple[tuple[NotNegative, ...], ...], Tag("<table>")],
    Discriminator(shape_of),
]
PerLink = Annotated[
    Annotated[NotNegative, Tag("<one>")]
    | Annotated[tuple[tuple[NotNegative, ...], ...], Tag("<table>")],
    Discriminator(lambda value: "<table>" if isinstance(value, (list, tuple)) else "<one>"),
]
"""One number for all links, or a table [from device][to device]."""


class Part(BaseModel):
    """A table of a problem file."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Durations(Part):
    """Duration of each kind of op: one number for all stages, or a list with one per stage.

    A stage has B and W, or the fused BW. In lists, null marks the stages of the other form;
    a single number counts for every stage whose form is not given by a list.
    """

    F: PerItem
    B: PerItemOrNull = None
    W: PerItemOrNull = None
    BW: PerItemOrNull = None


class Transient(Part):
    """Memory held only while an op runs, per stage."""

    F: PerItem = 0
    B: PerItem = 0
    W: PerItem = 0
    BW: PerItem = 0


class Memory(Part):
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


class LagByDirection(Part):
    """Lags that differ for activations (forward) and gradients (backward)."""

    forward: Lag
    backward: Lag


class Edge(Part):
    """A connection of two stages, besides the chain of all stages or in its place.

    F of `to` waits for F of `from`, and B of `from` for the backward of `to`. Without a lag of
    its own it takes as long as any transfer between the two devices.
    """

    from_stage: Index = Field(alias="from")
    to_stage: Index = Field(alias="to")
    lag: NotNegativeOrNull = None


class Recompute(Part):
    """Activation recomputation: op R between F and the backward, once more the forward.

    With it a stage keeps only `kept` (its input, or more if R is selective) of the memory of F
    until R acquires the rest, with the transient memory of F. Per stage: never, always, or
    decide, which leaves it to the solver for each microbatch.
    """

    mode: ModePerStage = Field("decide", description="never, always or decide; or one per stage")
    R: PerItemOrNull = Field(None, description="duration; null: that of F")
    kept: PerItem = Field(0, description="memory held from F until R")


class SharedLink(Part):
    """Links between devices that share one wire, such as the uplink of a node."""

    name: str = Field(min_length=1)
    links: tuple[tuple[Index, Index], ...] = Field(
        min_length=1, description="pairs [from device, to device]"
    )


class Links(Part):
    """Transfers by size: size / bandwidth + latency.

    With `occupy` the next transfer of a link, or of a shared one, in the same direction waits
    until size / bandwidth has passed; else a transfer is a pure delay. On one device nothing is
    transferred.
    """

    size: PerItem = Field(description="of the output of each stage, for one microbatch")
    gradient_size: PerItemOrNull = Field(
        None, description="of the gradient of that output; null: like size"
    )
    bandwidth: PerLink = Field(description="size per time; one number or a table [from][to]")
    latency: PerLink = 0
    occupy: bool = True
    shared: tuple[SharedLink, ...] = ()


class Tied(Part):
    """Stages that share a parameter: its gradients are summed at the end of the step."""

    stages: tuple[Index, ...] = Field(min_length=2)
    duration: NotNegative


class EndOfStep(Part):
    """What follows the last W: reduction over replicas, tied parameters, and the optimizer.

    The reduction of a stage occupies the network of its device, the one of tied stages that of
    the first of them; both overlap compute. The optimizer runs on each device when its
    gradients are complete.
    """

    reduction: PerItem = Field(0, description="duration per stage, over the data-parallel replicas")
    optimizer: PerItem = Field(0, description="duration per device")
    tied: tuple[Tied, ...] = ()


class Extra(Part):
    """Work and memory that a stage has besides its layers: embedding, output and loss, ...

    Durations and memory are added to those of the stage; B + W to BW if it is fused.
    """

    name: str = Field(min_length=1)
    stage: Index
    F: NotNegative = 0
    B: NotNegative = 0
    W: NotNegative = 0
    memory: NotNegative = Field(0, description="acquired by F, released by the last op")
    static: NotNegative = 0
