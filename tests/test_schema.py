from __future__ import annotations

import json
from pathlib import Path

import pytest

from schedopt.problem import Problem
from schedopt.schema import main, problem_schema, schedule_schema

DATA = Path(__file__).parent.parent / "data"


@pytest.mark.parametrize("name", ["problem", "schedule"])
def test_the_published_schema_is_that_of_the_model(name: str, tmp_path: Path) -> None:
    main([str(tmp_path)])
    published = (DATA / f"{name}.schema.json").read_text(encoding="utf-8")
    assert published == (tmp_path / f"{name}.schema.json").read_text(encoding="utf-8"), (
        "run: python -m schedopt.schema data"
    )


def test_the_schema_of_a_problem_has_every_field_by_its_name_in_the_file() -> None:
    schema = problem_schema()
    assert set(schema["properties"]) == set(Problem.model_fields)
    assert set(schema["required"]) == {"devices", "microbatches", "durations"}
    assert set(schema["$defs"]["Edge"]["properties"]) == {"from", "to", "lag"}
    assert schema["additionalProperties"] is False


def test_the_schema_of_a_schedule_contains_that_of_its_problem() -> None:
    schema = schedule_schema()
    assert schema["properties"]["problem"] == {"$ref": "#/$defs/Problem"}
    assert schema["$defs"]["Problem"]["properties"] == problem_schema()["properties"]
    text = json.dumps(schema)
    for name in schema["$defs"]:
        assert f'"#/$defs/{name}"' in text


@pytest.mark.parametrize("arguments", [[], ["data", "other"]])
def test_the_writer_asks_for_one_folder(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="usage"):
        main(arguments)
