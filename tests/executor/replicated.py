"""What ranks do in tests of replicas and shared parameters: a step, beside one process."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from schedopt.executor import PipelineExecutor, models
from schedopt.executor.collectives import Started
from schedopt.executor.data_parallel import Replicas
from schedopt.executor.models import PipelineModel
from schedopt.executor.shared import Places
from schedopt.schedule import Schedule
from tests.executor.steps import difference, group_of

_MESHES: dict[tuple[int, int], DeviceMesh] = {}

SMALL: dict[str, dict[str, Any]] = {
    "mlp": {"width": 6, "rows": 1},
    "transformer": {"width": 8, "heads": 2, "vocabulary": 11, "length": 5},
}


def mesh_of(replicas: int, devices: int) -> DeviceMesh:
    """All ranks, as replicas of pipelines."""
    shape = (replicas, devices)
    if shape not in _MESHES:
        _MESHES[shape] = init_device_mesh("cpu", shape, mesh_dim_names=("replica", "device"))
    return _MESHES[shape]


def small(name: str, stages: int, **options: Any) -> PipelineModel:
    """A bundled model of the smallest size, in float64, one row a microbatch."""
    make: Callable[..., PipelineModel] = getattr(models, name)
    return make(stages, **{"dtype": torch.float64, **SMALL[name], **options})


class Case(NamedTuple):
    """Replicas of a pipeline, with the rows of each; options of the model and the executor."""

    name: str
    schedule: Schedule
    model: str
    rows: tuple[int, ...]
    steps: int = 1
    options: tuple[tuple[str, Any], ...] = ()
    executor: tuple[tuple[str, Any], ...] = ()


class Part(NamedTuple):
    """What a rank has of a case."""

    executor: PipelineExecutor
    modules: dict[int, nn.Module]
    x: Tensor
    y: Tensor


def start(case: Case) -> tuple[Part | None, nn.Module, Tensor, Tensor]:
    """The part of this rank (None if it has none), and model and batch of one process."""
    problem = case.schedule.problem
    model = small(case.model, problem.stage_count, **dict(case.options))
    (x,), y = model.inputs(sum(case.rows)), model.target(sum(case.rows))
    groups: dict[str, Any] = {"group": group_of(problem.devices)}
    replica = 0
    if len(case.rows) > 1:
        mesh = mesh_of(len(case.rows), problem.devices)
        groups = {"group": mesh["device"], "replicas": mesh["replica"]}
        replica = mesh["replica"].get_local_rank()
        rank = mesh["device"].get_local_rank()
    elif groups["group"] is None:
        return None, model.whole(), x, y
    else:
        rank = dist.get_rank(groups["group"])
    modules = {stage: model.build(stage) for stage in problem.stages_on[rank]}
    executor = PipelineExecutor(
        modules,
        case.schedule,
        loss_fn=model.loss_fn,
        shared=model.shared,
        timeout=30,
        **groups,
        **dict(case.executor),
    )
    begin = sum(case.rows[:replica])
    own = slice(begin, begin + case.rows[replica])
    return Part(executor, modules, x[own], y[own]), model.whole(), x, y


def loss_of(case: Case, whole: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The loss of the whole batch in one process."""
    stages = case.schedule.problem.stage_count
    return small(case.model, stages, **dict(case.options)).loss_fn(whole(x), y)


def compare(modules: dict[int, nn.Module], whole: nn.Module) -> float:
    """Largest relative difference of the gradients from those of one process."""
    ours = [p.grad for module in modules.values() for p in module.parameters()]
    theirs = [
        whole.get_parameter(f"{stage}.{name}").grad
        for stage, module in modules.items()
        for name, _ in module.named_parameters()
    ]
    return difference(ours, theirs)


def run_cases(cases: Sequence[Case]) -> list[float | None]:
    """The difference of each case on this rank."""
    return [run_case(case) for case in cases]


def run_case(case: Case) -> float | None:
    part, whole, x, y = start(case)
    if part is None:
        return None
    for _ in range(case.steps):
        part.executor.step(part.x, target=part.y)
        loss_of(case, whole, x, y).backward()
    part.executor.close()
    return compare(part.modules, whole)


def outcome(action: Callable[[], Any]) -> tuple[str, str, float]:
    """Name of the exception, its text, seconds until then."""
    began = time.monotonic()
    try:
        action()
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - began
    return "", "", time.monotonic() - began


