"""The solver benchmark: its data, sets, comparisons and tables."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from benchmarks import against_peers, solver
from benchmarks.instances import SETS, Instance, equal, measured
from benchmarks.measure import Earlier, Key, Result, Settings, best_classic, load, save, verdict
from benchmarks.peers import FORMULA, Figure, PeerRow, best_peer, read_rows
from benchmarks.tables import (
    changes,
    difference,
    history_table,
    ratio,
    result_table,
    stage_table,
)
from schedopt.errors import ProblemError
from schedopt.problem import Problem
from schedopt.solvers import Progress, Solution, StageRecord, solve

SCRIPT = Path(solver.__file__)

ROW = PeerRow(
    group="uniform",
    algorithm="ZB heuristic",
    model=None,
    placement="linear",
    chunks=1,
    devices=4,
    microbatches=8,
    F=100,
    B=80,
    W=60,
    lag=10,
    forward_memory=2,
    backward_memory=-1,
    capacity=6,
    peak=5,
    makespan=2500,
    period=2400,
)


def rows(**wanted: Any) -> list[PeerRow]:
    return [r for r in read_rows() if all(getattr(r, k) == v for k, v in wanted.items())]


# ---------------------------------------------------------------------- rows


def test_the_data_file_has_all_rows_of_the_four_groups() -> None:
    counts = Counter(row.group for row in read_rows())
    assert counts == {"uniform": 470, "hetero": 223, "lowmem": 130, "paper": 123}


def test_every_row_gives_a_valid_problem_and_rows_of_one_name_the_same() -> None:
    problems: dict[str, Problem] = {}
    faults = []
    for row in read_rows():
        try:
            problem = row.problem()
        except ProblemError as error:
            faults.append(str(error))
            continue
        assert problems.setdefault(row.name, problem) == problem, row
        assert (problem.devices, problem.microbatches) == (row.devices, row.microbatches)
        assert row.fits(problem.capacity)
    assert faults == []
    assert len(problems) == 744


def test_the_memory_of_a_row_is_its_capacity_or_else_its_peak() -> None:
    assert ROW.problem().capacity == (6, 6, 6, 6)
    assert ROW._replace(capacity=None).problem().capacity == (5, 5, 5, 5)
    assert ROW._replace(capacity=(6, 6, 8, 8)).problem().capacity == (6, 6, 8, 8)


def test_a_row_without_chunks_keeps_its_costs_stage_by_stage() -> None:
    problem = ROW._replace(F=(100, 110, 120, 130)).problem("period")
    assert problem.objective == "period"
    assert problem.device_of == (0, 1, 2, 3)
    assert [data.durations["F"] for data in problem.stage_data] == [100, 110, 120, 130]
    assert problem.stage_data[0].durations == {"F": 100, "B": 80, "W": 60}
    assert problem.stage_data[0].memory == {"F": 2, "B": -1, "W": -1}
    assert problem.lag == 10


@pytest.mark.parametrize(
    ("placement", "device_of"),
    [("v", (0, 1, 2, 3, 3, 2, 1, 0)), ("interleaved", (0, 1, 2, 3, 0, 1, 2, 3))],
)
def test_a_chunk_has_its_share_of_the_costs_but_the_device_its_whole_memory(
    placement: str, device_of: tuple[int, ...]
) -> None:
    problem = ROW._replace(placement=placement, chunks=2).problem()
    assert problem.device_of == device_of
    for data in problem.stage_data:
        assert data.durations == {"F": 50, "B": 40, "W": 30}
        assert data.memory == {"F": 1, "B": Fraction(-1, 2), "W": Fraction(-1, 2)}
    assert problem.lag == 10
    assert problem.capacity == (6, 6, 6, 6)


def test_thirds_of_a_duration_are_never_longer_than_the_third() -> None:
    problem = ROW._replace(placement="interleaved", chunks=3).problem()
    duration = problem.stage_data[0].durations["F"]
    assert 0 <= Fraction(100, 3) - duration < Fraction(1, 10**12)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "p=4 m=8 lag=10 2/-1/-1 at 3"),
        ({"capacity": None}, "p=4 m=8 lag=10 2/-1/-1 at 2.5"),
        ({"placement": "v", "chunks": 2}, "p=4 m=8 v lag=10 2/-1/-1 at 3"),
        (
            {"placement": "interleaved", "chunks": 3},
            "p=4 m=8 interleaved-3 lag=10 2/-1/-1 at 3",
        ),
        ({"capacity": (6, 6, 8, 8)}, "p=4 m=8 lag=10 2/-1/-1 at 3-4"),
        ({"model": "1.5B", "lag": 0}, "1.5B p=4 m=8 lag=0 at 3"),
    ],
)
def test_the_name_of_a_row_says_what_its_problem_is(changes: dict[str, Any], name: str) -> None:
    assert ROW._replace(**changes).name == name


def test_the_peak_of_a_formula_is_that_of_interleaved_1f1b() -> None:
    (row,) = rows(algorithm=FORMULA, model="1.5B", microbatches=24)
    assert row.peak == Fraction(201216) * (8 + Fraction(7, 3))
    assert row.period is None


# ---------------------------------------------------------------------- best peer


def v_problem(activations: int, **memory: Any) -> Problem:
    return equal(8, 24, activations, placement="v", **memory).problem


def test_the_best_peer_is_the_best_row_within_the_capacity() -> None:
    assert best_peer(v_problem(8)) == Figure("ZB-V", Fraction(7900))
    assert best_peer(v_problem(4)) == Figure("V-Min", Fraction(10010))
    assert best_peer(v_problem(3)) is None


def test_the_best_peer_is_that_of_the_objective() -> None:
    assert best_peer(v_problem(8).replace(objective="period")) == Figure("ZB-V", Fraction(7580))


def test_a_row_that_releases_memory_later_is_a_peer_and_one_that_releases_it_earlier_not() -> None:
    (later,) = rows(algorithm="V adaptive", devices=8, microbatches=24, lag=10, capacity=5)
    assert (later.forward_memory, later.backward_memory) == (1, 0)
    assert best_peer(v_problem(5)) == Figure("V adaptive", Fraction(8490))
    early = rows(group="lowmem", devices=4, microbatches=8, lag=10, capacity=6)
    assert [row.makespan for row in early] == [3900]
    assert best_peer(equal(4, 8, 3).problem) == Figure("ZB heuristic", Fraction(3900))
    assert best_peer(equal(4, 8, 3, memory=(1, 0)).problem) is None


def test_other_times_placements_and_sizes_are_no_peers() -> None:
    problem = equal(4, 8, 4).problem
    assert best_peer(problem) == Figure("ZB heuristic", Fraction(2820))
    assert best_peer(problem.replace(lag=11)) is None
    assert best_peer(problem.replace(microbatches=9)) is None
    assert best_peer(problem.replace(placement=[0, 1, 3, 2])) is None
    assert best_peer(problem.replace(durations={"F": 100, "B": 100, "W": 101})) is None


def test_a_formula_is_no_peer() -> None:
    (row,) = rows(algorithm=FORMULA, model="28.3B", microbatches=96)
    assert best_peer(row.problem()) is None


# ---------------------------------------------------------------------- sets


def test_names_in_a_set_are_unique_for_each_objective() -> None:
    sizes = {}
    for name, members in SETS.items():
        keys = [(instance.name, instance.problem.objective) for instance in members()]
        assert len(set(keys)) == len(keys), name
        sizes[name] = len(keys)
    assert sizes == {
        "zb": 48,
        "tight": 137,
        "v": 13,
        "unequal": 113,
        "large": 8,
        "period": 24,
        "recompute": 30,
        "ablation": 7,
    }


def test_the_v_set_goes_down_to_the_peaks_of_the_published_patterns() -> None:
    names = [instance.name for instance in SETS["v"]()]
    assert names[2] == "p=4 m=8 v lag=10 2/-1/-1 at 2"
    assert names[-4:] == [
        "p=16 m=48 v lag=10 2/-1/-1 at 9",
        "p=16 m=48 v lag=10 2/-1/-1 at 6",
        "p=32 m=96 v lag=10 2/-1/-1 at 17",
        "p=32 m=96 v lag=10 2/-1/-1 at 12",
    ]


def test_the_recompute_set_compares_modes_at_equal_memory() -> None:
    members = list(SETS["recompute"]())
    by_mode: dict[str, list[Any]] = {}
    for instance in members:
        name, _, mode = instance.name.partition(", ")
        if mode.endswith("recomputed") or mode == "decided":
            problem = instance.problem
            key = f"{name} {problem.objective}"
            by_mode.setdefault(key, []).append((mode, problem.capacity, problem.recompute.kept))
    assert len(by_mode) == 6
    for found in by_mode.values():
        modes = ["nothing", "all", "first half"]
        assert [mode for mode, _, _ in found] == [*(f"{m} recomputed" for m in modes), "decided"]
        assert len({rest for _, *rest in map(tuple, found) for rest in [tuple(rest)]}) == 1


def test_the_tight_set_has_one_stage_per_device_and_memory_from_one_activation_on() -> None:
    problems = [instance.problem for instance in SETS["tight"]()]
    assert {problem.placement_name for problem in problems} == {"linear"}
    assert max(problem.devices for problem in problems) == 8
    assert min(problem.capacity[0] / problem.stage_data[0].memory["F"] for problem in problems) == 1


def test_memory_and_microbatches_of_a_measured_problem_can_be_changed() -> None:
    name, problem = measured("zb-28.3b-p32-m256", 0.75, microbatches=1024, placement="v")
    assert name == "zb-28.3b-p32-m1024 v at 0.75p"
    assert (problem.microbatches, problem.stage_count) == (1024, 64)
    assert problem.capacity[0] == 24 * 454656
    assert problem.stage_data[0].durations["F"] == 5201


# ---------------------------------------------------------------------- measuring


def tiny(objective: str = "makespan") -> Instance:
    problem = Problem.uniform(devices=2, microbatches=2, capacity=2, objective=objective)
    return Instance("tiny", problem)


def solved(instance: Instance, *history: Progress, **changes: Any) -> Solution:
    """A solution with a history of one's own; all other facts can be changed, too."""
    solution = solve(instance.problem, workers=1)
    return replace(solution, history=history, seconds=9.0, **changes)


