from __future__ import annotations

from typing import Any

import pytest

from schedopt.errors import InputError, ProblemError
from schedopt.partition import even_partition, from_layers, from_layout, parse_partition
from schedopt.problem import Problem

ONE: dict[str, Any] = {"durations": {"F": 1, "B": 1, "W": 1}}


def faults_of(error: pytest.ExceptionInfo[InputError]) -> list[tuple[str, str]]:
    return [(fault.field, fault.value) for fault in error.value.faults]


# ---------------------------------------------------------------------- parse_partition


@pytest.mark.parametrize("text", ["7,9", "7, 9", "[7,9]", " [ 7 , 9 ] "])
def test_spaces_and_brackets_do_not_matter(text: str) -> None:
    assert parse_partition(text, layers=16) == (7, 9)


def test_a_stage_may_have_no_layer() -> None:
    assert parse_partition("0,2,0") == (0, 2, 0)


@pytest.mark.parametrize(
    ("text", "place", "token"),
    [
        ("7,,9", "item 2, character 3", "''"),
        ("7,9,", "item 3, character 5", "''"),
        ("7;9", "item 1, character 1", "'7;9'"),
        ("7,-9", "item 2, character 3", "'-9'"),
        ("7.0,9", "item 1, character 1", "'7.0'"),
        ("7,  9x", "item 2, character 5", "'9x'"),
        ("[7,9", "item 1, character 1", "'[7'"),
        ("7 9", "item 1, character 1", "'7 9'"),
        ("", "item 1, character 1", "''"),
        ("[]", "item 1, character 2", "''"),
        ("٣,9", "item 1, character 1", "'٣'"),
    ],
)
def test_what_is_no_number_is_named_with_its_position(text: str, place: str, token: str) -> None:
    with pytest.raises(ValueError, match="partition is not valid") as error:
        parse_partition(text)
    assert faults_of(error) == [(place, token)]


def test_every_wrong_item_is_named() -> None:
    with pytest.raises(InputError) as error:
        parse_partition("x,7,-9")
    assert faults_of(error) == [("item 1, character 1", "'x'"), ("item 3, character 5", "'-9'")]


def test_a_wrong_sum_is_refused_with_both_numbers() -> None:
    with pytest.raises(InputError, match="16 != 15, the number of layers"):
        parse_partition("7,9", layers=15)


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("7,8,8,7", 30),
        ("8,8,7,7", 30),
        ("7,7,7,9", 30),
        ("4,8,8,8,8,8,8,8", 60),
        ("2,2,2,3,3", 12),
        ("3,3,2,2,2", 12),
        ("2,2,3,3,2", 12),
        ("2,3,2,3,2", 12),
    ],
)
def test_reported_uneven_partitions_have_every_layer_once(text: str, layers: int) -> None:
    counts = parse_partition(text, layers=layers)
    problem = from_layers(
        durations={**ONE["durations"]},
        layers=layers,
        partition=text,
        devices=len(counts),
        microbatches=4,
    )
    assert sum(counts) == layers
    assert [stage.durations["F"] for stage in problem.stage_data] == list(counts)


# ---------------------------------------------------------------------- even_partition


def test_an_even_partition_gives_each_stage_the_same() -> None:
    assert even_partition(96, 12) == (8,) * 12
    assert even_partition(96, 12, chunks=4) == (2,) * 48


@pytest.mark.parametrize(
    ("layers", "devices", "chunks", "possible"),
    [
        (40, 8, 2, "1, 5"),
        (40, 2, 12, "1, 2, 4, 5, 10, 20"),
        (48, 8, 4, "1, 2, 3, 6"),
    ],
)
def test_chunks_that_do_not_divide_are_refused_with_those_that_do(
    layers: int, devices: int, chunks: int, possible: str
) -> None:
    sentence = f"{layers} layers do not divide by {devices} devices x {chunks} chunks"
    with pytest.raises(InputError, match=f"{sentence}; valid numbers of chunks: {possible}$"):
        even_partition(layers, devices, chunks=chunks)


def test_layers_that_no_number_of_chunks_divides_ask_for_a_partition() -> None:
    with pytest.raises(InputError, match=r"30 layers .* nor by 4 devices; give the layers of each"):
        even_partition(30, 4)


