"""A rank that fails stops the others, and says why.

The ranks of an executor share a store besides their transport. Who fails writes the reason there,
the first one counts, and cuts its connections, so that whoever waits for it stops at once. A
thread on each rank looks into the store when the rank has been waiting for some time: so a
failure reaches those too that wait for somebody else, and two ranks that wait for each other
because they do different things find out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from schedopt.executor.distributed import Store
from schedopt.executor.errors import MismatchError, PeerError

LOOK_EVERY = 0.25
"""Seconds between two looks at whether the rank has been waiting for long."""

PATIENCE = 0.5
"""Seconds that a rank waits before it asks why."""

GRACE = 1.0
"""Seconds in which the rank that failed first can say why, before another one guesses."""

_POLL = 0.002
_FAILURE = "failure"
_MISMATCH = "different calls: "


class Watch:
    """What the ranks tell each other about themselves, and the thread that looks at it.

    Parameters
    ----------
    store
        Shared by the ranks; its keys belong to this executor alone.
    rank, size
        This rank, and the number of ranks.
    timeout
        Seconds that a rank may wait for one thing.
    abort
        Cuts the connections of this rank, so that all waits end with an error.
    member
        What messages call one of them: "rank", or "replica".
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        *,
        timeout: float,
        abort: Callable[[], object],
        member: str = "rank",
    ) -> None:
        self.member = member
        self.rank, self.size, self.timeout = rank, size, timeout
        self._store = store
        self._abort = abort
        self._calls = 0
        self._call = ""
        self._waiting: tuple[Callable[[], str], int, float] | None = None
        self.reason = ""
        """Why this executor has failed; "" as long as it has not."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, name="schedopt watch", daemon=True)
        if size > 1:
            self._thread.start()

    # ------------------------------------------------------------------ the rank itself

    def begin(self, call: str) -> None:
        """Say which call begins on this rank: kind of step and fingerprint."""
        self._calls += 1
        self._call = f"{self._calls} {call}"
        self.tell(f"call/{self.rank}", self._call)

    def waits(self, what: Callable[[], str], peer: int) -> None:
        """Note that the rank begins to wait for `peer`; `what` gives the text if it is needed."""
        self._waiting = what, peer, time.monotonic()

    def goes_on(self) -> None:
        """Note that the wait is over."""
        self._waiting = None

    def fail(self, reason: str, *, tell: bool = True) -> None:
        """Stop all ranks with a reason, unless there is one already.

        Parameters
        ----------
        reason
            What went wrong, and on which rank.
        tell
            False to stop this rank alone.
        """
        self.reason = self.reason or reason
        if tell:
            with suppress(RuntimeError):  # the store is gone with the rank that held it
                first = self._store.compare_set(_FAILURE, "", self.reason).decode()
                self.reason = first or self.reason
        self._abort()

    def lost(self, error: Exception) -> Exception:
        """The error to raise when a wait has ended with `error`: what this rank waited for, why."""
        what, peer, since = self._waiting or (lambda: "working", self.rank, time.monotonic())
        self._waiting = None  # what was being done knows the executor, and this outlives it
        waited = time.monotonic() - since
        if waited >= self.timeout and not self.reason:
            guess = f"{self.member} {peer} did not answer within {self.timeout:g} s"
        else:
            guess = f"the connection to {self.member} {peer} was lost"
            self._wait_for_reason()
        if not self.reason:
            self.fail(f"{self.member} {self.rank} stopped while {what()}: {guess}")
        if self.reason.startswith(_MISMATCH):
            return MismatchError([self.reason.removeprefix(_MISMATCH)])
        failed = PeerError(what(), self.reason)
        failed.__cause__ = error
        return failed

    # ------------------------------------------------------------------ the store

    def tell(self, key: str, value: str) -> None:
        """Write a value for the other ranks.

        Raises
        ------
        PeerError
            If the store can not be reached.
        """
        try:
            self._store.set(key, value)
        except RuntimeError as error:
            raise self.lost(error) from error

    def hear(self, key: str, what: Callable[[], str], peer: int) -> str:
        """Wait for a value that `peer` tells.

        Raises
        ------
        PeerError
            If it does not come within the timeout, or a rank fails meanwhile.
        """
        self.waits(what, peer)
        end = time.monotonic() + self.timeout
        try:
            while not self._store.check([key]):
                if self.reason or time.monotonic() > end:
                    break
                time.sleep(_POLL)
            else:
                self.goes_on()
                return str(self._store.get(key).decode())
        except RuntimeError as error:
            raise self.lost(error) from error
        raise self.lost(TimeoutError(key))

    def forget(self, key: str) -> None:
        """Remove a value that nobody needs any more."""
        self._store.delete_key(key)

    def close(self) -> None:
        """End the thread, when the other ranks are through as well or fail.

        Who goes early closes connections over which the others have yet to see that all of
        their messages have arrived.
        """
        end = time.monotonic() + GRACE
        with suppress(RuntimeError):
            self._store.set(f"left/{self.rank}", "")
            everyone = [f"left/{rank}" for rank in range(self.size)]
            while not self.reason and time.monotonic() < end and not self._store.check(everyone):
                time.sleep(_POLL)
        self._closed.set()
        # An executor that nobody closes can be collected by any thread, also by this one.
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    # ------------------------------------------------------------------ the thread

    def _look(self) -> None:
        while not self._closed.wait(LOOK_EVERY):
            waiting = self._waiting
            if waiting is None or self.reason or time.monotonic() - waiting[2] < PATIENCE:
                continue
            try:
                if not self._find_failure():
                    self._compare_calls(waiting[1])
            except RuntimeError as error:
                self.fail(f"the store can not be reached: {str(error).splitlines()[0]}")

    def _find_failure(self) -> bool:
        if not self._store.check([_FAILURE]):
            return False
        self.reason = self._store.get(_FAILURE).decode()
        self._abort()
        return True

    def _compare_calls(self, peer: int) -> None:
        """If the peer is in the same call by number but another by content, both wait forever."""
        key = f"call/{peer}"
        if not self._store.check([key]):
            return
        theirs = self._store.get(key).decode()
        if theirs != self._call and theirs.split()[0] == self._call.split()[0]:
            one, two = f"{self.member} {self.rank}", f"{self.member} {peer}"
            self.fail(_MISMATCH + f"call {self._call} on {one}, call {theirs} on {two}")

    def _wait_for_reason(self) -> None:
        end = time.monotonic() + GRACE
        while not self.reason and time.monotonic() < end:
            try:
                if self._find_failure():
                    return
            except RuntimeError:
                return
            time.sleep(_POLL)
