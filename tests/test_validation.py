from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schedopt.errors import InputError, ProblemError, ScheduleError
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from tests.problems import best_schedule, fields_of_problems

SPLIT = {"F": 1, "B": 1, "W": 1}
VALID = {"devices": 3, "microbatches": 2, "durations": SPLIT}
TWENTY_FAULTS = Path(__file__).parent / "data" / "twenty_faults.toml"


def faults(**fields: Any) -> list[str]:
    """Faults of a valid problem of three linear stages with some fields changed."""
    with pytest.raises(ProblemError) as caught:
        Problem(**{**VALID, **fields})
    return [str(fault) for fault in caught.value.faults]


# ---------------------------------------------------------------------- every fault

NUMBER = "must be a number, written without quotes"
WHOLE = "must be a whole number"
PLACEMENTS = "must be one of 'linear', 'interleaved', 'v', 'wave'"
NO_BACKWARD = "; without a backward set forward_only = true"
FORMS = "each stage has B and W, or BW"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # counts
        ({"devices": "3"}, f"devices = '3': {WHOLE}"),
        ({"devices": True}, f"devices = True: {WHOLE}"),
        ({"devices": 2.0}, f"devices = 2.0: {WHOLE}"),
        ({"devices": 0}, "devices = 0: must be at least 1"),
        ({"devices": 20000}, "devices = 20000: must be at most 10000"),
        ({"devices": 10**10}, "devices = 10000000000: must be at most 1000000000"),
        ({"microbatches": None}, f"microbatches = None: {WHOLE}"),
        ({"microbatches": -2}, "microbatches = -2: must be at least 1"),
        (
            {"microbatches": 400_000},
            "microbatches = 400000: stages x microbatches is 1200000, must be at most 1000000",
        ),
        ({"stages": 0}, "stages = 0: must be at least 1"),
        # placement
        ({"placement": "zigzag"}, f"placement = 'zigzag': {PLACEMENTS}"),
        ({"placement": 3}, f"placement = 3: {PLACEMENTS}"),
        ({"placement": {"0": 1}}, f"placement = {{'0': 1}}: {PLACEMENTS}"),
        ({"placement": []}, "placement = []: must have at least one stage"),
        ({"placement": [0, 1, "2"]}, f"placement[2] = '2': {WHOLE}"),
        ({"placement": [0, -1, 2]}, "placement[1] = -1: must be at least 0"),
        ({"placement": [0, 1, 3]}, "placement[2] = 3: must be a device, 0 to 2"),
        (
            {"placement": [0, 1, 2], "stages": 4},
            "placement = [0, 1, 2]: has 3 items, must have 4, one for each stage",
        ),
        (
            {"placement": "interleaved", "stages": 4},
            "placement = 'interleaved': places equally many stages on each device, but 4 stages do "
            "not divide by 3 devices; give a list with the device of each stage",
        ),
        (
            {"placement": "v", "stages": 3},
            "placement = 'v': placement 'v' has 2 stage(s) per device, not 1",
        ),
        # durations
        ({"durations": 3}, "durations = 3: must be a table of fields"),
        (
            {"durations": {"F": 1}},
            f"durations: stage 0 has neither B and W nor BW; {FORMS}{NO_BACKWARD}",
        ),
        ({"durations": {"F": 1, "B": 1}}, f"durations: stage 0 has no W (and no BW); {FORMS}"),
        ({"durations": {"F": 1, "W": 1}}, f"durations: stage 0 has no B (and no BW); {FORMS}"),
        (
            {"durations": {**SPLIT, "BW": 1}},
            f"durations: stage 0 has both BW and B and W; {FORMS}",
        ),
        (
            {"durations": {"F": 1, "B": [1, None, 1], "W": [1, None, 1]}},
            f"durations: stage 1 has neither B and W nor BW; {FORMS}",
        ),
        (
            {"durations": {"F": 1, "B": [1, None, 1], "W": 1, "BW": [None, 1, 1]}},
            f"durations: stage 2 has both BW and B; {FORMS}",
        ),
        ({"durations": {**SPLIT, "F": -1}}, "durations.F = -1: must be at least 0"),
        ({"durations": {**SPLIT, "F": None}}, f"durations.F = None: {NUMBER}"),
        ({"durations": {**SPLIT, "W": "1"}}, f"durations.W = '1': {NUMBER}"),
        ({"durations": {**SPLIT, "B": [1, True, 1]}}, f"durations.B[1] = True: {NUMBER}"),
        (
            {"durations": {**SPLIT, "B": [1, 2]}},
            "durations.B = [1, 2]: has 2 items, must have 3, one for each of the stages",
        ),
        (
            {"durations": {"F": 1, "B": [1, 1, 1], "W": [1, 1, 1], "BW": 2}},
            "durations.BW = 2: would not be used, because no stage has BW; leave it out",
        ),
        ({"durations": {**SPLIT, "R": 1}}, "durations.R = 1: unknown field; valid: F, B, W, BW"),
        # microbatch factors
        ({"microbatch_factors": 2}, "microbatch_factors = 2: must be a list"),
        ({"microbatch_factors": [1, 0]}, "microbatch_factors[1] = 0: must be greater than 0"),
        (
            {"microbatch_factors": [1]},
            "microbatch_factors = [1]: has 1 items, must have 2, one for each of the microbatches",
        ),
        # lag
        ({"lag": -1}, "lag = -1: must be at least 0"),
        ({"lag": None}, f"lag = None: {NUMBER}"),
        ({"lag": [0, "1"]}, f"lag[1] = '1': {NUMBER}"),
        (
            {"lag": [1, 2, 3]},
            "lag = [1, 2, 3]: has 3 items, must have 2, one for each boundary between stages",
        ),
        (
            {"lag": [[0, 1, 1], [1, 0, 1]]},
            "lag = [[0, 1, 1], [1, 0, 1]]: has 2 rows, must have 3, one for each device",
        ),
        (
            {"lag": [[0, 1, 1], [1, 0], [1, 1, 0]]},
            "lag[1] = [1, 0]: has 2 items, must have 3, one for each device",
        ),
        ({"lag": [[0, 1, 1], 5, [1, 1, 0]]}, "lag[1] = 5: must be a list"),
        (
            {"lag": [[0, 1, 1], [1, 0, 1], [1, 1, 2]]},
            "lag[2][2] = 2: must be 0: no transfer within a device",
        ),
        ({"lag": [[0, 1, 1], [1, 0, -1], [1, 1, 0]]}, "lag[1][2] = -1: must be at least 0"),
        ({"lag": {"forward": 1}}, "lag.backward: required"),
        (
            {"lag": {"forward": [1], "backward": 0}},
            "lag.forward = [1]: has 1 items, must have 2, one for each boundary between stages",
        ),
        (
            {"lag": {"forward": 1, "backward": 1, "backwards": 2}},
            "lag.backwards = 2: unknown field; did you mean backward?",
        ),
        # edges
        ({"edges": {"from": 0, "to": 1}}, "edges = {'from': 0, 'to': 1}: must be a list"),
        ({"edges": [1]}, "edges[0] = 1: must be a table of fields"),
        ({"edges": [{"from": 0}]}, "edges[0].to: required"),
        ({"edges": [{"from": 0, "to": 3}]}, "edges[0].to = 3: must be a stage, 0 to 2"),
        (
            {"edges": [{"from": 0, "to": 2}, {"from": 1, "to": 1}]},
            "edges[1].to = 1: must lead to a later stage than from = 1",
        ),
        ({"edges": [{"from": 0, "to": 2, "lag": -1}]}, "edges[0].lag = -1: must be at least 0"),
        # memory
        ({"memory": 3}, "memory = 3: must be a table of fields"),
        ({"memory": {"F": -1}}, "memory.F = -1: must be at least 0"),
        ({"memory": {"F": [1, None, 1]}}, f"memory.F[1] = None: {NUMBER}"),
        (
            {"memory": {"F": 1, "B": -2}},
            "memory: of stage 0: B releases 2, but F acquired only 1",
        ),
        (
            {"memory": {"F": 1, "B": [0, 0, 0.5], "W": -1}},
            "memory: of stage 2 sums to 0.5, not 0 (F 1, B 0.5, W -1); leave out W to release what "
            "is left",
        ),
        (
            {"memory": {"BW": -2}, "durations": {"F": 1, "BW": 1}},
            "memory: of stage 0 sums to -1, not 0 (F 1, BW -2); leave out BW to release what is "
            "left",
        ),
        ({"memory": {"transient": {"F": -1}}}, "memory.transient.F = -1: must be at least 0"),
        (
            {"memory": {"transient": {"B": [1]}}},
            "memory.transient.B = [1]: has 1 items, must have 3, one for each of the stages",
        ),
        (
            {"memory": {"BW": -1}},
            "memory.BW = -1: would not be used, because no stage has BW; leave it out",
        ),
        (
            {"memory": {"W": -1}, "durations": {"F": 1, "BW": 1}},
            "memory.W = -1: would not be used, because no stage has W; leave it out",
        ),
        (
            {
                "memory": {"BW": [None, -1, -1]},
                "durations": {"F": 1, "B": 1, "W": 1, "BW": [None, 1, None]},
            },
            "memory.BW[2] = -1: would not be used, because stage 2 has no BW; must be null",
        ),
        (
            {"memory": {"transient": {"BW": [0, 0.5, 0]}}},
            "memory.transient.BW[1] = 0.5: would not be used, because stage 1 has no BW; must be 0",
        ),
        ({"memory": {"static": -1}}, "memory.static = -1: must be at least 0"),
        (
            {"memory": {"capacity": [1, 2]}},
            "memory.capacity = [1, 2]: has 2 items, must have 3, one for each of the devices",
        ),
        ({"memory": {"capacity": [1, 2, "3 GB"]}}, f"memory.capacity[2] = '3 GB': {NUMBER}"),
        ({"memory": {"statics": 3}}, "memory.statics = 3: unknown field; did you mean static?"),
        # the rest
        ({"objective": "speed"}, "objective = 'speed': must be one of 'makespan', 'period'"),
        ({"format": "x"}, "format = 'x': must be one of 'schedopt.problem/1'"),
        ({"name": None}, "name = None: must be text, in quotes"),
        ({"time_unit": 3}, "time_unit = 3: must be text, in quotes"),
        ({"microbatch": 3}, "microbatch = 3: unknown field; did you mean microbatches?"),
    ],
    ids=str,
)
def test_a_fault_names_the_field_the_value_and_what_is_valid(
    fields: dict[str, Any], expected: str
) -> None:
    assert faults(**fields) == [expected]


