"""The folder of the cache, which several runs may use at once and which may be unusable.

Nothing here raises for what is in the folder, or because it can not be read or written: the
cache then does less, and its notes say why.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

import platformdirs
from pydantic import ValidationError

from schedopt.cache.entry import NO_BOUND, Entry, decode, encode, fault_of
from schedopt.cache.key import problem_key
from schedopt.exact import text
from schedopt.problem import Problem

FOLDER_VARIABLE = "SCHEDOPT_CACHE_DIR"
"""Environment variable with the folder to use instead of the platform's."""
LARGEST_FILE = 20 * 10**6
"""Bytes of a file above which it is neither written nor read."""
LARGEST_FOLDER = 500 * 10**6
"""Bytes of all files above which the oldest are removed."""
ATTEMPTS = 3
"""How often a file is written anew because another run has replaced it meanwhile."""

_FILE_NAME = re.compile(r"[0-9a-f]{64}\.(json|\w+\.tmp)")


class Cache:
    """A folder with the best known schedule and bound of every problem that was solved.

    Parameters
    ----------
    folder
        Where it is; if omitted, what the environment variable `FOLDER_VARIABLE` says, or else
        the platform's folder for caches. It is made when something is stored.

    Attributes
    ----------
    notes
        What could not be used or stored, and why: one line each.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        given = folder or os.environ.get(FOLDER_VARIABLE)
        self.folder = Path(given or platformdirs.user_cache_path("schedopt", appauthor=False))
        self.notes: list[str] = []
        self._has_place = bool(given) or self.folder.is_absolute()

    def load(self, problem: Problem) -> Entry | None:
        """What is known of a problem: a schedule that was checked just now, and a bound.

        None if nothing is known that can be used.
        """
        path = self._path(problem)
        try:
            return decode(_read(path), path.stem, problem)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError, MemoryError) as error:
            self._note(f"{path} is not used: {_reason(error)}")
            return None

    def store(self, entry: Entry) -> None:
        """Keep what is new: the better of two schedules, the larger of two bounds.

        A schedule that is not valid is not stored, and neither is a bound above the objective
        of a valid one. If two runs store for one problem in the same instant, the file is that
        of one of them: at worst what the other has found is lost.

        Parameters
        ----------
        entry
            What was found; its bound must be proven for the problem of its schedule.
        """
        fault = fault_of(entry.schedule)
        if fault:
            self._note(f"schedule not stored: {fault}")
            return
        try:
            self._make_folder()
            self._merge(entry)
        except OSError as error:
            self._note(f"nothing stored in {self.folder}: {_reason(error)}")
        self._trim()

    def clear(self) -> None:
        """Remove everything that was stored; other files in the folder stay."""
        for path, _ in self._files():
            self._remove(path)

    def size(self) -> int:
        """Bytes of all that is stored."""
        return sum(status.st_size for _, status in self._files())

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _path(self, problem: Problem) -> Path:
        return self.folder / f"{problem_key(problem)}.json"

    def _make_folder(self) -> None:
        if not self._has_place:
            raise OSError(f"there is no home folder; {FOLDER_VARIABLE} can name another")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _merge(self, entry: Entry) -> None:
        """Replace the file at once by the better of what is there and what is given.

        What is there is read again if another run has replaced it meanwhile.
        """
        problem = entry.schedule.problem
        path = self._path(problem)
        for attempt in range(1, ATTEMPTS + 1):
            seen = _stamp(path)
            known = self.load(problem)
            better = self._better(known, entry)
            if better is known:
                os.utime(path)  # it is still of use, so it is not old
                return
            content = encode(better, path.stem)
            if len(content) > LARGEST_FILE:
                self._note(f"schedule not stored: {len(content)} bytes, at most {LARGEST_FILE}")
                return
            handle, name = tempfile.mkstemp(".tmp", f"{path.stem}.", self.folder)
            temporary = Path(name)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                if attempt == ATTEMPTS or _stamp(path) == seen:
                    temporary.replace(path)
                    return
            finally:
                temporary.unlink(missing_ok=True)

    def _better(self, known: Entry | None, new: Entry) -> Entry:
        """The best of both schedules with the best bound; `known` itself if `new` adds nothing."""
        entries = [new] if known is None else [known, new]
        best = min(entries, key=lambda entry: entry.objective)
        bound, bound_source = NO_BOUND
        for entry in entries:
            if entry.bound > best.objective:
                self._note(
                    f"bound {text(entry.bound)}, from {entry.bound_source}, not stored: a valid "
                    f"schedule has {text(best.objective)}"
                )
            elif entry.bound > bound:
                bound, bound_source = entry.bound, entry.bound_source
        if best is known and bound == known.bound:
            return known
        return Entry(best.schedule, bound, bound_source, best.objective_source)

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        """Files that the cache has written, the oldest first."""
        try:
            paths = [path for path in self.folder.iterdir() if _FILE_NAME.fullmatch(path.name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            self._note(f"{self.folder} can not be read: {_reason(error)}")
            return []
        found = []
        for path in paths:
            with suppress(OSError):  # another run may have removed it
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    found.append((path, status))
        return sorted(found, key=lambda file: file[1].st_mtime_ns)

    def _trim(self) -> None:
        """Remove the oldest files until the rest is small enough."""
        files = self._files()
        total = sum(status.st_size for _, status in files)
        for path, status in files:
            if total <= LARGEST_FOLDER:
                return
            self._remove(path)
            total -= status.st_size

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._note(f"{path} can not be removed: {_reason(error)}")


def _read(path: Path) -> bytes:
    """Content of a file that no other user can have written, since its bound can not be checked.

    Raises
    ------
    OSError, ValueError
        If it can not be read, is not such a file, or is too large.
    """
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a regular file")
        if hasattr(os, "geteuid") and (
            status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        ):
            raise ValueError("another user can have written it")
        if status.st_size > LARGEST_FILE:
            raise ValueError(f"it has {status.st_size} bytes, at most {LARGEST_FILE} are read")
        return file.read(LARGEST_FILE)


def _stamp(path: Path) -> tuple[int, ...]:
    """Changes whenever a file is replaced."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _reason(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        return "it is no entry of the cache"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:200]
