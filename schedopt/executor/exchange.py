"""What the ranks do with gradients once they are there: replicas and shared parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from schedopt.executor.agreement import OF_THIS_RANK, Fingerprint, agree
from schedopt.executor.collectives import Collectives, Started
from schedopt.executor.data_parallel import Replicas
from schedopt.executor.distributed import Group, PrefixStore, Store, own_store
from schedopt.executor.errors import MismatchError
from schedopt.executor.failure import Watch
from schedopt.executor.shared import Places, SharedParameters, require_possible

COMPARED = "the gradients of all stages to be compared"


class Total(NamedTuple):
    """A sum over the ranks that has begun; None if there is one rank."""

    value: torch.Tensor
    started: Started | None


class GradientExchange:
    """Joins this rank with the ranks that have the same parameters.

    Parameters
    ----------
    watch, store
        Of the ranks of the pipeline.
    replicas
        The ranks that run the same stages in other replicas; None without.
    over_nccl
        Over NCCL instead of gloo.
    """

    def __init__(
        self, watch: Watch, store: Store, replicas: Group | None, *, over_nccl: bool
    ) -> None:
        self._watch, self._store = watch, store
        self._over_nccl = over_nccl
        self._collectives: list[Collectives] = []
        self._ranks: Collectives | None = None
        self._between: Watch | None = None
        self._disagrees = False
        if replicas is not None:
            place, size, self._between_store = own_store(replicas)
            self._between = Watch(
                self._between_store,
                place,
                size,
                timeout=watch.timeout,
                abort=self.abort,
                member="replica",
            )

    def join(
        self,
        modules: Mapping[int, nn.Module],
        shared: Sequence[Places],
        device_of: Sequence[int],
        own: Fingerprint,
    ) -> None:
        """Compare with the other ranks, connect, and make equal what has to be equal.

        All replicas get the parameters of the first one, and all copies of a shared parameter
        the values of its first place.

        Parameters
        ----------
        modules
            Of this rank, by stage.
        shared
            Parameters that stand in several places; on all ranks alike.
        device_of
            Rank of each stage.
        own
            What has to be equal on all replicas.

        Raises
        ------
        ExecutorError
            If there are no such shared parameters.
        MismatchError
            On every rank, if they do not have the same to exchange.
        """
        require_possible(shared, modules, len(device_of))
        if shared:
            self._agree_on_copies(modules, shared)
        if self._between is not None:
            try:
                agree(self._between, 0, {**own, "parameters": _digest(modules)})
            except MismatchError:
                self._disagrees = True
                raise
        connect = partial(self._connect, watch=self._watch, store=self._store)
        self._shared = SharedParameters(shared, modules, device_of, self._watch.rank, connect)
        self._replicas: Replicas | None = None
        if self._between is not None:
            collectives = self._connect(
                "replicas",
                self._between.rank,
                self._between.size,
                watch=self._between,
                store=self._between_store,
            )
            apart = set(self._shared.parameters())
            self._replicas = Replicas(collectives, modules, apart=apart)
        with torch.no_grad():
            if self._replicas is not None:
                self._replicas.equalise()
            self._shared.equalise()

    def _connect(
        self, name: str, place: int, size: int, *, watch: Watch, store: Store
    ) -> Collectives:
        made = Collectives(PrefixStore(name, store), place, size, watch, over_nccl=self._over_nccl)
        self._collectives.append(made)
        return made

    def _agree_on_copies(self, modules: Mapping[int, nn.Module], shared: Sequence[Places]) -> None:
        names = [[_name(*place) for place in places] for places in shared]
        listed = {name for those in names for name in those}
        copies = {
            _name(stage, name): _kind(parameter)
            for stage, module in modules.items()
            for name, parameter in module.named_parameters(remove_duplicate=False)
            if _name(stage, name) in listed
        }
        fields = {"shared parameters": names, OF_THIS_RANK: copies}
        everyone = agree(self._watch, "shared parameters", fields)
        known = {name: kind for rank in everyone for name, kind in rank[OF_THIS_RANK].items()}
        differences = [
            "copies of one parameter: " + ", ".join(f"{name} is {known[name]}" for name in those)
            for those in names
            if len({known[name] for name in those}) > 1
        ]
        if differences:
            raise MismatchError(differences)

    def counted_elsewhere(self) -> set[nn.Parameter]:
        """Parameters of this rank that are copies of one that counts on another rank."""
        return self._shared.counted_elsewhere()

    # ------------------------------------------------------------------ a step

    def begin(self, rows: int | None, device: torch.device) -> None:
        """A step begins.

        Parameters
        ----------
        rows
            Of the batch of this replica, on the rank that has the loss.
        device
            Of the tensors.
        """
        self._shared.begin()
        if self._replicas is not None:
            self._replicas.begin()
            if rows is not None:
                self._replicas.count_rows(rows, device)

    def loss_factor(self, *, is_mean: bool) -> float:
        """What the loss of this replica counts times, so that the average is right."""
        if self._replicas is None:
            return 1.0
        return self._replicas.loss_factor() if is_mean else float(self._replicas.count)

    def stage_is_done(self, stage: int) -> None:
        """The last backward op of a stage has run: begin what can be begun."""
        if self._replicas is not None:
            self._replicas.stage_is_done(stage)

    def finish(self) -> None:
        """All ops have run: wait for what has begun, and do the rest."""
        if self._replicas is not None:
            self._replicas.finish()
        self._shared.finish(self._replicas)

    def over_ranks(self, value: torch.Tensor, *, is_max: bool) -> torch.Tensor:
        """Sum or maximum of a number over the ranks of the pipeline, all of which call this."""
        if self._watch.size == 1:
            return value
        if not is_max:
            return self.finish_total(self.start_total(value, value.device))
        total = value.clone()
        self._over_ranks().largest(total, COMPARED)
        return total

    def start_total(self, value: torch.Tensor, device: torch.device) -> Total:
        """Begin to add up numbers over the ranks of the pipeline, all of which call this."""
        total = value.clone().to(device)
        if self._watch.size == 1:
            return Total(total, None)
        return Total(total, self._over_ranks().start_sum(total, COMPARED))

    def finish_total(self, total: Total) -> torch.Tensor:
        """Wait for the sum that was begun."""
        if total.started is not None:
            self._over_ranks().finish(total.started)
        return total.value

    def _over_ranks(self) -> Collectives:
        if self._ranks is None:
            self._ranks = self._connect(
                "ranks",
                self._watch.rank,
                self._watch.size,
                watch=self._watch,
                store=self._store,
            )
        return self._ranks

    # ------------------------------------------------------------------ failure, and the end

    def abort(self) -> None:
        """End all waits of this rank, and those of the ranks that wait for it."""
        for collectives in self._collectives:
            collectives.abort()

    def fail(self, reason: str) -> None:
        """Stop the other replicas; the ranks of this one are stopped by their own watch."""
        if self._between is not None:
            # Each replica finds by itself that the replicas do not agree.
            reason = f"replica {self._between.rank}, {reason}"
            self._between.fail(reason, tell=not self._disagrees)

    def close(self) -> None:
        """Leave the other replicas."""
        if self._between is not None:
            self._between.close()
        self._collectives.clear()


def _digest(modules: Mapping[int, nn.Module]) -> str:
    """All parameters in short: names, shapes, types, and which are trained."""
    digest = hashlib.sha256()
    for stage, module in modules.items():
        for name, parameter in module.named_parameters():
            trained = "trained" if parameter.requires_grad else "frozen"
            digest.update(f"{_name(stage, name)} {_kind(parameter)} {trained}\n".encode())
    return digest.hexdigest()[:16]


def _name(stage: int, name: str) -> str:
    return f"{stage}.{name}"


def _kind(parameter: nn.Parameter) -> str:
    shape = "x".join(map(str, parameter.shape))
    return f"{shape} {str(parameter.dtype).removeprefix('torch.')}"