def news(elapsed: float, objective: int | None, bound: int | None, source: str) -> Progress:
    def value(number: int | None) -> Fraction | None:
        return None if number is None else Fraction(number)

    return Progress(elapsed, value(objective), value(bound), None, source)


HISTORY = (
    news(0.25, None, 6, "work"),
    news(0.5, 9, 6, "1F1B"),
    news(1.5, 8, 6, "windows"),
    news(2.0, 7, 6, "windows"),
    news(4.0, 7, 7, "order model"),
)


def test_times_to_best_and_to_proof_come_from_the_history() -> None:
    result = Result("fake", tiny(), solved(tiny(), *HISTORY))
    assert result.solution.objective == 7
    assert (result.seconds_to_best, result.seconds_to_proof) == (2.0, 4.0)
    open_result = replace(result, solution=replace(result.solution, status="feasible"))
    assert open_result.seconds_to_proof is None


def test_the_best_classic_is_one_that_fits() -> None:
    problem = Problem.uniform(devices=4, microbatches=8, capacity=4)
    assert best_classic(problem) == Figure("ZB-H1", Fraction(27))
    assert best_classic(problem.with_capacity(3)) is None
    unlimited = best_classic(problem.with_capacity(None))
    assert unlimited is not None
    assert unlimited.value <= 27


