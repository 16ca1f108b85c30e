"""A disk that is full: a clear error, nothing lost, and the next run completes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import disks
from support import assert_no_orphans, doc, open_corpus, paths, write

TREE = {
    f"m{n}.py": (
        f'"""Module {n} of the walrus."""\n\n\ndef walrus_{n}():\n    return '
        f'"{chr(97 + n % 26) * 9} {n}"\n'
    )
    * 6
    for n in range(90)
}


def unspool_index(
    tree: Path, database: Path, *, file_bytes: int | None = None
) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    kept = {name: value for name, value in os.environ.items() if not name.startswith("UNSPOOL_")}
    return subprocess.run(
        [sys.executable, "-m", "unspool", "index", str(tree)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**kept, "UNSPOOL_DATABASE": f"sqlite:///{database}", "UNSPOOL_JOBS": "1"},
        cwd=tree.parent,
        preexec_fn=limit,
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own that holds little."""
    with disks.small_disk(tmp_path / "disk") as mounted:
        yield mounted


def check(done: subprocess.CompletedProcess[str], tree: Path, database: Path) -> None:
    """The run that failed said so; the next one has everything."""
    assert done.returncode == 3, done.stderr
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
    after = unspool_index(tree, database)
    assert after.returncode == 0, after.stderr
    found = assert_no_orphans(database)
    assert len(found.documents) == len(TREE)
    assert {status for status, _, _ in found.documents.values()} == {"indexed"}


def test_a_full_disk_is_exit_code_3_and_the_next_run_completes(
    small_disk: Path, tmp_path: Path
) -> None:
    tree, database = write(tmp_path / "tree", TREE), small_disk / "catalog.db"
    done = unspool_index(tree, database)
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    check(done, tree, database)


@pytest.mark.parametrize("kilobytes", [20, 200])
def test_a_file_that_may_not_grow_is_exit_code_3_and_the_next_run_completes(
    tmp_path: Path, kilobytes: int
) -> None:
    """20: not even the tables fit. 200: the tables fit, the documents do not."""
    tree, database = write(tmp_path / "tree", TREE), tmp_path / "catalog.db"
    check(unspool_index(tree, database, file_bytes=kilobytes * 1024), tree, database)


def test_what_was_stored_before_the_disk_was_full_is_still_found(tmp_path: Path) -> None:
    tree, database = write(tmp_path / "tree", TREE), tmp_path / "catalog.db"
    with open_corpus(database) as corpus:
        corpus.put(doc("memo.md", "Remember the aardvark.", "memo"))
        corpus.refresh()
    done = unspool_index(tree, database, file_bytes=200 * 1024)
    assert done.returncode == 3, done.stderr
    with open_corpus(database) as corpus:
        assert paths(corpus.search("aardvark", projects=["memo"])) == ["memo.md"]