def test_required_fields_are_named() -> None:
    with pytest.raises(ProblemError) as caught:
        Problem()
    assert [str(fault) for fault in caught.value.faults] == [
        "devices: required",
        "microbatches: required",
        "durations: required",
    ]


def test_an_unknown_field_that_is_like_none_gets_the_list_of_all() -> None:
    (fault,) = faults(colour="red")
    assert fault.startswith("colour = 'red': unknown field; valid: format, name, source, devices,")
    assert fault.endswith("forward_only, objective, time_unit, memory_unit")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), np.float64("nan")])
@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("durations.F", lambda value: {"durations": {**SPLIT, "F": value}}),
        ("durations.W[2]", lambda value: {"durations": {**SPLIT, "W": [1, 2, value]}}),
        ("lag", lambda value: {"lag": value}),
        ("lag.backward[0]", lambda value: {"lag": {"forward": 0, "backward": [value, 1]}}),
        ("edges[0].lag", lambda value: {"edges": [{"from": 0, "to": 1, "lag": value}]}),
        ("memory.F", lambda value: {"memory": {"F": value}}),
        ("memory.B[0]", lambda value: {"memory": {"B": [value, 0, 0]}}),
        ("memory.static", lambda value: {"memory": {"static": value}}),
        ("memory.capacity", lambda value: {"memory": {"capacity": value}}),
        ("memory.transient.B", lambda value: {"memory": {"transient": {"B": value}}}),
        ("microbatch_factors[1]", lambda value: {"microbatch_factors": [1, value]}),
    ],
)
def test_infinity_and_nan_are_faults_of_their_field(field: str, fields: Any, value: float) -> None:
    assert faults(**fields(value)) == [f"{field} = {value!r}: must be a finite number"]