def test_counts_below_one_are_refused_together() -> None:
    with pytest.raises(InputError) as error:
        even_partition(0, -1, chunks=0)
    assert faults_of(error) == [("layers", "0"), ("devices", "-1"), ("chunks", "0")]


# ---------------------------------------------------------------------- from_layers


def test_durations_and_memory_of_the_layers_of_a_stage_add_up() -> None:
    problem = from_layers(
        durations={"F": [1, 2, 3], "B": 10, "W": [4, 5, 6]},
        memory={"F": [3, 4, 5], "B": [-1, 1, 0], "static": [10, 20, 30]},
        partition="2,1",
        devices=2,
        microbatches=4,
        lag=7,
        capacity=[99, 98],
    )
    expected = Problem(
        devices=2,
        stages=2,
        microbatches=4,
        lag=7,
        durations={"F": [3, 3], "B": [20, 10], "W": [9, 6]},
        memory={
            "F": [7, 5],
            "B": [0, 0],
            "W": [-7, -5],
            "static": [30, 30],
            "capacity": [99, 98],
            "transient": {"F": [0, 0], "B": [0, 0], "W": [0, 0]},
        },
    )
    assert problem == expected


def test_of_transient_memory_the_largest_layer_counts() -> None:
    problem = from_layers(
        durations={"F": 1, "BW": 2},
        memory={"transient": {"F": [5, 9, 2], "BW": 3}},
        partition=[2, 1],
        devices=2,
        microbatches=1,
    )
    assert problem.memory.transient.F == (9, 2)
    assert problem.memory.transient.BW == (3, 3)


def test_a_layer_takes_one_unless_its_memory_is_given() -> None:
    problem = from_layers(durations=ONE["durations"], partition="3,1", devices=2, microbatches=1)
    assert problem.memory.F == (3, 1)


def test_embedding_and_head_are_added_to_the_ends() -> None:
    problem = from_layers(
        durations={"F": 3, "B": 3, "W": 3},
        memory={"F": 2, "static": 100},
        partition="7,8,7",
        embedding={"durations": {"F": 1, "B": 0, "W": 1}, "memory": {"static": 40}},
        head={"durations": {"F": 2, "B": 2, "W": 2}, "memory": {"F": 5, "static": 60}},
        devices=3,
        microbatches=4,
    )
    assert problem.durations.F == (22, 24, 23)
    assert problem.durations.B == (21, 24, 23)
    assert problem.memory.F == (14, 16, 19)
    assert problem.static == (740, 800, 760)


def test_layers_of_the_405b_case_leave_126_of_128() -> None:
    layers = "7,8,8,8,8,8,8,8,8,8,8,8,8,8,8,7"
    problem = from_layers(
        durations={"F": 3, "B": 3, "W": 3},
        layers=126,
        partition=layers,
        head={"durations": {"F": 2, "B": 2, "W": 2}},
        devices=16,
        microbatches=16,
    )
    assert [stage.durations["F"] for stage in problem.stage_data] == [21, *[24] * 14, 23]


def test_weights_go_to_the_device_of_each_stage() -> None:
    problem = from_layers(
        durations=ONE["durations"],
        memory={"static": [1, 10, 100, 1000]},
        devices=2,
        placement="v",
        microbatches=1,
    )
    assert problem.device_of == (0, 1, 1, 0)
    assert problem.static == (1001, 110)


def test_without_a_partition_stages_are_equal() -> None:
    problem = from_layers(
        durations=ONE["durations"],
        layers=96,
        devices=12,
        placement="interleaved",
        chunks=4,
        microbatches=12,
    )
    assert problem.durations.F == (2,) * 48
    listed = from_layers(
        durations=ONE["durations"], layers=6, devices=2, placement=[0, 1, 0], microbatches=1
    )
    assert listed.durations.F == (2, 2, 2)


def test_a_stage_without_layers_takes_no_time() -> None:
    problem = from_layers(durations={"F": 1, "BW": 2}, partition=[0, 4], devices=2, microbatches=1)
    assert problem.durations.F == (0, 4)
    assert problem.durations.BW == (0, 8)


