"""What holds for every classic schedule and any problem it is defined for."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schedopt.check import check
from schedopt.classic import CLASSIC
from schedopt.errors import NotApplicableError
from schedopt.graph import build_graph
from schedopt.memory import peak_memory
from schedopt.placement import named_placement
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.variants import refine_orders
from tests.problems import problems

APPLICABLE = {
    "linear": {"GPipe", "1F1B", "Interleaved 1F1B", "ZB-H1", "ZB-H2", "Wave"},
    "interleaved": {"GPipe", "Interleaved 1F1B"},
    "v": {"GPipe", "ZB-V", "V-Half", "V-Min", "DualPipeV", "Wave"},
    "wave": {"GPipe", "Wave"},
}
"""Classic schedules of each placement; linear is interleaved and wave with one chunk."""


@st.composite
def placed_problems(draw: st.DrawFn, *placements: str) -> Problem:
    """Any costs, memory and lags on a named placement with up to 4 devices and 9 microbatches."""
    p, m = draw(st.integers(1, 4)), draw(st.integers(1, 9))
    name = draw(st.sampled_from(placements))
    v = {"linear": 1, "v": 2}.get(name) or draw(st.integers(2, 4))
    count = p * v
    fused = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    fused = draw(st.sampled_from([[False] * count, [True] * count, fused]))

    def times(given: list[bool]) -> list[int | None]:
        return [draw(st.integers(0, 5)) if there else None for there in given]

    split = [not is_fused for is_fused in fused]
    durations: dict[str, Any] = {"F": times([True] * count)}
    durations |= {kind: times(split) for kind in "BW"} if any(split) else {}
    durations |= {"BW": times(fused)} if any(fused) else {}
    forward = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    backward = [
        draw(st.integers(-amount, 2)) if there else None
        for amount, there in zip(forward, split, strict=True)
    ]
    transient = {"F": 1, "W": 2} if any(split) else {"F": 1}
    edges = []
    if count > 2 and draw(st.booleans()):
        edges = [{"from": draw(st.integers(0, count - 3)), "to": count - 1, "lag": 2}]
    fields: dict[str, Any] = {
        "devices": p,
        "stages": count,
        "placement": name,
        "microbatches": m,
        "durations": durations,
        "lag": draw(st.sampled_from([0, 1, {"forward": 3, "backward": 1}])),
        "memory": {"F": forward, "B": backward, "transient": transient},
        "edges": edges,
        "objective": draw(st.sampled_from(["makespan", "period"])),
    }
    if draw(st.booleans()):
        fields["microbatch_factors"] = [draw(st.sampled_from([1, 2, 0.5])) for _ in range(m)]
    return Problem(**fields)


def applicable(problem: Problem) -> set[str]:
    found = set()
    for name, build in CLASSIC.items():
        try:
            build(problem)
        except NotApplicableError:
            continue
        found.add(name)
    return found


@settings(max_examples=60)
@given(placed_problems(*APPLICABLE))
def test_every_applicable_schedule_is_valid(problem: Problem) -> None:
    for name, build in CLASSIC.items():
        try:
            schedule = build(problem)
        except NotApplicableError:
            continue
        assert check(schedule) == ()
        assert schedule.name == name


@settings(max_examples=40)
@given(problems())
def test_gpipe_is_defined_for_any_placement(problem: Problem) -> None:
    violations = check(CLASSIC["GPipe"](problem))
    assert {violation.rule for violation in violations} <= {"memory"}


@pytest.mark.parametrize("placement", sorted(APPLICABLE))
def test_each_placement_has_its_schedules(placement: str) -> None:
    chunks = {"linear": 1, "v": 2}.get(placement, 3)
    problem = Problem.uniform(
        devices=3, microbatches=2, placement=placement, stages=3 * chunks, memory={"F": 1}
    )
    assert applicable(problem) == APPLICABLE[placement]


def test_every_schedule_is_defined_for_one_device() -> None:
    for name, build in CLASSIC.items():
        count = 1 if name in APPLICABLE["linear"] else 2
        problem = Problem.uniform(devices=1, microbatches=3, placement=[0] * count)
        schedule = build(problem)
        assert check(schedule) == ()
        assert schedule.makespan == 9 * count


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(CLASSIC)),
    st.integers(1, 5),
    st.integers(1, 12),
    st.integers(1, 4),
    st.data(),
)
@example("Interleaved 1F1B", 4, 5, 2, None)
@example("Interleaved 1F1B", 8, 9, 3, None)
def test_peaks_follow_the_pattern_for_any_costs(
    name: str, p: int, m: int, chunks: int, data: st.DataObject | None
) -> None:
    own = {"Wave": "wave", "Interleaved 1F1B": "interleaved"}
    placement = own.get(name) or next(key for key, names in APPLICABLE.items() if name in names)
    v = {"linear": 1, "v": 2}.get(placement, chunks)
    times = st.lists(st.integers(0, 5), min_size=p * v, max_size=p * v)
    costs = {kind: data.draw(times) if data else 1 for kind in "FBW"}
    problem = Problem(
        devices=p,
        placement=list(named_placement(placement, p, v)),
        microbatches=m,
        durations=costs,
        lag=data.draw(st.integers(0, 3)) if data else 0,
        memory={"F": 1, "B": 0},
    )
    schedule = CLASSIC[name](problem)
    assert check(schedule) == ()
    peaks = [peak / v for peak in peak_memory(schedule)]
    exact = {
        "GPipe": [m] * p,
        "1F1B": [min(m, p - s) for s in range(p)],
        "ZB-H1": [min(m, p)] * p,
        "ZB-H2": [min(m, 2 * p - 1)] * p,
    }
    most = {
        "Interleaved 1F1B": p * (1 + Fraction(p - 1, p * v)),
        "ZB-V": p,
        "V-Half": p // 2 + 1,
        "V-Min": (p + 4) // 3,
        "DualPipeV": p + Fraction(1, 2),
        "Wave": p,
    }
    if name in exact:
        assert peaks == exact[name]
    else:
        assert max(peaks) <= min(m, most[name])


@settings(max_examples=40)
@given(placed_problems("v"), st.integers(0, 12))
def test_zb_v_stays_within_the_capacity_wherever_one_microbatch_does(
    problem: Problem, spare: int
) -> None:
    single = problem.replace(microbatches=1, microbatch_factors=None)
    graph = build_graph(single)
    serial = Schedule.from_order(graph, refine_orders(CLASSIC["GPipe"](single), graph))
    capacity = [float(peak * max(problem.factors)) + spare for peak in peak_memory(serial)]
    assert check(CLASSIC["ZB-V"](problem.with_capacity(capacity))) == ()
