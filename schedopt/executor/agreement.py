"""Before anything is transferred, all ranks compare what they are about to run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from schedopt.executor.errors import MismatchError
from schedopt.executor.failure import Watch
from schedopt.executor.program import Program

Fingerprint = Mapping[str, Any]
"""Field -> value; values are plain data."""


def fingerprint(program: Program, *, name: str) -> dict[str, Any]:
    """What has to be equal on all ranks.

    Parameters
    ----------
    program
        What is run.
    name
        Of the schedule.
    """
    orders = [" ".join(map(str, program.ops[rank])) for rank in sorted(program.ops)]
    order = hashlib.sha256("\n".join(orders).encode()).hexdigest()[:16]
    return {
        "schedule": name or "without a name",
        "p": len(program.ops),
        "m": program.microbatches,
        "placement": list(program.device_of),
        "kind of step": "forward only" if program.forward_only else "training",
        "links of stages": [list(links.targets) for links in program.links],
        "schedopt": version("schedopt"),
        "order of the ops": order,
    }


def agree(watch: Watch, number: int | str, own: Fingerprint) -> list[dict[str, Any]]:
    """Compare fingerprints; the fields under "of this rank" may differ, and are returned.

    Parameters
    ----------
    watch
        Joins the ranks.
    number
        Of this agreement, counted from 0 on each rank alike; or its name.
    own
        Fingerprint of this rank.

    Returns
    -------
    list of dict
        The fingerprint of each rank.

    Raises
    ------
    MismatchError
        On every rank: naming each field, and both values with the ranks that have them.
    PeerError
        If a rank does not take part within the timeout.
    """
    watch.tell(f"agreement/{number}/{watch.rank}", json.dumps(own))
    everyone: list[dict[str, Any]] = []
    for peer in range(watch.size):
        text = watch.hear(
            f"agreement/{number}/{peer}",
            lambda peer=peer: f"waiting for {watch.member} {peer} to say what it runs",  # type: ignore[misc]
            peer,
        )
        everyone.append(json.loads(text))
    differences = []
    for field in everyone[0]:
        values = [theirs.get(field) for theirs in everyone]
        if field != OF_THIS_RANK and any(value != values[0] for value in values):
            other = next(rank for rank, value in enumerate(values) if value != values[0])
            one, two = f"{watch.member} 0", f"{watch.member} {other}"
            differences.append(f"{field}: {values[0]} on {one}, {values[other]} on {two}")
    if differences:
        raise MismatchError(differences)
    return everyone


OF_THIS_RANK = "of this rank"
"""The field of a fingerprint that each rank has for itself."""
