"""Weaviate is killed or frozen while a corpus writes to it. Nothing is lost for long."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("weaviate", reason="pip install 'unspool[weaviate]'")

import unspool
from hashing import Asked
from support import doc, open_corpus, required, settings_for
from unspool.diagnosis import diagnose
from unspool.errors import UnspoolError
from unspool.index import follower
from weaviate_server import WeaviateServer

EMBEDDER = "hashing:a"
WORDS = "walrus cache eviction parse config token island seal".split()


@pytest.fixture(scope="module")
def server() -> Iterator[WeaviateServer]:
    with required(WeaviateServer) as started:
        yield started


def make_documents(numbers: range, version: int = 0) -> list[unspool.Document]:
    texts = (f"{WORDS[at % 8]} {WORDS[at % 5]} number {at} version {version}" for at in numbers)
    return [doc(f"{at}.md", text) for at, text in zip(numbers, texts, strict=True)]


def compare(corpus: unspool.Corpus, plain: unspool.Corpus, query: str) -> None:
    """Compare all hits with those of the embedded store."""
    found, expected = (
        {hit.chunk.path: hit.score for hit in one.search(query, limit=1000, alpha=1).hits}
        for one in (corpus, plain)
    )
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("how", ["kill", "freeze"])
def test_a_server_that_fails_during_writes_is_complete_afterwards(
    server: WeaviateServer,
    tmp_path: Path,
    hashing: Asked,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    for name, value in {"TAIL_LIMIT": 8, "PAGE": 20, "COMMIT_EVERY": 40}.items():
        monkeypatch.setattr(follower, name, value)
    arguments: dict[str, Any] = {
        "vectors": server.address,
        "vectors_key": server.key,
        "vectors_timeout_s": 1,
        "vectors_retries": 0,
        "embedder": EMBEDDER,
    }
    chance = random.Random(7)
    place = tmp_path / "a.db"
    with (
        open_corpus(place, **arguments) as corpus,
        open_corpus(tmp_path / "b.db", embedder=EMBEDDER) as plain,
    ):
        for version in range(5):
            changed = range(version * 30, version * 30 + 200)
            disturb = server.kill if how == "kill" else server.freeze
            timer = threading.Timer(chance.uniform(0.02, 0.5), disturb)
            timer.start()
            for one in (corpus, plain):
                one.put(*make_documents(changed, version))
                one.forget(project="notes", path=f"{version}.md")
            timer.join()
            compare(corpus, plain, "walrus")  # while it is down
            server.start()
            refresh(corpus)
            for query in WORDS:
                compare(corpus, plain, query)
        checks = diagnose(settings_for(place, **arguments))
        assert [check for check in checks if not check.ok and "vectors" in check.name] == []
        index: Any = corpus._resources.session.indexes.vectors.index
        index.drop()


def refresh(corpus: unspool.Corpus) -> None:
    """Complete the index. A server that was frozen answers old requests first."""
    deadline = time.monotonic() + 10
    while True:
        try:
            corpus.refresh()
            return
        except UnspoolError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
