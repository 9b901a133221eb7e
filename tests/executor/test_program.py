"""Schedule -> messages in one agreed order, proven free of deadlock, and bounded in number."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from schedopt import Problem, ScheduleError
from schedopt.classic import gpipe, interleaved, one_f_one_b, v_half, v_min, zb_h1, zb_h2, zb_v
from schedopt.executor.program import (
    Action,
    Message,
    Program,
    find_circle,
    forward_program,
    training_program,
)
from schedopt.graph import build_graph
from schedopt.op import Op
from schedopt.schedule import Schedule
from tests.problems import random_orders, random_problems
from tests.schedules import schedule_of


def receive(source: int, target: int, microbatch: int, peer: int) -> Action:
    return Action("wait", Message(source, target, microbatch), peer)


def send(source: int, target: int, microbatch: int, peer: int) -> Action:
    return Action("send", Message(source, target, microbatch), peer)


def compute(kind: str, stage: int, microbatch: int) -> Action:
    return Action("run", Op(kind, stage, microbatch))


def test_X01_two_ranks_that_send_first_wait_for_each_other() -> None:
    rank0 = [send(0, 1, 1, 1), receive(1, 2, 0, 1), compute("F", 2, 0)]
    rank1 = [send(1, 2, 0, 0), receive(0, 1, 1, 0), compute("F", 1, 1)]
    circle = find_circle({0: rank0, 1: rank1})
    assert circle == [
        "rank 0 sends output of stage 0 for stage 1, microbatch 1 (to rank 1)",
        "rank 1 sends output of stage 1 for stage 2, microbatch 0 (to rank 0)",
    ]
    receives_first = [rank1[1], rank1[0], rank1[2]]
    assert find_circle({0: rank0, 1: receives_first}) == []


@pytest.mark.parametrize("microbatches", [1, 3, 4])
def test_X01_two_ranks_with_looped_stages_complete_if_a_send_waits_for_its_receive(
    microbatches: int,
) -> None:
    problem = Problem.uniform(devices=2, microbatches=microbatches, placement="interleaved")
    program = training_program(interleaved(problem))
    assert find_circle(program.actions) == []
    assert set(program.messages) == {(0, 1), (1, 0)}
    for direction, listed in program.messages.items():
        gradients = {message.is_gradient for message in listed}
        assert gradients == {True, False}, direction  # both share each direction


def test_X03_1f1b_with_blocking_transfers_waits_forever() -> None:
    f = [(0, 1, i) for i in (0, 1)]
    b = [(1, 0, i) for i in (0, 1)]
    rank0 = [
        *(compute("F", 0, 0), send(*f[0], 1), compute("F", 0, 1), send(*f[1], 1)),
        *(receive(*b[0], 1), compute("B", 0, 0), receive(*b[1], 1), compute("B", 0, 1)),
    ]
    rank1 = [
        *(receive(*f[0], 0), compute("F", 1, 0), compute("B", 1, 0), send(*b[0], 0)),
        *(receive(*f[1], 0), compute("F", 1, 1), compute("B", 1, 1), send(*b[1], 0)),
    ]
    assert find_circle({0: rank0, 1: rank1}) == [
        "rank 0 sends output of stage 0 for stage 1, microbatch 1 (to rank 1)",
        "rank 1 sends gradient of stage 1 for stage 0, microbatch 0 (to rank 0)",
    ]
    ahead = Action("post", Message(*f[1]), 0)
    assert find_circle({0: rank0, 1: [*rank1[:3], ahead, *rank1[3:]]}) == []


def test_a_rank_that_never_answers_is_named() -> None:
    assert find_circle({0: [receive(1, 0, 0, 1)], 1: []}) == [
        "rank 0 waits for gradient of stage 1 for stage 0, microbatch 0 (from rank 1)"
    ]


def test_X08_two_devices_can_be_interleaved() -> None:
    """The next and the previous rank are the same one; messages are told apart by their stages."""
    problem = Problem.uniform(devices=2, microbatches=2, placement="interleaved")
    program = training_program(interleaved(problem))
    assert [str(m) for m in program.messages[0, 1][:2]] == [
        "output of stage 0 for stage 1, microbatch 0",
        "output of stage 0 for stage 1, microbatch 1",
    ]
    assert len(program.messages[0, 1]) == 2 * 3  # 0 -> 1, 2 -> 3, and gradients 2 -> 1
    require_sound(program)


def test_a_turn_on_one_device_needs_no_message() -> None:
    program = training_program(zb_v(Problem.uniform(devices=2, microbatches=3, placement="v")))
    messages = [m for listed in program.messages.values() for m in listed]
    assert {(m.source, m.target) for m in messages} == {(0, 1), (1, 0), (2, 3), (3, 2)}


def test_X05_a_skip_connection_is_a_message_of_its_own() -> None:
    problem = Problem.uniform(devices=3, microbatches=2, edges=[{"from": 0, "to": 2}])
    program = training_program(one_f_one_b(problem))
    assert program.links[2].sources == (1, 0)
    assert program.links[0].targets == (1, 2)
    assert Message(0, 2, 0) in program.messages[0, 2]
    assert Message(2, 0, 0) in program.messages[2, 0]
    require_sound(program)


def test_X36_nothing_is_waited_for_before_what_is_ready_is_sent() -> None:
    """A receive stands right before the op that needs it, a send right after its op."""
    problem = Problem.uniform(devices=4, microbatches=8, lag=1, placement="interleaved")
    program = training_program(interleaved(problem))
    for actions in program.actions.values():
        made: set[Message] = set()
        for before, action in pairwise(actions):
            if action.verb == "wait":
                assert not made, (before, action)
            if action.verb == "run":
                assert isinstance(action.what, Op)
                made = {
                    message
                    for message in all_messages(program)
                    if made_by(program, message) == action.what
                }
            if action.verb == "send":
                made.discard(action.what)  # type: ignore[arg-type]
        assert not made


def all_messages(program: Program) -> list[Message]:
    return [m for listed in program.messages.values() for m in listed]


def made_by(program: Program, message: Message) -> Op:
    if not message.is_gradient:
        return Op("F", message.source, message.microbatch)
    kinds = {op.kind for ops in program.ops.values() for op in ops if op.stage == message.source}
    return Op("BW" if "BW" in kinds else "B", message.source, message.microbatch)


def require_sound(program: Program) -> None:
    """Each message is posted, waited for, sent and released once, in the agreed order."""
    assert find_circle(program.actions) == []
    for (source, target), listed in program.messages.items():
        ends = {
            verb: [a.what for a in program.actions[rank] if a[0] in verb and a.what in set(listed)]
            for rank, verb in (
                (source, ("send",)),
                (source, ("release", "drain")),
                (target, ("post",)),
                (target, ("wait",)),
            )
        }
        assert ends["send",] == ends["post",] == ends["release", "drain"] == list(listed)
        assert sorted(ends["wait",]) == sorted(listed)  # type: ignore[type-var]
    for rank, actions in program.actions.items():
        posted: set[Any] = set()
        for action in actions:
            if action.verb == "post":
                posted.add(action.what)
            if action.verb == "wait":
                assert action.what in posted, (rank, action)


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_a_valid_schedule_is_free_of_deadlock(seed: int) -> None:
    found = 0
    for problem in random_problems(40, seed, ops=24):
        orders = random_orders(problem, Random(seed).randint)
        if orders is None:
            continue
        found += 1
        require_sound(training_program(Schedule.from_order(build_graph(problem), orders)))
    assert found > 20


def test_too_little_room_is_a_circle() -> None:
    """Rank 1 uses the second message first; with room for one it can never arrive."""
    problem = Problem.uniform(devices=2, microbatches=2)
    program = training_program(gpipe(problem))
    first, second = Message(0, 1, 0), Message(0, 1, 1)
    swapped = (
        *(Action("post", first, 0), Action("wait", second, 0), compute("F", 1, 1)),
        *(Action("wait", first, 0), compute("F", 1, 0)),
    )
    ahead = (Action("post", first, 0), Action("post", second, 0), *swapped[1:])
    sends = tuple(a for a in program.actions[0] if a.verb == "send")
    assert find_circle({0: sends, 1: ahead}) == []
    late = (swapped[0], Action("wait", first, 0), Action("wait", second, 0))
    reverse = tuple(reversed(sends))
    assert find_circle({0: reverse, 1: late}) == [
        "rank 0 sends output of stage 0 for stage 1, microbatch 1 (to rank 1)",
        "rank 1 waits for output of stage 0 for stage 1, microbatch 0 (from rank 0)",
    ]


def test_a_schedule_that_breaks_a_rule_is_refused() -> None:
    problem = Problem.uniform(devices=1, microbatches=1)
    timeline = schedule_of(problem, "0F0 0B0 0W0").timeline
    resource, (f, b, _) = next(iter(timeline.items()))
    with pytest.raises(ScheduleError, match="0W0: is not in the schedule"):
        training_program(
            Schedule(problem, {resource: (f, b)}, build_graph(problem).graph["resolution"])
        )


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize(
    ("build", "placement"),
    [
        (gpipe, "linear"),
        (one_f_one_b, "linear"),
        (interleaved, "interleaved"),
        (zb_h1, "linear"),
        (zb_h2, "linear"),
        (zb_v, "v"),
        (v_half, "v"),
        (v_min, "v"),
    ],
)
def test_boundary_tensors_do_not_grow_with_the_number_of_microbatches(
    build: Any, placement: str, lag: int
) -> None:
    def most(microbatches: int) -> list[int]:
        fields = {"placement": placement, "lag": lag}
        schedule = build(Problem.uniform(devices=4, microbatches=microbatches, **fields))
        program = training_program(schedule)
        return [program.boundary_messages(rank) for rank in range(4)]

    assert most(16) == most(64)
    assert max(most(16)) <= 8


def test_M08_boundary_tensors_stay_below_what_the_capacity_holds_and_two_more() -> None:
    for build in (one_f_one_b, zb_h1):
        program = training_program(build(Problem.uniform(devices=4, microbatches=16, capacity=4)))
        assert max(program.boundary_messages(rank) for rank in range(4)) < 4 + 2


@pytest.mark.parametrize(
    ("build", "placement", "most"),
    [
        (gpipe, "linear", {0: 8, 1: 8, 2: 8, 3: 8}),
        (one_f_one_b, "linear", {0: 4, 1: 3, 2: 2, 3: 1}),
        (zb_h1, "linear", {0: 4, 1: 4, 2: 4, 3: 4}),
    ],
)
def test_microbatches_held_are_those_of_the_schedule(
    build: Any, placement: str, most: dict[int, int]
) -> None:
    problem = Problem.uniform(devices=4, microbatches=8, placement=placement)
    assert training_program(build(problem)).held_microbatches() == most


@pytest.mark.parametrize(("p", "m"), [(4, 8), (1, 3), (3, 1), (4, 2)])
def test_X32_forward_only_takes_m_plus_p_minus_1(p: int, m: int) -> None:
    program = forward_program(Problem.uniform(devices=p, microbatches=8), m)
    assert makespan(program) == m + p - 1
    assert all(op.kind == "F" for ops in program.ops.values() for op in ops)
    require_sound(program)


@pytest.mark.parametrize("placement", ["interleaved", "v"])
def test_forward_only_works_on_every_placement(placement: str) -> None:
    program = forward_program(Problem.uniform(devices=3, microbatches=1, placement=placement), 5)
    assert makespan(program) <= 2 * 5 + 3 + 2
    require_sound(program)


def makespan(program: Program) -> int:
    """With ops of length 1, by running the actions."""
    ends: dict[Op, int] = {}
    position = dict.fromkeys(program.ops, 0)
    while any(position[rank] < len(ops) for rank, ops in program.ops.items()):
        for rank, ops in program.ops.items():
            while position[rank] < len(ops):
                op = ops[position[rank]]
                needed = [Op("F", s, op.microbatch) for s in program.links[op.stage].sources]
                if not all(other in ends for other in needed):
                    break
                before = [ends[other] for other in needed]
                before += [ends[ops[position[rank] - 1]]] if position[rank] else []
                ends[op] = 1 + max(before, default=0)
                position[rank] += 1
    return max(ends.values())
