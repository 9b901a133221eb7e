from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from schedopt import classic
from schedopt.cache import FOLDER_VARIABLE, Cache, Entry, folder, problem_key
from schedopt.cache.entry import checksum
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from tests.schedules import schedule_of

PROBLEM = Problem.uniform(devices=2, microbatches=3, F=1, B=1, W=1)
SLOW = schedule_of(
    PROBLEM, "0F0 0B0 0W0 0F1 0B1 0W1 0F2 0B2 0W2", "1F0 1B0 1W0 1F1 1B1 1W1 1F2 1B2 1W2"
)
FAST = classic.zb_h1(PROBLEM)

ROOT = Path(__file__).parent.parent.parent
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs the file system of a POSIX system")


def entry(schedule: Schedule, bound: int = 0, source: str = "test") -> Entry:
    return Entry(schedule, Fraction(bound), f"bound of {source}", f"schedule of {source}")


def facts(found: Entry | None) -> tuple[Any, ...] | None:
    """Objective, its source, bound and its source."""
    if found is None:
        return None
    return found.objective, found.objective_source, found.bound, found.bound_source


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def path_in(cache: Cache, problem: Problem = PROBLEM) -> Path:
    return cache.folder / f"{problem_key(problem)}.json"


def names_in(cache: Cache) -> list[str]:
    return sorted(path.name for path in cache.folder.iterdir())


# ---------------------------------------------------------------------- load and store


def test_nothing_is_known_at_first(cache: Cache) -> None:
    assert cache.load(PROBLEM) is None
    assert cache.notes == []
    assert not cache.folder.exists()


def test_what_was_stored_is_loaded_by_another_run(cache: Cache) -> None:
    cache.store(entry(FAST, 9))
    other = Cache(cache.folder)
    found = other.load(PROBLEM.replace(name="the same, named otherwise"))
    assert found is not None
    assert found.schedule.timeline == FAST.timeline
    assert found.schedule.problem.name == "the same, named otherwise"
    assert facts(found) == (10, "schedule of test", 9, "bound of test")
    assert found.status == "feasible"
    assert cache.notes == other.notes == []
    assert names_in(cache) == [path_in(cache).name]


def test_other_problems_know_nothing_of_it(cache: Cache) -> None:
    cache.store(entry(FAST))
    assert cache.load(PROBLEM.with_capacity(2)) is None


def test_a_worse_schedule_does_not_replace_a_better_one(cache: Cache) -> None:
    cache.store(entry(FAST, 8, "first"))
    before = path_in(cache).read_bytes()
    cache.store(entry(SLOW, 7, "second"))
    assert path_in(cache).read_bytes() == before


def test_of_equals_the_first_is_kept(cache: Cache) -> None:
    cache.store(entry(FAST, 8, "first"))
    cache.store(entry(FAST, 8, "second"))
    assert facts(cache.load(PROBLEM)) == (10, "schedule of first", 8, "bound of first")


def test_a_better_schedule_keeps_the_larger_bound(cache: Cache) -> None:
    cache.store(entry(SLOW, 9, "first"))
    cache.store(entry(FAST, 8, "second"))
    assert facts(cache.load(PROBLEM)) == (10, "schedule of second", 9, "bound of first")


def test_a_larger_bound_keeps_the_better_schedule_and_can_prove_it(cache: Cache) -> None:
    cache.store(entry(FAST, 8, "first"))
    cache.store(entry(SLOW, 10, "second"))
    found = cache.load(PROBLEM)
    assert facts(found) == (10, "schedule of first", 10, "bound of second")
    assert found is not None
    assert found.status == "optimal"


def test_a_bound_above_its_own_schedule_is_not_stored(cache: Cache) -> None:
    cache.store(entry(FAST, 11))
    assert facts(cache.load(PROBLEM)) == (10, "schedule of test", 0, "nothing")
    assert cache.notes == [
        "bound 11, from bound of test, not stored: a valid schedule has 10",
    ]


