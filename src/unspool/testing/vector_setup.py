"""Points, embedder and fixtures of the contract of a vector index."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import pytest

import unspool
from unspool.errors import DimensionError
from unspool.index.options import Metric, VectorOptions
from unspool.index.ports import (
    NO_IDS,
    Candidates,
    Capabilities,
    Ids,
    Points,
    VectorIndex,
    Vectors,
    Within,
)
from unspool.index.vectors import ADAPTERS, Adapter, get_adapter_name

DIMENSION = 4
EAST, NORTH, BETWEEN = [1.0, 0, 0, 0], [0, 1.0, 0, 0], [0.6, 0.8, 0, 0]
# scores of NORTH, BETWEEN and EAST for the query EAST
SCORES = {
    Metric.COSINE: (0.0, 0.6, 1.0),
    Metric.L2: (1 / (1 + 2**0.5), 1 / (1 + 0.8**0.5), 1.0),
    Metric.INNER: (0.0, 0.6, 1.0),
}
FIELDS = {"kind": ("code", "docs", "chat"), "language": ("python", "go", "")}
FILTERS: Mapping[str, Mapping[str, Any]] = {
    "equal": {"{field}": "{first}"},
    "one of": {"{field}": ["{first}", "{second}"]},
    "none of": {"{field}": []},
    "not": {"{field}": {"not": "{first}"}},
    "any": {"any": [{"{field}": "{first}"}, {"{field}": "{second}"}]},
    "all": {"all": [{"{field}": "{first}"}, {"not": {"{field}": "{second}"}}]},
    "contradiction": {"all": [{"{field}": "{first}"}, {"{field}": "{second}"}]},
    "empty": {"all": []},
    "nested": {"any": [{"{field}": []}, {"{field}": "{second}"}]},
}
MATCHES = {  # points 1, 2 and 3 have the first, the second and the third value
    "equal": [1],
    "one of": [1, 2],
    "none of": [],
    "not": [2, 3],
    "any": [1, 2],
    "all": [1],
    "contradiction": [],
    "empty": [1, 2, 3],
    "nested": [2],
}
LARGE_IDS = [1, 2**31, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1]  # a double cannot hold all of them
REJECTIONS = (DimensionError, ValueError)  # of a vector that no planned search contains
_T = TypeVar("_T")


class OpenIndex(Protocol):
    """Function that opens an index; the same collection unless another is named."""

    def __call__(self, *, metric: Metric | None = None, collection: str = "") -> VectorIndex:
        """Open an index."""


def make_points(
    vectors: Mapping[int, Sequence[float]],
    *,
    kinds: Sequence[str] | None = None,
    languages: Sequence[str] | None = None,
) -> Points:
    """Return points by chunk id. The document of chunk N is 1000 + N % 100."""
    ids = np.array(list(vectors), dtype=np.int64)
    return Points(
        ids=ids,
        documents=1000 + ids % 100,
        kinds=["code"] * len(ids) if kinds is None else kinds,
        languages=["python"] * len(ids) if languages is None else languages,
        vectors=np.array(list(vectors.values()), dtype=np.float32).reshape(len(ids), -1),
    )


NO_POINTS = Points(NO_IDS, NO_IDS, [], [], np.zeros((0, DIMENSION), dtype=np.float32))
THREE = make_points(
    {1: NORTH, 2: BETWEEN, 3: EAST}, kinds=FIELDS["kind"], languages=FIELDS["language"]
)


def to_ids(*ids: int) -> Ids:
    """Return ids as an array."""
    return np.array(ids, dtype=np.int64)


def to_vector(numbers: Sequence[float]) -> Vectors:
    """Return a query vector."""
    return np.array(numbers, dtype=np.float32)


OpenCorpus = Callable[[Metric], unspool.Corpus]


class EqualEmbedder:
    """Embedder with one vector for every text."""

    name = "contract:equal"
    dimension = DIMENSION
    max_tokens = 512

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return the vector, once for each text."""
        return np.array([EAST] * len(texts), dtype=np.float32)

    def embed_query(self, text: str) -> Vectors:
        """Return the vector."""
        return to_vector(EAST)


def make_document(number: int) -> unspool.Document:
    return unspool.Document(project="notes", path=f"{number}.md", text=f"note number {number}")


def fill_in(form: Any, field: str) -> Any:
    """Replace the names in braces by a field and its values."""
    if isinstance(form, str):
        first, second, _ = FIELDS[field]
        return form.format(field=field, first=first, second=second)
    if isinstance(form, Mapping):
        return {fill_in(key, field): fill_in(value, field) for key, value in form.items()}
    return [fill_in(one, field) for one in form]