def different_schedules(schedules: Sequence[Schedule]) -> tuple[str, str, float]:
    """One schedule for each replica."""
    devices = schedules[0].problem.devices
    schedule = schedules[mesh_of(len(schedules), devices)["replica"].get_local_rank()]
    rows = (schedule.problem.microbatches,) * len(schedules)
    return outcome(lambda: start(Case("", schedule, "mlp", rows)))


def a_replica_that_fails(schedule: Schedule) -> tuple[str, str, float]:
    """The second stage of the first replica raises in its first forward."""
    part, *_ = start(Case("", schedule, "mlp", (4, 4)))
    assert part is not None
    if dist.get_rank() == 1:
        part.modules[1].register_forward_pre_hook(_raise)
    return outcome(lambda: part.executor.step(part.x, target=part.y))


def _raise(*_: Any) -> None:
    raise ValueError("no more data")


def different_parameters(schedule: Schedule) -> tuple[tuple[str, str, float], float]:
    """Replicas made from different seeds, then from the same with other frozen parameters."""
    mesh = mesh_of(2, schedule.problem.devices)
    replica, rank = mesh["replica"].get_local_rank(), mesh["device"].get_local_rank()
    groups = {"group": mesh["device"], "replicas": mesh["replica"]}
    first, own = (small("mlp", schedule.problem.stage_count, seed=s) for s in (0, replica))
    modules = {stage: own.build(stage) for stage in schedule.problem.stages_on[rank]}
    executor = PipelineExecutor(modules, schedule, loss_fn=own.loss_fn, **groups)
    found = [p.detach() for module in modules.values() for p in module.parameters()]
    expected = [p.detach() for stage in modules for p in first.build(stage).parameters()]
    executor.close()
    for module in modules.values():
        module.requires_grad_(replica == 0)
    refused = outcome(lambda: PipelineExecutor(modules, schedule, loss_fn=own.loss_fn, **groups))
    return refused, difference(found, expected)