def test_a_bound_above_the_known_schedule_is_not_stored(cache: Cache) -> None:
    cache.store(entry(FAST, 8, "first"))
    cache.store(entry(SLOW, 11, "second"))
    assert facts(cache.load(PROBLEM)) == (10, "schedule of first", 8, "bound of first")


def test_a_known_bound_that_a_new_schedule_disproves_is_dropped(cache: Cache) -> None:
    cache.store(entry(SLOW, 11, "first"))
    cache.store(entry(FAST, 8, "second"))
    assert facts(cache.load(PROBLEM)) == (10, "schedule of second", 8, "bound of second")


def test_a_schedule_that_is_not_valid_is_not_stored(cache: Cache) -> None:
    small = PROBLEM.with_capacity([1, 2])
    cache.store(entry(replace(FAST, problem=small)))
    assert cache.load(small) is None
    assert cache.notes == [
        "schedule not stored: memory: device 0, 0F1 at 1: needs 2, the capacity is 1"
    ]


def test_a_schedule_out_of_the_order_of_its_microbatches_is_not_stored(cache: Cache) -> None:
    two = PROBLEM.replace(microbatches=2)
    turned = schedule_of(two, "0F1 0F0 0B1 0W1 0B0 0W0", "1F1 1B1 1F0 1B0 1W1 1W0")
    cache.store(entry(turned))
    assert cache.load(two) is None
    assert len(cache.notes) == 1


# ---------------------------------------------------------------------- files that are not ours


def test_a_broken_file_is_not_used_and_is_overwritten(cache: Cache) -> None:
    cache.store(entry(SLOW, 11, "broken"))
    path = path_in(cache)
    path.write_bytes(path.read_bytes()[:-20])
    path.chmod(0o600)
    assert cache.load(PROBLEM) is None
    assert len(cache.notes) == 1
    assert cache.notes[0].startswith(f"{path} is not used: ")
    cache.store(entry(SLOW, 7, "new"))
    assert facts(cache.load(PROBLEM)) == (15, "schedule of new", 7, "bound of new")


def test_the_file_of_another_problem_is_not_used(cache: Cache) -> None:
    looser = PROBLEM.with_capacity(3)
    cache.store(entry(classic.zb_h1(looser), 10))
    path_in(cache, looser).rename(path_in(cache))
    assert cache.load(PROBLEM) is None
    assert cache.notes == [
        f"{path_in(cache)} is not used: it is of another problem or another version"
    ]


def unknown_op(content: bytes) -> bytes:
    data = json.loads(content.replace(b"0F0", b"9F0"))
    del data["sha256"]
    return json.dumps(data | {"sha256": checksum(data)}).encode()


def other_form(content: bytes) -> bytes:
    data = {"format": "schedopt.cache/1"}
    return json.dumps(data | {"sha256": checksum(data)}).encode()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (unknown_op, "it has an op that the problem does not have"),
        (other_form, "it is no entry of the cache"),
        (lambda content: b"[" * 100_000, "maximum recursion depth exceeded"),
        (lambda content: content[:-1], "Expecting ',' delimiter"),
        (lambda content: b"\xff", "'utf-8' codec can't decode byte 0xff"),
        (lambda content: b"", "Expecting value"),
        (lambda content: b"[]", "it is damaged"),
    ],
    ids=["unknown op", "other form", "nested", "truncated", "no text", "empty", "other type"],
)
def test_a_file_that_says_nothing_useful_is_not_used(
    cache: Cache, change: Callable[[bytes], bytes], reason: str
) -> None:
    cache.store(entry(FAST))
    path = path_in(cache)
    path.write_bytes(change(path.read_bytes()))
    assert cache.load(PROBLEM) is None
    assert len(cache.notes) == 1
    assert cache.notes[0].startswith(f"{path} is not used: {reason}")


