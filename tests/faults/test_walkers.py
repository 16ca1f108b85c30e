"""Many who walk at once, and one who is killed on the way."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import unspool
from support import ENGINES, Place, Places, address_of, beside, doc, name, open_corpus
from unspool.catalog import Catalog, projects
from unspool.catalog.windows import WindowStore
from unspool.domain.queries import Page, Served
from unspool.embedders.base import Embedder
from unspool.index.indexes import open_indexes
from unspool.index.options import VectorOptions
from unspool.index.ports import Vectors
from unspool.search.engine import SearchEngine
from unspool.search.options import SearchOptions
from unspool.search.queries import QueryCache
from unspool.search.request import build_request

PAGES = 5
WORDS = (
    "walrus fish island coast cache eviction token parse garden tomato water harvest moon copper "
    "violin river"
).split()


def write(database: Place, count: int) -> None:
    with open_corpus(database) as corpus:
        corpus.put(
            *(
                doc(
                    f"{name(at)}.txt",
                    f"{name(at)} {WORDS[at % 16]} {WORDS[at // 16 % 16]} {WORDS[at * 7 % 16]} "
                    f"{name(at % 29)}",
                )
                for at in range(count)
            )
        )
        corpus.refresh()


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def shelf(module_places: Places) -> Place:
    database = module_places.new()
    write(database, 500)
    return database


def hits_of(corpus: unspool.Corpus, query: str, alpha: float) -> list[tuple[Any, ...]]:
    page = corpus.search(query, limit=30, alpha=alpha)
    out = [page.hits]
    while page.continuation is not None and len(out) < PAGES:
        page = page.more()
        out.append(page.hits)
    return out


@pytest.mark.parametrize("kind", ["stored", "signed"])
def test_64_threads_walk_64_queries_as_if_each_were_alone(shelf: Place, kind: str) -> None:
    queries = [
        (f"{WORDS[at % 16]} {WORDS[at * 5 % 16]} {WORDS[at // 16]}", (1.0, 0.0, 0.4)[at % 3])
        for at in range(64)
    ]
    with open_corpus(shelf, continuations=kind) as alone:
        expected = [hits_of(alone, query, alpha) for query, alpha in queries]
    ready = threading.Barrier(64)

    def walk(at: int) -> list[tuple[Any, ...]]:
        ready.wait()
        return hits_of(corpus, *queries[at])

    with open_corpus(shelf, continuations=kind) as corpus, ThreadPoolExecutor(64) as pool:
        found = list(pool.map(walk, range(64)))
    for at in range(64):
        assert found[at] == expected[at], queries[at]


@pytest.mark.parametrize("prefetch", ["on", "off"])
@pytest.mark.parametrize("alpha", [1.0, 0.0, 0.4], ids=["meaning", "word", "hybrid"])
def test_8_threads_that_go_past_the_window_together_get_the_same_page(
    shelf: Place, alpha: float, prefetch: str
) -> None:
    def ask(_: int) -> tuple[Any, ...]:
        ready.wait()
        page = corpus.more(continuation)
        return page.hits, page.number, page.served, page.continuation

    with open_corpus(shelf, window=20, prefetch=prefetch) as corpus, ThreadPoolExecutor(8) as pool:
        page = corpus.search(" ".join(WORDS), limit=55, alpha=alpha)
        shown: list[int] = [hit.chunk.id for hit in page.hits]
        while page.continuation is not None:
            continuation = page.continuation
            ready = threading.Barrier(8)
            pages = list(pool.map(ask, range(8)))
            assert all(one == pages[0] for one in pages)
            page = corpus.more(continuation)
            shown += [hit.chunk.id for hit in page.hits]
    assert page.served is Served.WIDER
    assert len(shown) == len(set(shown))
    assert len(shown) == 500


def test_walks_go_on_while_threads_write(database: Place) -> None:
    """Every walk ends, with nothing twice and nothing lost that nobody touched, whatever is put
    and forgotten meanwhile.
    """
    write(database, 300)
    done = threading.Event()

    def churn() -> int:
        rounds = 0
        while not done.is_set() and rounds < 60:
            corpus.put(
                *(
                    doc(f"{name(at)}.txt", f"{name(at)} walrus moon {rounds} {name(rounds)}")
                    for at in range(2 * (rounds % 25), 300, 50)
                )
            )
            corpus.put(doc("comes.txt", f"walrus violin {rounds}"))
            corpus.forget(project="notes", path="comes.txt")
            rounds += 1
        return rounds

    def walk(at: int) -> None:
        for _ in range(2):
            page = corpus.search(f"walrus {WORDS[at]}", limit=30, alpha=(1.0, 0.4)[at % 2])
            shown = [hit.chunk.path for hit in page.hits]
            while page.continuation is not None:
                page = page.more()
                assert page.hits or page.continuation is None
                shown += [hit.chunk.path for hit in page.hits]
            # a document that was deleted and put again is another document
            kept = [path for path in shown if path != "comes.txt"]
            assert len(kept) == len(set(kept))
            assert set(kept) >= {f"{name(number)}.txt" for number in range(1, 300, 2)}

    with open_corpus(database) as corpus, ThreadPoolExecutor(7) as pool:
        writer = pool.submit(churn)
        try:
            list(pool.map(walk, range(6)))
        finally:
            done.set()
        assert writer.result() > 0
    with beside(database, windows=True) as kept:
        # a walk does not run after the writer for ever
        assert kept.rows("SELECT max(number) FROM segments")[0][0] < 30


# Killed on the way

SEARCH = """
import os, sys, unspool
settings = unspool.Settings.load(arguments={"database": sys.argv[1], **dict(one.split("=") for one in sys.argv[2:])}, environment={})
corpus = unspool.open(settings=settings)
page = corpus.search("walrus violin", limit=7, alpha=0.4)
print(page.continuation, page.more().continuation, flush=True)
os.kill(os.getpid(), 9)
"""
MORE = """
import sys, unspool
settings = unspool.Settings.load(arguments={"database": sys.argv[1]}, environment={})
with unspool.open(settings=settings) as corpus:
    page = corpus.more(sys.argv[2])
    print(page.number, *(hit.chunk.id for hit in page.hits))
