"""Exceptions of the executor. A rank that fails makes all ranks fail; each says what it saw."""

from __future__ import annotations

from collections.abc import Sequence


class ExecutorError(RuntimeError):
    """A step can not be run, or was stopped."""


class MismatchError(ExecutorError):
    """The ranks do not agree on what they are about to run; names each field and both values.

    Attributes
    ----------
    differences
        One text for each field that differs.
    """

    def __init__(self, differences: Sequence[str]) -> None:
        self.differences = tuple(differences)
        lines = "".join(f"\n  {difference}" for difference in self.differences)
        super().__init__(f"the ranks do not agree:{lines}")


class LayoutError(ExecutorError):
    """A boundary tensor, or an input, has another shape or type than the ranks agreed on."""


class PeerError(ExecutorError):
    """Another rank has failed, was lost, or did not answer in time.

    Attributes
    ----------
    waiting_for
        What this rank was waiting for: op, peer and microbatch.
    cause
        What is known of the reason; "" if nothing is.
    """

    def __init__(self, waiting_for: str, cause: str) -> None:
        self.waiting_for = waiting_for
        self.cause = cause
        super().__init__(f"stopped while {waiting_for}: {cause or 'the connection was lost'}")
