from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError

from schedopt.errors import ProblemError
from schedopt.graph import build_graph
from schedopt.placement import named_placement
from schedopt.problem import Problem
from tests.problems import problems

SPLIT = {"F": 1, "B": 1, "W": 1}


def problem(**fields: Any) -> Problem:
    return Problem(**{"devices": 3, "microbatches": 2, "durations": SPLIT, **fields})


# ---------------------------------------------------------------------- placement


@pytest.mark.parametrize(
    ("name", "stages", "device_of"),
    [
        ("linear", None, (0, 1, 2)),
        ("linear", 3, (0, 1, 2)),
        ("v", None, (0, 1, 2, 2, 1, 0)),
        ("v", 6, (0, 1, 2, 2, 1, 0)),
        ("interleaved", None, (0, 1, 2, 0, 1, 2)),
        ("interleaved", 3, (0, 1, 2)),
        ("interleaved", 9, (0, 1, 2, 0, 1, 2, 0, 1, 2)),
        ("wave", None, (0, 1, 2, 2, 1, 0)),
        ("wave", 9, (0, 1, 2, 2, 1, 0, 0, 1, 2)),
    ],
)
def test_a_named_placement_equals_its_list(
    name: str, stages: int | None, device_of: tuple[int, ...]
) -> None:
    named = problem(placement=name, stages=stages)
    listed = problem(placement=device_of)
    assert named.device_of == listed.device_of == device_of
    assert named.stage_data == listed.stage_data
    assert named.stages_on == listed.stages_on
    assert set(build_graph(named).edges) == set(build_graph(listed).edges)


@pytest.mark.parametrize("name", ["interleaved", "wave"])
def test_the_lists_of_durations_say_how_many_stages_there_are(name: str) -> None:
    durations = {"F": 1, "B": [1] * 9, "W": 1}
    assert problem(placement=name, durations=durations).device_of == named_placement(name, 3, 3)


@pytest.mark.parametrize(
    ("device_of", "name"),
    [
        ([0, 1, 2], "linear"),
        ([0, 1, 2, 2, 1, 0], "v"),
        ([0, 1, 2, 0, 1, 2], "interleaved"),
        ([0, 1, 2, 2, 1, 0, 0, 1, 2], "wave"),
        ([1, 0, 2], None),
        ([0, 0, 1, 2], None),
    ],
)
def test_a_placement_given_as_a_list_is_recognised(device_of: list[int], name: str | None) -> None:
    assert problem(placement=device_of).placement_name == name


def test_any_number_of_stages_may_be_on_a_device() -> None:
    any_list = problem(placement=[2, 0, 2, 2])
    assert any_list.stage_count == 4
    assert any_list.stages_on == ((1,), (), (0, 2, 3))


# ---------------------------------------------------------------------- durations


def test_one_number_counts_for_all_stages_and_a_list_for_each() -> None:
    stages = problem(durations={"F": 2, "B": [1, 2, 3], "W": 0.5}).stage_data
    assert [data.durations for data in stages] == [
        {"F": 2, "B": 1, "W": Fraction(1, 2)},
        {"F": 2, "B": 2, "W": Fraction(1, 2)},
        {"F": 2, "B": 3, "W": Fraction(1, 2)},
    ]


def test_some_stages_may_be_fused_while_others_are_split() -> None:
    durations = {"F": 1, "B": [2, None, 2], "W": [3, None, 4], "BW": [None, 6, None]}
    stages = problem(durations=durations).stage_data
    assert [data.durations for data in stages] == [
        {"F": 1, "B": 2, "W": 3},
        {"F": 1, "BW": 6},
        {"F": 1, "B": 2, "W": 4},
    ]
    assert [data.backward for data in stages] == ["B", "BW", "B"]


def test_a_single_number_counts_for_the_stages_that_no_list_makes_fused() -> None:
    durations = {"F": 1, "B": 2, "W": 3, "BW": [None, 6, None]}
    stages = problem(durations=durations).stage_data
    assert [tuple(data.durations) for data in stages] == [
        ("F", "B", "W"),
        ("F", "BW"),
        ("F", "B", "W"),
    ]


def test_durations_of_zero_are_valid() -> None:
    assert problem(durations={"F": 0, "BW": 0}).stage_data[0].durations == {"F": 0, "BW": 0}


def test_kinds_are_in_the_order_in_which_they_run() -> None:
    stage = problem(durations={"W": 1, "B": 1, "F": 1}).stage_data[0]
    assert list(stage.durations) == list(stage.memory) == list(stage.transient) == ["F", "B", "W"]


