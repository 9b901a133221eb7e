"""The plain table of ops."""

from __future__ import annotations

from schedopt.formats.op_table import write_op_table
from tests.schedules import two_by_two


def test_every_op_is_a_line_with_its_meaning_and_its_times() -> None:
    lines = write_op_table(two_by_two(time_unit="ms", F=0.5)).splitlines()
    assert lines[0] == "device,position,kind,meaning,stage,microbatch,start (ms),end (ms)"
    assert lines[1] == "0,0,F,forward,0,0,0,0.5"
    assert lines[9] == "1,2,F,forward,1,1,2,2.5"
    assert '"backward, gradient of the input only"' in lines[3]
    assert len(lines) == 1 + 12


def test_times_are_exact() -> None:
    lines = write_op_table(two_by_two(F=0.12345678)).splitlines()
    assert lines[1].endswith(",0,0.12345678")
