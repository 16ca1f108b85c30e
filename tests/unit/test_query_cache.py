"""The vectors of queries: computed once, however many ask, and never kept where computing
failed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from unspool.catalog.window_file import WindowFile
from unspool.catalog.windows import WindowStore
from unspool.embedders.base import Embedder, Facts
from unspool.errors import InputError, UnreachableError
from unspool.index.ports import Vectors
from unspool.search.queries import QueryCache


class Letters:
    """An embedder that counts letters, and how often it was asked."""

    name, dimension, max_tokens, alpha = "letters", 26, 512, 0.5
    is_cheap = False

    @property
    def facts(self) -> Facts:
        return Facts(
            name=self.name,
            revision=self.revision,
            dimension=self.dimension,
            max_tokens=self.max_tokens,
            max_batch=8,
        )

    def __init__(self, revision: str = "1") -> None:
        self.revision = revision
        self.asked: list[str] = []
        self.fails = False
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self._vector(text) for text in texts])

    def embed_query(self, text: str) -> Vectors:
        self.asked.append(text)
        self.may_go_on.wait()
        if self.fails:
            raise UnreachableError("the provider is away; try again")
        return self._vector(text)

    def _vector(self, text: str) -> Vectors:
        counts = np.array(
            [text.lower().count(chr(ord("a") + at)) for at in range(26)], dtype=np.float32
        )
        return counts / max(float(np.linalg.norm(counts)), 1e-9)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[WindowStore]:
    opened = WindowStore(WindowFile(tmp_path / "kept"))
    yield opened
    opened.close()


@pytest.fixture
def embedder() -> Letters:
    made = Letters()
    assert isinstance(made, Embedder)
    return made


def test_a_query_is_embedded_once(embedder: Letters, windows: WindowStore) -> None:
    cache = QueryCache(embedder, windows, size=10, lifetime_s=100)
    first, again, other = cache.get("walrus"), cache.get("walrus"), cache.get("Walrus")
    assert (first.computed, again.computed, other.computed) == (True, False, True)
    assert embedder.asked == ["walrus", "Walrus"]
    assert np.array_equal(first.vector, again.vector)
    assert first.key == again.key != other.key


def test_only_so_many_are_kept_and_the_longest_unused_goes_first(
    embedder: Letters, windows: WindowStore
) -> None:
    cache = QueryCache(embedder, windows, size=3, lifetime_s=100)
    for text in ("a", "b", "c", "a", "d"):
        cache.get(text)
    assert [cache.get(text).computed for text in ("a", "c", "d")] == [False] * 3
    assert cache.get("b").computed
    assert [cache.get(text).computed for text in ("c", "d", "b")] == [False] * 3
    assert cache.get("a").computed


def test_nothing_is_kept_where_none_may_be(embedder: Letters, windows: WindowStore) -> None:
    cache = QueryCache(embedder, windows, size=0, lifetime_s=100)
    assert [cache.get("a").computed for _ in range(3)] == [True] * 3


def test_they_are_kept_for_their_time_and_no_longer(
    embedder: Letters, windows: WindowStore
) -> None:
    clock = Clock()
    cache = QueryCache(embedder, windows, size=10, lifetime_s=100, clock=clock)
    cache.get("a")
    clock.now = 99.9
    assert not cache.get("a").computed
    clock.now = 100.0
    assert cache.get("a").computed
    clock.now = 199.9
    assert not cache.get("a").computed


def test_threads_that_ask_at_once_wait_for_one_embedding(
    embedder: Letters, windows: WindowStore
) -> None:
    cache = QueryCache(embedder, windows, size=10, lifetime_s=100)
    embedder.may_go_on.clear()
    ready = threading.Barrier(17)

    def ask() -> tuple[bool, list[float]]:
        ready.wait()
        found = cache.get("walrus")
        return found.computed, found.vector.tolist()

    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(ask) for _ in range(16)]
        ready.wait()
        embedder.may_go_on.set()
        found = [one.result() for one in asked]
    assert embedder.asked == ["walrus"]
    assert sum(computed for computed, _ in found) == 1
    assert all(vector == found[0][1] for _, vector in found)


def test_many_threads_and_queries_stay_apart(embedder: Letters, windows: WindowStore) -> None:
    cache = QueryCache(embedder, windows, size=4, lifetime_s=100)
    texts = [chr(ord("a") + at) * 3 for at in range(8)] * 40
    with ThreadPoolExecutor(16) as pool:
        for text, found in zip(texts, pool.map(cache.get, texts), strict=True):
            assert np.array_equal(found.vector, embedder._vector(text))


def test_a_failure_is_told_to_all_who_wait_and_leaves_nothing_behind(
    embedder: Letters, windows: WindowStore
) -> None:
    cache = QueryCache(embedder, windows, size=10, lifetime_s=100)
    embedder.fails = True
    for _ in range(2):
        with pytest.raises(UnreachableError):
            cache.get("walrus")
    with ThreadPoolExecutor(8) as pool:
        assert all(
            isinstance(one.exception(), UnreachableError)
            for one in [pool.submit(cache.get, "walrus") for _ in range(8)]
        )
    embedder.fails = False
    assert cache.get("walrus").computed
    assert not cache.get("walrus").computed


def test_what_was_warmed_is_there_for_another_process(
    embedder: Letters, windows: WindowStore
) -> None:
    done: list[int] = []
    cache = QueryCache(embedder, windows, size=10, lifetime_s=100)
    assert cache.warm(["a", "b", "a"], lifetime_s=100, on_done=done.append) == 2
    assert done == [1, 2, 3]
    other = Letters()
    found = QueryCache(other, windows, size=10, lifetime_s=100).get("b")
    assert not found.computed
    assert other.asked == []
    assert np.array_equal(found.vector, other._vector("b"))


def test_warming_more_than_memory_holds_keeps_them_all(
    embedder: Letters, windows: WindowStore
) -> None:
    texts = [f"query {number}" for number in range(1203)]
    assert (
        QueryCache(embedder, windows, size=5, lifetime_s=100).warm(
            texts, lifetime_s=100, on_done=lambda _: None
        )
        == 1203
    )
    assert (
        QueryCache(Letters(), windows, size=5, lifetime_s=100).warm(
            texts, lifetime_s=100, on_done=lambda _: None
        )
        == 0
    )


def test_a_blank_query_is_not_warmed(embedder: Letters, windows: WindowStore) -> None:
    with pytest.raises(InputError):
        QueryCache(embedder, windows, size=5, lifetime_s=100).warm(
            ["a", " \n"], lifetime_s=100, on_done=lambda _: None
        )


def test_vectors_of_another_model_are_not_taken(embedder: Letters, windows: WindowStore) -> None:
    QueryCache(embedder, windows, size=5, lifetime_s=100).warm(
        ["a"], lifetime_s=100, on_done=lambda _: None
    )
    assert QueryCache(Letters("2"), windows, size=5, lifetime_s=100).get("a").computed


def test_where_nothing_can_be_read_queries_are_computed(embedder: Letters, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    windows = WindowStore(WindowFile(tmp_path / "folder"))
    assert QueryCache(embedder, windows, size=5, lifetime_s=100).get("a").computed
    windows.close()
