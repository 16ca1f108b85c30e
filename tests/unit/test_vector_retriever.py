"""Vector retrieval plans a search from the capabilities of the index, and never drops hits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import unspool
from support import doc, open_corpus
from unspool.domain import filters
from unspool.domain.queries import Stability
from unspool.errors import DimensionError, UnsupportedError
from unspool.index.options import Metric
from unspool.index.ports import Candidates, Capabilities, Vectors, Within
from unspool.index.retriever import VectorRetriever
from unspool.index.vectors.memory import MemoryIndex

COUNT = 60
PYTHON = filters.parse({"language": "python"})  # a third
PATHS = filters.parse({"path": "1*"})  # 1 and 10 to 19
NO_FACTS = Capabilities(max_ids=0)


class RecordingIndex:
    """The index of a corpus with other capabilities. Records every search."""

    def __init__(self, inner: MemoryIndex, capabilities: Capabilities) -> None:
        self.inner = inner
        self.capabilities = capabilities
        self.asked: list[tuple[int, Within | None, str | None]] = []

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
        self.capabilities.check_search(k, within, hint)
        self.asked.append((k, within, hint))
        start = int(hint or 0)
        found = self.inner.search(project, vector, k=start + k, within=within)
        more = self.capabilities.native_continuation and len(found.ids) == start + k
        return Candidates(
            ids=found.ids[start:],
            scores=found.scores[start:],
            hint=str(start + k) if more else None,
        )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[unspool.Corpus]:
    folder = tmp_path_factory.mktemp("retriever")
    with open_corpus(folder / "catalog.db", vectors="memory://retriever") as opened:
        for at in range(COUNT):
            ending = "py" if at % 3 == 0 else "md"
            opened.put(doc(f"{at}.{ending}", f"walrus number {at} eats fish {at * 7}"))
        opened.refresh()
        yield opened


@pytest.fixture
def query(corpus: unspool.Corpus) -> Vectors:
    return corpus._resources.session.embedder.embed_query("walrus fish")


def make_retriever(
    corpus: unspool.Corpus, capabilities: Capabilities, metric: Metric = Metric.COSINE
) -> tuple[VectorRetriever, RecordingIndex]:
    session = corpus._resources.session
    inner = session.indexes.vectors.index
    assert isinstance(inner, MemoryIndex)
    index = RecordingIndex(inner, capabilities)
    retriever = VectorRetriever(
        corpus._resources.catalog,
        index,
        None,
        space_id=session.indexes.space_id,
        space="test",
        dimension=session.embedder.dimension,
        metric=metric,
    )
    return retriever, index


@pytest.mark.parametrize("where", [PYTHON, PATHS], ids=["language", "path"])
@pytest.mark.parametrize(
    "facts",
    [
        NO_FACTS,
        Capabilities(filter_fields=frozenset({"language"})),
        Capabilities(max_ids=1000),
        Capabilities(max_k=COUNT),
    ],
    ids=["none", "filter", "ids", "small k"],
)
def test_every_plan_returns_the_same_chunks(
    corpus: unspool.Corpus, query: Vectors, where: filters.Filter, facts: Capabilities
) -> None:
    exact, _ = make_retriever(corpus, Capabilities(max_ids=10_000))
    retriever, _ = make_retriever(corpus, facts)
    for k in (1, 5, 20, 50):
        expected = exact.search(1, query, k=k, where=where)
        found = retriever.search(1, query, k=k, where=where)
        assert found.ids.tolist() == expected.ids.tolist()
        assert not found.is_truncated


def test_a_declared_field_is_filtered_natively(corpus: unspool.Corpus, query: Vectors) -> None:
    facts = Capabilities(filter_fields=frozenset({"language"}), max_ids=1000)
    retriever, index = make_retriever(corpus, facts)
    retriever.search(1, query, k=5, where=PYTHON)
    assert [within and within.filter for _, within, _ in index.asked] == [PYTHON]


@pytest.mark.parametrize("where", [PATHS, filters.parse({"language": "python", "path": "1*"})])
def test_a_filter_with_another_field_becomes_a_list_of_ids(
    corpus: unspool.Corpus, query: Vectors, where: filters.Filter
) -> None:
    facts = Capabilities(filter_fields=frozenset({"language"}), max_ids=11)
    retriever, index = make_retriever(corpus, facts)
    assert len(retriever.search(1, query, k=5, where=where).ids) > 0
    ((k, within, _),) = index.asked
    assert k == 5
    assert within is not None
    assert within.filter is None
    assert within.documents is not None
    assert len(within.documents) == within.total


@pytest.mark.parametrize("max_ids", [0, 10])
def test_a_list_above_the_limit_becomes_a_wider_search(
    corpus: unspool.Corpus, query: Vectors, max_ids: int
) -> None:
    retriever, index = make_retriever(corpus, Capabilities(max_ids=max_ids))
    found = retriever.search(1, query, k=11, where=PATHS)
    assert len(found.ids) == 11
    assert [within for _, within, _ in index.asked] == [None] * len(index.asked)
    assert [k for k, _, _ in index.asked] == [44, 176][: len(index.asked)]


def test_a_filter_that_accepts_nothing_asks_nothing(corpus: unspool.Corpus, query: Vectors) -> None:
    retriever, index = make_retriever(corpus, NO_FACTS)
    where = filters.parse({"path": "nowhere/*"})
    assert len(retriever.search(1, query, k=5, where=where).ids) == 0
    assert index.asked == []


@pytest.mark.parametrize("where", [None, PATHS], ids=["all", "filter"])
def test_a_result_cut_by_max_k_says_so(
    corpus: unspool.Corpus, query: Vectors, where: filters.Filter | None
) -> None:
    retriever, index = make_retriever(corpus, Capabilities(max_k=8))
    found = retriever.search(1, query, k=11, where=where)
    assert len(found.ids) < 11
    assert found.is_truncated
    assert max(k for k, _, _ in index.asked) == 8


def test_a_result_within_max_k_is_whole(corpus: unspool.Corpus, query: Vectors) -> None:
    retriever, _ = make_retriever(corpus, Capabilities(max_k=COUNT + 1))
    found = retriever.search(1, query, k=500)
    assert (len(found.ids), found.is_truncated) == (COUNT, False)


@pytest.mark.parametrize("facts", [NO_FACTS, Capabilities(max_ids=1000)], ids=["wider", "ids"])
def test_a_minimum_similarity_holds_for_every_plan(
    corpus: unspool.Corpus, query: Vectors, facts: Capabilities
) -> None:
    retriever, _ = make_retriever(corpus, facts)
    everything = retriever.search(1, query, k=50, where=PYTHON)
    limit = float(everything.scores[3])
    found = retriever.search(1, query, k=50, where=PYTHON, min_similarity=limit)
    assert found.ids.tolist() == everything.ids[everything.scores >= limit].tolist()


def test_a_hint_reaches_only_an_index_that_continues_natively(
    corpus: unspool.Corpus, query: Vectors
) -> None:
    native, index = make_retriever(corpus, Capabilities(native_continuation=True))
    first = native.search(1, query, k=40)
    rest = native.search(1, query, k=40, hint=first.hint)
    assert len(set(first.ids.tolist()) | set(rest.ids.tolist())) == COUNT
    assert rest.hint is None
    assert [hint for _, _, hint in index.asked] == [None, "40"]
    other, index = make_retriever(corpus, NO_FACTS)
    assert other.search(1, query, k=40).hint is None
    with pytest.raises(UnsupportedError):
        other.search(1, query, k=40, hint="40")
    assert len(index.asked) == 1


def test_a_hint_behind_the_end_is_ignored(corpus: unspool.Corpus, query: Vectors) -> None:
    retriever, _ = make_retriever(corpus, Capabilities(native_continuation=True))
    index: Any = retriever.index
    inner = index.search
    index.search = lambda *arguments, **more: replace(inner(*arguments, **more), hint="1000")
    assert retriever.search(1, query, k=40).hint == "1000"
    assert retriever.search(1, query, k=40, hint="1000").hint is None


def test_a_hint_of_a_filtered_search_does_not_reach_a_wider_one(
    corpus: unspool.Corpus, query: Vectors
) -> None:
    """The list of ids may outgrow the limit between two pages."""
    retriever, index = make_retriever(corpus, Capabilities(native_continuation=True))
    found = retriever.search(1, query, k=40, where=PATHS, hint="5")
    assert (len(found.ids), found.hint) == (11, None)
    assert {hint for _, _, hint in index.asked} == {None}


@pytest.mark.parametrize("metric", Metric)
def test_only_a_declared_metric_is_used(corpus: unspool.Corpus, metric: Metric) -> None:
    with pytest.raises(UnsupportedError, match="UNSPOOL_VECTOR_METRIC"):
        make_retriever(corpus, Capabilities(metrics=frozenset(Metric) - {metric}), metric)
    retriever, _ = make_retriever(corpus, Capabilities(metrics=frozenset({metric})), metric)
    assert retriever.capabilities.metrics == {metric}


def test_a_vector_of_another_dimension_is_never_sent(
    corpus: unspool.Corpus, query: Vectors
) -> None:
    retriever, index = make_retriever(corpus, NO_FACTS)
    with pytest.raises(DimensionError):
        retriever.search(1, query[:-1], k=5)
    assert index.asked == []


@pytest.mark.parametrize("max_k", [25, 10_000])
@pytest.mark.parametrize("native", [False, True])
def test_pages_reach_everything_or_say_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_k: int, native: bool
) -> None:
    """With a small `max_k` only an index that continues natively reaches everything."""
    facts = Capabilities(max_k=max_k, native_continuation=native, stability=Stability.DETERMINISTIC)
    with open_corpus(tmp_path / "a.db", vectors="memory://pages") as corpus:
        corpus.put(*(doc(f"{at}.md", f"walrus number {at}") for at in range(COUNT)))
        corpus.refresh()
        retriever = corpus._resources.session.indexes.vectors
        inner = retriever.index
        assert isinstance(inner, MemoryIndex)
        monkeypatch.setattr(retriever, "index", RecordingIndex(inner, replace(facts)))
        page = corpus.search("walrus", limit=10, alpha=1)
        paths = [hit.chunk.path for hit in page.hits]
        while page.continuation is not None:
            page = corpus.more(page.continuation)
            paths += [hit.chunk.path for hit in page.hits]
    assert len(paths) == len(set(paths))
    is_whole = len(paths) == COUNT
    assert is_whole == (native or max_k > COUNT)
    assert any("there may be more" in one for one in page.warnings) != is_whole


def test_another_metric_uses_another_collection(tmp_path: Path) -> None:
    scores = {}
    for metric in Metric:
        settings = {"vectors": "memory://metrics", "vector_metric": str(metric)}
        with open_corpus(tmp_path / "a.db", **settings) as corpus:
            if metric is Metric.COSINE:
                corpus.put(doc("a.md", "walrus eats fish"))
            corpus.refresh()
            query = corpus._resources.session.embedder.embed_query("violin")
            (scores[metric],) = (hit.score for hit in corpus.nearest(query.tolist(), k=1))
    assert scores[Metric.INNER] == pytest.approx(scores[Metric.COSINE], abs=1e-5)
    distance = (2 - 2 * scores[Metric.COSINE]) ** 0.5
    assert scores[Metric.L2] == pytest.approx(1 / (1 + distance), abs=1e-5)
