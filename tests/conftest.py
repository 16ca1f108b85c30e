"""What every folder of tests shares: a hand-made corpus of its own for each test, and none of the user's settings."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("support")

import unspool  # noqa: E402
from support import open_corpus  # noqa: E402


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Where this test's catalog is."""
    return tmp_path / "catalog.db"


@pytest.fixture
def corpus(database: Path) -> Iterator[unspool.Corpus]:
    """An empty corpus."""
    with open_corpus(database) as opened:
        yield opened


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that other users can reach; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        folder = Path(made)
        folder.chmod(0o755)
        yield folder
