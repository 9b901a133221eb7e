"""Window search by several processes that pass their best schedule to each other."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from schedopt.problem import Problem
from schedopt.solvers.ordered import Sequences
from schedopt.solvers.stretch import Repeat


class Found(NamedTuple):
    """The best schedule of a task: its value in steps, its orders, and the windows solved."""

    value: int
    sequences: Sequences
    windows: int


class TeamError(RuntimeError):
    """The processes could not be started, or ended before they should."""


class Team:
    """Processes that run `schedopt.solvers.worker`; a context manager that ends them.

    Parameters
    ----------
    problem, index_order
        As for `schedopt.graph.build_graph`.
    size
        Number of processes.
    seed
        The processes search with seeds derived from it.
    kept
        As for `schedopt.solvers.neighbourhood.WindowSearch`.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        index_order: bool,
        size: int,
        seed: int,
        kept: Repeat | None = None,
    ) -> None:
        self._values: list[int | None] = [None] * size
        self._processes: list[subprocess.Popen[str]] = []
        try:
            for number in range(size):
                process = subprocess.Popen(
                    [sys.executable, "-m", "schedopt.solvers.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    start_new_session=True,  # Ctrl-C is for the process that waits for them
                )
                self._processes.append(process)
                head = {
                    "problem": problem.to_dict(),
                    "index_order": index_order,
                    "seed": seed * 1000 + number,
                    "kept": kept,
                }
                self._send(process, head)
        except OSError as error:
            self.close()
            raise TeamError(f"can not start {sys.executable}: {error}") from None

    @property
    def pids(self) -> tuple[int, ...]:
        """Ids of the processes."""
        return tuple(process.pid for process in self._processes)

    def run(
        self,
        sequences: Sequences,
        *,
        value: int,
        bound: int,
        seconds: float,
        latest: float | None = None,
    ) -> Found:
        """Search for some seconds from the best known schedule.

        A process whose own walk stands at that value already goes on from where it is. The window
        it is at is solved to its end, if that comes within `latest` seconds (default: `seconds`),
        because on a busy machine one window can take longer than `seconds`.
        """
        for number, process in enumerate(self._processes):
            own = self._values[number]
            task = {
                "sequences": None if own is not None and own <= value else sequences,
                "bound": bound,
                "seconds": seconds,
                "latest": seconds if latest is None else latest,
            }
            self._send(process, task)
        best = Found(value, sequences, 0)
        for number, process in enumerate(self._processes):
            answer = self._receive(process)
            self._values[number] = answer["value"]
            windows = best.windows + answer["windows"]
            if answer["value"] < best.value:
                best = Found(answer["value"], answer["sequences"], windows)
            best = best._replace(windows=windows)
        return best

    @staticmethod
    def _send(process: subprocess.Popen[str], message: dict[str, Any]) -> None:
        try:
            if process.stdin is not None:
                process.stdin.write(json.dumps(message) + "\n")
                process.stdin.flush()
        except OSError as error:
            raise TeamError(f"a search process ended: {error}") from None

    @staticmethod
    def _receive(process: subprocess.Popen[str]) -> dict[str, Any]:
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            raise TeamError(f"a search process ended with exit code {process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):  # what it did not read any more is lost
                        stream.close()
            process.wait()

    def __enter__(self) -> Self:
        """Use as a context manager."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all processes."""
        self.close()
