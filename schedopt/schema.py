"""JSON schemas of the files, published in data/.

``python -m schedopt.schema data`` writes both into the folder data.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from schedopt.problem import Problem
from schedopt.schedule import ScheduleFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def problem_schema() -> dict[str, Any]:
    """Schema of a problem file (see `schedopt.problem.Problem`)."""
    return {"$schema": DIALECT, "title": "schedopt problem", **_schema_of(Problem)}


def schedule_schema() -> dict[str, Any]:
    """Schema of a schedule file (see `schedopt.schedule.Schedule.to_dict`)."""
    schema, problem = _schema_of(ScheduleFile), _schema_of(Problem)
    definitions = problem.pop("$defs")
    schema["$defs"] |= {"Problem": problem, **definitions}
    schema["properties"]["problem"] = {"$ref": "#/$defs/Problem"}
    return {"$schema": DIALECT, "title": "schedopt schedule", **schema}


def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """What pydantic generates, for readers of JSON."""
    schema: dict[str, Any] = _plain(model.model_json_schema(by_alias=True))
    return schema


def _plain(part: Any) -> Any:
    if isinstance(part, list):
        return [_plain(item) for item in part]
    if not isinstance(part, dict):
        return part
    result = {}
    for key, value in part.items():
        if key == "title" and isinstance(value, str):
            continue  # the name of the field again
        if key == "description":
            # of a docstring what comes before its sections; as paragraphs, not lines
            text = value.split("\n\nRaises\n")[0]
            value = "\n".join(p.replace("\n", " ") for p in text.split("\n\n"))
        # an empty list is a list and a table, which is no contradiction
        result["anyOf" if key == "oneOf" else key] = _plain(value)
    return result


def schema_text(schema: dict[str, Any]) -> str:
    """The text of a schema file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Write problem.schema.json and schedule.schema.json into a folder.

    Raises
    ------
    SystemExit
        If not exactly one folder is given.
    """
    if len(arguments) != 1:
        raise SystemExit("usage: python -m schedopt.schema FOLDER")
    folder = Path(arguments[0])
    for name, schema in (("problem", problem_schema()), ("schedule", schedule_schema())):
        (folder / f"{name}.schema.json").write_text(schema_text(schema), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
