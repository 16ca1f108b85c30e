"""Vectors of queries: computed once, cached in memory, and stored beside the windows."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

from unspool.catalog.windows import WindowStore
from unspool.embedders.base import Embedder
from unspool.embedders.batching import run_all
from unspool.embedders.cache import RedisCache, TextRole
from unspool.errors import ServiceError
from unspool.index.ports import Vectors
from unspool.search.plan import check_query


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedQuery:
    """Vector of a query, its key in the cache, and whether it was computed now."""

    key: bytes
    vector: Vectors
    computed: bool

    @property
    def kept(self) -> tuple[bytes, bytes]:
        """Key and vector as bytes, for storage beside a window."""
        return self.key, np.ascontiguousarray(self.vector, dtype="<f4").tobytes()


class QueryCache:
    """Cache of query vectors, bounded in size and time.

    Threads that ask for the same query at once wait for one embedding.
    """

    def __init__(
        self,
        embedder: Embedder,
        windows: WindowStore | None,
        *,
        cache: RedisCache | None = None,
        prove: Callable[[], None] | None = None,
        size: int,
        lifetime_s: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._embedder = embedder
        self._cache = cache
        self._prove = prove
        self._windows = windows
        self._size = size
        self._lifetime_s = lifetime_s
        self._clock = clock
        self._guard = threading.Lock()
        self._known: OrderedDict[bytes, tuple[float, Future[Vectors]]] = OrderedDict()

    def get(self, text: str) -> EmbeddedQuery:
        """Return the vector of a query."""
        key = self._hash_key(text)
        with self._guard:
            until, future = self._known.get(key, (0.0, None))
            mine = future is None or until <= self._clock()
            if future is None or mine:
                future = Future()
                if self._size:
                    self._known[key] = self._clock() + self._lifetime_s, future
            if key in self._known:
                self._known.move_to_end(key)
            while len(self._known) > self._size:
                self._known.popitem(last=False)
        if not mine:
            return EmbeddedQuery(key=key, vector=future.result(), computed=False)
        try:
            stored = self._load(key)
            vector = self._compute(key, text) if stored is None else stored
        except BaseException as error:
            with self._guard:
                self._known.pop(key, None)
            future.set_exception(error)
            raise
        future.set_result(vector)
        return EmbeddedQuery(key=key, vector=vector, computed=stored is None)

    def warm(self, texts: Iterable[str], *, lifetime_s: int, on_done: Callable[[int], None]) -> int:
        """Embed queries ahead of time and store them for every process.

        Returns how many were computed.
        """
        computed = 0
        waiting: dict[bytes, bytes] = {}
        for done, text in enumerate(texts, 1):
            one = self.get(check_query(text))
            computed += one.computed
            waiting.update([one.kept])
            if len(waiting) >= _BATCH:
                self._store(waiting, lifetime_s)
                waiting.clear()
            on_done(done)
        self._store(waiting, lifetime_s)
        return computed

    def _store(self, vectors: dict[bytes, bytes], lifetime_s: int) -> None:
        if vectors and self._windows is not None:
            self._windows.insert_vectors(vectors, lifetime_s=lifetime_s)

    def _compute(self, key: bytes, text: str) -> Vectors:
        vector = self._embed(text)
        if self._cache is not None:
            self._cache.put(
                TextRole.QUERY, {key: np.ascontiguousarray(vector, dtype="<f4").tobytes()}
            )
        return vector

    def _embed(self, text: str) -> Vectors:
        """Embed a query. The first time, verify the embedder in parallel."""
        if self._prove is None:
            return self._embedder.embed_query(text)
        jobs: list[Callable[[], Vectors | None]] = [
            self._prove,
            partial(self._embedder.embed_query, text),
        ]
        _, vector = run_all(jobs, at_once=2)
        self._prove = None
        assert vector is not None
        return vector

    def _load(self, key: bytes) -> Vectors | None:
        """Return the vector that another process computed, if this one can read it."""
        data: bytes | None = None
        if self._windows is not None:
            with suppress(ServiceError):  # what cannot be read is computed
                data = self._windows.find_vector(key)
        if data is None and self._cache is not None:
            data = self._cache.get(TextRole.QUERY, [key]).get(key)
        if data is None or len(data) != 4 * self._embedder.dimension:
            return None
        return np.frombuffer(data, dtype="<f4").astype(np.float32)

    def _hash_key(self, text: str) -> bytes:
        space = f"{self._embedder.name}@{self._embedder.revision}"
        return hashlib.sha256(
            f"{len(space)}:{space}{text}".encode("utf-8", "surrogatepass")
        ).digest()


_BATCH = 500  # vectors in one transaction