@pytest.mark.parametrize(
    ("value", "other", "expected"),
    [
        (Fraction(99), Fraction(100), "better"),
        (Fraction(100), Fraction(100), "equal"),
        (Fraction(101), Fraction(100), "worse"),
        (Fraction(10, 3), Fraction("3.333333333"), "equal"),
        (Fraction(10**8 - 1), Fraction(10**8), "better"),
        (None, Fraction(100), "worse"),
    ],
)
def test_a_smaller_value_is_better_but_for_the_rounding_of_published_ones(
    value: Fraction | None, other: Fraction, expected: str
) -> None:
    assert verdict(value, other) == expected


def test_saved_results_are_read_back_exactly(tmp_path: Path) -> None:
    solution = solved(tiny(), *HISTORY, objective=Fraction(22, 3), status="feasible")
    result = Result("fake", tiny(), solution, Figure("1F1B", Fraction(9)))
    path = tmp_path / "results.json"
    save(path, [result.to_dict()], Settings(seed=3))
    earlier = Earlier(Fraction(22, 3), pytest.approx(1 - 21 / 22), "feasible")
    assert load(path) == {Key("fake", "tiny", "makespan"): earlier}
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data["settings"] == {"time_limit": 60.0, "workers": None, "seed": 3}
    assert data["versions"].keys() == {"schedopt", "ortools"}
    assert data["machine"].keys() == {"cores", "python", "platform"}
    assert data["results"][0]["classic"] == {"name": "1F1B", "value": 9}
    assert len(data["results"][0]["history"]) == 5


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"results": [{"instance": "a"}]}'])
def test_a_file_without_results_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match="not a file that --json wrote"):
        load(path)