def test_decimals_add_up_exactly() -> None:
    problem = from_layers(
        durations={"F": 0.1, "BW": [0.1, 0.2, 0.3]}, partition="3", devices=1, microbatches=1
    )
    assert problem.durations.F == (0.3,)
    assert problem.durations.BW == (0.6,)


def test_a_sum_that_no_number_holds_is_refused() -> None:
    with pytest.raises(ProblemError, match="too many digits"):
        from_layers(
            durations={"F": [10**17, 0.1], "BW": 1}, partition="2", devices=1, microbatches=1
        )


def test_faults_of_all_arguments_are_reported_together() -> None:
    with pytest.raises(ProblemError) as error:
        from_layers(
            durations={"F": [1, 2, -3], "B": 1},
            memory={"capacity": 3},
            partition="1,x",
            embedding=3,  # type: ignore[arg-type]
            head={"durations": {"F": 1}},
            devices=2,
            microbatches=1,
        )
    assert [fault.field for fault in error.value.faults] == [
        "partition, item 2, character 3",
        "durations.F[2]",
        "memory.capacity",
        "embedding",
        "head",
    ]


def test_lists_must_have_one_item_for_each_layer() -> None:
    with pytest.raises(ProblemError, match=r"durations\.F: has 3 items, must have 4, one for each"):
        from_layers(durations={"F": [1, 2, 3], "BW": 1}, layers=4, devices=2, microbatches=1)


def test_a_partition_must_fit_the_lists() -> None:
    with pytest.raises(ProblemError, match="4 != 3, the number of layers"):
        from_layers(
            durations={"F": [1, 2, 3], "BW": 1}, partition=[2, 2], devices=2, microbatches=1
        )


def test_a_partition_must_fit_the_placement() -> None:
    with pytest.raises(ProblemError, match="3 stages do not divide by 2 devices"):
        from_layers(durations={"F": 1, "BW": 1}, partition=[3, 3, 3], devices=2, microbatches=1)


@pytest.mark.parametrize("partition", [[4, -1], [1.5, 1.5], ["3"]])
def test_a_partition_in_a_list_has_whole_numbers(partition: list[Any]) -> None:
    with pytest.raises(ProblemError, match="must be a whole number of layers"):
        from_layers(durations={"F": 1, "BW": 1}, partition=partition, devices=2, microbatches=1)


def test_a_number_of_layers_is_needed() -> None:
    with pytest.raises(ProblemError, match="layers: required"):
        from_layers(durations={"F": 1, "BW": 1}, devices=2, microbatches=1)


def test_layers_that_the_stages_of_a_listed_placement_do_not_divide_are_refused() -> None:
    with pytest.raises(ProblemError, match="layers = 7: do not divide by the 3 stages"):
        from_layers(
            durations={"F": 1, "BW": 1}, layers=7, devices=2, placement=[0, 1, 0], microbatches=1
        )


# ---------------------------------------------------------------------- from_layout


def test_a_layout_gives_stages_in_model_order_round_robin_on_devices() -> None:
    costs = {
        "E": {"durations": {"F": 1, "B": 0, "W": 1}, "memory": {"static": 7}},
        "t": {"durations": {"F": 10, "B": 11, "W": 12}, "memory": {"F": 2, "static": 5}},
        "m": {"durations": {"F": 20, "B": 21, "W": 22}},
        "L": {"durations": {"F": 3, "B": 3, "W": 3}},
    }
    problem = from_layout("Et*2|t|m|L", costs, layers=3, devices=2, microbatches=4)
    assert problem.device_of == (0, 1, 0, 1)
    assert problem.durations.F == (21, 10, 20, 3)
    assert problem.durations.B == (22, 11, 21, 3)
    assert problem.memory.F == (4, 2, 1, 0)
    assert problem.static == (17, 5)


def test_a_layout_needs_the_cost_of_each_of_its_symbols() -> None:
    with pytest.raises(ProblemError) as error:
        from_layout("Et|mL", {"t": ONE, "L": {"durations": {"F": 1}}}, devices=2, microbatches=1)
    assert [fault.field for fault in error.value.faults] == ["costs.E", "costs.L", "costs.m"]


def test_a_wrong_layout_is_named() -> None:
    with pytest.raises(ProblemError, match="layout, character 3 = 'x'"):
        from_layout("Etx|L", {}, devices=2, microbatches=1)
