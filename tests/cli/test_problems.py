from __future__ import annotations

import re

from schedopt.bundled import bundled_names, load_bundled
from schedopt.problem import Problem
from tests.cli.conftest import Run


def test_every_bundled_problem_is_listed(run: Run) -> None:
    result = run("problems")
    assert result.code == 0
    for name in bundled_names():
        assert re.search(rf"^ {re.escape(name)} ", result.out, re.MULTILINE)
    assert re.search(r"^ zb-1\.5b-p8-m24 +8 +8 +24 +linear +1609728 ", result.out, re.MULTILINE)


def test_the_list_as_json(run: Run) -> None:
    data = run("problems", "--json").json
    assert [entry["name"] for entry in data] == list(bundled_names())
    assert all(entry["source"] for entry in data)


def test_one_problem_is_printed_as_a_file_that_can_be_read(run: Run) -> None:
    result = run("problems", "zb-1.5b-p8-m24")
    assert result.code == 0
    assert Problem.from_dict(result.json) == load_bundled("zb-1.5b-p8-m24")


def test_an_unknown_problem_suggests_close_ones(run: Run) -> None:
    result = run("problems", "zb-1.5b-p8")
    assert result.code == 2
    assert "'zb-1.5b-p8' is no file and no bundled problem; did you mean" in result.err
