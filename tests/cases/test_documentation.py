"""docs/cases.md lists every case, and what it says of tests is true."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "cases.md"

NUMBERS = {
    "A": "01 02 03 05 07 08 09 11 13 14 16 17",
    "M": "01 03 04 06 08 09 10 12 13",
    "X": "01 03 05 06 08 09 10 12 14 15 17 19 21 22 24 26 27 28 30 32 33 34 35 36 37 38",
    "N": "01 02 04 06 07 09 10 11 12 14 16 19 20 21 22",
    "R": "01 03 05 07 09 11",
    "P": "01 03 04 06 07 08 10 11 12 13 14 16 18 19",
}
CASES = [letter + number for letter, numbers in NUMBERS.items() for number in numbers.split()]
CAPABILITIES = re.findall(r"^- \*\*(.+)\*\*", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def table() -> list[list[str]]:
    """Case, situation, tests, still to come."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]
    return [row for row in rows if re.fullmatch(r"[A-Z]\d\d", row[0])]


def references(cell: str) -> list[tuple[str, str]]:
    """File and beginning of the name of each test in a cell."""
    return re.findall(r"`([\w/]+\.py)::(\w+)`", cell)


def names_of_tests(path: Path) -> list[str]:
    return re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_case_has_one_row() -> None:
    assert len(CASES) == 82
    assert [row[0] for row in table()] == CASES


def test_every_case_has_tests_or_names_what_it_waits_for() -> None:
    assert len(CAPABILITIES) == 4
    for case, situation, tests, later in table():
        assert situation, case
        assert references(tests) or later, case
        assert tests.count("`") == 2 * len(references(tests)), case
        if later:
            assert any(later.startswith(capability) for capability in CAPABILITIES), case


def test_every_test_of_the_table_exists() -> None:
    for case, _, tests, _ in table():
        for file, beginning in references(tests):
            found = names_of_tests(TESTS / file)
            assert any(name.startswith(beginning) for name in found), (case, file, beginning)


def test_every_test_with_the_name_of_a_case_is_in_its_row() -> None:
    listed = {case: references(tests) for case, _, tests, _ in table()}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for name in names_of_tests(path):
            match = re.match(r"test_([A-Z]\d\d)_", name)
            if match:
                assert (f"cases/{path.name}", f"test_{match[1]}") in listed[match[1]], name
