"""The state of one solve: the problem in all its forms, its limits, and the best that is known."""

from __future__ import annotations

import time

import networkx as nx

from schedopt.graph import build_graph
from schedopt.op import Op
from schedopt.problem import Problem
from schedopt.solvers.capacity import smallest_passages
from schedopt.solvers.incumbent import Incumbent
from schedopt.solvers.instance import build_instance
from schedopt.solvers.ordered import OrderedInstance
from schedopt.solvers.resident import Budget
from schedopt.solvers.solution import ProgressCallback


def search_graph(problem: Problem, *, index_order: bool) -> nx.DiGraph[Op]:
    """The graph that is searched.

    Choices are open. Where they make microbatches unequal these are kept in order all the same:
    the search is much smaller then, and hardly ever loses anything.
    """
    return build_graph(problem, choices_open=True, choices_in_order=True, index_order=index_order)


class State:
    """What every stage of the search works on.

    Attributes
    ----------
    problem, graph, instance, passages
        The problem, as a graph, as arrays, and what each microbatch needs to pass each device.
    time_limit, workers, seed, deterministic_limit, index_order
        As for `schedopt.solvers.solve`.
    order_proven
        Whether the best schedule is known to be the best of those that the graph allows.
    budget
        Memory of the machine that the search may take.
    known
        The best schedule and the best bound.
    covered
        Names of candidates that need not be built for all microbatches any more.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        time_limit: float,
        workers: int,
        seed: int,
        deterministic_limit: float | None,
        index_order: bool,
        budget: Budget,
        progress: ProgressCallback | None = None,
    ) -> None:
        self.problem = problem
        self.time_limit = time_limit
        self.workers = workers
        self.seed = seed
        self.deterministic_limit = deterministic_limit
        self.index_order = index_order
        self.budget = budget
        self.began = time.monotonic()
        self.graph = search_graph(problem, index_order=index_order)
        self.instance = build_instance(self.graph)
        self.passages = smallest_passages(self.instance)
        self.covered: set[str] = set()
        self.order_proven = False
        self.known = Incumbent(self.graph, self.instance, began=self.began, progress=progress)

    @property
    def elapsed(self) -> float:
        """Seconds since the solve began."""
        return time.monotonic() - self.began

    @property
    def time_left(self) -> float:
        """Seconds left."""
        return max(0.0, self.time_limit - self.elapsed)

    @property
    def assumes_an_order(self) -> bool:
        """Whether microbatches that are not equal are kept in order, which is no rule."""
        unequal = len(set(self.problem.factors)) > 1
        return self.problem.decides or (self.index_order and unequal)

    @property
    def open_pairs(self) -> int:
        """Pairs of ops that share a resource: what the order model could have to decide."""
        return sum(len(ops) * (len(ops) - 1) // 2 for ops in self.instance.ops_of_resource)

    def accept(self, found: OrderedInstance, source: str) -> bool:
        """Take a schedule as the best if it is valid and better; tells whether."""
        return self.known.accept(self.instance.orders(found.sequences), source)
