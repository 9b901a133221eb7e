"""The order model against a plain model of the same graph."""

import random

import networkx as nx
import pytest
from ortools.sat.python import cp_model

from schedopt import Problem
from schedopt.graph import build_graph
from schedopt.op import Resource
from schedopt.solvers.instance import Instance, build_instance
from schedopt.solvers.order_model import OrderModel
from tests.problems import random_problems


def plain_optimum(instance: Instance) -> int | None:
    """Makespan by start variables, no-overlap and reservoirs alone."""
    model = cp_model.CpModel()
    horizon = sum(instance.duration) + sum(lag for a in instance.successors for _, lag in a)
    starts = [model.new_int_var(0, horizon, "") for _ in instance.ops]
    for a, after in enumerate(instance.successors):
        for b, lag in after:
            model.add(starts[b] >= starts[a] + instance.duration[a] + lag)
    for ops in instance.ops_of_resource:
        model.add_no_overlap(
            [model.new_fixed_size_interval_var(starts[a], instance.duration[a], "") for a in ops]
        )
    for device, limit in instance.available.items():
        times, changes = [], []
        for a, uses in enumerate(instance.memory):
            for use in uses:
                if use.device == device:
                    times += [starts[a], starts[a] + instance.duration[a]]
                    changes += [use.acquired + use.transient, -use.released - use.transient]
        if times:
            model.add_reservoir_constraint(times, changes, 0, limit)
    end = model.new_int_var(0, horizon, "")
    for a, start in enumerate(starts):
        model.add(end >= start + instance.duration[a])
    model.minimize(end)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    return round(solver.objective_value) if status == cp_model.OPTIMAL else None


def order_optimum(instance: Instance, horizon: int) -> tuple[str, int | None]:
    model = OrderModel(instance, horizon=horizon, bound=0)
    model.build()
    outcome = model.solve(time_limit=60, workers=1)
    value = None if outcome.starts is None else instance.objective(outcome.starts)
    return outcome.status, value


def with_copy_engine(graph: nx.DiGraph, seed: int) -> nx.DiGraph:
    """Some ops of each device on a second resource; memory stays that of the device."""
    pick = random.Random(seed)
    moved = [key for key in {op[:2] for op in graph} if pick.random() < 0.4]
    for op, data in graph.nodes.items():
        if op[:2] in moved:
            data["resource"] = Resource("copy", data["resource"].device)
    return graph


def test_devices_with_two_resources_share_their_memory():
    """Nothing in the model assumes one resource per device."""
    compared = 0
    for number, problem in enumerate(random_problems(60, seed=51, ops=12)):
        # a reservoir does not see the order of ops that take no time
        if any(d == 0 for stage in problem.stage_data for d in stage.durations.values()):
            continue
        instance = build_instance(with_copy_engine(build_graph(problem), number))
        optimum = plain_optimum(instance)
        if optimum is None:
            continue
        assert order_optimum(instance, optimum + 3) == ("optimal", optimum), problem.name
        compared += 1
    assert compared >= 15


def test_several_ops_without_duration_can_not_cheat_on_memory():
    # nothing takes time, so only the order keeps the memory of the device
    problem = Problem.uniform(devices=1, microbatches=4, F=0, B=0, W=0, capacity=2)
    instance = build_instance(build_graph(problem))
    model = OrderModel(instance, horizon=0, bound=0)
    model.build()
    outcome = model.solve(time_limit=10, workers=1)
    level = 0
    for a in outcome.sequences[0]:
        for use in instance.memory[a]:
            level += use.acquired
            assert level <= 2
            level -= use.released


def test_a_horizon_below_the_optimum_is_infeasible():
    problem = Problem.uniform(devices=3, microbatches=3, capacity=2)
    instance = build_instance(build_graph(problem))
    optimum = plain_optimum(instance)
    assert order_optimum(instance, optimum - 1) == ("infeasible", None)


@pytest.mark.parametrize("period", [False, True])
def test_a_hint_of_an_optimal_schedule_is_found_again(period):
    problem = Problem.uniform(
        devices=3, microbatches=4, capacity=3, objective="period" if period else "makespan"
    )
    instance = build_instance(build_graph(problem))
    model = OrderModel(instance, horizon=40, bound=0)
    model.build()
    first = model.solve(time_limit=30, workers=1)
    again = OrderModel(instance, horizon=instance.objective(first.starts), bound=0)
    again.build()
    again.hint(first.starts, first.sequences)
    second = again.solve(time_limit=30, workers=1)
    assert second.status == "optimal"
    assert instance.objective(second.starts) == instance.objective(first.starts)


def test_the_bound_is_told_rounded_up_to_whole_steps():
    problem = Problem.uniform(devices=3, microbatches=3, capacity=2)
    instance = build_instance(build_graph(problem))
    bounds: list[int] = []
    values: list[int] = []
    model = OrderModel(instance, horizon=30, bound=0)
    model.build()
    outcome = model.solve(
        time_limit=30, workers=1, on_bound=bounds.append, on_solution=values.append
    )
    assert values[-1] == outcome.bound == instance.objective(outcome.starts)
    assert all(isinstance(bound, int) and bound <= outcome.bound for bound in bounds)
