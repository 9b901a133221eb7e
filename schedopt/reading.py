"""Files to plain data, with a fault instead of an exception for what can not be read."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from schedopt.errors import Fault, ProblemError

MAX_DEPTH = 100
"""How deep lists and tables of a file may be nested."""


def read_data(path: str | Path) -> Any:
    """Parse a JSON file, or a TOML file if its name ends in .toml.

    Raises
    ------
    ProblemError
        If it can not be read or parsed.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() == ".toml":
            data = tomllib.loads(text)
        else:
            data = json.loads(text, object_pairs_hook=_table)
        _check_depth(data)
        if "\\ud" in text.lower():  # half a surrogate pair can be escaped, but not be shown
            json.dumps(data, ensure_ascii=False, default=str).encode()
    except (OSError, UnicodeError, RecursionError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        valid = "must be a readable JSON file, or TOML with the ending .toml"
        raise ProblemError([Fault("(file)", str(reason), valid)], str(path)) from None
    return data


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; of two equal names the first would be lost without a word."""
    table: dict[str, Any] = {}
    for name, value in pairs:
        if name in table:
            raise ValueError(f"{name!r} is there twice in one table")
        table[name] = value
    return table


def _check_depth(data: Any) -> None:
    level = [data]
    for _ in range(MAX_DEPTH):
        tables = [part for part in level if isinstance(part, (dict, list))]
        if not tables:
            return
        level = [
            part
            for table in tables
            for part in (table.values() if isinstance(table, dict) else table)
        ]
    raise ValueError(f"lists and tables are nested more than {MAX_DEPTH} deep")
