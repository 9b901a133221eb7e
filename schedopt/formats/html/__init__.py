"""Schedules as one web page that works without a network: everything is inside the file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from schedopt.formats.headings import title
from schedopt.formats.html.data import page_data
from schedopt.schedule import Schedule

SCRIPTS = (
    *("page", "decode", "ops", "axis", "strip", "chart", "memory", "overlay"),
    *("details", "input", "tables", "history", "main"),
)
"""Parts of the script, in order."""


def report(schedules: Sequence[Schedule]) -> str:
    """One HTML page with pictures to zoom into, idle time by cause, and all figures.

    Parameters
    ----------
    schedules
        At least one; several are compared on one time axis. They may be for different problems
        and may break rules.

    Raises
    ------
    InputError
        If there is none, or their time units differ.
    """
    data = json.dumps(page_data(schedules), separators=(",", ":"), ensure_ascii=False)
    names = ", ".join(dict.fromkeys(map(title, schedules)))
    parts = {
        "title": escape(names),
        "style": _part("style.css"),
        "data": data.replace("<", "\\u003c"),  # no text can end the element
        "script": "\n".join(_part(f"{name}.js") for name in SCRIPTS),
    }
    page = _part("page.html")
    for name, content in parts.items():
        before, _, after = page.partition(f"<!-- {name} -->")
        page = before + content + after
    return page


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