"""


@pytest.mark.parametrize("kind", ["stored", "signed"])
def test_a_walk_goes_on_after_the_process_that_began_it_is_killed(
    shelf: Place, tmp_path: Path, kind: str
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", SEARCH, address_of(shelf), f"continuations={kind}"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with open_corpus(shelf) as corpus:
        page = corpus.search("walrus violin", limit=7, alpha=0.4)
        for number, continuation in enumerate(killed.stdout.split(), 2):
            page = page.more()
            ran = subprocess.run(
                [sys.executable, "-c", MORE, address_of(shelf), continuation],
                capture_output=True,
                text=True,
                timeout=60,
                cwd=tmp_path,
                check=True,
            )
            assert ran.stdout.split() == [str(number), *(str(hit.chunk.id) for hit in page.hits)]
            assert corpus.more(continuation).hits == page.hits


# An embedder that takes its time, or fails


class Slow:
    """The corpus's own embedder behind a wire: each query waits until it is let through."""

    def __init__(self, inner: Embedder) -> None:
        self.inner = inner
        self.is_cheap = False
        self.facts = inner.facts
        self.name, self.revision, self.dimension, self.max_tokens, self.alpha = (
            inner.name,
            inner.revision,
            inner.dimension,
            inner.max_tokens,
            inner.alpha,
        )
        self.pause_s = 0.0
        self.queries = 0

    def count_tokens(self, text: str) -> int:
        return self.inner.count_tokens(text)

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return self.inner.embed_passages(texts)

    def embed_query(self, text: str) -> Vectors:
        self.queries += 1
        threading.Event().wait(self.pause_s)
        return self.inner.embed_query(text)


def test_the_parts_of_a_page_never_take_longer_than_the_whole(shelf: Place) -> None:
    """Also past the window, in a process that has to embed the query first."""
    catalog = Catalog.open(address_of(shelf))
    with open_corpus(shelf) as corpus:
        embedder = Slow(corpus._resources.session.embedder)
        space_id = corpus._resources.session.indexes.space_id
    store = open_indexes(
        catalog,
        space_id=space_id,
        space=f"{embedder.name}@{embedder.revision}",
        dimension=embedder.dimension,
        options=VectorOptions(),
    )
    events: list[Any] = []

    def open_engine(windows: WindowStore) -> SearchEngine:
        return SearchEngine(
            catalog=catalog,
            indexes=store,
            embedder=embedder,
            windows=windows,
            queries=QueryCache(embedder, None, size=0, lifetime_s=100),
            options=SearchOptions(prefetch=False, continuations="signed"),
            key=b"key",
            emit=events.append,
        )

    with catalog.read() as connection:
        rows = projects.list_projects(connection)
    options = SearchOptions(alpha=1.0, limit=100, window=20)
    request = build_request("walrus violin", rows, options, best_alpha=1.0)
    windows = WindowStore(catalog.open_windows())
    made = open_engine(windows)
    try:
        embedder.pause_s = 0.05
        page: Page = made.search(request, caller="")
        while page.continuation is not None:
            page = made.resume(page.continuation, limit=None, max_tokens=None, caller="")
    finally:
        made.close()
        windows.close()
        store.close()
        catalog.close()
    assert len(events) == 5
    assert embedder.queries > 1
    for event in events:
        assert event.embed_s + event.search_s + event.hydrate_s <= event.total_s
