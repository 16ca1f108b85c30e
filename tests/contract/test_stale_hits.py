"""Hits whose files have changed since they were indexed: each hit says so, as far as it can be
known.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import unspool
from support import Place, doc, open_corpus, write
from unspool.catalog.chunks import IndexedFile
from unspool.search.freshness import find_stale

FILES = {
    "same.md": "# Same\n\nThe walrus stays.\n",
    "edited.md": "# Edited\n\nThe walrus is edited.\n",
    "touched.md": "# Touched\n\nThe walrus is touched.\n",
    "deleted.md": "# Deleted\n\nThe walrus is deleted.\n",
    "deep/linked/file.md": "# Linked\n\nThe walrus is behind a link.\n",
    "replaced.md": "# Replaced\n\nThe walrus is replaced by a link.\n",
}


def stale(page: unspool.Page) -> dict[str, bool | None]:
    return {hit.chunk.path: hit.stale for hit in page.hits}


def test_each_hit_says_whether_its_file_is_still_the_same(database: Place, tmp_path: Path) -> None:
    tree = write(tmp_path / "tree", FILES)
    elsewhere = tmp_path / "elsewhere"
    with open_corpus(database, jobs=1) as corpus:
        corpus.index(tree)
        corpus.put(doc("given.md", "The walrus was given as text.", "tree"))
        page = corpus.search("walrus", projects=["tree"], limit=20)
        assert stale(page) == {**dict.fromkeys(FILES, False), "given.md": None}
        assert not any("changed since they were indexed" in note for note in page.notes)
        (tree / "edited.md").write_text("# Edited\n\nThe walrus was edited again.\n")
        os.utime(tree / "touched.md", ns=(1, 1))
        (tree / "deleted.md").unlink()
        shutil.move(tree / "deep" / "linked", elsewhere)
        (tree / "deep" / "linked").symlink_to(elsewhere)
        shutil.move(tree / "replaced.md", elsewhere / "replaced.md")
        (tree / "replaced.md").symlink_to(elsewhere / "replaced.md")
        expected = {**dict.fromkeys(FILES, True), "same.md": False, "given.md": None}
        page = corpus.search("walrus", projects=["tree"], limit=20)
        assert stale(page) == expected
        assert any(note.startswith("5 of the hits") for note in page.notes)
        vector = corpus.embed("walrus")
        assert {hit.chunk.path: hit.stale for hit in corpus.nearest(vector, k=20)} == expected
        assert stale(corpus.related("same.md", project="tree"))["edited.md"] is True
        corpus.index(tree)
        assert set(stale(corpus.search("walrus", projects=["tree"], limit=20)).values()) == {
            False,
            None,
        }


def test_a_continued_search_says_so_of_its_hits_too(database: Place, tmp_path: Path) -> None:
    tree = write(tmp_path / "tree", FILES)
    with open_corpus(database, jobs=1) as corpus:
        corpus.index(tree)
        page = corpus.search("walrus", projects=["tree"], limit=1)
        for name in FILES:
            (tree / name).write_text("The walrus has changed.\n")
        assert set(stale(page.more()).values()) == {True}


def test_of_a_folder_that_is_not_on_this_machine_nothing_is_known(
    database: Place, tmp_path: Path
) -> None:
    tree = write(tmp_path / "tree", FILES)
    with open_corpus(database, jobs=1) as corpus:
        corpus.index(tree)
        shutil.move(tree, tmp_path / "moved")
        assert set(stale(corpus.search("walrus", projects=["tree"])).values()) == {None}
        tree.symlink_to(tmp_path / "moved")
        assert set(stale(corpus.search("walrus", projects=["tree"])).values()) == {None}


def test_a_project_of_a_single_file_is_compared_with_that_file(
    database: Place, tmp_path: Path
) -> None:
    file = write(tmp_path, {"note.md": "# Note\n\nThe walrus notes.\n"}) / "note.md"
    with open_corpus(database, jobs=1) as corpus:
        corpus.index(file)
        (hit,) = corpus.search("walrus").hits
        assert hit.stale is False
        file.write_text("# Note\n\nThe walrus notes something else.\n")
        (hit,) = corpus.search("walrus").hits
        assert hit.stale is True
        file.unlink()
        (hit,) = corpus.search("walrus").hits
        assert hit.stale is True


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("https://github.com/pallets/click", "a.md"),
        ("", "a.md"),
        ("relative", "a.md"),
        ("/", "../etc/passwd"),
        ("/", "etc/../etc/passwd"),
        ("/", "a\x00b"),
        ("/", "caf\ufffd~1234.md"),
        ("/nowhere/at/all", "a.md"),
    ],
)
def test_what_cannot_be_looked_at_is_unknown(root: str, path: str) -> None:
    assert find_stale([IndexedFile(root, path, 1, 1), None]) == [None, None]
