"""A vector index that goes on by itself: its hints come back to it as they were, and to nobody
else.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import unspool
from support import Places, doc, name, open_corpus
from unspool.catalog import projects
from unspool.catalog.windows import Windows
from unspool.domain import continuations
from unspool.domain.continuations import Bookmark
from unspool.domain.filters import Filter
from unspool.domain.queries import Page, Served, Stability
from unspool.index.ports import Capabilities, Ids, Matches, Points, VectorIndex, Vectors
from unspool.index.stores import Store
from unspool.search import engine, paging
from unspool.search.engine import CandidateCache, Request, Stores
from unspool.search.paging import Turn
from unspool.search.walks import Seal, SignedWalk, StoredWalk, Walk
from unspool.windows import AskedProject, Question

COUNT = 420
QUERY = "walrus fish"


class Scrolling:
    """A vector index with a cursor of its own, over that of the corpus."""

    def __init__(self, inner: Store, *, native: bool = True) -> None:
        self.inner = inner
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
        where: Filter | None = None,
        hint: str | None = None,
    ) -> Matches:
        self.asked.append((project, hint))
        start = 0
        if hint is not None:
            assert hint in self.given
            whose, start = map(int, base64.b64decode(hint).decode().split(":")[1:])
            assert whose == project
        found = self.inner.search(project, vector, k=start + k + 1, where=where)
        more = len(found.ids) > start + k
        again = (
            base64.b64encode(f"\N{SNOWMAN}\"'\n:{project}:{start + k}".encode()).decode()
            if more
            else None
        )
        if again is not None:
            self.given.append(again)
        return Matches(
            ids=found.ids[start : start + k], scores=found.scores[start : start + k], hint=again
        )

    def score(self, project: int, vector: Vectors, ids: Ids) -> Vectors:
        return self.inner.score(project, vector, ids)

    def upsert(self, project: int, points: Points) -> None:
        self.inner.upsert(project, points)

    def delete(self, project: int, ids: Sequence[int]) -> None:
        self.inner.delete(project, ids)

    def count(self, project: int) -> int:
        return self.inner.count(project)

    def ids(self, project: int, *, after: int = -1, limit: int = 1000) -> Ids:
        return self.inner.ids(project, after=after, limit=limit)

    def drop(self, project: int) -> None:
        self.inner.drop(project)

    def close(self) -> None: ...

    @property
    def hints(self) -> list[str]:
        return [hint for _, hint in self.asked if hint is not None]


@dataclass
class Desk:
    """Search and paging, put together by hand over a vector index of one's own."""

    corpus: unspool.Corpus
    windows: Windows
    index: Any
    executor: ThreadPoolExecutor
    alpha: float = 1.0
    limit: int = 50
    signed: bool = False
    projects: tuple[str, ...] = ("a", "b")
    rows: list[AskedProject] = field(default_factory=list)

    def __post_init__(self) -> None:
        with self.corpus._parts.catalog.read() as connection:
            found = [row for row in projects.list_projects(connection) if row.name in self.projects]
        for row in found:
            self.corpus._parts.ready().fresh(row)
        self.rows = [AskedProject(row.id, row.name, row.seq) for row in found]
        self.question = Question(
            query=QUERY, projects=tuple(self.rows), alpha=self.alpha, limit=self.limit
        )
        self.plan = engine.plan_for(
            QUERY, self.corpus._parts.embedder, alpha=self.alpha, limit=self.limit, window=0
        )
        self.request = Request(
            plan=self.plan,
            projects=tuple(self.rows),
            vector=self.corpus._parts.embedder.embed_query(QUERY),
        )
        self.how = Turn(
            plan=self.plan,
            request=lambda: self.request,
            limit=self.limit,
            max_tokens=0,
            explain=False,
            min_score=None,
            goes_on=True,
            count_tokens=self.corpus.count_tokens,
        )
        catalog = self.corpus._parts.catalog
        self.seal = Seal(key=b"key", catalog=catalog.identity, caller="", lifetime_s=1000, now=0)

    def stores(self) -> Stores:
        store = self.corpus._parts.ready()
        return Stores(
            catalog=self.corpus._parts.catalog,
            vectors=self.index,
            words=store.words,
            kept=CandidateCache(),
            executor=self.executor,
        )

    def first(self, depth: int) -> Page:
        segment = engine.first(self.stores(), self.request, depth=depth)
        walk: Walk
        walk = (
            SignedWalk.new(self.seal, self.question, segment)
            if self.signed
            else StoredWalk.new(self.windows, self.seal, self.question, segment, None)
        )
        return paging.turn(self.stores(), walk, Bookmark(), self.how).page

    def more(self, text: str) -> Page:
        walk: Walk
        if continuations.kind_of(text) == continuations.SIGNED:
            walk, at = SignedWalk.resumed(self.seal, text, space_id=0)
        else:
            walk, at = StoredWalk.resumed(self.windows, self.seal, text, space_id=0)
        return paging.turn(self.stores(), walk, at, self.how).page

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
    windows = Windows(corpus._parts.catalog.open_windows())
    with ThreadPoolExecutor(4) as executor:
        yield lambda index, **more: Desk(corpus, windows, index, executor, **more)
    windows.close()


def found(pages: list[Page]) -> list[str]:
    return [hit.chunk.path for page in pages for hit in page.hits]


EVERYTHING = sorted(f"{name(at)}.txt" for at in range(COUNT))


def test_the_index_of_these_tests_is_one(corpus: unspool.Corpus) -> None:
    assert isinstance(Scrolling(corpus._parts.ready()), VectorIndex)


@pytest.mark.parametrize("depth", [20, 200])
@pytest.mark.parametrize("signed", [False, True], ids=["stored", "signed"])
@pytest.mark.parametrize("alpha", [1.0, 0.4], ids=["meaning", "hybrid"])
def test_a_walk_goes_on_by_hints_and_finds_everything_once(
    corpus: unspool.Corpus, make: Any, alpha: float, signed: bool, depth: int
) -> None:
    index = Scrolling(corpus._parts.ready())
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
    pages = make(Scrolling(corpus._parts.ready()), signed=signed, limit=200, projects=("a",)).walk(
        300
    )
    assert sorted(found(pages)) == sorted(f"{name(at)}.txt" for at in range(350))


def test_each_hint_comes_back_once_as_it_was_given(corpus: unspool.Corpus, make: Any) -> None:
    index = Scrolling(corpus._parts.ready())
    pages = make(index).walk(20)
    assert index.hints == list(dict.fromkeys(index.hints))
    assert set(index.hints) <= set(index.given)
    assert {page.served for page in pages} == {Served.WINDOW, Served.HINT}


def test_an_index_that_does_not_go_on_by_itself_never_gets_a_hint(
    corpus: unspool.Corpus, make: Any
) -> None:
    """Not even where an earlier part of the walk holds one, as after a change of the index."""
    desk = make(Scrolling(corpus._parts.ready()))
    first = desk.first(20)
    assert desk.index.given
    desk.index = Scrolling(corpus._parts.ready(), native=False)
    pages = [first]
    while pages[-1].continuation is not None:
        pages.append(desk.more(pages[-1].continuation))
    assert desk.index.asked
    assert desk.index.hints == []
    assert {page.served for page in pages} == {Served.WINDOW, Served.WIDER}
    assert sorted(found(pages)) == EVERYTHING