# ---------------------------------------------------------------------- tables


def fake_set() -> list[Result]:
    """A proven result with classic and peer, and an open one without."""
    classic, peer = Figure("1F1B", Fraction(9)), Figure("ZB heuristic", Fraction(8))
    proven = Result("fake", tiny(), solved(tiny(), *HISTORY), classic, peer)
    solution = solved(tiny("period"), *HISTORY[:3], status="feasible", objective=Fraction(8))
    return [proven, Result("fake", tiny("period"), replace(solution, bound=Fraction(6)))]


def lines(*rows: str) -> str:
    return "\n".join(rows)


def test_the_table_of_a_set_says_what_was_reached_and_against_what() -> None:
    assert result_table(fake_set()) == lines(
        "| instance | minimised | objective | bound |     gap | status   | s to best | s to proof "
        "| best classic | best peer      |   ratio |",
        "| -------- | --------- | --------: | ----: | ------: | -------- | --------: | ---------: "
        "| ------------ | -------------- | ------: |",
        "| tiny     | makespan  |         7 |     7 |     0 % | optimal  |       2.0 |        4.0 "
        "| 1F1B 9       | ZB heuristic 8 | 0.87500 |",
        "| tiny     | period    |         8 |     6 | 25.00 % | feasible |       1.5 |          - "
        "| -            | -              |       - |",
    )


def earlier(objective: int | None, status: str = "feasible") -> dict[Key, Earlier]:
    old = None if objective is None else Fraction(objective)
    return {Key("fake", "tiny", "makespan"): Earlier(old, 0.5, status)}


@pytest.mark.parametrize(
    ("objective", "change"),
    [(8, "better"), (7, "equal"), (6, "worse"), (None, "better")],
)
def test_a_comparison_marks_what_became_of_each_objective(
    objective: int | None, change: str
) -> None:
    head, _, *body = result_table(fake_set(), earlier(objective)).splitlines()
    names = [cell.strip() for cell in head.split("|")]
    table = [dict(zip(names, map(str.strip, row.split("|")), strict=True)) for row in body]
    assert names[3:8] == ["old objective", "new objective", "bound", "old gap", "new gap"]
    assert table[0]["old objective"] == ("-" if objective is None else str(objective))
    assert (table[0]["new objective"], table[0]["bound"]) == ("7", "7")
    assert (table[0]["old gap"], table[0]["new gap"]) == ("50.00 %", "0 %")
    assert table[0]["change"] == change
    assert (table[1]["old objective"], table[1]["change"]) == ("-", "new")


def test_a_comparison_counts_changes_and_proofs() -> None:
    counted = changes(fake_set(), earlier(8))
    assert counted == "1 better, 0 equal, 0 worse, 1 new; 1 newly proven, 0 no longer proven"
    opened = fake_set()
    opened[0] = replace(opened[0], solution=replace(opened[0].solution, status="feasible"))
    counted = changes(opened, earlier(7, "optimal"))
    assert counted == "0 better, 1 equal, 0 worse, 1 new; 0 newly proven, 1 no longer proven"


