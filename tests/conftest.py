"""What every folder of tests shares: a hand-made corpus of its own for each test, and none of the user's settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import open_corpus

import unspool


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Where this test's catalog is."""
    return tmp_path / "catalog.db"


@pytest.fixture
def corpus(database: Path) -> Iterator[unspool.Corpus]:
    """An empty corpus."""
    with open_corpus(database) as opened:
        yield opened