def drop_vectors(corpus: unspool.Corpus) -> None:
    """Delete the collection of a corpus."""
    index: Any = corpus._resources.session.indexes.vectors.index
    index.drop()


class VectorSetup:
    """Fixtures of a test class, which sets `adapter` and the fixture `address`."""

    adapter: ClassVar[type]
    # longest time until a write is visible; 0 if the store reads its own writes
    visible_after_s: ClassVar[float] = 0.0
    # difference between scores of the store and exact ones
    tolerance: ClassVar[float] = 1e-4

    @pytest.fixture
    def address(self) -> str:
        """Return the address of the store under test."""
        raise NotImplementedError(
            f"{type(self).__name__} needs a fixture `address` that returns the store's address"
        )

    @pytest.fixture
    def key(self) -> str:
        """Return the key of the store under test; empty for none."""
        return ""

    @pytest.fixture
    def open_index(self, address: str, key: str) -> Iterator[OpenIndex]:
        """Return a function that opens an index of a new collection."""
        opened: list[VectorIndex] = []
        used: set[tuple[str, Metric]] = set()
        own = f"t_{secrets.token_hex(8)}"

        def connect(collection: str, metric: Metric) -> VectorIndex:
            options = VectorOptions(address=address, key=key, metric=metric)
            index: VectorIndex = self.adapter.open(  # type: ignore[attr-defined]
                address, collection=collection, dimension=DIMENSION, options=options
            )
            opened.append(index)
            return index

        def open_(*, metric: Metric | None = None, collection: str = "") -> VectorIndex:
            name = own + collection, metric or self.get_metric()
            used.add(name)
            index = connect(*name)
            index.read_epoch()
            return index

        yield open_
        for name in used:
            connect(*name).drop()  # the index of a test may be closed
        for index in opened:
            index.close()

    @pytest.fixture
    def index(self, open_index: OpenIndex) -> VectorIndex:
        """Return an empty index."""
        return open_index()

    @pytest.fixture
    def open_corpus(
        self, address: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> OpenCorpus:
        """Return a function that opens an empty corpus by metric. All its vectors are equal."""
        target = f"{self.adapter.__module__}:{self.adapter.__qualname__}"
        monkeypatch.setitem(ADAPTERS, get_adapter_name(address), Adapter(target))

        def open_(metric: Metric) -> unspool.Corpus:
            given = {
                "database": f"sqlite:///{tmp_path}/{metric}.db",
                "vectors": address,
                "vectors_key": key,
                "vector_metric": str(metric),
            }
            settings = unspool.Settings.load(arguments=given, environment={}, folder=tmp_path)
            return unspool.open(settings=settings, embedder=EqualEmbedder())

        return open_

    @pytest.fixture
    def corpus(self, open_corpus: OpenCorpus) -> Iterator[unspool.Corpus]:
        """Return an empty corpus whose vectors are in the store."""
        with open_corpus(self.get_metric()) as opened:
            yield opened
            drop_vectors(opened)

    @property
    def facts(self) -> Capabilities:
        facts: Capabilities = self.adapter.capabilities  # type: ignore[attr-defined]
        return facts

    def get_metric(self) -> Metric:
        """Return the cosine if it is declared, else another metric."""
        return Metric.COSINE if Metric.COSINE in self.facts.metrics else min(self.facts.metrics)

    def expect(self, read: Callable[[], _T], expected: _T) -> None:
        """Compare what is read, repeatedly if writes become visible later."""
        deadline = time.monotonic() + self.visible_after_s
        while (found := read()) != expected and time.monotonic() < deadline:
            time.sleep(0.05)
        assert found == expected

    def search(
        self,
        index: VectorIndex,
        vector: Sequence[float],
        *,
        project: int = 1,
        k: int = 10,
        within: Within | None = None,
    ) -> list[int]:
        found: Candidates = index.search(project, to_vector(vector), k=k, within=within)
        assert len(found.ids) == len(found.scores) <= k
        order = np.lexsort((found.ids, -found.scores))
        assert order.tolist() == list(range(len(order)))
        ids: list[int] = found.ids.tolist()
        return ids

    def list_ids(self, index: VectorIndex, project: int) -> list[int]:
        """Return all ids, read in pages."""
        found: list[int] = []
        after = -1
        while len(page := index.ids(project, after=after, limit=500)):
            found += page.tolist()
            assert sorted(set(found)) == found  # otherwise the pages might never end
            after = found[-1]
        return found
