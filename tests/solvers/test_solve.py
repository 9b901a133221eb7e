"""`schedopt.solve` from a problem to a proven schedule."""

import json
import os
import signal
import subprocess
import sys
from fractions import Fraction

import pytest

from schedopt import NotApplicableError, Problem, check, classic, solve
from schedopt.memory import peak_memory
from schedopt.solvers import proving
from schedopt.solvers.order_model import OrderModel, Outcome
from tests.brute_force import brute_force
from tests.problems import random_problems

HALVES = {"F": 2, "B": -1, "W": -1}
ZB_1_5B = {
    "devices": 8,
    "microbatches": 24,
    "F": 18522,
    "B": 18086,
    "W": 9337,
    "lag": 601,
    "memory": {"F": 201216, "B": -127488, "W": -73728},
}
ZB_6_2B = {
    "devices": 8,
    "microbatches": 24,
    "F": 29718,
    "B": 29444,
    "W": 19927,
    "lag": 527,
    "memory": {"F": 303104, "B": -172032, "W": -131072},
}


def hundred(devices: int, microbatches: int, capacity: float, **fields) -> Problem:
    return Problem.uniform(
        devices=devices,
        microbatches=microbatches,
        F=100,
        B=100,
        W=100,
        lag=10,
        memory=HALVES,
        capacity=capacity,
        **fields,
    )


def v_of_fifties(devices: int, microbatches: int, chunks: float) -> Problem:
    return Problem.uniform(
        devices=devices,
        microbatches=microbatches,
        placement="v",
        F=50,
        B=50,
        W=50,
        lag=10,
        memory={"F": 1, "B": -0.5, "W": -0.5},
        capacity=chunks,
    )


PROVEN = {
    "p=4 m=8 at 2": (hundred(4, 8, 2), 7680),
    "p=4 m=8 at 4": (hundred(4, 8, 4), 4300),
    "p=4 m=8 at 6": (hundred(4, 8, 6), 3260),
    "p=4 m=8 at 8": (hundred(4, 8, 8), 2820),
    "V p=4 m=8 at 8 chunks": (v_of_fifties(4, 8, 8), 2640),
    "V p=4 m=8 at 6 chunks": (v_of_fifties(4, 8, 6), 2830),
    "V p=4 m=8 at 4 chunks": (v_of_fifties(4, 8, 4), 3310),
    "p=8 m=32 unit costs at 4": (Problem.uniform(devices=8, microbatches=32, capacity=4), 151),
    "zb-1.5b at p activations": (Problem.uniform(**ZB_1_5B, capacity=8 * 201216), 1310405),
    "zb-6.2b at p activations": (Problem.uniform(**ZB_6_2B, capacity=8 * 303104), 2187537),
}
PROVEN_SLOWLY = {
    "p=8 m=24 at 12": (hundred(8, 24, 12), 9140),
    "zb-1.5b at 0.75 p activations": (Problem.uniform(**ZB_1_5B, capacity=6 * 201216), 1527929),
    "zb-1.5b at 0.5 p activations": (Problem.uniform(**ZB_1_5B, capacity=4 * 201216), 2099145),
}


@pytest.mark.parametrize("name", PROVEN)
def test_the_known_optimum_is_found_and_proven(name):
    problem, optimum = PROVEN[name]
    solution = solve(problem, time_limit=120, workers=2)
    assert (solution.status, solution.objective) == ("optimal", optimum)
    assert solution.bound == optimum
    assert check(solution.schedule) == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", PROVEN_SLOWLY)
def test_the_known_optimum_of_a_hard_problem_is_found_and_proven(name):
    problem, optimum = PROVEN_SLOWLY[name]
    solution = solve(problem, time_limit=300, workers=2)
    assert (solution.status, solution.objective) == ("optimal", optimum)


@pytest.mark.parametrize(("objective", "count", "ops"), [("makespan", 250, 18), ("period", 80, 12)])
def test_the_optimum_of_every_tiny_problem_is_that_of_all_orders(objective, count, ops):
    for problem in random_problems(count, seed=61, ops=ops, objective=objective):
        solution = solve(problem, workers=1, time_limit=60)
        assert solution.objective == brute_force(problem), problem.name
        assert solution.status == ("infeasible" if solution.objective is None else "optimal")
        assert solution.faults == ()


def test_all_times_k_times_as_long_give_k_times_the_optimum():
    def scaled(k: float) -> Problem:
        return Problem.uniform(
            devices=2, microbatches=3, capacity=2, F=3 * k, B=5 * k, W=2 * k, lag=k
        )

    optimum = brute_force(scaled(1))
    for k in (1, 7, 0.25, 1000.1):
        assert solve(scaled(k), workers=1).objective == optimum * Fraction(str(k))


def test_it_is_never_worse_than_a_classic_schedule_that_fits():
    for placement, stages in (("linear", 4), ("v", 8), ("interleaved", 8), ("wave", 8)):
        problem = Problem.uniform(
            devices=4,
            microbatches=6,
            placement=placement,
            stages=stages,
            F=3,
            B=4,
            W=2,
            lag=1,
            capacity=12,
        )
        best = solve(problem, workers=1, time_limit=0.01).objective
        compared = 0
        for build in classic.CLASSIC.values():
            try:
                schedule = build(problem)
            except NotApplicableError:
                continue
            if max(peak_memory(schedule)) <= 12:
                assert best <= schedule.makespan
                compared += 1
        assert compared


