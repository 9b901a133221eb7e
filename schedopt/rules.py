"""What a problem demands of each op, stated again for the checker.

Nothing here is shared with the graph: ops, durations, resources, needs and memory are read from
the fields of the problem, so that a fault in the one does not hide in the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from schedopt.exact import exact
from schedopt.op import Op, Resource
from schedopt.problem import Problem
from schedopt.stage import item

Need = tuple[Op, Fraction]
"""An op that has to end first, and the lag after its end."""


class Kept(NamedTuple):
    """Memory that an op takes at its start and gives back at its end."""

    taken: Fraction
    given_back: Fraction


class Rules:
    """The rules of a problem for single ops, in its units.

    Parameters
    ----------
    problem
        The problem.
    recomputed
        (stage, microbatch) with an R, wherever that is left to the schedule.
    """

    def __init__(self, problem: Problem, recomputed: Collection[tuple[int, int]]) -> None:
        self.problem = problem
        self.stages = problem.stage_data
        self.chosen = recomputed
        self._incoming: dict[int, list[tuple[int, Fraction | None]]] = {}
        self._outgoing: dict[int, list[tuple[int, Fraction | None]]] = {}
        pairs: list[tuple[int, int, Fraction | None]] = []
        if problem.chain:
            pairs += [(stage, stage + 1, None) for stage in range(len(self.stages) - 1)]
        for edge in problem.edges:
            own = None if edge.lag is None else exact(edge.lag)
            pairs.append((edge.from_stage, edge.to_stage, own))
        self._sent: dict[int, int] = {}
        """Of each stage the stage to which its transfer ops lead."""
        for source, target, own in pairs:
            self._outgoing.setdefault(source, []).append((target, own))
            self._incoming.setdefault(target, []).append((source, own))
            if own is None:
                self._sent.setdefault(source, target)

    # ------------------------------------------------------------------ which ops there are

    def ops(self) -> Iterator[Op]:
        """Every op that has to be there."""
        for stage in range(len(self.stages)):
            for microbatch in range(self.problem.microbatches):
                for kind in ("F", "R", "B", "W", "BW", "SF", "SB"):
                    op = Op(kind, stage, microbatch)
                    if self.knows(op) and (kind != "R" or self.recomputes(stage, microbatch)):
                        yield op
            for kind in ("RED", "TIE", "OPT"):
                if self.knows(Op(kind, stage, 0)):
                    yield Op(kind, stage, 0)

    def knows(self, op: Op) -> bool:
        """Whether the problem has such an op, or may have it."""
        kind, stage, microbatch = op
        problem, part = self.problem, self.problem.end_of_step
        if not (0 <= stage < len(self.stages) and 0 <= microbatch < problem.microbatches):
            return False
        if kind == "R":
            return problem.recompute is not None and problem.recompute_modes[stage] != "never"
        if kind in ("SF", "SB"):
            backward = kind == "SF" or bool(self.stages[stage].backward)
            return backward and self.occupies(kind, stage)
        if kind not in ("RED", "TIE", "OPT"):
            return kind in self.stages[stage].durations
        if part is None or microbatch:
            return False
        if kind == "RED":
            return exact(item(part.reduction, stage)) > 0
        if kind == "TIE":
            return any(min(tied.stages) == stage for tied in part.tied)
        return problem.device_of.index(problem.device_of[stage]) == stage

    def recomputes(self, stage: int, microbatch: int) -> bool:
        """Whether a stage recomputes a microbatch."""
        mode = self.problem.recompute_modes[stage]
        return mode == "always" or (mode == "decide" and (stage, microbatch) in self.chosen)

    # ------------------------------------------------------------------ each op

    def length(self, op: Op) -> Fraction:
        """Duration of an op that is known."""
        kind, stage, microbatch = op
        factor, part = self.problem.factors[microbatch], self.problem.end_of_step
        if kind == "R" and self.problem.recompute is not None:
            own = item(self.problem.recompute.R, stage)
            return (self.stages[stage].durations["F"] if own is None else exact(own)) * factor
        if kind in ("SF", "SB"):
            return self._passing(kind, stage) * factor
        if kind in self.stages[stage].durations or part is None:
            return self.stages[stage].durations[kind] * factor
        if kind == "RED":
            return exact(item(part.reduction, stage))
        if kind == "OPT":
            return exact(item(part.optimizer, self.problem.device_of[stage]))
        return next(exact(tied.duration) for tied in part.tied if min(tied.stages) == stage)

    def home(self, op: Op) -> Resource:
        """Resource on which an op belongs."""
        device = self.problem.device_of[op.stage]
        if op.kind in ("RED", "TIE"):
            return Resource("network", device)
        if op.kind not in ("SF", "SB"):
            return Resource("compute", device)
        source, target = self._ends(op.kind, op.stage)
        links = self.problem.links
        for shared in links.shared if links else ():
            if (source, target) in shared.links:
                return Resource(f"link {shared.name}", min(pair[0] for pair in shared.links))
        return Resource(f"link to {target}", source)

    def needs(self, op: Op) -> list[Need]:
        """What has to be done before an op."""
        kind, stage, microbatch = op
        if kind in ("RED", "TIE", "OPT"):
            return [(other, Fraction(0)) for other in self._gradients(kind, stage)]
        if kind == "SF":
            return [(Op("F", stage, microbatch), Fraction(0))]
        if kind == "SB":
            target = self._sent[stage]
            return [(Op(self.stages[target].backward, target, microbatch), Fraction(0))]
        if kind == "F":
            return [
                self._arrival("SF", source, stage, own, Op("F", source, microbatch))
                for source, own in self._incoming.get(stage, [])
            ]
        before = Op("F", stage, microbatch)
        if kind == "R":
            return [(before, Fraction(0))]
        if kind == "W":
            return [(before._replace(kind="B"), Fraction(0))]
        result = [(before, Fraction(0))]
        if self.recomputes(stage, microbatch):
            result.append((before._replace(kind="R"), Fraction(0)))
        for target, own in self._outgoing.get(stage, []):
            backward = Op(self.stages[target].backward, target, microbatch)
            result.append(self._arrival("SB", stage, target, own, backward))
        return result

    def held(self, op: Op) -> Kept:
        """Memory of the device of an op that is known, transient memory included."""
        amounts = self._amounts
        kind, stage, microbatch = op
        key = kind, stage, kind in ("F", "R") and self.recomputes(stage, microbatch)
        if key not in amounts:
            return _NOTHING
        factor = self.problem.factors[microbatch]
        return Kept(amounts[key].taken * factor, amounts[key].given_back * factor)

    @cached_property
    def _amounts(self) -> dict[tuple[str, int, bool], Kept]:
        result = {}
        for stage, data in enumerate(self.stages):
            for kind, transient in data.transient.items():
                change = data.memory[kind]
                result[kind, stage, False] = Kept(
                    max(change, Fraction(0)) + transient, max(-change, Fraction(0)) + transient
                )
            if self.problem.recompute is not None:
                kept = exact(item(self.problem.recompute.kept, stage))
                transient = data.transient["F"]
                result["F", stage, True] = Kept(kept + transient, transient)
                rest = data.memory["F"] - kept
                result["R", stage, True] = Kept(rest + transient, transient)
        return result

    # ------------------------------------------------------------------ transfers

    def _ends(self, kind: str, stage: int) -> tuple[int, int]:
        """Devices from which and to which a transfer op of a stage leads."""
        device_of = self.problem.device_of
        ends = device_of[stage], device_of[self._sent[stage]]
        return ends if kind == "SF" else ends[::-1]

    def _passing(self, kind: str, output: int, target: int | None = None) -> Fraction:
        """Size / bandwidth of the output of a stage, or of its gradient."""
        links = self.problem.links
        target = self._sent[output] if target is None else target
        ends = self.problem.device_of[output], self.problem.device_of[target]
        if links is None or ends[0] == ends[1]:
            return Fraction(0)
        source, sink = ends if kind == "SF" else ends[::-1]
        size = item(links.size, output)
        if kind == "SB" and links.gradient_size is not None:
            gradient = item(links.gradient_size, output)
            size = size if gradient is None else gradient
        return exact(size) / exact(item(item(links.bandwidth, source), sink))

    def occupies(self, kind: str, stage: int) -> bool:
        """Whether the output of a stage (SF) or its gradient (SB) occupies a link."""
        links = self.problem.links
        if links is None or not links.occupy or stage not in self._sent:
            return False
        return self._passing(kind, stage) > 0

    def _arrival(
        self, kind: str, output: int, target: int, own: Fraction | None, made_by: Op
    ) -> Need:
        """What an op waits for that needs the output of another stage, or its gradient."""
        if own is not None:
            return made_by, own
        ends = (output, target) if kind == "SF" else (target, output)
        links = self.problem.links
        if links is None:
            return made_by, self.problem.lag_between(*ends)
        source, sink = (self.problem.device_of[stage] for stage in ends)
        latency = Fraction(0)
        if source != sink:
            latency = exact(item(item(links.latency, source), sink))
        if self.occupies(kind, output) and self._sent[output] == target:
            return Op(kind, output, made_by.microbatch), latency
        factor = self.problem.factors[made_by.microbatch]
        return made_by, latency + self._passing(kind, output, target) * factor

    # ------------------------------------------------------------------ end of the step

    def _gradients(self, kind: str, stage: int) -> list[Op]:
        """Ops after which a reduction, tied parameters or the optimizer have what they need."""
        problem, part = self.problem, self.problem.end_of_step
        if kind == "RED" or part is None:
            return [Op(self.stages[stage].last, stage, i) for i in range(problem.microbatches)]
        if kind == "TIE":
            members = next(tied.stages for tied in part.tied if min(tied.stages) == stage)
        else:
            members = problem.stages_on[problem.device_of[stage]]
        result = []
        for member in members:
            if self.knows(Op("RED", member, 0)):
                result.append(Op("RED", member, 0))
            else:
                result += self._gradients("RED", member)
        if kind == "OPT":
            for tied in part.tied:
                if set(tied.stages) & set(members):
                    result.append(Op("TIE", min(tied.stages), 0))
        return result


_NOTHING = Kept(Fraction(0), Fraction(0))
