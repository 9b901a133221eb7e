"""The names that docs/library.md calls stable are there, and they are the public ones."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import schedopt
from schedopt import executor

PAGE = (Path(__file__).parent.parent / "docs" / "library.md").read_text(encoding="utf-8")
NAMES = re.findall(r"^\| `(schedopt\.[\w.]+)` \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_every_stable_name_exists_and_says_what_it_is(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    found = getattr(import_module(module), attribute)
    assert found.__doc__


@pytest.mark.parametrize("module", [schedopt, executor], ids=lambda module: module.__name__)
def test_what_a_package_offers_is_stable_and_nothing_else_directly_in_it(module: object) -> None:
    prefix = f"{module.__name__}."  # type: ignore[attr-defined]
    direct = {name.removeprefix(prefix) for name in NAMES if name.startswith(prefix)}
    assert {name for name in direct if "." not in name} == set(module.__all__)  # type: ignore[attr-defined]


def test_no_name_is_there_twice() -> None:
    assert len(NAMES) == len(set(NAMES)) > 40