# ---------------------------------------------------------------------- memory


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ({}, {"F": 1, "B": 0, "W": -1}),
        ({"F": 2}, {"F": 2, "B": 0, "W": -2}),
        ({"F": 2, "B": -0.5}, {"F": 2, "B": Fraction(-1, 2), "W": Fraction(-3, 2)}),
        ({"F": 2, "B": 1}, {"F": 2, "B": 1, "W": -3}),
        ({"F": 2, "W": -3}, {"F": 2, "B": 1, "W": -3}),
        ({"F": 2, "W": -0.5}, {"F": 2, "B": Fraction(-3, 2), "W": Fraction(-1, 2)}),
        ({"F": 2, "B": -2}, {"F": 2, "B": -2, "W": 0}),
        ({"F": 2, "B": -2, "W": 0}, {"F": 2, "B": -2, "W": 0}),
        ({"F": 0}, {"F": 0, "B": 0, "W": 0}),
    ],
)
def test_what_is_left_out_of_memory_follows_from_the_rest(
    memory: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert problem(memory=memory).stage_data[1].memory == expected


def test_the_fused_backward_releases_what_the_forward_acquired() -> None:
    stages = problem(durations={"F": 1, "BW": 2}, memory={"F": [1, 2, 0.5]}).stage_data
    assert [data.memory for data in stages] == [
        {"F": 1, "BW": -1},
        {"F": 2, "BW": -2},
        {"F": Fraction(1, 2), "BW": Fraction(-1, 2)},
    ]


def test_null_in_a_list_of_memory_is_left_out() -> None:
    memory = {"F": [1, 2, 3], "B": [None, 1, None], "W": [-1, None, None]}
    assert [data.memory for data in problem(memory=memory).stage_data] == [
        {"F": 1, "B": 0, "W": -1},
        {"F": 2, "B": 1, "W": -3},
        {"F": 3, "B": 0, "W": -3},
    ]


def test_transient_static_and_capacity_are_per_stage_and_device() -> None:
    memory = {
        "transient": {"F": [1, 2, 3], "W": 0.25},
        "static": [0, 1, 2],
        "capacity": [4, None, 8],
    }
    given_memory = problem(memory=memory)
    assert [data.transient for data in given_memory.stage_data] == [
        {"F": 1, "B": 0, "W": Fraction(1, 4)},
        {"F": 2, "B": 0, "W": Fraction(1, 4)},
        {"F": 3, "B": 0, "W": Fraction(1, 4)},
    ]
    assert given_memory.static == (0, 1, 2)
    assert given_memory.capacity == (4, None, 8)


def test_without_limits_nothing_is_static_and_capacity_is_unlimited() -> None:
    assert problem().static == (0, 0, 0)
    assert problem().capacity == (None, None, None)
    assert problem(memory={"capacity": 5}).capacity == (5, 5, 5)


# ---------------------------------------------------------------------- lags


def test_one_lag_counts_between_all_devices_but_not_within_one() -> None:
    placed = problem(placement=[0, 0, 1, 2], lag=3)
    assert placed.lag_between(0, 1) == placed.lag_between(1, 0) == 0
    assert placed.lag_between(1, 2) == placed.lag_between(2, 1) == 3
    assert placed.lag_between(0, 3) == 3


def test_a_list_of_lags_is_per_boundary_and_adds_up_over_several() -> None:
    placed = problem(placement=[0, 0, 1, 2], lag=[7, 1, 0.5])
    assert placed.lag_between(0, 1) == 0
    assert placed.lag_between(1, 2) == 1
    assert placed.lag_between(3, 2) == Fraction(1, 2)
    assert placed.lag_between(1, 3) == placed.lag_between(3, 1) == Fraction(3, 2)


def test_a_table_of_lags_is_per_pair_of_devices() -> None:
    table = [[0, 1, 2], [3, 0, 4], [5, 6, 0]]
    placed = problem(placement="v", lag=table)
    assert placed.lag_between(0, 1) == 1
    assert placed.lag_between(1, 0) == 3
    assert placed.lag_between(2, 3) == 0
    assert placed.lag_between(3, 4) == 6
    assert placed.lag_between(0, 2) == 2


def test_lags_may_differ_for_activations_and_gradients() -> None:
    table = [[0, 1, 2], [3, 0, 4], [5, 6, 0]]
    both = problem(lag={"forward": 0.5, "backward": [2, 9]})
    assert both.lag_between(0, 1) == both.lag_between(1, 2) == Fraction(1, 2)
    assert both.lag_between(1, 0) == 2
    assert both.lag_between(2, 1) == 9
    by_pair = problem(placement="v", lag={"forward": table, "backward": 0})
    assert by_pair.lag_between(3, 4) == 6
    assert by_pair.lag_between(4, 3) == 0


def test_a_single_device_takes_every_form_of_lag() -> None:
    for lag in (0, 4, [], [[0]], {"forward": [], "backward": 2}):
        alone = problem(devices=1, lag=lag)
        assert alone.lag_between(0, 0) == 0
        assert alone.time_resolution == 1


# ---------------------------------------------------------------------- exact numbers


@pytest.mark.parametrize(
    ("fields", "step"),
    [
        ({}, Fraction(1)),
        ({"durations": {"F": 4, "B": 8, "W": 12}}, Fraction(1)),
        ({"durations": {"F": 0.1, "B": 1, "W": 1}}, Fraction(1, 10)),
        ({"durations": {"F": 0.1, "B": 0.25, "W": 1}}, Fraction(1, 20)),
        ({"lag": 1.5}, Fraction(1, 2)),
        ({"lag": {"forward": 0, "backward": [0, 0.001]}}, Fraction(1, 1000)),
        ({"lag": [[0, 0.5, 0.125], [0, 0, 0], [0, 0, 0]]}, Fraction(1, 2)),
        ({"edges": [{"from": 0, "to": 2, "lag": 0.2}]}, Fraction(1, 5)),
        (
            {"lag": [[0, 0.5, 0.125], [0, 0, 0], [0, 0, 0]], "edges": [{"from": 0, "to": 2}]},
            Fraction(1, 8),
        ),
        ({"microbatch_factors": [1, 0.5]}, Fraction(1, 2)),
        ({"durations": {"F": 2, "BW": 4}, "microbatch_factors": [1, 0.5]}, Fraction(1)),
        ({"durations": {"F": 1e-9, "BW": 4}}, Fraction(1, 10**9)),
    ],
)
def test_the_time_resolution_divides_one_and_every_time(
    fields: dict[str, Any], step: Fraction
) -> None:
    assert problem(**fields).time_resolution == step


@pytest.mark.parametrize(
    ("memory", "step"),
    [
        ({}, Fraction(1)),
        ({"F": 0.2}, Fraction(1, 5)),
        ({"B": -0.5}, Fraction(1, 2)),
        ({"transient": {"W": 0.125}}, Fraction(1, 8)),
        ({"static": [0, 0.5, 0]}, Fraction(1, 2)),
        ({"capacity": [None, 0.1, 4]}, Fraction(1, 10)),
    ],
)
def test_the_memory_resolution_divides_one_and_every_amount(
    memory: dict[str, Any], step: Fraction
) -> None:
    assert problem(memory=memory).memory_resolution == step


def test_decimals_stay_what_was_written() -> None:
    exact = problem(
        durations={"F": 0.1, "B": 1.5, "W": 1e-3},
        lag=0.3,
        memory={"F": 0.1, "B": 0.2, "capacity": 0.7},
        microbatch_factors=[0.1, 3],
    )
    stage = exact.stage_data[0]
    assert stage.durations == {"F": Fraction(1, 10), "B": Fraction(3, 2), "W": Fraction(1, 1000)}
    # in floats 0.1 + 0.2 is not 0.3
    assert stage.memory == {"F": Fraction(1, 10), "B": Fraction(1, 5), "W": Fraction(-3, 10)}
    assert exact.lag_between(0, 1) == Fraction(3, 10)
    assert exact.capacity[0] == Fraction(7, 10)
    assert exact.factors == (Fraction(1, 10), 3)


@pytest.mark.parametrize("scale", [3, 1000, 0.5, 0.1])
def test_a_problem_with_all_times_scaled_has_all_times_of_the_graph_scaled(scale: float) -> None:
    factor = Fraction(str(scale))

    def scaled(by: Fraction) -> Problem:
        def times(*numbers: int) -> list[float]:
            return [float(number * by) for number in numbers]

        return problem(
            durations={"F": times(7, 2, 3), "BW": times(10, 0, 40)},
            lag={"forward": times(1, 2), "backward": times(4, 3)[0]},
            edges=[{"from": 0, "to": 2, "lag": times(5)[0]}],
            microbatch_factors=[1, 2.5],
        )

    plain, changed = build_graph(scaled(Fraction(1))), build_graph(scaled(factor))
    step, other_step = plain.graph["resolution"], changed.graph["resolution"]
    assert set(plain.edges) == set(changed.edges)
    for op in plain:
        length = plain.nodes[op]["duration"] * step
        assert changed.nodes[op]["duration"] * other_step == length * factor
    for edge in plain.edges:
        lag = plain.edges[edge]["lag"] * step
        assert changed.edges[edge]["lag"] * other_step == lag * factor


# ---------------------------------------------------------------------- fixed


def test_a_problem_can_not_be_changed() -> None:
    fixed = problem()
    with pytest.raises(ValidationError, match="frozen"):
        fixed.devices = 4  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        fixed.durations.F = 4  # type: ignore[misc]
    assert isinstance(problem(placement=[0, 1, 2]).placement, tuple)


def test_equal_problems_have_equal_hashes_and_others_differ() -> None:
    one = problem(lag=[1, 2], durations={"F": [1, 2, 3], "BW": 2})
    same = problem(lag=(1, 2), durations={"F": (1, 2, 3), "BW": 2})
    assert one.stage_data  # a value that is kept once it is computed makes no difference
    assert one == same
    assert hash(one) == hash(same)
    assert one != problem(lag=[1, 3], durations={"F": [1, 2, 3], "BW": 2})
    assert len({one, same}) == 1


def test_replace_and_with_capacity_give_validated_copies() -> None:
    one = problem(memory={"F": 2, "static": 1, "capacity": 4})
    assert one.replace(microbatches=5).microbatches == 5
    assert one.with_capacity([6, None, 7]).capacity == (6, None, 7)
    assert one.with_capacity(None).memory.capacity is None
    assert one.with_capacity(6).static == one.static
    assert one.microbatches == 2
    assert one.capacity == (4, 4, 4)
    with pytest.raises(ProblemError, match=r"memory\.capacity = \[6\]: has 1 items"):
        one.with_capacity([6])


def test_uniform_builds_equal_stages() -> None:
    built = Problem.uniform(
        devices=2, microbatches=4, F=1, B=2, W=3, lag=5, capacity=6, memory={"B": -1}, name="x"
    )
    assert built == Problem(
        devices=2,
        microbatches=4,
        durations={"F": 1, "B": 2, "W": 3},
        lag=5,
        memory={"B": -1, "capacity": 6},
        name="x",
    )


# ---------------------------------------------------------------------- warnings


def test_an_idle_device_and_few_microbatches_are_warned_of() -> None:
    assert problem(microbatches=3).warnings == ()
    few, idle = problem(microbatches=1), problem(placement=[0, 2])
    assert few.warnings == (
        "microbatches = 1 is less than the 3 devices in use: some devices wait in every phase of "
        "the step",
    )
    assert idle.warnings == ("device 1 has no stage and stays idle",)


# ---------------------------------------------------------------------- files


@given(problems())
def test_writing_and_reading_a_problem_gives_an_equal_one(one: Problem) -> None:
    again = Problem.from_dict(json.loads(json.dumps(one.to_dict())))
    assert again == one
    assert again.stage_data == one.stage_data
    assert again.time_resolution == one.time_resolution


def test_saving_and_loading_gives_an_equal_problem(tmp_path: Path) -> None:
    one = problem(
        name="größer",
        placement="v",
        durations={"F": 0.1, "B": [1, None] * 3, "W": [2.5, None] * 3, "BW": [None, 3] * 3},
        lag={"forward": [[0, 1, 2], [1, 0, 1], [2, 1, 0]], "backward": 0.25},
        edges=[{"from": 0, "to": 3}, {"from": 1, "to": 5, "lag": 7}],
        memory={"capacity": [1, None, 3], "transient": {"BW": 1}},
        microbatch_factors=[1, 1.5],
        objective="period",
        time_unit="us",
    )
    one.save(tmp_path / "problem.json")
    assert Problem.load(tmp_path / "problem.json") == one
    assert Problem.load(str(tmp_path / "problem.json")) == one


def test_a_toml_file_and_its_json_are_the_same_problem(tmp_path: Path) -> None:
    (tmp_path / "problem.toml").write_text(
        """
        name = "three stages"
        devices = 3
        microbatches = 4
        placement = "linear"
        lag = { forward = 1, backward = [1, 2] }
        durations = { F = 10, B = [10, 11, 12.5], W = 9 }
        edges = [{ from = 0, to = 2, lag = 3 }]

        [memory]
        F = 2
        B = -1
        capacity = [6, 5, 4]
        """,
        encoding="utf-8",
    )
    one = Problem.load(tmp_path / "problem.toml")
    assert one == Problem(
        name="three stages",
        devices=3,
        microbatches=4,
        lag={"forward": 1, "backward": [1, 2]},
        durations={"F": 10, "B": [10, 11, 12.5], "W": 9},
        edges=[{"from": 0, "to": 2, "lag": 3}],
        memory={"F": 2, "B": -1, "capacity": [6, 5, 4]},
    )
    one.save(tmp_path / "problem.json")
    assert Problem.load(tmp_path / "problem.json") == one


def test_a_file_holds_only_what_differs_from_the_defaults() -> None:
    assert problem().to_dict() == {
        "format": "schedopt.problem/1",
        "devices": 3,
        "microbatches": 2,
        "durations": {"F": 1, "B": 1, "W": 1},
    }


def test_whole_numbers_stay_whole_in_a_file() -> None:
    text = json.dumps(problem(durations={"F": 10**17 + 1, "BW": 2}).to_dict())
    assert "100000000000000001" in text


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    for name, text in (
        ("a.json", json.dumps(problem().to_dict())),
        ("a.toml", "devices = 3\nmicrobatches = 2\ndurations = { F = 1, B = 1, W = 1 }"),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
        assert Problem.load(tmp_path / name) == problem()
