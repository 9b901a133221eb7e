"""Memory of the machine: measured as it is, and what fits into a limit of it."""

import subprocess
import sys

import pytest

from schedopt import solve
from schedopt.solvers import resident
from schedopt.solvers.resident import (
    Budget,
    bytes_of_model,
    bytes_of_process,
    peak_resident,
    size_text,
)
from tests.solvers.test_solve import hundred

MIB, GIB = 2**20, 2**30
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs what Linux tells of a process")


@pytest.fixture
def empty_process(monkeypatch):
    """A process that holds nothing yet, on a machine of 4 GiB."""
    monkeypatch.setattr(resident, "_status", lambda name, pid="self": 0)
    monkeypatch.setattr(resident, "peak_resident", lambda helpers=(): 0)
    monkeypatch.setattr(resident, "machine_memory", lambda: 4 * GIB)


@linux
def test_the_peak_of_a_process_is_what_it_once_held():
    code = (
        "from schedopt.solvers.resident import peak_resident\n"
        "before = peak_resident()\n"
        "held = b'x' * (200 << 20)\n"
        "del held\n"
        "print((peak_resident() - before) >> 20)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 150 <= int(done.stdout) <= 210


@linux
def test_a_small_helper_of_a_large_process_counts_as_small():
    """Its `getrusage` would begin with the peak of this process."""
    assert peak_resident() > 60 * MIB
    code = "import sys; print(flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as helper:
        helper.stdout.readline()
        own, both = peak_resident(), peak_resident([helper.pid])
    assert MIB < both - own < 40 * MIB


def test_a_helper_that_has_ended_counts_nothing():
    with subprocess.Popen([sys.executable, "-c", ""]) as helper:
        helper.wait()
        assert peak_resident([helper.pid]) in (peak_resident(), None)


def test_without_what_linux_tells_only_this_process_is_known(monkeypatch):
    monkeypatch.setattr(resident, "_status", lambda name, pid="self": None)
    assert sys.platform == "win32" or peak_resident() > 10 * MIB
    assert peak_resident([1]) is None
    monkeypatch.setattr(sys, "platform", "win32")
    assert peak_resident() is None


def test_three_quarters_of_the_machine_are_the_limit_if_none_is_given(empty_process):
    assert Budget(None, workers=1).limit == 3 * GIB


def test_without_knowing_the_machine_there_is_no_limit(empty_process, monkeypatch):
    monkeypatch.setattr(resident, "machine_memory", lambda: None)
    budget = Budget(None, workers=64)
    assert (budget.limit, budget.processes(10**5), budget.threads(10**7)) == (None, 64, 64)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_as_many_threads_run_as_fit_with_their_model(empty_process, threads):
    limit = bytes_of_model(50_000, threads)
    assert Budget(limit, workers=8).threads(50_000) == threads
    assert Budget(limit - 1, workers=8).threads(50_000) == threads - 1
    assert Budget(limit, workers=1).threads(50_000) == 1


def test_processes_take_at_most_half_and_models_what_they_leave(empty_process):
    each = bytes_of_process(1000)
    budget = Budget(9 * each, workers=8)
    assert budget.processes(1000) == 4
    free = budget.threads(40_000)
    budget.open(4, 1000)
    left = budget.threads(40_000)
    assert bytes_of_model(40_000, left) <= 5 * each < bytes_of_model(40_000, left + 1)
    budget.close([])
    assert budget.threads(40_000) == free > left


def test_windows_are_searched_in_this_process_if_no_other_fits(empty_process):
    assert Budget(bytes_of_process(1000), workers=8).processes(1000) == 1


def test_what_the_process_holds_already_counts(empty_process, monkeypatch):
    limit = bytes_of_model(50_000, 2)
    monkeypatch.setattr(resident, "_status", lambda name, pid="self": limit - MIB)
    assert Budget(limit, workers=1).threads(50_000) == 0


def test_the_peak_counts_helpers_that_have_ended(monkeypatch):
    monkeypatch.setattr(resident, "peak_resident", lambda helpers=(): 100 + 10 * len(helpers))
    budget = Budget(None, workers=3)
    assert budget.peak == 100
    budget.close([1, 2, 3])
    budget.close([1])
    assert budget.peak == 130
    monkeypatch.setattr(resident, "peak_resident", lambda helpers=(): None if helpers else 100)
    budget.close([1])
    assert budget.peak is None


def test_a_model_that_does_not_fit_is_not_built_and_the_record_says_so():
    solution = solve(hundred(4, 8, 6), workers=2, deterministic_limit=0.5, memory_limit=1)
    assert (solution.status, solution.memory_limit) == ("feasible", 1)
    records = {stage.name: stage.detail for stage in solution.stages}
    assert records["order model"].startswith("not built: ")
    assert records["order model"].endswith("order Booleans do not fit into 0 MiB")
    assert records["windows"].endswith("windows, 1 of 2 processes fit into 0 MiB")


def test_fewer_threads_than_wanted_are_on_record(empty_process):
    solution = solve(hundred(4, 8, 6), workers=2, memory_limit=50 * MIB)
    assert (solution.status, solution.objective) == ("optimal", 3260)
    assert solution.stages[-1].detail.endswith(", 1 of 2 threads fit into 50 MiB")


@linux
def test_a_solution_tells_its_peak_and_its_limit():
    facts = solve(hundred(4, 8, 6), workers=1, memory_limit=4 * GIB).to_dict()
    assert facts["memory_limit"] == 4 * GIB
    assert 50 * MIB < facts["peak_resident"] < 4 * GIB


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 MiB"), (512 * MIB, "512 MiB"), (GIB, "1.0 GiB"), (1536 * MIB, "1.5 GiB")],
)
def test_sizes_are_written_in_mib_or_gib(size, text):
    assert size_text(size) == text
