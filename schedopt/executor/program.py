"""Schedule -> what each rank does: ops, and the messages between ranks, in one agreed order.

A rank works through a list of actions:

========  ==================================================================================
post      make room for a message and allow it to arrive
wait      until a message has arrived; it then belongs to the op that needs it
run       an op
send      a message, without waiting for it
release   the room of a sent message, which has been received: an answer to it has come
drain     the same where no answer has come yet: wait until the message has been received
========  ==================================================================================

All messages from one rank to another have one order, in which both post, send and wait: that in
which the sending rank makes them. What the list of a rank allows is proven before it is run: no
deadlock, even if every `send` waits until the other rank has posted (`find_circle`).

No part of this needs torch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from schedopt.check import check
from schedopt.errors import DeadlockError, Fault, ScheduleError
from schedopt.op import Op
from schedopt.problem import Problem
from schedopt.schedule import Schedule

SPARE_ROOM = 1
"""Messages of a direction for which there is room beyond what the planned times need.

Without it the room of a message is made only when the one before it has been used, and a message
that is ready then waits for the news of it: measured, a tenth to a fifth of a step of small ops.
"""

Verb = Literal["post", "wait", "run", "send", "release", "drain"]
Direction = tuple[int, int]
"""From rank, to rank."""


class Message(NamedTuple):
    """What stage `source` gives to stage `target` for a microbatch: its output, or a gradient."""

    source: int
    target: int
    microbatch: int

    @property
    def is_gradient(self) -> bool:
        """Gradients go to an earlier stage."""
        return self.target < self.source

    @property
    def answered(self) -> Message:
        """For a gradient, the output that it belongs to."""
        return Message(self.target, self.source, self.microbatch)

    def __str__(self) -> str:
        what = "gradient" if self.is_gradient else "output"
        way = f"stage {self.source} for stage {self.target}"
        return f"{what} of {way}, microbatch {self.microbatch}"


class Action(NamedTuple):
    """One thing a rank does; `peer` is the other rank of a message."""

    verb: Verb
    what: Op | Message
    peer: int = -1

    def __str__(self) -> str:
        if self.verb == "run":
            return f"runs {self.what}"
        verbs = {"post": "posts", "wait": "waits for", "send": "sends", "release": "releases"}
        return f"{verbs.get(self.verb, 'drains')} {self.what} ({self._to_or_from} rank {self.peer})"

    @property
    def _to_or_from(self) -> str:
        return "from" if self.verb in ("post", "wait") else "to"


class StageLinks(NamedTuple):
    """Who gives to a stage and who takes from it, in the order of the arguments."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """What all ranks do in a step.

    Attributes
    ----------
    device_of
        Rank of each stage.
    microbatches
        Their number m.
    links
        Sources and targets of each stage.
    ops
        Order of the ops of each rank.
    actions
        The actions of each rank.
    messages
        The agreed order of the messages in each direction.
    windows
        Messages of each direction for which there is room at a time.
    forward_only
        Whether there is no backward.
    recomputed
        (stage, microbatch) that have an R.
    """

    device_of: tuple[int, ...]
    microbatches: int
    links: tuple[StageLinks, ...]
    ops: Mapping[int, tuple[Op, ...]]
    actions: Mapping[int, tuple[Action, ...]]
    messages: Mapping[Direction, tuple[Message, ...]]
    windows: Mapping[Direction, int]
    forward_only: bool = False
    recomputed: frozenset[tuple[int, int]] = frozenset()

    def boundary_messages(self, rank: int) -> int:
        """Largest number of messages that a rank keeps room for at a time.

        Those that are posted and not yet used, and those that are sent and not yet released.
        """
        alive = most = 0
        for action in self.actions[rank]:
            if action.verb in ("post", "send"):
                alive += 1
                most = max(most, alive)
            elif action.verb != "run":
                alive -= 1
        return most

    def held_microbatches(self) -> dict[int, int]:
        """Largest number of microbatches that each stage holds at a time: F done, backward not.

        A microbatch counts from the start of its F, or of its R, to the end of the last op of its
        backward.
        """
        last = {(op.stage, op.microbatch): op for ops in self.ops.values() for op in ops}
        alive = dict.fromkeys(range(len(self.device_of)), 0)
        most = dict(alive)
        for ops in self.ops.values():
            for op in ops:
                if op.kind == ("R" if op[1:] in self.recomputed else "F"):
                    alive[op.stage] += 1
                    most[op.stage] = max(most[op.stage], alive[op.stage])
                if last[op.stage, op.microbatch] == op:
                    alive[op.stage] -= 1
        return most


def training_program(schedule: Schedule) -> Program:
    """The program of a schedule.

    Raises
    ------
    ScheduleError
        If the schedule breaks a rule of its problem.
    DeadlockError
        If the ranks would wait for each other; names what waits for what.
    """
    faults = [Fault(v.rule, str(v.op or f"device {v.device}"), v.message) for v in check(schedule)]
    if faults:
        raise ScheduleError(faults)
    times = {timed.op: (timed.start, timed.end) for d in schedule.by_device.values() for timed in d}
    orders = {
        d: tuple(t.op for t in timed if t.op.kind != "OPT")  # it comes last anyway
        for d, timed in schedule.by_device.items()
    }
    problem = schedule.problem
    unused = [s for s, links in _links(problem).items() if not links.targets]
    if len(unused) > 1:
        valid = f"must be used by a later stage: only the last one, {unused[-1]}, has a loss"
        raise ScheduleError([Fault("edges", f"output of stage {s}", valid) for s in unused[:-1]])
    forward_only = problem.forward_only
    return _program(problem, problem.microbatches, orders, times, forward_only=forward_only)


def forward_program(problem: Problem, microbatches: int) -> Program:
    """The program of the forward ops alone, for any number of microbatches.

    Each device takes the op that it can start first, of those the one of the latest stage:
    m + p - 1 for m microbatches and p equal stages.
    """
    durations = [data.durations["F"] for data in problem.stage_data]
    links = _links(problem)
    first = [stage for stage, of in links.items() if not of.sources]
    ready = {Op("F", stage, i): Fraction(0) for stage in first for i in range(microbatches)}
    missing = {(s, i): len(links[s].sources) for s in links for i in range(microbatches)}
    lags: dict[tuple[int, int], Fraction] = {}
    for source, target, transfer, _ in problem.connections:
        lag = transfer.latency + transfer.duration
        lags[source, target] = max(lag, lags.get((source, target), lag))
    free = [Fraction(0)] * problem.devices
    orders: dict[int, list[Op]] = {device: [] for device in range(problem.devices)}
    times: dict[Op, tuple[Fraction, Fraction]] = {}
    earliest: dict[Op, Fraction] = {}
    while ready:

        def start_of(op: Op) -> Fraction:
            return max(ready[op], free[problem.device_of[op.stage]])

        op = min(ready, key=lambda op: (start_of(op), -op.stage, op.microbatch))
        start, device = start_of(op), problem.device_of[op.stage]
        end = free[device] = start + durations[op.stage]
        times[op] = start, end
        orders[device].append(op)
        del ready[op]
        for target in links[op.stage].targets:
            following = Op("F", target, op.microbatch)
            arrival = end + lags[op.stage, target]
            earliest[following] = max(arrival, earliest.get(following, arrival))
            missing[target, op.microbatch] -= 1
            if not missing[target, op.microbatch]:
                ready[following] = earliest[following]
    tuples = {device: tuple(ops) for device, ops in orders.items()}
    return _program(problem, microbatches, tuples, times, forward_only=True)


def find_circle(sequences: Mapping[int, Sequence[Action]]) -> list[str]:
    """Ranks that wait for each other, if a `send` lasts until the other rank is ready for it.

    This is the strictest meaning of a send (rendezvous). A `wait` without an earlier `post` is a
    receive that both posts and waits. What runs to its end like this does so under every looser
    meaning as well, because an action that ends earlier never holds up another.

    Returns
    -------
    list of str
        The actions of a circle, each waiting for the next, the last for the first; or the one
        action that waits for a rank that never answers. Empty if all ranks reach their end.
    """
    position = dict.fromkeys(sequences, 0)
    posted: set[Message] = set()
    sent: set[Message] = set()

    def possible(action: Action) -> bool:
        message = action.what
        if isinstance(message, Op):
            return True
        if action.verb in ("post", "wait"):
            posted.add(message)
        if action.verb == "send" and message in posted:
            sent.add(message)
        return action.verb == "post" or message in sent

    progress = True
    while progress:
        before = len(posted), sum(position.values())
        for rank, sequence in sequences.items():
            while position[rank] < len(sequence) and possible(sequence[position[rank]]):
                position[rank] += 1
        progress = before != (len(posted), sum(position.values()))
    stuck = {
        rank: sequence[position[rank]]
        for rank, sequence in sequences.items()
        if position[rank] < len(sequence)
    }
    if not stuck:
        return []
    rank, path = next(iter(stuck)), []
    while rank in stuck and rank not in path:
        path.append(rank)
        rank = stuck[rank].peer
    circle = path[path.index(rank) :] if rank in path else path[-1:]
    return [f"rank {rank} {stuck[rank]}" for rank in circle]


# ---------------------------------------------------------------------- making it


def _program(
    problem: Problem,
    microbatches: int,
    orders: Mapping[int, tuple[Op, ...]],
    times: Mapping[Op, tuple[Fraction | int, Fraction | int]],
    *,
    forward_only: bool,
) -> Program:
    lowering = _Lowering(problem, orders)
    windows = {d: lowering.backlog(d, times) + SPARE_ROOM for d in lowering.messages}
    while True:
        actions = {rank: tuple(lowering.actions(rank, windows)) for rank in orders}
        circle = find_circle(actions)
        if not circle:
            break
        # The backlog is enough unless ops take no time; with room for all messages, a send never
        # waits for anything but the start of the step.
        if all(windows[d] >= len(listed) for d, listed in lowering.messages.items()):
            raise DeadlockError(circle)
        windows = {d: min(w + 1, len(lowering.messages[d])) for d, w in windows.items()}
    return Program(
        problem.device_of,
        microbatches,
        tuple(lowering.links[stage] for stage in range(problem.stage_count)),
        orders,
        actions,
        {d: tuple(listed) for d, listed in lowering.messages.items()},
        windows,
        forward_only,
        frozenset(op[1:] for ops in orders.values() for op in ops if op.kind == "R"),
    )


def _links(problem: Problem) -> dict[int, StageLinks]:
    """Sources (the previous stage first) and targets of each stage, skip connections included."""
    pairs = {(s, s + 1) for s in range(problem.stage_count - 1)} if problem.chain else set()
    pairs |= {(edge.from_stage, edge.to_stage) for edge in problem.edges}
    result = {}
    for stage in range(problem.stage_count):
        sources = sorted((s for s, t in pairs if t == stage), key=lambda s: (s != stage - 1, s))
        result[stage] = StageLinks(tuple(sources), tuple(sorted(t for s, t in pairs if s == stage)))
    return result


class _Lowering:
    """Turns orders of ops into actions."""

    def __init__(self, problem: Problem, orders: Mapping[int, tuple[Op, ...]]) -> None:
        self.device_of = problem.device_of
        self.links = _links(problem)
        self.orders = orders
        self.producer: dict[Message, Op] = {}
        self.consumer: dict[Message, Op] = {}
        self.messages: dict[Direction, list[Message]] = {}
        self.makes: dict[Op, list[Message]] = {}
        self.needs: dict[Op, list[Message]] = {}
        for rank, ops in orders.items():
            for op in ops:
                self.makes[op] = self._made_by(op)
                for message in self.makes[op]:
                    direction = rank, self.device_of[message.target]
                    self.messages.setdefault(direction, []).append(message)
                    self.producer[message] = op
                self.needs[op] = self._needed_by(op)
                self.consumer |= dict.fromkeys(self.needs[op], op)
        self.index = {
            message: index
            for listed in self.messages.values()
            for index, message in enumerate(listed)
        }
        self.received_before = self._count_received()

    def _made_by(self, op: Op) -> list[Message]:
        """What an op makes for other ranks; a turn on one rank needs no message."""
        links = self.links[op.stage]
        stages = {"F": links.targets, "W": (), "R": ()}.get(op.kind, links.sources)
        here = self.device_of[op.stage]
        return [
            Message(op.stage, stage, op.microbatch)
            for stage in stages
            if self.device_of[stage] != here
        ]

    def _needed_by(self, op: Op) -> list[Message]:
        links = self.links[op.stage]
        stages = {"F": links.sources, "W": (), "R": ()}.get(op.kind, links.targets)
        here = self.device_of[op.stage]
        return [
            Message(stage, op.stage, op.microbatch)
            for stage in stages
            if self.device_of[stage] != here
        ]

    def backlog(
        self, direction: Direction, times: Mapping[Op, tuple[Fraction | int, Fraction | int]]
    ) -> int:
        """Most messages of a direction that are made and not yet used, by the planned times.

        With room for so many the planned times can be kept. At one time, what was made earlier
        is used before more is made.
        """
        events = []
        for message in self.messages[direction]:
            made, used = times[self.producer[message]][1], times[self.consumer[message]][0]
            events += [(made, 1, 1), (used, 2 if used == made else 0, -1)]
        level = most = 0
        for _, _, change in sorted(events):
            level += change
            most = max(most, level)
        return most

    def actions(self, rank: int, windows: Mapping[Direction, int]) -> Iterator[Action]:
        """The list of a rank: receives are posted ahead within the window of their direction.

        Nothing but the waiting for what it needs stands between two ops, and an op is followed by
        the sending of what it makes: others wait for that. Then come the things that nobody waits
        for: giving back what was sent before, which went into room that was made ahead, so that
        it takes no time unless the other rank is late by more than its spare room; and making
        room for a message in the place of each that was used.
        """
        to_post = {d[0]: deque(listed) for d, listed in self.messages.items() if d[1] == rank}
        known: dict[int, int] = {}  # by peer: how many messages it is known to have received
        sent: list[Message] = []
        for peer, waiting in to_post.items():
            for _ in range(min(windows[peer, rank], len(waiting))):
                yield Action("post", waiting.popleft(), peer)
        for op in self.orders[rank]:
            needed = self._in_order(self.needs[op])
            for message in needed:
                peer = self.device_of[message.source]
                waiting = to_post[peer]
                while waiting and self.index[waiting[0]] <= self.index[message]:
                    yield Action("post", waiting.popleft(), peer)
                yield Action("wait", message, peer)
                known[peer] = max(known.get(peer, 0), self.received_before[message])
            yield Action("run", op)
            for message in self.makes[op]:
                yield Action("send", message, self.device_of[message.target])
            if self.makes[op]:
                yield from self._given_back(sent, known)
                sent = self.makes[op]
            for message in needed:
                peer = self.device_of[message.source]
                if to_post[peer]:
                    yield Action("post", to_post[peer].popleft(), peer)
        yield from self._given_back(sent, known)

    def _given_back(self, sent: list[Message], known: Mapping[int, int]) -> Iterator[Action]:
        for message in sent:
            peer = self.device_of[message.target]
            verb: Verb = "release" if self.index[message] < known.get(peer, 0) else "drain"
            yield Action(verb, message, peer)

    def _in_order(self, needed: list[Message]) -> list[Message]:
        return sorted(
            needed, key=lambda message: (self.device_of[message.source], self.index[message])
        )

    def _count_received(self) -> dict[Message, int]:
        """How many messages the sender of each message had received, in order, when it was made.

        Who has received the message needs no other sign that those have arrived.
        """
        result: dict[Message, int] = {}
        for rank, ops in self.orders.items():
            used: set[Message] = set()
            count = {d: 0 for d in self.messages if d[1] == rank}
            for op in ops:
                used.update(self.needs[op])
                for message in self.makes[op]:
                    back = self.device_of[message.target], rank
                    listed = self.messages.get(back, [])
                    while count.get(back, 0) < len(listed) and listed[count[back]] in used:
                        count[back] += 1
                    result[message] = count.get(back, 0)
        return result
