"""The rules of the layout: who imports whom, who prints, who knows what."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

LAYERS = (
    {"errors", "exact", "fields", "op", "placement", "problem", "reading", "starting", "units"}
    | {"connection", "part_validation", "parts", "stage", "validation"},
    {"cache", "check", "graph", "memory", "schedule", "schema", "timing", "variants"}
    | {"binding", "bundled", "idle", "layer_costs", "layout", "measured"}
    | {"front", "grid", "partition"}
    | {"choices", "core", "rules", "torch_limits", "trace_events"},
    {"classic"},
    {"analysis", "executor", "formats", "solvers"},
    {"advice", "recommend", "sweep"},
    {"__main__", "cli", "progress"},
)
"""Modules and packages; each imports only from its own layer and from those before it."""

APART = {
    "formats": {"solvers", "executor"},
    "solvers": {"formats", "executor", "analysis"},
    "executor": {"solvers", "formats"},
    "analysis": {"solvers", "formats", "executor"},
}
"""What the members of one layer still do not import."""

TALKS_TO_ITS_PARENT = {"solvers.worker"}
"""A process of its own, whose output is read by the one that started it."""

ONLY_PROBLEM_AND_PLAIN_DATA = {
    ROOT / "schedopt" / "check.py": {"exact", "op", "problem", "rules", "schedule"},
    ROOT / "schedopt" / "rules.py": {"exact", "op", "problem", "stage"},
    ROOT / "tests" / "brute_force.py": {"exact", "problem"},
    ROOT / "tests" / "milp.py": {"problem"},
}
"""Code that is independent of what it checks, with all it may import from the package."""


def sources() -> list[tuple[str, Path]]:
    """Modules of the package with their dotted names below it ("classic.gpipe")."""
    found = []
    for folder, prefix in ((ROOT / "schedopt", ()), (ROOT / "solvers", ("solvers",))):
        for path in sorted(folder.rglob("*.py")):
            parts = (*prefix, *path.relative_to(folder).with_suffix("").parts)
            if folder.name == "schedopt" and parts[0] in ("solvers", "data"):
                continue  # links
            if parts != ("__init__",):
                found.append((".".join(parts).removesuffix(".__init__"), path))
    return found


SOURCES = sources()
every_source = pytest.mark.parametrize(("name", "path"), SOURCES, ids=[name for name, _ in SOURCES])


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(path: Path) -> Iterator[str]:
    """Dotted names of everything a file imports, also within functions."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def members_imported(path: Path) -> set[str]:
    """Members of the package that a file imports: "graph", "solvers", ..."""
    known = set().union(*LAYERS)
    parts = [name.split(".") for name in imports(path)]
    return {part[1] for part in parts if part[0] == "schedopt" and len(part) > 1} & known


def layer_of(member: str) -> int:
    return next(level for level, members in enumerate(LAYERS) if member in members)


def test_the_rules_see_the_whole_package() -> None:
    assert {"problem", "graph", "check", "classic.gpipe", "solvers", "cli"} <= dict(SOURCES).keys()
    assert members_imported(ROOT / "schedopt" / "graph.py") == {
        *("connection", "exact", "op", "problem", "stage"),
    }


@every_source
def test_every_module_belongs_to_a_layer(name: str, path: Path) -> None:
    assert name.split(".")[0] in set().union(*LAYERS), f"{path}: put it into LAYERS"


@every_source
def test_imports_run_one_way(name: str, path: Path) -> None:
    member = name.split(".")[0]
    others = members_imported(path) - {member}
    above = {other for other in others if layer_of(other) > layer_of(member)}
    assert not above, f"{member} is below {above}"
    assert not others & APART.get(member, set())


@every_source
def test_imports_are_absolute_and_solvers_are_reached_through_the_package(
    name: str, path: Path
) -> None:
    for imported in imports(path):
        assert not imported.startswith("."), imported
        assert imported.split(".")[0] != "solvers", imported


def test_tests_and_benchmarks_reach_solvers_through_the_package() -> None:
    for folder in ("tests", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not any(name.split(".")[0] == "solvers" for name in imports(path)), path


@every_source
def test_only_the_executor_imports_torch(name: str, path: Path) -> None:
    if name.split(".")[0] != "executor":
        assert "torch" not in {imported.split(".")[0] for imported in imports(path)}


@every_source
def test_only_the_command_line_and_the_progress_print(name: str, path: Path) -> None:
    if name.split(".")[0] in ("cli", "progress") or name in TALKS_TO_ITS_PARENT:
        return
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called.split(".")[-1] not in ("print", "echo", "secho"), called
        if isinstance(node, ast.Attribute):
            assert ast.unparse(node) not in ("sys.stdout", "sys.stderr")


@every_source
def test_no_assert_stands_in_for_validation(name: str, path: Path) -> None:
    lines = [node.lineno for node in ast.walk(tree_of(path)) if isinstance(node, ast.Assert)]
    assert lines == []


def test_the_order_model_knows_no_kinds_of_op() -> None:
    path = ROOT / "solvers" / "order_model.py"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Constant):
            assert node.value not in ("F", "B", "W", "BW", "R", "SF", "SB", "RED", "TIE", "OPT"), (
                f"line {node.lineno}"
            )
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("stage", "microbatch"), f"line {node.lineno}"
    words = "forward|backward|recompute|optimizer|reduction|gradient|transfer|network"
    assert not re.search(words, path.read_text(encoding="utf-8"), re.IGNORECASE)


@pytest.mark.parametrize("path", ONLY_PROBLEM_AND_PLAIN_DATA, ids=lambda path: path.name)
def test_what_checks_is_independent_of_what_it_checks(path: Path) -> None:
    assert members_imported(path) == ONLY_PROBLEM_AND_PLAIN_DATA[path]