@pytest.mark.parametrize("value", [10**101, -(10**101), 1e101, 1e-101])
def test_numbers_of_absurd_size_are_faults(value: Any) -> None:
    (fault,) = faults(memory={"B": value})
    assert fault.endswith("must be 0 or between 1e-100 and 1e100 in size")


@pytest.mark.parametrize(
    "value", [2, 2.5, 0.1, np.int64(2), np.float32(2.5), np.float64(0.1), Fraction(5, 2)]
)
def test_numbers_of_every_exact_kind_are_accepted_in_code(value: Any) -> None:
    lag = Problem(**VALID, lag=value).lag
    assert type(lag) in (int, float)
    assert lag == value


def test_a_fraction_that_no_decimal_holds_is_not_rounded_in_silence() -> None:
    assert faults(lag=Fraction(1, 3)) == [
        "lag = Fraction(1, 3): must have a decimal form of at most 17 digits"
    ]
    assert Problem(**VALID, lag=Fraction(1, 10)).lag_between(0, 1) == Fraction(1, 10)


def test_long_values_are_shortened() -> None:
    (fault,) = faults(objective="x" * 100)
    assert fault == "objective = '" + "x" * 56 + "...: must be one of 'makespan', 'period'"


# ---------------------------------------------------------------------- several together