def test_the_stages_are_listed_with_what_each_added() -> None:
    stages = (
        StageRecord("bounds", None, Fraction(6), 0.25, ""),
        StageRecord("portfolio", Fraction(8), Fraction(6), 0.5, ""),
        StageRecord("windows", Fraction(7), Fraction(6), 1.0, ""),
    )
    result = Result("fake", tiny(), solved(tiny(), stages=stages))
    assert stage_table([result]) == lines(
        "| instance | minimised | stage     | seconds | objective | objective change | bound "
        "| bound change |     gap |",
        "| -------- | --------- | --------- | ------: | --------: | ---------------: | ----: "
        "| -----------: | ------: |",
        "| tiny     | makespan  | bounds    |     0.2 |         - |                - |     6 "
        "|            - |       - |",
        "| tiny     | makespan  | portfolio |     0.5 |         8 |                - |     6 "
        "|            - | 25.00 % |",
        "| tiny     | makespan  | windows   |     1.0 |         7 |         -12.50 % |     6 "
        "|            - | 14.29 % |",
    )


def test_news_of_one_source_that_follow_each_other_are_one_row() -> None:
    table = history_table([Result("fake", tiny(), solved(tiny(), *HISTORY))])
    body = [[cell.strip() for cell in row.split("|")[3:-1]] for row in table.splitlines()[2:]]
    assert body == [
        ["work", "1", "0.2", "0.2", "-", "6"],
        ["1F1B", "1", "0.5", "0.5", "9", "6"],
        ["windows", "2", "1.5", "2.0", "7", "6"],
        ["order model", "1", "4.0", "4.0", "7", "7"],
    ]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, 5, "-"),
        (0, 5, "-"),
        (5, None, "-"),
        (5, 5, "-"),
        (8, 7, "-12.50 %"),
        (8, 9, "+12.50 %"),
    ],
)
def test_a_change_needs_a_value_before_and_after(
    before: int | None, after: int | None, expected: str
) -> None:
    values = [None if value is None else Fraction(value) for value in (before, after)]
    assert difference(*values) == expected


def test_a_ratio_is_1_only_for_equal_values() -> None:
    peer = Figure("ZB heuristic", Fraction(1236567))
    assert ratio(Fraction(1236567), peer) == "1"
    assert ratio(Fraction(1236541), peer) == "0.99998"
    assert ratio(None, peer) == "-"
    assert ratio(Fraction(1), None) == "-"


# ---------------------------------------------------------------------- against peers

SMALL = ROW._replace(
    devices=2,
    microbatches=2,
    F=1,
    B=1,
    W=1,
    lag=0,
    forward_memory=1,
    backward_memory=0,
    capacity=2,
    peak=2,
    makespan=7,
    period=7,
)
"""The row of the problem `tiny`, whose least makespan is 7."""


def test_rows_about_one_problem_are_solved_once_for_each_objective() -> None:
    without_period = SMALL._replace(algorithm=FORMULA, makespan=6, period=None)
    other = SMALL._replace(microbatches=3)
    found = against_peers.jobs([SMALL, other, without_period])
    assert [(job.instance.problem.microbatches, job.objective_name) for job in found] == [
        (2, "makespan"),
        (2, "period"),
        (3, "makespan"),
        (3, "period"),
    ]
    assert found[0].rows == (SMALL, without_period)
    assert found[0].best == Figure(FORMULA, Fraction(6))
    assert found[1].rows == (SMALL,)


def test_the_sample_is_the_same_in_every_run() -> None:
    some = against_peers.sampled(read_rows(), 10)
    assert some == against_peers.sampled(read_rows(), 10)
    assert len(set(some)) == 10
    assert {row.group for row in against_peers.sampled(read_rows(), against_peers.SAMPLE)} == {
        "uniform",
        "hetero",
        "lowmem",
        "paper",
    }
    assert against_peers.sampled(read_rows(), None) == list(read_rows())


@dataclass(frozen=True)
class Scripted(Settings):
    """Settings that reach given objectives, one after the other, and note the time limits."""

    objectives: list[int] = field(default_factory=list)
    status: str = "feasible"
    limits: list[float] = field(default_factory=list)

    def solve(self, problem: Problem, time_limit: float | None = None) -> Solution:
        self.limits.append(self.time_limit if time_limit is None else time_limit)
        objective = Fraction(self.objectives.pop(0))
        return solved(Instance("", problem), objective=objective, status=self.status)


@pytest.mark.parametrize(
    ("objectives", "status", "limits"),
    [
        ([6], "feasible", [2]),
        ([7], "feasible", [2]),
        ([8, 7], "feasible", [2, 10]),
        ([8, 8, 8], "feasible", [2, 10, 60]),
        ([8], "optimal", [2]),
    ],
)
def test_the_time_limit_grows_while_a_row_is_better(
    objectives: list[int], status: str, limits: list[float]
) -> None:
    settings = Scripted(objectives=objectives, status=status)
    (job, _) = against_peers.jobs([SMALL])
    against_peers.race(job, settings)
    assert settings.limits == limits
    assert objectives == []


