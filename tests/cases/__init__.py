"""Situations from public reports, papers and profiles; docs/cases.md lists them."""

import pytest

pytest.register_assert_rewrite("tests.cases.solving")
