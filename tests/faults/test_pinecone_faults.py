"""The wire server of Pinecone is killed, frozen, emptied or slow while a corpus writes.

The next run completes everything.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import unspool
from pinecone_server import DELAY_S, PineconeServer
from support import doc, open_corpus, settings_for
from unspool.diagnosis import diagnose
from unspool.errors import ServiceError
from unspool.index import follower

COUNT = 60
ROUNDS = 3
WORDS = "walrus cache eviction parse config token island seal".split()


@pytest.fixture(scope="module")
def running() -> Iterator[PineconeServer]:
    with PineconeServer() as server:
        yield server


@pytest.fixture
def server(
    running: PineconeServer, hashing: object, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PineconeServer]:
    """Return a running server. Points are written in small batches."""
    for name in ("PAGE", "COMMIT_EVERY", "TAIL_LIMIT"):
        monkeypatch.setattr(follower, name, 10)
    running.start()
    yield running
    running.start()
    running.set_delay(DELAY_S)


def describe(server: PineconeServer) -> dict[str, object]:
    return {
        "embedder": "hashing:a",
        "vectors": server.get_address("words"),
        "vectors_key": server.key,
        "vectors_timeout_s": 1,
        "vectors_retries": 1,
    }


def open_outside(place: Path, server: PineconeServer) -> unspool.Corpus:
    return open_corpus(place, **describe(server))


def make_documents(version: int) -> list[unspool.Document]:
    return [
        doc(f"{at}.md", f"version {version} number {at} {WORDS[at % 8]} {WORDS[at % 5]}")
        for at in range(COUNT)
    ]


def write(place: Path, server: PineconeServer, version: int) -> None:
    """Replace all documents and delete one. It may fail, but only with our errors."""
    with open_outside(place, server) as corpus, suppress(ServiceError):
        corpus.put(*make_documents(version))
        corpus.refresh()
        corpus.forget(project="notes", path=f"{version}.md")


def disturb(server: PineconeServer, how: str, after_s: float) -> None:
    time.sleep(after_s)
    if how == "frozen":
        server.freeze()
        time.sleep(0.3)
        server.thaw()
    elif how == "emptied":
        server.delete_namespaces()
    elif how == "slow":
        server.set_delay(after_s / 3)
    elif how == "busy":
        server.fail_next(429, 503, 500, 429, 503)
    else:
        server.kill()
        time.sleep(0.1)
        server.start()


def search_all(corpus: unspool.Corpus) -> list[tuple[str, str]]:
    page = corpus.search("walrus island", limit=50, max_tokens=0, alpha=1)
    hits = list(page.hits)
    while page.continuation is not None:
        page = corpus.more(page.continuation)
        hits += page.hits
    return [(hit.chunk.path, hit.chunk.text) for hit in hits]


@pytest.mark.parametrize("how", ["killed", "frozen", "emptied", "slow", "busy"])
def test_a_disturbed_run_is_completed_by_the_next(
    server: PineconeServer, tmp_path: Path, how: str
) -> None:
    chance = random.Random(how)
    place = tmp_path / "outside.db"
    for version in range(ROUNDS):
        # A server ends with the thread that starts it, so this one disturbs.
        with ThreadPoolExecutor() as threads:
            run = threads.submit(write, place, server, version)
            disturb(server, how, chance.uniform(0.02, 0.5))
            run.result()
    with (
        open_outside(place, server) as corpus,
        open_corpus(tmp_path / "embedded.db", embedder="hashing:a") as embedded,
    ):
        for one in (corpus, embedded):
            one.put(*make_documents(ROUNDS))
            one.forget(project="notes", path="7.md")
            one.refresh()
        checks = diagnose(settings_for(place, **describe(server)))
        assert [check for check in checks if not check.ok] == []
        found, expected = search_all(corpus), search_all(embedded)
        assert len(found) == len(set(found)) == COUNT - 1
        assert sorted(found) == sorted(expected)
        index: Any = corpus._resources.session.indexes.vectors.index
        assert index.count(1) == COUNT - 1
        index.drop()


def test_points_that_were_deleted_in_the_console_are_written_again(
    server: PineconeServer, tmp_path: Path
) -> None:
    with open_outside(tmp_path / "a.db", server) as corpus:
        corpus.put(*make_documents(1))
        corpus.refresh()
        server.delete_namespaces()
        assert len(search_all(corpus)) == COUNT
        index: Any = corpus._resources.session.indexes.vectors.index
        assert index.count(1) == COUNT
        index.drop()


def test_a_corpus_searches_words_and_returns_when_the_server_does(
    server: PineconeServer, tmp_path: Path
) -> None:
    with open_outside(tmp_path / "a.db", server) as corpus:
        corpus.put(*make_documents(1))
        corpus.refresh()
        server.kill()
        assert corpus.search("walrus", alpha=0).hits
        server.start()
        assert len(search_all(corpus)) == COUNT
        index: Any = corpus._resources.session.indexes.vectors.index
        index.drop()
