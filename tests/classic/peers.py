"""Results of published schedulers, row by row (tests/data/peers_*.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from schedopt.problem import Problem

DATA = Path(__file__).parents[1] / "data"


class Row(NamedTuple):
    group: str
    algorithm: str
    p: int
    m: int
    v: int
    F: float
    B: float
    W: float
    C: float
    mem_F: float
    mem_B: float
    mem_W: float
    mem_limit: float | None
    makespan: float
    max_stage_span: float | None
    peak_mem_max: float | None

    def __str__(self) -> str:
        memory = f"memory {self.mem_F:g}/{self.mem_B:g}/{self.mem_W:g}"
        limit = "" if self.mem_limit is None else f" limit {self.mem_limit:g}"
        costs = f"F={self.F:g} C={self.C:g}"
        return f"{self.algorithm} v={self.v} p={self.p} m={self.m} {costs} {memory}{limit}"


def rows(name: str, *algorithms: str) -> list[Row]:
    data = json.loads((DATA / name).read_text(encoding="utf-8"))
    every = [Row(**dict(zip(data["columns"], values, strict=True))) for values in data["rows"]]
    return [row for row in every if row.algorithm in algorithms]


def problem_of(row: Row, placement: str, **memory: Any) -> Problem:
    """The problem of a row; a chunk has 1/v of the costs of a device."""
    return Problem(
        devices=row.p,
        stages=row.p * row.v,
        placement=placement,
        microbatches=row.m,
        durations={"F": row.F / row.v, "B": row.B / row.v, "W": row.W / row.v},
        lag=row.C,
        memory={"F": row.mem_F / row.v, "B": row.mem_B / row.v, **memory},
    )
