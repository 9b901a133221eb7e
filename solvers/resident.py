"""Memory of the machine that a solve runs on, not of the devices: measured, and kept in a limit.

What a model or a process is going to take is an estimate, from what `python benchmarks/memory.py`
measures.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

SHARE = 0.75
"""Share of the machine's memory that is the limit unless one is given."""
BYTES_PER_BOOLEAN = 5 * 2**10
"""Of an order model: once for the model itself, and once for each thread that searches it."""
BYTES_PER_THREAD = 32 * 2**20
"""Of a thread that searches an order model, whatever its size."""
BYTES_PER_PROCESS = 150 * 2**20
"""Of a process of the window search, whatever the problem."""
BYTES_PER_OP = 3 * 2**10
"""Of such a process, for each op of the problem."""


class Budget:
    """How many threads and processes of a search fit into a limit of memory.

    Parameters
    ----------
    limit
        Bytes that this process and its helpers may take; a share of the machine's memory if None.
    workers
        Threads and processes that are wanted.

    Attributes
    ----------
    limit
        None if the memory of the machine is not known.
    """

    def __init__(self, limit: int | None, *, workers: int) -> None:
        total = machine_memory()
        if limit is None and total is not None:
            limit = int(SHARE * total)
        self.limit = limit
        self.workers = workers
        self._reserved = 0
        self._peaks: list[int | None] = []

    @cached_property
    def room(self) -> float:
        """Bytes of the limit that this process did not hold already when it was first asked."""
        if self.limit is None:
            return math.inf
        return max(0, self.limit - (_status("VmRSS") or peak_resident() or 0))

    def threads(self, booleans: int) -> int:
        """Threads that can search an order model of so many Booleans; 0 if it does not fit."""
        left = self.room - self._reserved
        counts = range(self.workers, 0, -1)
        return next((n for n in counts if bytes_of_model(booleans, n) <= left), 0)

    def processes(self, ops: int) -> int:
        """Processes that can search windows of a problem of so many ops, in half of the room.

        With 1 the search is in this process.
        """
        return max(1, int(min(self.workers, self.room / 2 // bytes_of_process(ops))))

    def open(self, processes: int, ops: int) -> None:
        """Processes of the window search are started."""
        self._reserved = processes * bytes_of_process(ops)

    def close(self, helpers: Sequence[int]) -> None:
        """These processes, by their ids, are about to end."""
        self._reserved = 0
        self._peaks.append(peak_resident(helpers))

    @property
    def peak(self) -> int | None:
        """Largest resident memory of this process and its helpers so far; None if not known."""
        peaks = [peak_resident(), *self._peaks]
        known = [peak for peak in peaks if peak is not None]
        return max(known) if len(known) == len(peaks) else None

    def note(self, count: int, what: str) -> str:
        """Remark for a record of the search, "" if as many run as are wanted."""
        if count == self.workers or self.limit is None:
            return ""
        return f", {count} of {self.workers} {what} fit into {size_text(self.limit)}"


def bytes_of_model(booleans: int, threads: int) -> int:
    """Estimate for building an order model and searching it."""
    return BYTES_PER_BOOLEAN * booleans * (1 + threads) + BYTES_PER_THREAD * threads


def bytes_of_process(ops: int) -> int:
    """Estimate for a process of the window search."""
    return BYTES_PER_PROCESS + BYTES_PER_OP * ops


def peak_resident(helpers: Sequence[int] = ()) -> int | None:
    """Largest resident memory that this process has ever had, in bytes; None if not known.

    With process ids of running helpers the sum of their largest and its own, which is never less
    than the largest sum.
    """
    own = _status("VmHWM")
    if own is not None:
        return own + sum(_status("VmHWM", pid) or 0 for pid in helpers)
    if sys.platform == "win32" or helpers:
        return None
    import resource  # there is none on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def machine_memory() -> int | None:
    """Memory of the machine, or of the container if that is less, in bytes; None if not known."""
    known = []
    with suppress(AttributeError, OSError, ValueError):
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):  # "max" where there is no limit
        known.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(known, default=None)


def size_text(size: int) -> str:
    """A number of bytes as text: 512 MiB, 1.5 GiB."""
    if size < 2**30:
        return f"{size / 2**20:.0f} MiB"
    return f"{size / 2**30:.1f} GiB"


def _status(name: str, pid: int | str = "self") -> int | None:
    """A size from what Linux tells about a process, in bytes.

    `getrusage` would not do: a new process begins with the peak of the one that started it.
    """
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return None
