"""Check wheels: nothing is missing, and the source distribution builds the same one.

Usage: check_wheel.py WHEEL_FROM_THE_TREE WHEEL_FROM_THE_SOURCE_DISTRIBUTION
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path


def contents(path: str) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist()}


def expected() -> set[str]:
    """Files of the package as they stand in the repository, links followed."""
    files = {"schedopt/py.typed"}
    for folder, target in (
        ("schedopt", "schedopt"),
        ("solvers", "schedopt/solvers"),
        ("data", "schedopt/data"),
    ):
        patterns = ["*.toml", "*.json"] if folder == "data" else ["*.py", "*.html", "*.css", "*.js"]
        for pattern in patterns:
            for path in Path(folder).rglob(pattern):
                files.add((target / path.relative_to(folder)).as_posix())
    return files


def main() -> None:
    from_tree, from_source = map(contents, sys.argv[1:3])
    problems = [f"missing: {name}" for name in sorted(expected() - from_tree.keys())]
    problems += [
        f"differs: {name}"
        for name in sorted(from_tree.keys() | from_source.keys())
        if from_tree.get(name) != from_source.get(name)
    ]
    foreign = {name.split("/")[0] for name in from_tree} - {"schedopt"}
    problems += [f"foreign: {name}" for name in foreign if not name.endswith(".dist-info")]
    if problems:
        sys.exit("the wheel is wrong:\n  " + "\n  ".join(problems))
    print(f"{len(from_tree)} files in the wheel; the source distribution builds the same")


if __name__ == "__main__":
    main()