def test_short_time_limits_are_tried_only_below_the_whole_one() -> None:
    settings = Scripted(time_limit=5, objectives=[8, 8])
    (job, _) = against_peers.jobs([SMALL])
    against_peers.race(job, settings)
    assert settings.limits == [2, 5]


def test_rows_are_counted_by_group_and_the_worse_ones_listed() -> None:
    job, _ = against_peers.jobs(
        [SMALL, SMALL._replace(group="lowmem", makespan=8), SMALL._replace(makespan=6)]
    )
    matches = list(job.matches(solved(tiny())))
    assert [match.verdict for match in matches] == ["equal", "better", "worse"]
    assert against_peers.count_table(matches) == lines(
        "| group   | minimised | rows | never worse | better | equal | worse |",
        "| ------- | --------- | ---: | ----------: | -----: | ----: | ----: |",
        "| uniform | makespan  |    2 |           1 |      0 |     1 |     1 |",
        "| uniform | period    |    0 |           0 |      0 |     0 |     0 |",
        "| lowmem  | makespan  |    1 |           1 |      1 |     0 |     0 |",
        "| lowmem  | period    |    0 |           0 |      0 |     0 |     0 |",
        "| all     | makespan  |    3 |           2 |      1 |     1 |     1 |",
        "| all     | period    |    0 |           0 |      0 |     0 |     0 |",
    )
    worse = [
        cell.strip() for cell in against_peers.worse_table(matches).splitlines()[-1].split("|")
    ]
    assert worse[1:-1] == [
        "uniform",
        "ZB heuristic",
        "p=2 m=2 lag=0 1/0/-1 at 2",
        "makespan",
        "6",
        "7",
        "1.16667",
        "optimal",
    ]


# ---------------------------------------------------------------------- the command

QUICK = ["--only", "^p=2 m=4 lag=0 2/-1/-1 at 2, makespan", "--workers", "1"]


def test_a_run_prints_its_table_and_can_be_compared_with_a_later_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.json"
    solver.main(["--set", "tight", *QUICK, "--json", str(path)])
    printed = capsys.readouterr()
    assert printed.out.startswith("\ntight\n\n| instance ")
    assert "| p=2 m=4 lag=0 2/-1/-1 at 2 | makespan  |      1300 |  1300 | 0 % | opt" in printed.out
    assert printed.err.startswith("tight 1/1: p=2 m=4 lag=0 2/-1/-1 at 2, makespan ...\n")
    solver.main(["--set", "tight", *QUICK, "--compare", str(path)])
    printed = capsys.readouterr()
    assert "since the earlier run: 0 better, 1 equal, 0 worse, 0 new; 0 newly" in printed.out


def test_a_run_against_peers_prints_its_counts(capsys: pytest.CaptureFixture[str]) -> None:
    name = "lowmem, ZB heuristic, p=8 m=4 lag=10 2/-1/-1 at 4"
    solver.main(["--set", "peers", "--all", "--only", name, "--workers", "1"])
    assert "| lowmem | makespan  |    1 |           1 |" in capsys.readouterr().out


def test_an_ablation_prints_stages_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    solver.main(["--ablation", "--set", "tight", *QUICK])
    out = capsys.readouterr().out
    assert " | portfolio | " in out
    assert " | source " in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "other"], "invalid choice: 'other'"),
        (["--only", "nothing has this name"], "nothing in zb matches"),
        (["--only", "("], "is no regular expression"),
        (["--time-limit", "0"], "must be greater than 0, got 0"),
        (["--workers", "0"], "must be at least 1, got 0"),
        (["--compare", "missing.json"], "missing.json"),
        (["--json", "missing/results.json"], "there is no folder missing"),
        (["--ablation", "--set", "peers"], "choose another --set"),
        (["--all", "--sample", "3"], "not allowed with"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_solved(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        solver.main(arguments)
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


def test_the_script_runs_in_any_folder(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "--compare OLD" in done.stdout