def test_twenty_faults_in_a_file_are_twenty_named_faults() -> None:
    with pytest.raises(ProblemError) as caught:
        Problem.load(TWENTY_FAULTS)
    error = caught.value
    assert error.source == str(TWENTY_FAULTS)
    assert str(error).startswith(f"{TWENTY_FAULTS}: problem is not valid, 20 faults:\n")
    assert str(error).count("\n") == 20
    assert {(fault.field, fault.value) for fault in error.faults} == {
        ("format", "'schedopt.problem/2'"),
        ("name", "12"),
        ("placement[3]", "4"),
        ("microbatches", "0"),
        ("microbatch_factors[1]", "0"),
        ("objective", "'latency'"),
        ("time_units", "'us'"),
        ("colour", "'red'"),
        ("edges[0].to", "1"),
        ("edges[1].to", "7"),
        ("edges[2].lag", "-1"),
        ("edges[3].from", "1.5"),
        ("durations.F[2]", "-3"),
        ("durations.B[1]", "'2'"),
        ("durations.W", "nan"),
        ("lag.forward", "[1, 2]"),
        ("lag.backward[2]", "inf"),
        ("memory.F", "True"),
        ("memory.static", "[1, 1, 1]"),
        ("memory.capacity", "'80 GB'"),
    }
    assert all(fault.valid for fault in error.faults)


def test_faults_of_memory_are_named_stage_by_stage() -> None:
    rest = "leave out W to release what is left"
    assert faults(memory={"F": [1, 2, 3], "W": [-1, -1, -5], "B": [0, 0, 0]}) == [
        f"memory: of stage 1 sums to 1, not 0 (F 2, B 0, W -1); {rest}",
        f"memory: of stage 2 sums to -2, not 0 (F 3, B 0, W -5); {rest}",
    ]


def test_a_fault_of_all_stages_is_named_once() -> None:
    assert len(faults(memory={"F": 1, "B": 0, "W": -2})) == 1


def test_a_faulty_field_does_not_hide_faults_of_others() -> None:
    assert faults(devices="3", lag=[1, -1], memory={"capacity": [1, 2]}, edges=[{"from": 3}]) == [
        f"devices = '3': {WHOLE}",
        "lag[1] = -1: must be at least 0",
        "edges[0].to: required",
    ]


# ---------------------------------------------------------------------- files


def load_text(folder: Path, name: str, text: str | bytes) -> Problem:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Problem.load(path)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.json", "", "Expecting value: line 1 column 1"),
        ("a.json", '{"devices": 3,}', "line 1 column 15"),
        ("a.json", "devices = 3", "Expecting value"),
        ("a.toml", '{"devices": 3}', "line 1"),
        ("a.toml", "devices = 3\ndevices = 4", "Cannot overwrite a value"),
        ("a.json", b"\xff\xfe{\x00}\x00", "codec can't decode"),
        ("a.json", '{"devices": 3, "devices": 4}', "'devices' is there twice in one table"),
        ("a.json", "[" * 101 + "]" * 101, "nested more than 100 deep"),
        ("a.json", "[" * 900 + "]" * 900, "nested more than 100 deep"),
        ("a.json", "[" * 100_000, "recursion"),
        ("a.toml", "a = " + "[" * 300 + "]" * 300, "nested more than 100 deep"),
        ("a.toml", "a = " + "[" * 100_000, "recursion"),
        ("a.json", '{"devices": 1' + "0" * 5000 + "}", "4300 digits"),
        ("a.json", r'{"name": "\ud800"}', "surrogates not allowed"),
    ],
    ids=range(14),
)
def test_a_file_that_can_not_be_parsed_is_one_fault_with_the_reason(
    tmp_path: Path, name: str, text: str | bytes, reason: str
) -> None:
    with pytest.raises(ProblemError) as caught:
        load_text(tmp_path, name, text)
    (fault,) = caught.value.faults
    assert fault.field == "(file)"
    assert reason in fault.value
    assert fault.valid == "must be a readable JSON file, or TOML with the ending .toml"
    assert str(caught.value).startswith(str(tmp_path / name) + ": ")


