"""Fused and cut variants of a problem, and the way back for orders."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedopt.check import check
from schedopt.classic import CLASSIC, gpipe, one_f_one_b
from schedopt.errors import NotApplicableError
from schedopt.graph import build_graph
from schedopt.memory import peak_memory
from schedopt.op import Op
from schedopt.parts import LagByDirection
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.variants import (
    activation,
    fused,
    recut,
    refine_orders,
    split,
    with_activations_added,
    with_lags_times,
    with_microbatches,
    with_stage_times,
)
from tests.problems import problems

MIXED: dict[str, Any] = {
    "devices": 2,
    "microbatches": 3,
    "durations": {"F": [2, 3], "B": [4, None], "W": [1, None], "BW": [None, 7]},
    "memory": {
        "F": [2, 3],
        "B": [-1, None],
        "transient": {"F": [0, 1], "B": [2, 0], "W": [1, 0], "BW": [0, 5]},
        "static": [1, 0],
        "capacity": [9, None],
    },
}


# ---------------------------------------------------------------------- fused


def test_fused_adds_b_and_w_and_keeps_everything_else() -> None:
    problem = fused(Problem(**MIXED, lag=1, objective="period", name="mixed"))
    first, second = problem.stage_data
    assert first.durations == {"F": 2, "BW": 5}
    assert first.memory == {"F": 2, "BW": -2}
    assert second == Problem(**MIXED).stage_data[1]
    assert (problem.static, problem.capacity) == ((1, 0), (9, None))
    assert (problem.lag, problem.objective, problem.name) == (1, "period", "mixed")


def test_fused_returns_a_problem_without_split_stages_as_it_is() -> None:
    problem = Problem(devices=1, microbatches=1, durations={"F": 1, "BW": 2})
    assert fused(problem) is problem


def test_fused_keeps_the_number_of_chunks_of_equal_stages_in_a_list() -> None:
    durations = {"F": [1] * 6, "B": [1] * 6, "W": [1] * 6}
    problem = Problem(devices=2, placement="interleaved", microbatches=1, durations=durations)
    assert fused(problem).device_of == (0, 1, 0, 1, 0, 1)


@pytest.mark.parametrize(
    ("backward", "transient", "most"),
    [
        (-1, {"B": 2, "W": 0}, 2),  # B itself
        (0, {"B": 1, "W": 3}, 3),  # W, with all of the memory still there
        (-1, {"B": 1, "W": 3}, 2),  # W, after B has released 1
        (2, {"B": 1, "W": 0}, 3),  # B acquires 2
        (2, {"B": 0, "W": 4}, 6),  # W on top of what B acquired
        (-2, {"B": 0, "W": 1}, 0),  # nothing above the memory before B
    ],
)
def test_transient_of_bw_is_the_most_that_b_then_w_needs(
    backward: int, transient: dict[str, int], most: int
) -> None:
    memory = {"F": 2, "B": backward, "transient": transient}
    problem = Problem.uniform(devices=1, microbatches=1, memory=memory)
    assert fused(problem).stage_data[0].transient["BW"] == most


@given(problems())
def test_a_fused_schedule_has_the_same_peaks_as_with_b_directly_followed_by_w(
    problem: Problem,
) -> None:
    schedule = gpipe(problem)
    graph = build_graph(problem)
    refined = Schedule.from_order(graph, refine_orders(schedule, graph))
    assert peak_memory(refined) == peak_memory(schedule)
    assert {violation.rule for violation in check(refined)} <= {"memory"}


# ---------------------------------------------------------------------- recut


def test_recut_divides_costs_and_memory_of_each_stage() -> None:
    problem = recut(Problem(**MIXED), "v", 2)
    assert problem.device_of == (0, 1, 1, 0)
    assert [d.durations for d in problem.stage_data] == [
        {"F": 1, "B": 2, "W": Fraction(1, 2)},
        {"F": 1, "B": 2, "W": Fraction(1, 2)},
        {"F": Fraction(3, 2), "BW": Fraction(7, 2)},
        {"F": Fraction(3, 2), "BW": Fraction(7, 2)},
    ]
    assert problem.stage_data[1].memory == {"F": 1, "B": Fraction(-1, 2), "W": Fraction(-1, 2)}
    assert problem.stage_data[1].transient == {"F": 0, "B": 1, "W": Fraction(1, 2)}
    assert problem.stage_data[2].transient == {"F": Fraction(1, 2), "BW": Fraction(5, 2)}
    assert (problem.static, problem.capacity) == ((1, 0), (9, None))


def test_thirds_are_rounded_down_and_memory_still_sums_to_zero() -> None:
    memory = {"F": [1, 10], "B": [-0.1, 1]}
    problem = Problem.uniform(devices=2, microbatches=2, F=10, B=2, W=6, memory=memory)
    pieces = recut(problem, "interleaved", 3)
    for stage, whole in enumerate(problem.stage_data):
        for piece in pieces.stage_data[3 * stage : 3 * stage + 3]:
            assert sum(piece.memory.values()) == 0
            for kind, duration in whole.durations.items():
                assert 0 <= duration - 3 * piece.durations[kind] < Fraction(1, 10**14)
            for kind in ("F", "B"):
                rest = abs(whole.memory[kind]) - 3 * abs(piece.memory[kind])
                assert 0 <= rest < Fraction(1, 10**14)
    assert pieces.stage_data[0].durations["W"] == 2


def test_what_fits_before_fits_after_cutting_into_pieces_that_are_rounded() -> None:
    problem = Problem.uniform(devices=2, microbatches=4, memory={"F": 10}, capacity=20)
    assert check(one_f_one_b(problem)) == ()
    cut = recut(problem, "interleaved", 3)
    assert max(peak_memory(gpipe(cut.replace(microbatches=2)))) <= 20


@pytest.mark.parametrize("lag", [3, [[0, 1], [2, 0]]])
def test_recut_keeps_a_lag_that_does_not_name_stages(lag: Any) -> None:
    problem = Problem.uniform(devices=2, microbatches=2, lag=lag)
    assert recut(problem, "v", 2).lag == problem.lag


def test_recut_turns_lags_of_boundaries_into_lags_between_devices() -> None:
    lag = {"forward": [1, 2], "backward": [3, 4]}
    problem = recut(Problem.uniform(devices=3, microbatches=2, lag=lag), "v", 2)
    there = [problem.lag_between(s, s + 1) for s in range(5)]
    back = [problem.lag_between(s + 1, s) for s in range(5)]
    assert there == [1, 2, 0, 2, 1]
    assert back == [3, 4, 0, 4, 3]
    cut = recut(Problem.uniform(devices=3, microbatches=2, lag=[1, 2]), "interleaved", 2)
    assert [cut.lag_between(s, s + 1) for s in range(5)] == [1, 2, 3, 1, 2]


def test_recut_of_one_device_has_no_lag() -> None:
    problem = recut(Problem.uniform(devices=1, microbatches=2, lag=[]), "v", 2)
    assert problem.device_of == (0, 0)
    assert problem.lag_between(0, 1) == 0


def test_recut_moves_skip_connections_to_the_ends_of_the_stages() -> None:
    edges = [{"from": 0, "to": 2, "lag": 5}, {"from": 1, "to": 3}]
    problem = recut(Problem.uniform(devices=4, microbatches=1, edges=edges), "wave", 3)
    found = [(edge.from_stage, edge.to_stage, edge.lag) for edge in problem.edges]
    assert found == [(2, 6, 5), (5, 9, None)]


@pytest.mark.parametrize("placement", ["linear", "interleaved", "wave"])
def test_recut_into_one_piece_changes_nothing(placement: str) -> None:
    problem = Problem.uniform(devices=3, microbatches=2, lag=[1, 2], capacity=3)
    assert recut(problem, placement, 1) == problem


def test_recut_needs_one_stage_per_device_in_order() -> None:
    with pytest.raises(NotApplicableError, match="stage s on device s"):
        recut(Problem.uniform(devices=2, microbatches=1, placement="v"), "wave", 2)
    with pytest.raises(ValueError, match="2 stage"):
        recut(Problem.uniform(devices=2, microbatches=1), "v", 3)


@given(
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from([("v", 2), ("interleaved", 2), ("interleaved", 3), ("wave", 3), ("wave", 4)]),
    st.integers(1, 9),
)
def test_cut_problems_have_valid_schedules(
    devices: int, microbatches: int, cut: tuple[str, int], cost: int
) -> None:
    memory = {"F": cost, "B": 1, "transient": {"W": 1}}
    problem = Problem.uniform(
        devices=devices, microbatches=microbatches, F=cost, B=2, W=1, lag=1, memory=memory
    )
    pieces = recut(problem, *cut)
    name = {"v": "ZB-V", "interleaved": "Interleaved 1F1B", "wave": "Wave"}[cut[0]]
    assert check(CLASSIC[name](pieces)) == ()


# ---------------------------------------------------------------------- refine_orders


def test_refined_orders_put_w_directly_after_b() -> None:
    problem = Problem(**MIXED)
    graph = build_graph(problem)
    refined = refine_orders(one_f_one_b(problem), graph)
    assert [" ".join(map(str, ops)) for ops in refined.values()] == [
        "0F0 0F1 0B0 0W0 0F2 0B1 0W1 0B2 0W2",
        "1F0 1BW0 1F1 1BW1 1F2 1BW2",
    ]


def test_refined_orders_of_a_schedule_with_nothing_fused_are_its_orders() -> None:
    problem = Problem.uniform(devices=3, microbatches=4)
    schedule = CLASSIC["ZB-H1"](problem)
    assert refine_orders(schedule, build_graph(problem)) == schedule.orders


def test_refined_orders_end_earlier_where_b_alone_is_awaited() -> None:
    problem = Problem.uniform(devices=2, microbatches=1)
    graph = build_graph(problem)
    assert gpipe(problem).makespan == 6
    assert Schedule.from_order(graph, refine_orders(gpipe(problem), graph)).makespan == 5


def test_refining_keeps_bw_of_a_stage_that_is_fused_in_the_problem() -> None:
    problem = Problem(devices=1, microbatches=1, durations={"F": 1, "BW": 2})
    orders = refine_orders(gpipe(problem), build_graph(problem))
    assert list(orders.values()) == [(Op("F", 0, 0), Op("BW", 0, 0))]


# ---------------------------------------------------------------------- split, more and less


def test_split_halves_the_backward_and_undoes_nothing_else() -> None:
    problem = split(Problem(**MIXED, lag=1))
    first, second = problem.stage_data
    assert first == Problem(**MIXED).stage_data[0]
    assert second.durations == {"F": 3, "B": Fraction(7, 2), "W": Fraction(7, 2)}
    assert second.memory == {"F": 3, "B": 0, "W": -3}
    assert second.transient == {"F": 1, "B": 5, "W": 5}
    assert split(problem) is problem


@given(problems())
def test_a_split_problem_has_the_work_of_the_fused_one(problem: Problem) -> None:
    for before, after in zip(fused(problem).stage_data, split(problem).stage_data, strict=True):
        assert sum(before.durations.values()) == sum(after.durations.values())


def test_an_activation_of_a_device_is_that_of_all_its_stages() -> None:
    problem = Problem(
        devices=2,
        placement="v",
        microbatches=2,
        microbatch_factors=[1, 2],
        durations={"F": 1, "B": 1, "W": 1},
        memory={"F": [1, 2, 3, 5], "capacity": [20, None]},
    )
    assert [activation(problem, device) for device in (0, 1)] == [(1 + 5) * 2, (2 + 3) * 2]
    assert with_activations_added(problem, [0, 1], 2).capacity == (44, None)
    assert with_activations_added(problem, []).capacity == (20, None)


@pytest.mark.parametrize(
    ("lag", "halved"),
    [
        (3, 1.5),
        ([2, 4], (1, 2)),
        ([[0, 2, 4], [2, 0, 6], [4, 6, 0]], ((0, 1, 2), (1, 0, 3), (2, 3, 0))),
    ],
)
def test_lags_of_every_form_are_multiplied(lag: Any, halved: Any) -> None:
    durations = {"F": 1, "B": 1, "W": 1}
    edges = [{"from": 0, "to": 2, "lag": 0.2}, {"from": 0, "to": 1}]
    one = Problem(devices=3, microbatches=1, durations=durations, lag=lag, edges=edges)
    changed = with_lags_times(one, Fraction(1, 2))
    assert changed.lag == halved
    assert [edge.lag for edge in changed.edges] == [0.1, None]
    both = one.replace(lag={"forward": lag, "backward": 1})
    assert with_lags_times(both, Fraction(1, 2)).lag == LagByDirection(forward=halved, backward=0.5)


def test_one_stage_is_made_faster_and_no_other() -> None:
    problem = Problem(**MIXED)
    faster = with_stage_times(problem, 1, Fraction(9, 10))
    assert faster.stage_data[0] == problem.stage_data[0]
    assert faster.stage_data[1].durations == {"F": Fraction(27, 10), "BW": Fraction(63, 10)}
    assert faster.stage_data[1].memory == problem.stage_data[1].memory


def test_further_microbatches_have_their_nominal_length() -> None:
    problem = Problem(**MIXED).replace(microbatch_factors=[2, 3, 4])
    assert with_microbatches(problem, 4).factors == (2, 3, 4, 1)
    assert with_microbatches(problem, 2).factors == (2, 3)
    assert with_microbatches(Problem(**MIXED), 5).microbatches == 5
