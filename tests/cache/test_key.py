from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings

from schedopt.cache import key
from schedopt.cache.key import problem_key
from schedopt.exact import plain
from schedopt.parts import (
    Durations,
    Edge,
    EndOfStep,
    Extra,
    LagByDirection,
    Links,
    Memory,
    Recompute,
    SharedLink,
    Tied,
    Transient,
)
from schedopt.problem import Problem
from tests.problems import problems

BASE: dict[str, Any] = {
    "devices": 2,
    "placement": "v",
    "microbatches": 2,
    "durations": {"F": 1, "B": 2, "W": 3},
    "lag": 1,
    "edges": [{"from": 0, "to": 2}],
    "memory": {"F": 4, "B": -1, "W": -3, "static": 1, "capacity": 20},
}

WAYS_TO_WRITE: dict[str, dict[str, Any]] = {
    "other name": {"name": "other", "source": "elsewhere"},
    "other units": {"time_unit": "us", "memory_unit": "GB"},
    "floats": {"durations": {"F": 1.0, "B": 2.0, "W": 3.0}, "lag": 1.0},
    "lists": {"durations": {"F": [1] * 4, "B": [2, 2.0, 2, 2], "W": [3] * 4}},
    "unused kind": {"durations": {"F": 1, "B": [2] * 4, "W": [3] * 4, "BW": [None] * 4}},
    "placement as list": {"placement": [0, 1, 1, 0]},
    "placement as wave": {"placement": "wave"},
    "number of stages": {"stages": 4},
    "factors of 1": {"microbatch_factors": [1, 1.0]},
    "lag as table": {"lag": [[0, 1], [1, 0]]},
    "lag by direction": {"lag": {"forward": 1, "backward": [[0, 1], [1, 0]]}},
    "lag of the edge": {"edges": [{"from": 0, "to": 2, "lag": 1}]},
    "edge twice": {"edges": [{"from": 0, "to": 2}, {"from": 0, "to": 2, "lag": 0.5}]},
    "edge between neighbours": {"edges": [{"from": 0, "to": 1, "lag": 0.5}, {"from": 0, "to": 2}]},
    "memory that follows": {"memory": {"F": 4, "B": -1, "static": 1, "capacity": 20}},
    "memory as lists": {
        "memory": {"F": [4] * 4, "B": -1, "static": [1, 1], "capacity": [20, 20.0]}
    },
    "transient of an unused kind": {"memory": {**BASE["memory"], "transient": {"BW": [0] * 4}}},
}

CHANGES: dict[str, dict[str, Any]] = {
    "objective": {"objective": "period"},
    "idle device": {"devices": 3, "placement": [0, 1, 1, 0]},
    "placement": {"placement": "interleaved"},
    "number of stages": {"placement": "wave", "stages": 8},
    "microbatches": {"microbatches": 3},
    "factors": {"microbatch_factors": [1, 2]},
    "factors the other way": {"microbatch_factors": [2, 1]},
    "F": {"durations": {"F": 1.5, "B": 2, "W": 3}},
    "F of a stage": {"durations": {"F": [1, 1, 1, 1.000001], "B": 2, "W": 3}},
    "B": {"durations": {"F": 1, "B": 3, "W": 3}},
    "W": {"durations": {"F": 1, "B": 2, "W": 2}},
    "fused": {"durations": {"F": 1, "BW": 5}, "memory": {"F": 4, "static": 1, "capacity": 20}},
    "lag": {"lag": 2},
    "lag forward": {"lag": {"forward": 2, "backward": 1}},
    "lag backward": {"lag": {"forward": 1, "backward": 2}},
    "no edge": {"edges": []},
    "other edge": {"edges": [{"from": 1, "to": 3}]},
    "lag of the edge": {"edges": [{"from": 0, "to": 2, "lag": 3}]},
    "memory of F": {"memory": {**BASE["memory"], "F": 5, "W": -4}},
    "memory of B": {"memory": {**BASE["memory"], "B": 0, "W": -4}},
    "transient of F": {"memory": {**BASE["memory"], "transient": {"F": 1}}},
    "transient of W": {"memory": {**BASE["memory"], "transient": {"W": 1}}},
    "static": {"memory": {**BASE["memory"], "static": 2}},
    "capacity": {"memory": {**BASE["memory"], "capacity": 21}},
    "capacity of a device": {"memory": {**BASE["memory"], "capacity": [20, 21]}},
    "no capacity": {"memory": {**BASE["memory"], "capacity": None}},
    "recompute": {"recompute": {"mode": "always"}},
    "recompute to be decided": {"recompute": {"mode": "decide"}},
    "recompute of one stage": {"recompute": {"mode": ["always", "never", "never", "never"]}},
    "duration of R": {"recompute": {"mode": "always", "R": 2}},
    "memory kept until R": {"recompute": {"mode": "always", "kept": 1}},
    "an extra": {"extras": [{"name": "loss", "stage": 3, "F": 1}]},
    "static memory of an extra": {"extras": [{"name": "loss", "stage": 3, "static": 1}]},
    "reduction": {"end_of_step": {"reduction": 1}},
    "optimizer": {"end_of_step": {"optimizer": 1}},
    "tied stages": {"end_of_step": {"tied": [{"stages": [0, 3], "duration": 1}]}},
    "forward only": {"forward_only": True},
    "no chain": {"chain": False},
    "links": {"lag": 0, "links": {"size": 1, "bandwidth": 1}},
    "links that are not occupied": {
        "lag": 0,
        "links": {"size": 1, "bandwidth": 1, "occupy": False},
    },
    "size of gradients": {"lag": 0, "links": {"size": 1, "gradient_size": 2, "bandwidth": 1}},
    "latency": {"lag": 0, "links": {"size": 1, "bandwidth": 1, "latency": 1}},
    "shared links": {
        "lag": 0,
        "links": {
            "size": 1,
            "bandwidth": 1,
            "shared": [{"name": "wire", "links": [[0, 1], [1, 0]]}],
        },
    },
}


