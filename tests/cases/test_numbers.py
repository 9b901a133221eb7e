"""Objectives, formulas and comparisons that were read in two ways."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from schedopt import ProblemError
from schedopt.analysis import Row, compare, summary
from schedopt.classic import one_f_one_b
from schedopt.formats.tables import model_notes
from schedopt.op import Op
from schedopt.variants import moved
from tests.cases.solving import (
    fused_pipeline,
    optimal_schedule,
    optimum,
    pipeline,
    proven,
)


def test_N01_the_bubble_of_zb_h1_is_optimal() -> None:
    """Two formulas for one schedule, each with its own B: 27, of which 3 are idle."""
    assert optimum(pipeline(4, 8, capacity=4)) == 27 == 8 * 3 + 3


def test_N02_two_directions_in_one_problem_are_refused() -> None:
    """Two placements of one model, as in DualPipe, are no list of devices."""
    with pytest.raises(ProblemError) as error:
        fused_pipeline(4, 4, 1, 3, placement=[[0, 1, 2, 3], [3, 2, 1, 0]])
    fields = [fault.field for fault in error.value.faults]
    assert fields == ["placement[0]", "placement[1]"]


def test_N02_a_comparison_states_what_it_compares() -> None:
    """One direction with all 8 microbatches takes 44: devices, stages, copies say of what."""
    schedule = optimal_schedule(fused_pipeline(4, 8, 1, 3, capacity=4))
    facts = summary(schedule)
    assert facts.makespan == 44
    assert (len(facts.devices), facts.stages, facts.microbatches) == (4, 4, 8)
    assert facts.parameter_copies == 1


def test_N04_a_slow_link_in_the_middle_is_idle_time_and_no_work() -> None:
    """Measured bubbles mixed waiting and transfer; 48 of 70 are work on each device."""
    facts = summary(optimal_schedule(pipeline(4, 8, 2, 2, 2, lag=[0, 4, 0], capacity=4)))
    assert facts.makespan == 70
    assert [(device.work, device.idle) for device in facts.devices] == [(48, 22)] * 4


def test_N06_an_op_of_overlapped_f_and_b_has_no_hidden_duration() -> None:
    """A picture showed no bubble because of a default; there is no such op, and no default."""
    with pytest.raises(ProblemError) as error:
        fused_pipeline(8, 20, 1, 2).replace(durations={"F": 1, "BW": 3, "FB": 2})
    assert [(f.field, f.value) for f in error.value.faults] == [("durations.FB", "2")]


def test_N07_the_slowest_stage_times_m_is_no_estimate() -> None:
    """Fill and drain count: 9 + 4 x 15, and not 60."""
    assert optimum(fused_pipeline(4, 4, [1, 1, 1, 5], [2, 2, 2, 10])) == 69


def test_N07_a_device_without_a_stage_is_warned_of() -> None:
    """A plan used fewer devices than it was given."""
    problem = fused_pipeline(5, 4, [1, 1, 1, 5], [2, 2, 2, 10], placement=[0, 1, 2, 3])
    assert problem.warnings == ("device 4 has no stage and stays idle",)
    assert summary(optimal_schedule(problem)).devices[4].idle == 69


def rows_by_name(microbatches: int) -> dict[tuple[str, str], Row]:
    return {(row.name, row.placement): row for row in compare(pipeline(8, microbatches))}


def makespans(rows: dict[tuple[str, str], Row]) -> dict[tuple[str, str], Any]:
    return {key: row.summary.makespan for key, row in rows.items() if row.summary is not None}


def test_N09_a_comparison_has_time_memory_and_transfers_of_the_best_interleaving() -> None:
    """ZB-V was no gain over well-tuned interleaving: that belongs into the table."""
    rows = rows_by_name(16)
    table = {
        key: (facts.makespan, facts.peak, facts.transfers)
        for key, row in rows.items()
        if (facts := row.summary) is not None
    }
    assert table["1F1B", "linear"] == (69, 8, 224)
    assert table["Interleaved 1F1B", "interleaved, 2 chunks"] == (58.5, 11.5, 480)
    assert table["Interleaved 1F1B", "interleaved, 4 chunks"] == (53.25, 9.75, 992)
    assert table["ZB-H2", "linear"] == (55, 15, 224)
    assert table["ZB-V", "v, 2 chunks"] == (51.5, 8, 448)


@pytest.mark.parametrize(
    "counts", [(8, 16), pytest.param((8, 16, 64), marks=pytest.mark.slow)], ids=str
)
def test_N09_gains_shrink_with_more_microbatches(counts: tuple[int, ...]) -> None:
    """The bubble is paid once, however many microbatches share it."""
    tables = [makespans(rows_by_name(microbatches)) for microbatches in counts]
    for rival in (
        ("Interleaved 1F1B", "interleaved, 4 chunks"),
        ("ZB-H1", "linear"),
        ("ZB-V", "v, 2 chunks"),
    ):
        gains = [table["1F1B", "linear"] / table[rival] for table in tables]
        assert all(more > less > 1 for more, less in pairwise(gains))


def test_N10_the_first_forwards_follow_each_other_at_once() -> None:
    """A runtime started the first forward of a device one op late."""
    schedule = optimal_schedule(pipeline(4, 8, capacity=4))
    assert schedule.makespan == 27
    starts = {timed.op: timed.start for ops in schedule.timeline.values() for timed in ops}
    assert [starts[Op("F", stage, 0)] for stage in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize(("capacity", "period"), [(4, 27), (5, 26), (6, 25), (7, 24)])
def test_N12_more_memory_shortens_the_period(capacity: int, period: int) -> None:
    """The bubble is zero from a device's first op to its own last, and for that time only."""
    schedule = optimal_schedule(pipeline(4, 8, capacity=capacity, objective="period"))
    assert schedule.period == period
    facts = summary(schedule)
    assert facts.objective == "period"
    assert (facts.period_bubble == 0) == (period == 24)
    assert facts.makespan_bubble > 0


