"""README and docs say what is true: their commands and snippets are run, their problems loaded.

A comment in the line before a block says what it is:

- ``<!-- file: NAME -->``: the block is written to the file NAME for the blocks after it;
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

from schedopt.bundled import bundled_names
from schedopt.cache import FOLDER_VARIABLE
from schedopt.cli import commands, main
from schedopt.cli.reference import reference
from schedopt.problem import Problem

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNNERS = {"bash": ("bash", "-euo", "pipefail", "-c"), "python": (sys.executable, "-c")}
EXPECTED = re.compile(r"^ *print\(.*\)  # (.*?)(?:, and so on)?$", re.MULTILINE)
"""What a snippet says that it prints."""


class Block(NamedTuple):
    mark: str
    language: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        yield Block(match[1] or "", match[2], match[3])


def play(page: str, folder: Path) -> int:
    """Run the blocks of a page in order, in a folder of their own; the number of blocks run."""
    scripts = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([scripts, os.environ["PATH"]]),
        FOLDER_VARIABLE: str(folder / "cache"),
    }
    count = 0
    for mark, language, text in blocks(page):
        if mark.startswith("file: "):
            (folder / mark.removeprefix("file: ")).write_text(text, encoding="utf-8")
        if language not in RUNNERS or mark.startswith("not run: "):
            continue
        done = subprocess.run(
            [*RUNNERS[language], text],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"{page}:\n{text}\n{done.stdout}\n{done.stderr}"
        for expected in EXPECTED.findall(text):
            assert expected in done.stdout, f"{page}:\n{text}\n{done.stdout}"
        count += 1
    return count


PAGES = [
    page
    for page in ("README.md", *(f"docs/{path.name}" for path in sorted(ROOT.glob("docs/*.md"))))
    if any(block.language in RUNNERS for block in blocks(page))
]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_and_snippets_of_a_page_work_as_printed(page: str, tmp_path: Path) -> None:
    assert play(page, tmp_path) >= 1


RESULT = re.compile(r"^\| `schedopt (solve [^`]+)` \| (\d+) us \|", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "makespan"), RESULT.findall(README))
def test_the_results_of_the_readme_are_proven(
    command: str, makespan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main([*command.split(), "--quiet", "--json"])
    data = json.loads(capsys.readouterr().out)
    assert (data["status"], data["objective_name"]) == ("optimal", "makespan")
    assert data["objective"] == int(makespan)


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
    for page in ("README.md", "docs/command-line.md", "docs/tutorial.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        used = re.findall(r"^schedopt ([a-z]+)", text, re.MULTILINE)
        assert used
        assert set(used) <= commands.commands.keys()
        assert set(re.findall(r"\bzb-[\w.]+-p\d+-m\d+", text)) <= set(bundled_names())


def links_of(page: Path) -> set[Path]:
    """Pages of the documentation that a page leads to."""
    targets = re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    return {(page.parent / target).resolve() for target in targets}


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    pages = set((ROOT / "docs").glob("*.md")) - {index}
    assert pages <= links_of(index)
    assert index in links_of(ROOT / "README.md")


def test_the_command_reference_is_that_of_the_commands() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert page == reference(), "run: python -m schedopt.cli.reference > docs/commands.md"


def heading_anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as they are made from their text."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_to_headings_lead_to_such_that_exist() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = page.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text):
            other = page.parent / target if target else page
            assert anchor in heading_anchors(other), (page.name, target, anchor)


def test_links_lead_to_files_that_exist() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert target.startswith("https://") or (page.parent / target).exists(), (page, target)