def problem_of(changes: Mapping[str, Any]) -> Problem:
    return Problem(**{**BASE, **changes})


@pytest.mark.parametrize("way", WAYS_TO_WRITE)
def test_ways_to_write_one_problem_have_one_key(way: str) -> None:
    assert problem_key(problem_of(WAYS_TO_WRITE[way])) == problem_key(problem_of({}))


def test_the_order_of_the_edges_does_not_matter() -> None:
    edges = [{"from": 0, "to": 2}, {"from": 1, "to": 3}]
    assert problem_key(problem_of({"edges": edges})) == problem_key(
        problem_of({"edges": edges[::-1]})
    )


def test_each_change_of_the_problem_gives_a_key_of_its_own() -> None:
    keys = {name: problem_key(problem_of(changes)) for name, changes in CHANGES.items()}
    keys["nothing"] = problem_key(problem_of({}))
    assert len(set(keys.values())) == len(CHANGES) + 1


def test_a_key_is_64_hexadecimal_digits() -> None:
    assert len(problem_key(problem_of({}))) == 64
    assert set(problem_key(problem_of({}))) <= set("0123456789abcdef")


@pytest.mark.parametrize("package", ["schedopt", "ortools"])
def test_another_version_gives_another_key(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = problem_key(problem_of({}))
    version = key.version
    monkeypatch.setattr(key, "version", lambda name: version(name) + "+" * (name == package))
    assert problem_key(problem_of({})) != before


@settings(max_examples=100)
@given(problem=problems(ops=36))
def test_a_problem_with_every_number_spelled_out_has_the_same_key(problem: Problem) -> None:
    stages = problem.stage_data
    kinds = {kind for stage in stages for kind in stage.durations}

    def column(table: str) -> dict[str, list[Any]]:
        return {
            kind: [
                None if kind not in stage.durations else plain(getattr(stage, table)[kind])
                for stage in stages
            ]
            for kind in kinds
        }

    transient = {
        kind: [amount or 0 for amount in amounts] for kind, amounts in column("transient").items()
    }
    changes: dict[str, Any] = {
        "name": "spelled out",
        "stages": len(stages),
        "placement": list(problem.device_of),
        "durations": column("durations"),
        "microbatch_factors": list(map(plain, problem.factors)),
        "memory": {
            **column("memory"),
            "transient": transient,
            "static": list(map(plain, problem.static)),
            "capacity": [None if c is None else plain(c) for c in problem.capacity],
        },
    }
    if not problem.edges and len(stages) > 1:
        boundaries = range(len(stages) - 1)
        changes["lag"] = {
            "forward": [plain(problem.lag_between(s, s + 1)) for s in boundaries],
            "backward": [plain(problem.lag_between(s + 1, s)) for s in boundaries],
        }
    assert problem_key(problem.replace(**changes)) == problem_key(problem)


def test_every_field_of_a_problem_either_is_in_the_key_or_decides_nothing() -> None:
    """A new field fails here until it is put into `problem_key` and into `CHANGES`."""
    names = {"name", "source", "time_unit", "memory_unit"}
    form = {"format", "stages"}
    deciding = {"devices", "placement", "microbatches", "durations", "microbatch_factors"}
    deciding |= {"lag", "chain", "edges", "links", "memory", "objective"}
    deciding |= {"recompute", "extras", "end_of_step", "forward_only"}
    assert set(Problem.model_fields) == names | form | deciding
    assert set(Durations.model_fields) == {"F", "B", "W", "BW"}
    assert set(Transient.model_fields) == {"F", "B", "W", "BW"}
    assert set(Memory.model_fields) == {"F", "B", "W", "BW", "transient", "static", "capacity"}
    assert set(LagByDirection.model_fields) == {"forward", "backward"}
    assert set(Edge.model_fields) == {"from_stage", "to_stage", "lag"}
    assert set(Recompute.model_fields) == {"mode", "R", "kept"}
    links = {"size", "gradient_size", "bandwidth", "latency", "occupy", "shared"}
    assert set(Links.model_fields) == links
    assert set(SharedLink.model_fields) == {"name", "links"}
    assert set(EndOfStep.model_fields) == {"reduction", "optimizer", "tied"}
    assert set(Tied.model_fields) == {"stages", "duration"}
    assert set(Extra.model_fields) == {"name", "stage", "F", "B", "W", "memory", "static"}
