"""Tables of actions as torch.distributed.pipelining reads them with ``format="compute_comms"``.

Besides the ops (`schedopt.formats.torch_csv`) they say what is sent, received and reduced, when:

===============  ===============================================================================
``1SEND_F3``     stage 1 sends its output of microbatch 3 to stage 2
``2RECV_F3``     stage 2 makes room for it, and waits for it in ``2F3``
``2SEND_B3``     stage 2 sends the gradient of its input to stage 1
``1RECV_B3``     stage 1 makes room for it
``1REDUCE_GRAD`` the gradients of stage 1 are scaled, and reduced where it is sharded
===============  ===============================================================================

Nothing is sent between stages of one device. Transfers carry no tag, so those of two ranks are
told apart by their order alone, which has to be the same at both ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import networkx as nx

from schedopt.core import whole
from schedopt.errors import Fault, InputError
from schedopt.formats.torch_actions import (
    REDUCE_GRAD,
    SHARDING,
    TRANSFERS,
    WHAT,
    Action,
    BMeans,
    Cell,
    cells_of,
    table_of,
)
from schedopt.formats.torch_csv import ComputeOps, misplaced
from schedopt.graph import FIFO
from schedopt.op import Op
from schedopt.problem import Problem
from schedopt.schedule import Schedule
from schedopt.torch_limits import require_torch

EXPECTED = (
    "must be stage, F, I (gradient of the input), W or B (full backward), or one of "
    f"{', '.join(TRANSFERS)}, microbatch: 0F11; "
    f"or stage, {REDUCE_GRAD}, UNSHARD or RESHARD: 0UNSHARD"
)


def write_torch_comms(schedule: Schedule) -> str:
    """The order of a schedule and its transfers as a table of actions; it has no times.

    A transfer is sent after its op and received before what ends later on the other device. All
    actions of all devices have one order in which both ends of a transfer stand side by side, so
    the table is free of deadlock even where a send waits for its receive.

    Raises
    ------
    NotApplicableError
        If the runtime of torch can not run it.

    Examples
    --------
    >>> from schedopt import Problem, classic
    >>> print(write_torch_comms(classic.one_f_one_b(Problem.uniform(devices=2, microbatches=1))))
    0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD
    1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD
    <BLANKLINE>
    """
    require_torch(schedule)
    problem = schedule.problem
    rows: list[list[Action]] = [[] for _ in range(problem.devices)]
    reduces = _last_backwards(schedule)
    for op in _in_one_order(schedule):
        row = rows[problem.device_of[op.stage]]
        row.append(Action.of(op))
        for send, receive in _transfers_of(op, problem):
            row.append(send)
            rows[problem.device_of[receive.stage]].append(receive)
        if op in reduces:
            row.append(Action(op.stage, REDUCE_GRAD))
    return table_of(rows)


def read_torch_comms(
    text: str,
    problem: Problem,
    *,
    b_means: BMeans | None = None,
    source: str = "",
    name: str = "",
) -> Schedule:
    """A schedule from a table with transfers, which must be right and are left out then.

    Parameters, and what else is raised, are those of `schedopt.formats.torch_csv.read_torch_csv`.

    Raises
    ------
    InputError
        Also if a transfer or a reduction is missing, doubled, not needed or too early or late, or
        if two ranks do not have the same order of transfers between them.
    DeadlockError
        If the rows wait for each other. Transfers add no circle to those of the ops: where two
        ranks have one order of them, a transfer waits only for ops that stand before it, or
        before the op that needs it, in one of the two rows.
    """
    cells = cells_of(text, problem, source=source)
    actions = {cell: Action.parse(cell.text) for cell in cells}
    others = {
        c: a for c, a in actions.items() if a and a.word in (*TRANSFERS, REDUCE_GRAD, *SHARDING)
    }
    unknown = [cell.fault(EXPECTED) for cell, action in actions.items() if action is None]
    ops = [cell for cell, action in actions.items() if action and cell not in others]
    found = ComputeOps.read(ops, problem, b_means)
    faults = [*unknown, *found.faults]
    places: dict[Action, Cell] = {}
    for cell, action in others.items():
        reason = misplaced(action.stage, action.microbatch, cell, problem)
        if not reason and action.word not in SHARDING and action in places:
            reason = f"is there already: {places[action].place}"
        if reason:
            faults.append(cell.fault(reason))
        else:
            places.setdefault(action, cell)
    if not found.faults:
        faults += _transfer_faults(places, found.places, problem)
        faults = faults or list(_order_faults(places, problem))
    if faults:
        raise InputError(WHAT, faults, source)
    return whole(problem, found.orders, name=name)


def _transfers_of(op: Op, problem: Problem) -> Iterator[tuple[Action, Action]]:
    """What is sent when an op has run, at both ends."""
    step, letter = (1, "F") if op.kind == "F" else (-1, "B")
    other = op.stage + step
    if op.kind == "W" or not 0 <= other < problem.stage_count:
        return
    if problem.device_of[other] != problem.device_of[op.stage]:
        yield (
            Action(op.stage, f"SEND_{letter}", op.microbatch),
            Action(other, f"RECV_{letter}", op.microbatch),
        )


def _in_one_order(schedule: Schedule) -> Iterator[Op]:
    """All ops, each after what it needs and after those before it on its device, by their end."""
    graph = schedule.graph
    needs: nx.DiGraph[Op] = nx.DiGraph()
    needs.add_nodes_from(graph)
    needs.add_edges_from(e for e, edge in graph.edges.items() if edge["reason"] != FIFO)
    ends: dict[Op, int] = {}
    for timed_ops in schedule.timeline.values():
        needs.add_edges_from((a.op, b.op) for a, b in pairwise(timed_ops))
        ends.update((timed.op, timed.end) for timed in timed_ops)
    order: Iterator[Op] = nx.lexicographical_topological_sort(needs, key=lambda op: (ends[op], op))
    return order


def _last_backwards(schedule: Schedule) -> set[Op]:
    """The op of each stage after which its gradients are complete."""
    last: dict[int, Op] = {}
    for timed_ops in schedule.by_device.values():
        last.update((t.op.stage, t.op) for t in timed_ops if t.op.kind in ("W", "BW"))
    return set(last.values())


def _transfer_faults(
    places: Mapping[Action, Cell], ops: Mapping[Op, Cell], problem: Problem
) -> Iterator[Fault]:
    """Transfers and reductions that are missing, not needed, too early or too late."""
    needed: set[Action] = set()
    absent: list[tuple[Action, Cell]] = []
    for op, cell in ops.items():
        for send, receive in _transfers_of(op, problem):
            user = ops[_user_of(receive, problem)]
            needed |= {send, receive}
            absent += [
                (action, at)
                for action, at in ((send, cell), (receive, user))
                if action not in places
            ]
            if send in places and places[send].column < cell.column:
                yield places[send].fault(
                    f"must come after {cell.text}, which makes it: {cell.place}"
                )
            if receive in places and places[receive].column > user.column:
                yield places[receive].fault(f"must come before {user.text}: {user.place}")
    for action, cell in places.items():
        if action.word in TRANSFERS and action not in needed:
            yield cell.fault(
                "must not be there: the stage has no neighbour on another device that way"
            )
    for action, cell in absent:
        yield Fault(f"row {cell.row}", f"without {action}", f"must be there for {cell.text}")
    for stage, device in enumerate(problem.device_of):
        reduce = Action(stage, REDUCE_GRAD)
        last = max(
            (cell for op, cell in ops.items() if op.stage == stage and op.kind in ("W", "BW")),
            key=lambda cell: cell.column,
        )
        if reduce not in places:
            valid = f"must be there after {last.text}: gradients are not scaled without it"
            yield Fault(f"row {device + 1}", f"without {reduce}", valid)
        elif places[reduce].column < last.column:
            yield places[reduce].fault(f"must come after {last.text}: {last.place}")


def _user_of(receive: Action, problem: Problem) -> Op:
    """The op that waits for what is received."""
    backward = problem.stage_data[receive.stage].backward
    kind = "F" if receive.word == "RECV_F" else backward
    return Op(kind, receive.stage, receive.microbatch)


def _other_end(action: Action) -> Action:
    """The action on the other rank that belongs to a transfer."""
    send, letter = action.word.startswith("SEND"), action.word[-1]
    step = 1 if send == (letter == "F") else -1
    return Action(action.stage + step, f"{'RECV' if send else 'SEND'}_{letter}", action.microbatch)


def _order_faults(places: Mapping[Action, Cell], problem: Problem) -> Iterator[Fault]:
    """The first transfer of each pair of ranks that its two ends have in another order."""
    between: dict[tuple[int, int], list[Action]] = {}
    for action in sorted(places, key=lambda action: places[action].column):
        if action.word in TRANSFERS:
            own, other = (problem.device_of[each.stage] for each in (action, _other_end(action)))
            between.setdefault((own, other), []).append(action)
    for (own, other), actions in between.items():
        if own < other:
            wanted = map(_other_end, between[other, own])
            for ours, theirs in zip(actions, wanted, strict=True):
                if ours != theirs:
                    yield places[ours].fault(
                        f"must be {theirs}: row {other + 1} has {_other_end(theirs)} first, and "
                        "both ranks need one order of the transfers between them"
                    )
                    break