def test_a_file_above_the_limit_is_neither_written_nor_read(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.store(entry(FAST))
    size = cache.size()
    monkeypatch.setattr(folder, "LARGEST_FILE", size - 1)
    assert cache.load(PROBLEM) is None
    cache.clear()
    cache.store(entry(FAST))
    assert names_in(cache) == []
    assert cache.notes == [
        f"{path_in(cache)} is not used: it has {size} bytes, at most {size - 1} are read",
        f"schedule not stored: {size} bytes, at most {size - 1}",
    ]


@POSIX
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_not_used(cache: Cache, mode: int) -> None:
    cache.store(entry(FAST, 10))
    path_in(cache).chmod(mode)
    assert cache.load(PROBLEM) is None
    assert cache.notes == [f"{path_in(cache)} is not used: another user can have written it"]
    cache.store(entry(FAST, 9))
    assert path_in(cache).stat().st_mode & 0o777 == 0o600
    assert facts(cache.load(PROBLEM)) == (10, "schedule of test", 9, "bound of test")


@POSIX
def test_a_file_of_another_user_is_not_used(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store(entry(FAST, 10))
    user = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert cache.load(PROBLEM) is None


@POSIX
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (os.mkfifo, "it is not a regular file"),
        (os.mkdir, "Is a directory"),
        (lambda path: os.symlink("/dev/zero", path), "it is not a regular file"),
        (lambda path: os.symlink(path, path), "Too many levels of symbolic links"),
    ],
    ids=["pipe", "folder", "link to a device", "link to itself"],
)
def test_what_is_no_file_is_not_used(
    cache: Cache, make: Callable[[Path], None], reason: str
) -> None:
    cache.folder.mkdir()
    make(path_in(cache))
    assert cache.load(PROBLEM) is None
    assert cache.notes == [f"{path_in(cache)} is not used: {reason}"]
    cache.store(entry(FAST))
    cache.clear()
    assert cache.size() == 0


# ---------------------------------------------------------------------- where it can not be used


def test_a_folder_that_can_not_be_made_means_no_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    cache = Cache(tmp_path / "file" / "cache")
    cache.store(entry(FAST))
    assert cache.load(PROBLEM) is None
    cache.clear()
    assert cache.size() == 0
    assert cache.notes[0] == f"nothing stored in {cache.folder}: Not a directory"
    assert (tmp_path / "file").read_text() == "not a folder"


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("fails", ["mkstemp", "fdopen", "replace"])
def test_a_full_disk_leaves_what_was_there(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    cache.store(entry(SLOW, 7, "first"))
    with monkeypatch.context() as patch:
        if fails == "mkstemp":
            patch.setattr(tempfile, "mkstemp", refuse)
        elif fails == "replace":
            patch.setattr(Path, "replace", refuse)
        else:
            opened = os.fdopen
            patch.setattr(
                os, "fdopen", lambda n, mode: refuse() if mode == "wb" else opened(n, mode)
            )
        cache.store(entry(FAST, 8, "second"))
    assert cache.notes == [f"nothing stored in {cache.folder}: No space left on device"]
    assert facts(cache.load(PROBLEM)) == (15, "schedule of first", 7, "bound of first")
    assert names_in(cache) == [path_in(cache).name]


def test_without_a_home_folder_nothing_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_, **__: Path("~/.cache/schedopt"))
    monkeypatch.chdir(tmp_path)
    cache = Cache()
    cache.store(entry(FAST))
    assert list(tmp_path.iterdir()) == []
    assert cache.notes == [
        "nothing stored in ~/.cache/schedopt: there is no home folder; SCHEDOPT_CACHE_DIR can "
        "name another"
    ]


# ---------------------------------------------------------------------- the folder


def test_the_folder_is_given_or_set_or_that_of_the_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "set"))
    assert Cache().folder == tmp_path / "set"
    assert Cache(tmp_path / "given").folder == tmp_path / "given"
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    assert Cache().folder == platformdirs.user_cache_path("schedopt", appauthor=False)


def test_a_relative_folder_that_was_given_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Cache("here").store(entry(FAST))
    assert len(list((tmp_path / "here").iterdir())) == 1


@POSIX
def test_a_folder_that_is_made_is_private(cache: Cache) -> None:
    cache.store(entry(FAST))
    assert cache.folder.stat().st_mode & 0o777 == 0o700