def test_a_file_that_is_not_there_or_a_folder_is_one_fault(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json", "a\0b"):
        for load in (Problem.load, Schedule.load):
            with pytest.raises(InputError, match=r"\(file\) = "):
                load(path)


@pytest.mark.parametrize("text", ["3", '"devices"', "[1, 2]", "null", "true"])
def test_a_file_without_a_table_is_one_fault(tmp_path: Path, text: str) -> None:
    with pytest.raises(ProblemError, match=r"\(top level\) = \w+: must be a table of fields"):
        load_text(tmp_path, "a.json", text)


@pytest.mark.parametrize("field", ["devices", "microbatches", "stages", "lag"])
def test_a_number_of_thousands_of_digits_is_a_fault(tmp_path: Path, field: str) -> None:
    # hexadecimal: the only form in which the reader of TOML takes so many digits
    with pytest.raises(ProblemError, match=f"{field} = a number of more than 4300 digits: must be"):
        load_text(tmp_path, "a.toml", f"{field} = 0x{'f' * 5000}")


# ---------------------------------------------------------------------- anything at all

KEYS = st.sampled_from(
    [
        *Problem.model_fields,
        *("F", "B", "W", "BW", "forward", "backward", "from", "to", "from_stage"),
        *("transient", "static", "capacity", "ops", "start", "end", "kind", "stage"),
        *("timeline", "problem", "resource", "device", "info", "microbatch", "x", ""),
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 6)
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["linear", "v", "wave", "period", "1/3", "F", 10**400, 1e308, -1e-320])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)


def mutated(data: st.DataObject, value: Any) -> Any:
    """A copy of nested data with one place deleted, added or replaced."""
    if isinstance(value, (dict, list)) and value and data.draw(st.integers(0, 4)):
        places = sorted(value) if isinstance(value, dict) else range(len(value))
        place = data.draw(st.sampled_from(places))
        copy = value.copy()
        if data.draw(st.integers(0, 5)) == 0:
            del copy[place]
        else:
            copy[place] = mutated(data, value[place])
        return copy
    if isinstance(value, dict):
        return {**value, data.draw(KEYS): data.draw(VALUES)}
    if isinstance(value, list) and data.draw(st.booleans()):
        return [*value, data.draw(VALUES)]
    return data.draw(VALUES)


def read_or_named_faults(read: Callable[[Any], Any], value: Any) -> Any:
    """What was read, or None if it gave faults (and nothing else)."""
    try:
        return read(value)
    except InputError as error:
        caught = error
    assert isinstance(caught, ProblemError if read == Problem.from_dict else ScheduleError)
    assert caught.faults
    assert all(str(fault) in str(caught) for fault in caught.faults)
    return None


def of_use_or_named_faults(value: Any) -> None:
    """Read it as a problem and as a schedule; what has no fault has to be of use."""
    read_or_named_faults(Schedule.from_dict, value)
    one = read_or_named_faults(Problem.from_dict, value)
    if one is not None:
        assert Problem.from_dict(json.loads(json.dumps(one.to_dict()))) == one
        assert len(one.stage_data) == one.stage_count > 0
        assert one.time_resolution > 0
        assert one.memory_resolution > 0


@settings(max_examples=300)
@given(VALUES | st.dictionaries(KEYS, VALUES, max_size=8))
def test_any_value_is_a_problem_or_gives_named_faults(value: Any) -> None:
    of_use_or_named_faults(value)


@settings(max_examples=400)
@given(fields_of_problems(), st.data())
def test_a_problem_changed_anywhere_is_a_problem_or_gives_named_faults(
    fields: dict[str, Any], data: st.DataObject
) -> None:
    value = fields
    for _ in range(data.draw(st.integers(1, 4))):
        value = mutated(data, value)
    of_use_or_named_faults(value)


SCHEDULE = best_schedule(Problem(**VALID, lag=0.5, memory={"capacity": 2})).to_dict()


@settings(max_examples=300)
@given(st.data())
def test_a_schedule_changed_anywhere_is_a_schedule_or_gives_named_faults(
    data: st.DataObject,
) -> None:
    value = SCHEDULE
    for _ in range(data.draw(st.integers(1, 4))):
        value = mutated(data, value)
    read_or_named_faults(Schedule.from_dict, value)


PIECES = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b":",
    b",",
    b"=",
    b"\n",
    b" ",
    b"devices",
    b'"devices"',
    b"1",
]
PIECES += [b"-", b".", b"e9", b"nan", b"0x", b"null", b"true", b"\\u", b"d800", b"\xff", b"#", b"'"]
TEXTS = st.binary(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join)


@pytest.mark.parametrize("ending", ["json", "toml", "txt"])
@example(text=b"")
@example(text=b"\xef\xbb\xbf")
@given(text=TEXTS)
def test_any_bytes_in_a_file_give_named_faults(
    tmp_path_factory: pytest.TempPathFactory, ending: str, text: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / f"bytes.{ending}"
    path.write_bytes(text)
    with pytest.raises(ProblemError):
        Problem.load(path)
    with pytest.raises(ScheduleError):
        Schedule.load(path)
