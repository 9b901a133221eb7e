"""Processes for all tests of the executor: they take seconds to start, so they are shared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from schedopt.executor.local import LocalRanks


@pytest.fixture(scope="session")
def ranks() -> Iterator[LocalRanks]:
    """Four ranks on this machine."""
    with LocalRanks(4, timeout=240) as started:
        yield started
