"""Options for the parts of a problem: `--recompute` and `--move`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

HEAVY = """
name = "heavy end"
devices = 4
microbatches = 8
durations = { F = 2, B = 2, W = 2 }
memory = { capacity = 4 }
recompute = { mode = "never", kept = 0.25 }
extras = [{ name = "output and loss", stage = 3, F = 1, B = 1 }]
"""


@pytest.fixture
def heavy(tmp_path: Path) -> Path:
    path = tmp_path / "heavy.toml"
    path.write_text(HEAVY, encoding="utf-8")
    return path


@pytest.mark.parametrize(("stage", "makespan"), [(0, 67), (1, 66), (2, 68), (3, 70)])
def test_an_extra_is_moved_by_one_option(run: Run, heavy: Path, stage: int, makespan: int) -> None:
    result = run("solve", heavy, "--move", f"output and loss={stage}", "--json", "--quiet")
    assert (result.code, result.json["status"]) == (0, "optimal")
    assert result.json["objective"] == makespan


def test_what_is_recomputed_is_an_option(run: Run, heavy: Path) -> None:
    never = run("solve", heavy, "--json", "--quiet").json
    always = run("solve", heavy, "--recompute", "always", "--json", "--quiet").json
    assert (never["objective"], always["objective"]) == (70, 94)
    assert (
        always["summary"]["devices"][0]["peak_memory"]
        < never["summary"]["devices"][0]["peak_memory"]
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--move", "loss"], "'loss' is not NAME=STAGE, such as loss=3"),
        (["--move", "loss=1"], "'loss' is no extra of the problem; it has: output and loss"),
        (["--move", "output and loss=4"], "there is no stage 4; must be 0 to 3"),
        (["--recompute", "sometimes"], "'sometimes' is not one of 'never', 'always', 'decide'"),
    ],
)
def test_a_wrong_option_is_named(run: Run, heavy: Path, options: list[str], words: str) -> None:
    result = run("solve", heavy, *options)
    assert result.code == 2
    assert words in " ".join(result.err.split())


def test_recomputation_needs_its_table(run: Run, problem_file: Path) -> None:
    result = run("solve", problem_file, "--recompute", "decide")
    assert result.code == 2
    assert "--recompute" in result.err
    assert "has no recompute table" in result.err


def test_explain_names_the_extra_of_the_busiest_stage(
    run: Run, heavy: Path, tmp_path: Path
) -> None:
    best = tmp_path / "best.json"
    run("solve", heavy, "-o", best)
    told = run("explain", best, "--no-advice").out
    assert "Busiest: device 3 (stage 3) with 64 of 70 units." in told
    assert "Of that the extra 'output and loss' takes 16, 25.00 %" in told
    advice = run("explain", best, "--workers", "1", "--deterministic-limit", "0.5", "--json").json
    by_change = {line["change"]: line["time"] for line in advice["advice"]}
    assert by_change["extra 'output and loss' on stage 0"] == 67
    assert by_change["everything recomputed"] == 94
    assert by_change["recomputation decided for each microbatch"] == 70


def test_a_page_and_a_picture_have_rows_for_links_and_networks(run: Run, tmp_path: Path) -> None:
    problem = tmp_path / "links.toml"
    problem.write_text(
        """
devices = 2
microbatches = 2
durations = { F = 2, B = 2, W = 2 }
links = { size = 1, bandwidth = 1 }
end_of_step = { reduction = 1, optimizer = 1 }
""",
        encoding="utf-8",
    )
    best = tmp_path / "best.json"
    assert run("solve", problem, "-o", best).code == 0
    assert run("check", best).code == 0
    lines = run("show", best, "--width", "80").out.splitlines()
    assert [line[:6].strip() for line in lines if line[:6].strip()][:7] == [
        *("device", "0", "0>1", "net", "1", "1>0", "net")
    ]
    report = tmp_path / "best.html"
    assert run("report", best, "-o", report).code == 0
    assert '"label": "0>1"' in report.read_text(encoding="utf-8").replace('":"', '": "')
