"""A vector index that goes on by itself: its hints come back to it as they were, and to nobody
else.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest

import unspool
from support import Places, doc, name, open_corpus
from unspool.catalog import projects
from unspool.catalog.windows import WindowStore
from unspool.domain import continuations
from unspool.domain.continuations import Cursor
from unspool.domain.queries import Page, Served, Stability
from unspool.index.indexes import Indexes
from unspool.index.options import Metric
from unspool.index.ports import Candidates, Capabilities, Ids, Vectors, Within
from unspool.index.retriever import VectorRetriever
from unspool.search.options import SearchOptions
from unspool.search.pages import build_page
from unspool.search.request import PageRequest, build_request
from unspool.search.retrieve import CandidateCache, Retrievers
from unspool.search.segments import rank_first, rank_more
from unspool.search.signed import SignedWindow
from unspool.search.windows import ResultWindow, Signer, StoredWindow

COUNT = 420
QUERY = "walrus fish"


class Scrolling:
    """A vector index with a cursor of its own, over that of the corpus."""

    def __init__(self, indexes: Indexes, *, native: bool = True) -> None:
        self.inner: Any = indexes.vectors.index
        self.native = native
        self.given: list[str] = []
        self.asked: list[tuple[int, str | None]] = []

    @property
    def capabilities(self) -> Capabilities:
        return replace(
            self.inner.capabilities,
            native_continuation=self.native,
            stability=Stability.BEST_EFFORT,
        )

    def search(
        self,
        project: int,
        vector: Vectors,
        *,
        k: int,
        within: Within | None = None,
        min_similarity: float | None = None,
        hint: str | None = None,
    ) -> Candidates:
        self.asked.append((project, hint))
        start = 0
        if hint is not None:
            assert hint in self.given
            whose, start = map(int, base64.b64decode(hint).decode().split(":")[1:])
            assert whose == project
        found = self.inner.search(project, vector, k=start + k + 1, within=within)
        more = len(found.ids) > start + k
        again = (
            base64.b64encode(f"\N{SNOWMAN}\"'\n:{project}:{start + k}".encode()).decode()
            if more
            else None
        )
        if again is not None:
            self.given.append(again)
        return Candidates(
            ids=found.ids[start : start + k], scores=found.scores[start : start + k], hint=again
        )

    def score(self, project: int, vector: Vectors, ids: Ids) -> Vectors:
        return self.inner.score(project, vector, ids)

    @property
    def hints(self) -> list[str]:
        return [hint for _, hint in self.asked if hint is not None]


@dataclass
class Extension:
    """Extension of a window by the vector index of a desk, as the engine does it."""

    desk: Desk
    window: ResultWindow
    seconds: float | None = None

    def extend(self, position: int) -> bool:
        if self.window.last.tail.is_end:
            return False
        self.window.reload()
        desk = self.desk
        segment = rank_more(desk.retrievers(), desk.request, desk.vector, self.window)
        if segment is not None:
            self.window.append(segment)
        return segment is not None


@dataclass
class Desk:
    """Search and paging, assembled over a vector index of the test."""

    corpus: unspool.Corpus
    windows: WindowStore
    index: Any
    executor: ThreadPoolExecutor
    alpha: float = 1.0
    limit: int = 50
    signed: bool = False
    projects: tuple[str, ...] = ("a", "b")

    def __post_init__(self) -> None:
        with self.corpus._resources.catalog.read() as connection:
            found = [row for row in projects.list_projects(connection) if row.name in self.projects]
        for row in found:
            self.corpus._resources.session.indexes.repair(row.id)
            self.corpus._resources.session.indexes.catch_up(row)
        options = SearchOptions(alpha=self.alpha, limit=self.limit)
        self.request = build_request(QUERY, found, options, best_alpha=self.alpha)
        self.vector = self.corpus._resources.session.embedder.embed_query(QUERY)
        catalog = self.corpus._resources.catalog
        self.signer = Signer(
            key=b"key", catalog=catalog.identity, caller="", lifetime_s=1000, now=int(time.time())
        )

    def retrievers(self) -> Retrievers:
        session = self.corpus._resources.session
        return Retrievers(
            catalog=self.corpus._resources.catalog,
            vectors=VectorRetriever(
                self.corpus._resources.catalog,
                self.index,
                None,
                space_id=session.indexes.space_id,
                space="test",
                dimension=session.embedder.dimension,
                metric=Metric.COSINE,
            ),
            words=session.indexes.words,
            cache=CandidateCache(),
            executor=self.executor,
        )

    def build(self, window: ResultWindow, cursor: Cursor) -> Page:
        return build_page(
            self.corpus._resources.catalog,
            window,
            cursor,
            PageRequest.create(self.request),
            Extension(self, window),
            stability=self.index.capabilities.stability,
            count_tokens=self.corpus.count_tokens,
        ).page

    def first(self, depth: int) -> Page:
        self.request = replace(self.request, depth=depth)
        segment = rank_first(self.retrievers(), self.request, self.vector)
        window: ResultWindow = (
            SignedWindow(self.signer, self.request, segment)
            if self.signed
            else StoredWindow(self.windows, self.signer, self.request, [segment])
        )
        return self.build(window, Cursor())

    def more(self, text: str) -> Page:
        window: ResultWindow
        if continuations.kind_of(text) == continuations.SIGNED:
            window, cursor = SignedWindow.resume(self.signer, text, space_id=0)
        else:
            window, cursor = StoredWindow.resume(self.windows, self.signer, text, space_id=0)
        return self.build(window, cursor)

    def walk(self, depth: int) -> list[Page]:
        pages = [self.first(depth)]
        while pages[-1].continuation is not None:
            assert len(pages) < 100
            pages.append(self.more(pages[-1].continuation))
        return pages


@pytest.fixture(scope="module")
def corpus(module_places: Places) -> Iterator[unspool.Corpus]:
    with open_corpus(module_places.new()) as opened:
        texts = [
            f"{name(at)} {'walrus fish' if at % 2 else 'violin'} {name(at % 13)}"
            for at in range(COUNT)
        ]
        opened.put(*(doc(f"{name(at)}.txt", text, "a") for at, text in enumerate(texts[:350])))
        opened.put(*(doc(f"{name(at)}.txt", text, "b") for at, text in enumerate(texts[350:], 350)))
        opened.refresh()
        yield opened


@pytest.fixture
def make(corpus: unspool.Corpus) -> Iterator[Any]:
    windows = WindowStore(corpus._resources.catalog.open_windows())
    with ThreadPoolExecutor(4) as executor:
        yield lambda index, **more: Desk(corpus, windows, index, executor, **more)
    windows.close()


def found(pages: list[Page]) -> list[str]:
    return [hit.chunk.path for page in pages for hit in page.hits]


EVERYTHING = sorted(f"{name(at)}.txt" for at in range(COUNT))


@pytest.mark.parametrize("depth", [20, 200])
@pytest.mark.parametrize("signed", [False, True], ids=["stored", "signed"])
@pytest.mark.parametrize("alpha", [1.0, 0.4], ids=["meaning", "hybrid"])
def test_a_walk_goes_on_by_hints_and_finds_everything_once(
    corpus: unspool.Corpus, make: Any, alpha: float, signed: bool, depth: int
) -> None:
    index = Scrolling(corpus._resources.session.indexes)
    pages = make(index, alpha=alpha, signed=signed).walk(depth)
    assert sorted(found(pages)) == EVERYTHING
    assert index.hints
    assert pages[0].served is Served.WINDOW
    assert Served.HINT in {page.served for page in pages}
    assert all(
        page.stability
        is (Stability.SNAPSHOT if page.served is Served.WINDOW else Stability.BEST_EFFORT)
        for page in pages
    )


@pytest.mark.parametrize("signed", [False, True], ids=["stored", "signed"])
def test_what_was_found_before_the_hint_and_not_shown_is_not_skipped(
    corpus: unspool.Corpus, make: Any, signed: bool
) -> None:
    """The first page shows all 200 that are ranked; 100 more lie before the place that the hint
    names.
    """
    pages = make(
        Scrolling(corpus._resources.session.indexes), signed=signed, limit=200, projects=("a",)
    ).walk(300)
    assert sorted(found(pages)) == sorted(f"{name(at)}.txt" for at in range(350))


def test_each_hint_comes_back_once_as_it_was_given(corpus: unspool.Corpus, make: Any) -> None:
    index = Scrolling(corpus._resources.session.indexes)
    pages = make(index).walk(20)
    assert index.hints == list(dict.fromkeys(index.hints))
    assert set(index.hints) <= set(index.given)
    assert {page.served for page in pages} == {Served.WINDOW, Served.HINT}


def test_an_index_that_does_not_go_on_by_itself_never_gets_a_hint(
    corpus: unspool.Corpus, make: Any
) -> None:
    """Not even where an earlier part of the walk holds one, as after a change of the index."""
    desk = make(Scrolling(corpus._resources.session.indexes))
    first = desk.first(20)
    assert desk.index.given
    desk.index = Scrolling(corpus._resources.session.indexes, native=False)
    pages = [first]
    while pages[-1].continuation is not None:
        pages.append(desk.more(pages[-1].continuation))
    assert desk.index.asked
    assert desk.index.hints == []
    assert {page.served for page in pages} == {Served.WINDOW, Served.WIDER}
    assert sorted(found(pages)) == EVERYTHING