@pytest.mark.parametrize("capacity", [4, 7])
def test_N12_more_memory_does_not_shorten_the_makespan(capacity: int) -> None:
    """From the first op of all to the last of all the step stays 27."""
    solution = proven(pipeline(4, 8, capacity=capacity))
    assert solution.objective == 27
    assert solution.summary()["objective_name"] == "makespan"


def test_N14_transfers_are_a_pure_delay() -> None:
    """Transfers that do not overlap cost 5-15 %; here they are a pure delay, and said to be."""
    assert optimum(pipeline(4, 8, 4, 4, 4, lag=1, capacity=4)) == 120
    for lag, makespan in ((0, 132), (1, 148)):
        assert one_f_one_b(fused_pipeline(4, 8, 4, 8, lag=lag, capacity=4)).makespan == makespan
    assert any("pure delay" in note for note in model_notes(pipeline(4, 8)))


def test_N14_transfers_that_keep_a_link_busy_are_an_option() -> None:
    """The same 1 unit for each transfer, and it is the link that takes it."""
    size = {"size": 1, "bandwidth": 1}
    assert optimum(pipeline(4, 8, 4, 4, 4, capacity=4, links=size)) == 120
    slow = pipeline(4, 8, 4, 4, 4, links={"size": 15, "bandwidth": 1})
    delay = slow.replace(links={"size": 15, "bandwidth": 1, "occupy": False})
    assert proven(delay).objective == 182
    assert any("keeps its link busy" in note for note in model_notes(slow))
    assert not any("pure delay" in note for note in model_notes(slow))
    assert proven(slow).objective == 233  # 8 outputs in a row take 8 x 15 on every link


LAGS = (0, 1, 2, 4)


@pytest.mark.parametrize(
    ("capacity", "makespan"), [(2, (50, 54, 62, 78)), (3, (50, 51, 52, 60)), (4, (50, 51, 52, 54))]
)
def test_N16_with_enough_memory_a_lag_costs_only_the_fill(
    capacity: int, makespan: tuple[int, ...]
) -> None:
    """Twice the bandwidth gave no throughput: without memory a lag costs, with it hardly."""
    found = [optimum(pipeline(2, 8, 2, 2, 2, lag=lag, capacity=capacity)) for lag in LAGS]
    assert found == list(makespan)


@pytest.mark.parametrize(
    ("devices", "placement", "makespan"), [(2, [0, 0, 1], 36), (3, [0, 1, 2], 24)]
)
def test_N19_a_device_may_hold_consecutive_stages(
    devices: int, placement: list[int], makespan: int
) -> None:
    """A vision tower as a stage of its own: stages need not be a multiple of the devices."""
    work = [2, 1, 1]
    assert optimum(pipeline(devices, 4, work, work, work, placement=placement)) == makespan


def test_N20_the_busiest_devices_are_named() -> None:
    """An encoder and decoder split by ceil: stages 2 and 3 have three times the work of 1."""
    work = [25, 9, 29, 29]
    schedule = optimal_schedule(pipeline(4, 4, work, work, work, capacity=4))
    assert schedule.makespan == 411
    assert [device.stages for device in summary(schedule).busiest] == [(2,), (3,)]


@pytest.mark.parametrize(("last", "makespan"), [(3, 6 + 8 * (3 + 3 + 2)), (2, 54)])
def test_N21_the_head_bounds_the_step(last: int, makespan: int) -> None:
    """Output and loss on the last stage: 6 until it starts, and 8 x 8 of work."""
    work = [2, 2, 2, last]
    solution = proven(pipeline(4, 8, work, work, 2, capacity=4))
    assert solution.objective == solution.bound == makespan


def test_N21_the_head_as_an_extra_can_be_moved() -> None:
    """The same head given separately: earlier stages wait less for it, and none still takes 54."""
    head = {"name": "head", "stage": 3, "F": 1, "B": 1}
    problem = pipeline(4, 8, 2, 2, 2, capacity=4, extras=[head])
    assert optimum(problem) == 70
    assert [optimum(moved(problem, "head", stage)) for stage in (0, 1, 2)] == [67, 66, 68]
    assert optimum(problem.replace(extras=[])) == 54


@pytest.mark.parametrize(("capacity", "makespan"), [(2, 24), (3, 22), (None, 22)])
def test_N22_a_long_w_gains_little_from_being_split(capacity: int | None, makespan: int) -> None:
    """Where W is three times as long as the rest, memory for a third microbatch is enough."""
    assert optimum(pipeline(3, 4, 1, 1, 3, capacity=capacity)) == makespan


def test_N22_a_long_f_is_no_help_either() -> None:
    """F three times as long as the rest."""
    assert optimum(pipeline(3, 4, 3, 1, 1, capacity=3)) == 26
