"""Chroma is killed, frozen or wiped while a corpus writes. The next run completes everything."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import unspool
from chroma_server import ChromaServer
from store_servers import get_server
from support import doc, open_corpus, required, settings_for
from unspool.diagnosis import diagnose
from unspool.errors import ServiceError
from unspool.index import follower

COUNT = 120
ROUNDS = 4
WORDS = "walrus cache eviction parse config token island seal".split()


@pytest.fixture
def server(hashing: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChromaServer]:
    """Return a running server. Points are written in small batches."""
    for name in ("PAGE", "COMMIT_EVERY", "TAIL_LIMIT"):
        monkeypatch.setattr(follower, name, 5)
    found: Any = required(lambda: get_server("chroma"))
    found.start()
    yield found
    found.start()


def open_outside(place: Path, server: ChromaServer) -> unspool.Corpus:
    return open_corpus(place, **describe(server))


def describe(server: ChromaServer) -> dict[str, object]:
    return {
        "embedder": "hashing:a",
        "vectors": server.address,
        "vectors_key": server.key,
        "vectors_timeout_s": 1,
        "vectors_retries": 1,
    }


def make_documents(version: int) -> list[unspool.Document]:
    return [
        doc(f"{at}.md", f"version {version} number {at} {WORDS[at % 8]} {WORDS[at % 5]}")
        for at in range(COUNT)
    ]


def write(place: Path, server: ChromaServer, version: int) -> None:
    """Replace all documents and delete one. It may fail, but only with our errors."""
    with open_outside(place, server) as corpus, suppress(ServiceError):
        corpus.put(*make_documents(version))
        corpus.refresh()
        corpus.forget(project="notes", path=f"{version}.md")


def disturb(server: ChromaServer, how: str, after_s: float) -> None:
    time.sleep(after_s)
    if how == "frozen":
        server.freeze()
        time.sleep(0.3)
        server.thaw()
    elif how == "wiped":
        server.wipe()
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


@pytest.mark.parametrize("how", ["killed", "frozen", "wiped"])
def test_a_disturbed_run_is_completed_by_the_next(
    server: ChromaServer, tmp_path: Path, how: str
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


def test_a_corpus_searches_words_and_returns_when_the_server_does(
    server: ChromaServer, tmp_path: Path
) -> None:
    """A search by meaning fails with our error while the server is away, and works afterwards."""
    with open_outside(tmp_path / "a.db", server) as corpus:
        corpus.put(*make_documents(1))
        corpus.refresh()
        server.kill()
        with suppress(ServiceError):
            corpus.search("walrus", alpha=1)
        assert corpus.search("walrus", alpha=0).hits
        server.start()
        assert len(search_all(corpus)) == COUNT
        index: Any = corpus._resources.session.indexes.vectors.index
        index.drop()


CHILD = """
import json, sys
task = json.loads(sys.argv[1])
sys.path[:0] = task["paths"]
import hashing, unspool
from unspool.index import follower
from test_chroma_faults import make_documents
follower.PAGE = follower.COMMIT_EVERY = follower.TAIL_LIMIT = 5
hashing.register()
settings = unspool.Settings.load(arguments=task["settings"], environment={})
with unspool.open(settings=settings) as corpus:
    print("ready", flush=True)
    corpus.put(*make_documents(task["version"]))
    corpus.refresh()
"""


def test_a_process_that_is_killed_while_it_writes_a_folder_leaves_it_usable(
    tmp_path: Path, server: ChromaServer
) -> None:
    place, tests = tmp_path / "a.db", Path(__file__).parents[1]
    arguments: dict[str, object] = {
        "embedder": "hashing:a",
        "vectors": f"chroma://{tmp_path}/chroma",
    }
    chance = random.Random(7)
    for version in range(ROUNDS):
        task = {
            "paths": [str(tests), str(tests / "faults")],
            "settings": {"database": f"sqlite:///{place}", **arguments},
            "version": version,
        }
        command = [sys.executable, "-c", CHILD, json.dumps(task)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0.3, 1.2))
        child.kill()
        child.communicate()
    with open_corpus(place, **arguments) as corpus:
        corpus.put(*make_documents(ROUNDS))
        corpus.refresh()
        assert len(set(search_all(corpus))) == COUNT
        index: Any = corpus._resources.session.indexes.vectors.index
        assert index.count(1) == COUNT
    checks = diagnose(settings_for(place, **arguments))
    assert [check for check in checks if not check.ok] == []