def test_no_time_at_all_still_gives_a_checked_schedule():
    problem = Problem.uniform(devices=8, microbatches=32, capacity=4)
    solution = solve(problem, time_limit=0.001, workers=1)
    assert solution.status == "feasible"
    assert check(solution.schedule) == ()
    assert 136 <= solution.bound <= 151 <= solution.objective
    assert solution.gap == float((solution.objective - solution.bound) / solution.objective)


def test_one_worker_with_a_deterministic_limit_is_reproducible():
    def run() -> tuple:
        solution = solve(
            hundred(6, 12, 6), workers=1, seed=7, deterministic_limit=1.0, time_limit=600
        )
        return solution.objective, solution.bound, solution.schedule.timeline

    assert run() == run()


def test_every_better_schedule_and_bound_is_told():
    told = []
    solution = solve(hundred(4, 8, 6), workers=1, progress=told.append)
    assert tuple(told) == solution.history
    objectives = [news.objective for news in told if news.objective is not None]
    bounds = [news.bound for news in told if news.bound is not None]
    assert objectives == sorted(objectives, reverse=True)
    assert bounds == sorted(bounds)
    assert (objectives[-1], bounds[-1]) == (3260, 3260)
    assert told[-1].gap == 0


def test_a_schedule_carries_its_history_and_without_clock_time_if_it_is_to_be_reproducible():
    solution = solve(hundred(4, 8, 6), workers=1)
    kept = solution.schedule.info["history"]
    assert [news["bound"] for news in kept] == [news.bound for news in solution.history]
    assert [news["elapsed"] for news in kept] == [round(n.elapsed, 3) for n in solution.history]
    kept = solve(hundred(4, 8, 6), workers=1, deterministic_limit=0.5).schedule.info["history"]
    assert kept
    assert all(news.keys() == {"objective", "bound", "source"} for news in kept)


def test_each_stage_of_the_search_is_on_record():
    solution = solve(hundred(4, 8, 6), workers=1)
    assert [stage.name for stage in solution.stages] == ["bounds", "portfolio", "order model"]
    assert solution.stages[-1].objective == 3260
    assert solution.stages[1].objective > 3260
    assert json.loads(json.dumps(solution.to_dict()))["stages"][-1]["objective"] == 3260


def test_a_false_infeasible_of_the_solver_is_reported_and_the_schedule_kept(monkeypatch):
    monkeypatch.setattr(
        OrderModel, "solve", lambda *_, **__: Outcome("infeasible", None, None, 0, 0, 0, 0)
    )
    solution = solve(hundred(4, 8, 6), workers=1, deterministic_limit=0.5)
    assert solution.status == "feasible"
    assert "infeasible" in solution.faults[0]
    assert check(solution.schedule) == ()


def test_invalid_values_of_the_solver_are_caught_by_the_checker(monkeypatch):
    honest = OrderModel.solve

    def reversed_orders(self, **options):
        outcome = honest(self, **options)
        if outcome.sequences is None:
            return outcome
        turned = tuple(sequence[::-1] for sequence in outcome.sequences)
        return Outcome("optimal", outcome.starts, turned, outcome.bound, 0, 0, 0)

    monkeypatch.setattr(OrderModel, "solve", reversed_orders)
    solution = solve(hundred(4, 8, 6), workers=1, deterministic_limit=0.5)
    assert "circle" in solution.faults[0]
    assert any(fault.startswith("windows: ") for fault in solution.faults)
    assert check(solution.schedule) == ()


def test_a_bound_above_a_valid_schedule_is_a_fault_and_not_used(monkeypatch):
    monkeypatch.setattr(
        OrderModel, "solve", lambda *_, **__: Outcome("unknown", None, None, 10**9, 0, 0, 0)
    )
    solution = solve(hundred(4, 8, 6), workers=1, deterministic_limit=0.5)
    assert "above a valid schedule" in solution.faults[0]
    assert solution.bound < solution.objective


def test_too_large_a_model_is_not_built_and_said_so(monkeypatch):
    monkeypatch.setattr(proving, "MAX_BOOLEANS", 10)
    solution = solve(hundred(4, 8, 6), workers=1, deterministic_limit=0.5)
    assert solution.status == "feasible"
    assert "not built" in solution.stages[-1].detail


def test_unequal_microbatches_may_change_their_order():
    problem = Problem.uniform(
        devices=2, microbatches=3, microbatch_factors=[3, 1, 1], capacity=4, F=2, B=2, W=1
    )
    free = solve(problem, workers=1)
    kept = solve(problem, workers=1, index_order=True, time_limit=2)
    assert free.status == "optimal"
    assert free.objective == brute_force(problem)
    assert kept.objective > free.objective
    assert kept.bound <= free.objective


@pytest.mark.parametrize(
    ("name", "value"), [("time_limit", 0), ("workers", -1), ("memory_limit", 0)]
)
def test_a_limit_that_is_not_positive_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"{name} must be greater than 0, got {value}"):
        solve(Problem.uniform(devices=1, microbatches=1), **{name: value})


INTERRUPTED = """
import sys
from schedopt import Problem, check, solve
problem = Problem.uniform(
    devices=10, microbatches=24, F=100, B=100, W=100, lag=10,
    memory={"F": 2, "B": -1, "W": -1}, capacity=11,
)
def ready(news):
    if news.source == "order model":
        print("searching", flush=True)
solution = solve(problem, time_limit=120, workers=2, progress=ready)
print(solution.interrupted, solution.status, check(solution.schedule), solution.seconds < 100)
"""


def test_ctrl_c_ends_the_search_and_keeps_the_best_schedule():
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        assert process.stdout.readline() == "searching\n"
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert rest.splitlines()[-1] == "True feasible () True"
    assert process.returncode == 0
