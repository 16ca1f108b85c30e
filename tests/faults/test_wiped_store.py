"""A vector store that is wiped while threads read and write it loses nothing for long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import unspool
from support import doc, open_corpus
from unspool.index import follower
from unspool.index.ports import Candidates, Ids, Points
from unspool.index.remote import RemoteIndex
from unspool.index.vectors.memory import MemoryIndex

COUNT = 30


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[unspool.Corpus]:
    """Return a corpus whose vectors are written in small batches, and never in a tail."""
    for name in ("PAGE", "COMMIT_EVERY", "TAIL_LIMIT"):
        monkeypatch.setattr(follower, name, 5)
    with open_corpus(tmp_path / "a.db", vectors="memory://wiped") as opened:
        yield opened


def find_parts(corpus: unspool.Corpus) -> tuple[RemoteIndex, MemoryIndex]:
    upkeep: Any = corpus._resources.session.indexes.upkeep[-1]
    return upkeep.index, upkeep.index.vectors


def put_all(corpus: unspool.Corpus) -> None:
    corpus.put(*(doc(f"{at}.md", f"walrus number {at}") for at in range(COUNT)))


def search(corpus: unspool.Corpus) -> set[str]:
    return {hit.chunk.path for hit in corpus.search("walrus", limit=100, alpha=1).hits}


EVERYTHING = {f"{at}.md" for at in range(COUNT)}


def test_a_store_wiped_between_two_batches_is_filled_again(
    corpus: unspool.Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader notices the new epoch first. The writer must not store its position with it."""
    corpus.put(doc("first.md", "walrus"))
    corpus.refresh()
    corpus.forget(project="notes", path="first.md")
    remote, store = find_parts(corpus)
    apply = store.apply
    calls = []

    def wipe_after_two(project: int, upserts: Points, deletes: Ids) -> None:
        apply(project, upserts, deletes)
        calls.append(len(upserts.ids))
        if len(calls) == 2:
            store.drop()
            remote.is_unchanged(project, None)

    monkeypatch.setattr(store, "apply", wipe_after_two)
    put_all(corpus)
    corpus.refresh()
    assert len(calls) > 4
    assert store.count(1) == COUNT
    assert search(corpus) == EVERYTHING


def test_a_search_of_a_store_that_was_wiped_is_repeated(
    corpus: unspool.Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread has noticed the new epoch before this one compares it."""
    put_all(corpus)
    corpus.refresh()
    remote, store = find_parts(corpus)
    inner = store.search
    calls = []

    def wipe_before(project: int, *arguments: Any, **more: Any) -> Candidates:
        calls.append(project)
        if len(calls) == 1:
            store.drop()
            found = inner(project, *arguments, **more)
            remote.is_unchanged(project, None)
            return found
        return inner(project, *arguments, **more)

    monkeypatch.setattr(store, "search", wipe_before)
    assert search(corpus) == EVERYTHING
    assert len(calls) == 2


def test_a_search_while_another_thread_fills_a_wiped_store_waits(
    corpus: unspool.Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is wiped, and filled again in full, between the search and the comparison."""
    put_all(corpus)
    corpus.refresh()
    _, store = find_parts(corpus)
    inner = store.search
    calls = []

    def wipe_and_fill(project: int, *arguments: Any, **more: Any) -> Candidates:
        calls.append(project)
        if len(calls) > 1:
            return inner(project, *arguments, **more)
        store.drop()
        found = inner(project, *arguments, **more)
        corpus._resources.session.indexes.repair(project)
        return found

    monkeypatch.setattr(store, "search", wipe_and_fill)
    assert search(corpus) == EVERYTHING
    assert len(calls) == 2
