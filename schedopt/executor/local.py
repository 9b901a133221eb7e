"""Ranks on this machine: processes that are started together and never outlive their owner."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
import torch.distributed as dist

from schedopt.errors import Fault, InputError
from schedopt.executor.distributed import TCPStore
from schedopt.executor.errors import ExecutorError

START_TIMEOUT = 120.0
"""Seconds in which all ranks have to be there."""


class Outcome(NamedTuple):
    """What became of a call on one rank.

    Attributes
    ----------
    value
        What the function returned.
    error
        The traceback if it raised; what is known of the end of the process if it is gone. ""
        if all went well.
    """

    value: Any
    error: str


def require_device(kind: str) -> None:
    """Raise an InputError unless torch can run on a kind of device: "cpu" or "cuda"."""
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError("device", [Fault("device", kind, "must be cpu: torch finds no GPU here")])


def device_of_rank(kind: str, rank: int) -> torch.device:
    """The CPU, or the GPU of a rank of this machine; GPUs are shared in turn if there are fewer."""
    if kind == "cpu":
        return torch.device("cpu")
    return torch.device(kind, rank % torch.cuda.device_count())


class LocalRanks:
    """Processes with a process group, each using one thread, that run functions.

    They are started once and can run many functions; a rank that is lost stays lost.

    Parameters
    ----------
    count
        Number of ranks.
    timeout
        Seconds for each call; then all ranks are ended.
    backend
        Of the process group.

    Examples
    --------
    >>> with LocalRanks(2) as ranks:  # doctest: +SKIP
    ...     ranks.run(torch.distributed.get_rank)
    [0, 1]
    """

    def __init__(self, count: int, *, timeout: float = 300.0, backend: str = "gloo") -> None:
        self._timeout = timeout
        # Held here, so that the ranks have it whichever of them is lost.
        self._store = TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60)
        )
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(count)]
        self._connections: list[Connection] = [ours for ours, _ in pipes]
        self._processes = [
            context.Process(
                target=_serve,
                args=(rank, count, self._store.port, theirs, backend),
                name=f"rank {rank}",
                daemon=True,
            )
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for process in self._processes:
            process.start()
        for _, theirs in pipes:
            theirs.close()
        try:
            self._raise(self._gather(START_TIMEOUT))
        except BaseException:
            self.kill()
            raise

    @property
    def process_ids(self) -> list[int]:
        """Of each rank, also of one that is gone."""
        return [process.pid or 0 for process in self._processes]

    def run(
        self, function: Callable[..., Any], *args: Any, timeout: float | None = None
    ) -> list[Any]:
        """Call a function of a module on every rank; what it returns, by rank.

        Raises
        ------
        ExecutorError
            If it raised on a rank, with the tracebacks, or a rank was lost.
        TimeoutError
            If a rank did not answer; all ranks are ended then.
        """
        outcomes = self.outcomes(function, *args, timeout=timeout)
        self._raise(outcomes)
        return [outcome.value for outcome in outcomes]

    def outcomes(
        self, function: Callable[..., Any], *args: Any, timeout: float | None = None
    ) -> list[Outcome]:
        """Call a function on every rank; what became of it, by rank.

        Raises
        ------
        TimeoutError
            If a rank did not answer; all ranks are ended then.
        """
        call = pickle.dumps((function, args))
        for process, connection in zip(self._processes, self._connections, strict=True):
            if process.is_alive():
                connection.send_bytes(call)
        return self._gather(self._timeout if timeout is None else timeout)

    def close(self) -> None:
        """End the ranks, in good order if they are idle."""
        for connection in self._connections:
            connection.close()
        end = time.monotonic() + 10
        for process in self._processes:
            process.join(max(0.0, end - time.monotonic()))
        self.kill()

    def kill(self) -> None:
        """End the ranks at once."""
        for process in self._processes:
            if process.is_alive():
                process.kill()
            process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.kill()

    def _gather(self, timeout: float) -> list[Outcome]:
        end = time.monotonic() + timeout
        outcomes: dict[int, Outcome] = {}
        while len(outcomes) < len(self._processes):
            open_ranks = [r for r in range(len(self._processes)) if r not in outcomes]
            ready = wait([self._connections[r] for r in open_ranks], end - time.monotonic())
            if not ready:
                self.kill()
                raise TimeoutError(f"ranks {open_ranks} did not answer within {timeout:g} s")
            for rank in open_ranks:
                if self._connections[rank] in ready:
                    outcomes[rank] = self._outcome(rank)
        return [outcomes[rank] for rank in sorted(outcomes)]

    def _outcome(self, rank: int) -> Outcome:
        try:
            return Outcome(*pickle.loads(self._connections[rank].recv_bytes()))
        except (EOFError, ConnectionResetError):
            process = self._processes[rank]
            process.join(10)
            return Outcome(None, f"the process has ended with exit code {process.exitcode}")

    def _raise(self, outcomes: Sequence[Outcome]) -> None:
        failed = [f"rank {rank}: {o.error}" for rank, o in enumerate(outcomes) if o.error]
        if failed:
            raise ExecutorError("\n".join(failed))


def _serve(rank: int, count: int, port: int, connection: Connection, backend: str) -> None:
    """What a rank does: run what comes, until the owner is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner
    torch.set_num_threads(1)
    store = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=60))
    dist.init_process_group(backend, store=store, rank=rank, world_size=count)
    connection.send_bytes(pickle.dumps((None, "")))
    while True:
        try:
            function, args = pickle.loads(connection.recv_bytes())
        except EOFError:
            break
        try:
            answer = pickle.dumps((function(*args), ""))
        except Exception:
            answer = pickle.dumps((None, traceback.format_exc()))
        connection.send_bytes(answer)
    # Taking torch down in good order takes seconds, and there is nothing left to put in order.
    os._exit(0)