class Branches(nn.Module):
    """Uses one of two layers, as its input says, and never the third."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.other, self.never = (nn.Linear(6, 6).double() for _ in range(3))

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        layer = self.one if bool(x[0, 0] > 0) else self.other
        return scale * layer(x)


def parameters_without_use(schedule: Schedule) -> dict[str, float]:
    """Each replica uses another layer of the first stage; the second stage gets an argument."""
    mesh = mesh_of(2, 2)
    replica, rank = mesh["replica"].get_local_rank(), mesh["device"].get_local_rank()
    model = small("mlp", 2)
    x, y = model.inputs(8)[0], model.target(8)
    x[:4, 0], x[4:, 0] = 1.0, -1.0
    whole = [Branches(), Branches()]
    own = Branches()
    executor = PipelineExecutor(
        {rank: own},
        schedule,
        loss_fn=model.loss_fn,
        group=mesh["device"],
        replicas=mesh["replica"],
    )
    part = slice(4 * replica, 4 * replica + 4)
    executor.step(x[part], target=y[part], scale=0.5)
    executor.close()
    for begin in range(0, 8, 4 // schedule.problem.microbatches):
        rows = slice(begin, begin + 4 // schedule.problem.microbatches)
        output = whole[1](whole[0](x[rows], 0.5), 0.5)
        (model.loss_fn(output, y[rows]) * len(output) / 8).backward()
    return {
        name: difference([parameter.grad], [whole[rank].get_parameter(name).grad])
        for name, parameter in own.named_parameters()
    }


class Stopped(NamedTuple):
    """How copies, norms and losses compare after training, and what the scaler did."""

    parameters: float
    norms: float
    scales: tuple[float, ...]


def train(case: Case, overflow_on: int | None, clip: float) -> Any:
    """Steps with an optimizer, clipping and a scaler; the same in one process."""
    scaler, alone = (torch.amp.GradScaler("cpu", init_scale=8.0) for _ in range(2))
    part, whole, x, y = start(case._replace(executor=(("scale_loss", scaler.scale),)))
    if part is None:
        return None
    own = torch.optim.SGD(part.executor.parameters(), lr=0.1, momentum=0.9)
    theirs = torch.optim.SGD(whole.parameters(), lr=0.1, momentum=0.9)
    norms, scales = 0.0, []
    for number in range(case.steps):
        part.executor.step(part.x, target=part.y)
        alone.scale(loss_of(case, whole, x, y)).backward()
        if number == overflow_on:
            if 0 in part.modules:  # in every replica, as averages do
                next(part.executor.parameters()).grad.fill_(float("inf"))
            next(whole.parameters()).grad.fill_(float("inf"))
        part.executor.spread_overflow()
        scaler.unscale_(own)
        alone.unscale_(theirs)
        if number != overflow_on:
            norm = part.executor.clip_grad_norm(clip)
            expected = nn.utils.clip_grad_norm_(whole.parameters(), clip)
            norms = max(norms, difference([norm], [expected]))
        for each, optimizer in ((scaler, own), (alone, theirs)):
            each.step(optimizer)
            each.update()
            optimizer.zero_grad()
        scales.append(scaler.get_scale())
    part.executor.close()
    found = [p.detach() for module in part.modules.values() for p in module.parameters()]
    expected_values = [
        whole.get_parameter(f"{stage}.{name}").detach()
        for stage, module in part.modules.items()
        for name, _ in module.named_parameters()
    ]
    return Stopped(difference(found, expected_values), norms, tuple(scales))


class WithEmbedding(nn.Module):
    """A stage that adds what the embedding says of the place of its largest number."""

    def __init__(self, stage: int, stages: int) -> None:
        super().__init__()
        torch.manual_seed(stage)
        self.stage, self.last = stage, stage == stages - 1
        self.layer = nn.Linear(4, 4).double()
        torch.manual_seed(99)
        self.table = nn.Parameter(torch.randn(7, 4, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        if self.stage == 0:
            return nn.functional.embedding(x, self.table)
        x = torch.tanh(self.layer(x))
        if self.last:
            return x @ self.table.t()
        return x + nn.functional.embedding(x.argmax(-1), self.table)


HOLDERS: Places = ((0, "table"), (2, "table"), (3, "table"))


def three_holders(schedule: Schedule, restart: bool) -> tuple[float, float, float]:
    """Two steps with a parameter of three stages, perhaps saved and loaded between them.

    Returns the differences of parameters and copies from one process, and between the copies.
    """
    rank = dist.get_rank()
    x, y = torch.randint(7, (2, 8), generator=torch.Generator().manual_seed(3))
    loss_fn = nn.CrossEntropyLoss()
    whole = nn.Sequential(*(WithEmbedding(stage, 4) for stage in range(4)))
    for stage, _ in HOLDERS[1:]:
        whole[stage].table = whole[0].table
    module: nn.Module = WithEmbedding(rank, 4)

    def begin(module: nn.Module) -> tuple[PipelineExecutor, torch.optim.Optimizer]:
        made = PipelineExecutor({rank: module}, schedule, loss_fn=loss_fn, shared=[HOLDERS])
        return made, torch.optim.Adam(made.parameters(), lr=0.01)

    executor, optimizer = begin(module)
    alone = torch.optim.Adam(whole.parameters(), lr=0.01)
    for number in range(2):
        executor.step(x, target=y)
        optimizer.step()
        optimizer.zero_grad()
        loss_fn(whole(x), y).backward()
        alone.step()
        alone.zero_grad()
        if restart and number == 0:
            executor.close()
            file = io.BytesIO()
            torch.save((module.state_dict(), optimizer.state_dict()), file)
            file.seek(0)
            state = torch.load(file)
            module = WithEmbedding(rank, 4)
            module.load_state_dict(state[0])
            executor, optimizer = begin(module)
            optimizer.load_state_dict(state[1])
    executor.close()
    tables = [torch.empty_like(module.table) for _ in range(4)]
    dist.all_gather(tables, module.table.detach())
    copies = [tables[stage] for stage, _ in HOLDERS]
    return (
        difference(list(module.parameters()), list(whole[rank].parameters())),
        difference(copies, [whole[0].table.detach()] * 3),
        max(float((copy - copies[0]).abs().max()) for copy in copies),
    )


def run_sum(case: Case) -> float:
    """One step of a sum over microbatches of one row each, all of them together a batch."""
    part, whole, x, y = start(case)
    assert part is not None
    part.executor.step(part.x, target=part.y)
    part.executor.close()
    (len(x) * loss_of(case, whole, x, y)).backward()
    return compare(part.modules, whole)


def frozen_first_stage(schedule: Schedule) -> dict[str, float]:
    """Gradients that frozen parameters have all the same, and the difference of the others."""
    mesh = mesh_of(2, 2)
    replica, rank = mesh["replica"].get_local_rank(), mesh["device"].get_local_rank()
    model = small("mlp", 2)
    module, whole = model.build(rank), model.whole()
    whole[0].requires_grad_(False)
    if rank == 0:
        module.requires_grad_(False)
    groups = {"group": mesh["device"], "replicas": mesh["replica"]}
    executor = PipelineExecutor({rank: module}, schedule, loss_fn=model.loss_fn, **groups)
    x, y = model.inputs(12)[0], model.target(12)
    rows = slice(6 * replica, 6 * replica + 6)
    executor.step(x[rows], target=y[rows])
    executor.close()
    model.loss_fn(whole(x), y).backward()
    given = sum(p.grad is not None for p in module.parameters() if not p.requires_grad)
    return {"frozen": float(given), "trained": compare({rank: module}, whole)}


def stage_without_parameters(schedule: Schedule) -> tuple[float, float]:
    """Differences of gradients and of their norm; the second stage is a plain function."""
    mesh = mesh_of(2, 2)
    replica, rank = mesh["replica"].get_local_rank(), mesh["device"].get_local_rank()
    model = small("mlp", 1)
    whole = nn.Sequential(model.build(0), nn.Tanh())
    own = model.build(0) if rank == 0 else nn.Tanh()
    groups = {"group": mesh["device"], "replicas": mesh["replica"]}
    executor = PipelineExecutor({rank: own}, schedule, loss_fn=model.loss_fn, **groups)
    x, y = model.inputs(6)[0], model.target(6)
    rows = slice(3 * replica, 3 * replica + 3)
    executor.step(x[rows], target=y[rows])
    norm = executor.clip_grad_norm(0.01)
    executor.close()
    model.loss_fn(whole(x), y).backward()
    expected = nn.utils.clip_grad_norm_(whole.parameters(), 0.01)
    return compare({rank: own}, whole), difference([norm], [expected])


def under_autocast(schedule: Schedule) -> dict[str, Any]:
    """The type between the stages, and the difference from one process in the same type."""
    mesh = mesh_of(2, 2)
    replica, rank = mesh["replica"].get_local_rank(), mesh["device"].get_local_rank()
    model = small("transformer", 2, dtype=torch.float32)
    module, whole = model.build(rank), model.whole()
    types: list[str] = []
    module.register_forward_hook(lambda *given: types.append(str(given[2].dtype)))
    groups = {"group": mesh["device"], "replicas": mesh["replica"]}

    def loss_fn(scores: Tensor, target: Tensor) -> Tensor:
        return model.loss_fn(scores.float(), target)

    executor = PipelineExecutor({rank: module}, schedule, loss_fn=loss_fn, **groups)
    x, y = model.inputs(12)[0], model.target(12)
    rows = slice(6 * replica, 6 * replica + 6)
    with torch.autocast("cpu", torch.bfloat16):
        executor.step(x[rows], target=y[rows])
        loss = loss_fn(whole(x), y)
    loss.backward()
    executor.close()
    return {"types": types, "difference": compare({rank: module}, whole)}


def copies_of_different_shapes(schedule: Schedule) -> tuple[str, str, float]:
    """The last stage has a weight of another shape."""
    rank = dist.get_rank()
    module = nn.Linear(3, 2) if rank == 3 else nn.Linear(2, 3)
    shared = [((0, "weight"), (3, "weight"))]
    return outcome(lambda: PipelineExecutor({rank: module}, schedule, shared=shared))


def order_of_averages(schedule: Schedule) -> list[str]:
    """Gradients of weights and averages, in the order in which they begin in one step."""
    part, *_ = start(Case("", schedule, "mlp", (4, 4)))
    assert part is not None
    events: list[str] = []
    for stage, module in part.modules.items():
        first = next(module.parameters())
        first.register_post_accumulate_grad_hook(lambda _, stage=stage: events.append(str(stage)))
    start_average = Replicas.start_average

    def record(self: Replicas, tensor: Tensor, what: str) -> Started:
        events.append("average")
        return start_average(self, tensor, what)

    with mock.patch.object(Replicas, "start_average", record):
        part.executor.step(part.x, target=part.y)
    part.executor.close()
    return events
