"""README and docs say what is true: their commands and snippets are run, their problems loaded.

A comment in the line before a block says what it is:

- ``<!-- file: NAME -->``: the block is written to the file NAME for the blocks after it;
- ``<!-- slow -->``: the block takes more than some seconds;
- ``<!-- not run: WHY -->``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from schedopt.problem import Problem

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    mark: str
    language: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        yield Block(match[1] or "", match[2], match[3])


def play(page: str, folder: Path, *, slow: bool) -> int:
    """Run the blocks of a page in order, in a folder of their own; the number of blocks run."""
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": os.pathsep.join([scripts, os.environ["PATH"]])}
    count = 0
    for mark, language, text in blocks(page):
        if mark.startswith("file: "):
            (folder / mark.removeprefix("file: ")).write_text(text, encoding="utf-8")
        if language not in ("bash", "python") or mark.startswith("not run: "):
            continue
        if mark == "slow" and not slow:
            continue
        command = (
            ["bash", "-euo", "pipefail", "-c"] if language == "bash" else [sys.executable, "-c"]
        )
        done = subprocess.run(
            [*command, text],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"{page}:\n{text}\n{done.stdout}\n{done.stderr}"
        count += 1
    return count


@pytest.mark.parametrize("page", ["README.md", "docs/command-line.md"])
def test_the_commands_and_snippets_of_a_page_work_as_printed(page: str, tmp_path: Path) -> None:
    assert play(page, tmp_path, slow=False) >= 1


@pytest.mark.slow
def test_the_slow_commands_of_the_readme_work_too(tmp_path: Path) -> None:
    assert play("README.md", tmp_path, slow=True) > sum(
        mark != "slow" and not mark.startswith("not run: ") and language in ("bash", "python")
        for mark, language, _ in blocks("README.md")
    )


def test_the_problems_of_the_documentation_are_valid() -> None:
    parsers = {"toml": tomllib.loads, "json": json.loads}
    pages = ("README.md", "docs/problem-file.md")
    problems = [
        Problem.from_dict(parsers[block.language](block.text))
        for page in pages
        for block in blocks(page)
        if block.language in parsers
    ]
    assert len(problems) >= 8


def test_every_field_of_a_problem_is_documented() -> None:
    page = (ROOT / "docs/problem-file.md").read_text(encoding="utf-8")
    for field in Problem.model_fields:
        assert f"`{field}`" in page


def test_every_command_and_bundled_problem_of_the_documentation_exists() -> None:
    from schedopt.bundled import bundled_names
    from schedopt.cli import commands

    for page in ("README.md", "docs/command-line.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        used = re.findall(r"^schedopt ([a-z]+)", text, re.MULTILINE)
        assert used
        assert set(used) <= commands.commands.keys()
        assert set(re.findall(r"\bzb-[\w.]+-p\d+-m\d+", text)) <= set(bundled_names())


def test_links_lead_to_files_that_exist() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert target.startswith("https://") or (page.parent / target).exists(), (page, target)