def test_clear_and_size_see_only_what_the_cache_has_written(cache: Cache) -> None:
    cache.store(entry(FAST))
    mine = path_in(cache).stat().st_size
    key = problem_key(PROBLEM)
    strangers = ["notes.txt", "0123.json", f"{key}.json.orig", f"{key}.tmp", f"{'g' * 64}.json"]
    for name in strangers:
        (cache.folder / name).write_text("mine")
    (cache.folder / f"{key}.left_over.tmp").write_text("12345")
    assert cache.size() == mine + 5
    cache.clear()
    assert cache.size() == 0
    assert names_in(cache) == sorted(strangers)


def test_the_oldest_files_go_when_the_folder_is_too_large(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [entry(classic.gpipe(PROBLEM.replace(microbatches=count))) for count in (3, 4, 5, 6)]
    paths = [path_in(cache, found.schedule.problem) for found in entries]
    for age, (found, path) in enumerate(zip(entries[:3], paths, strict=False)):
        cache.store(found)
        os.utime(path, (1000 + age, 1000 + age))
    cache.store(entries[0])  # nothing new, but of use again
    total = cache.size()
    monkeypatch.setattr(folder, "LARGEST_FOLDER", total)
    cache.store(entries[3])
    assert [path.exists() for path in paths] == [True, False, False, True]
    assert cache.size() <= total


# ---------------------------------------------------------------------- several runs at once


def interrupt(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, others: list[Callable[[], None]]
) -> None:
    """Let one of the others act before each call of a method."""
    method = getattr(owner, name)

    def interrupted(*arguments: Any) -> Any:
        if others:
            others.pop(0)()
        return method(*arguments)

    monkeypatch.setattr(owner, name, interrupted)


def test_what_another_run_stores_meanwhile_is_merged(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Cache(cache.folder)
    interrupt(monkeypatch, Cache, "_better", [lambda: other.store(entry(FAST, 8, "other"))])
    cache.store(entry(SLOW, 9, "this"))
    assert facts(cache.load(PROBLEM)) == (10, "schedule of other", 9, "bound of this")
    assert names_in(cache) == [path_in(cache).name]


def test_a_folder_that_is_cleared_meanwhile_does_not_stop_a_store(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.store(entry(SLOW, 9, "first"))
    interrupt(monkeypatch, Cache, "_better", [Cache(cache.folder).clear])
    cache.store(entry(FAST, 8, "second"))
    assert facts(cache.load(PROBLEM)) == (10, "schedule of second", 8, "bound of second")


def test_in_the_same_instant_one_of_two_runs_wins_as_a_whole(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Cache(cache.folder)
    interrupt(monkeypatch, Path, "replace", [lambda: other.store(entry(FAST, 8, "other"))])
    cache.store(entry(SLOW, 9, "this"))
    assert facts(cache.load(PROBLEM)) == (15, "schedule of this", 9, "bound of this")
    assert names_in(cache) == [path_in(cache).name]


RUN = """
import sys, time
from pathlib import Path
from schedopt.cache import Cache
from tests.cache.test_folder import FAST, PROBLEM, SLOW, entry

folder, name = Path(sys.argv[1]), sys.argv[2]
(folder / name).touch()
while len(list(folder.glob("run-*"))) < 2:
    time.sleep(0.001)
cache = Cache(folder / "cache")
for number in range(100):
    if number % 10 == 9:
        cache.clear()
    cache.store(entry((SLOW, FAST)[number % 2], number // 10, name))
    cache.load(PROBLEM)
print(*cache.notes, sep="\\n")
"""


def test_two_processes_that_store_at_once_never_see_a_broken_file(tmp_path: Path) -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, str(tmp_path), f"run-{number}"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in (1, 2)
    ]
    for run in runs:
        output, errors = run.communicate(timeout=120)
        assert (run.returncode, errors) == (0, "")
        assert "not used" not in output
    cache = Cache(tmp_path / "cache")
    found = cache.load(PROBLEM)
    assert found is not None
    assert found.objective == FAST.objective
    assert names_in(cache) == [path_in(cache).name]
