"""Fixtures that several files of unit tests share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from repositories import Guarded, commit, git


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A work tree with one commit. Its bare copy is `origin.git` beside it."""
    work = tmp_path / "work"
    work.mkdir()
    git(work, "init", "-q")
    commit(work, "a.py", "one")
    git(tmp_path, "clone", "-q", "--bare", "work", "origin.git")
    return work


@pytest.fixture
def password_server(origin: Path) -> Iterator[tuple[str, list[str | None]]]:
    """Address of that bare copy on a server that asks for a password, and the headers that the
    server got.
    """
    seen: list[str | None] = []
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Handler", (Guarded,), {"folder": origin.parent, "seen": seen})
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}/origin.git", seen
    server.shutdown()
    server.server_close()
    thread.join()
