"""Embeddings in Redis, shared with other catalogs, processes and machines.

A vector in the cache is not computed again. Nothing fails while the server is away.
"""

from __future__ import annotations

import hashlib
import importlib.util
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from unspool.embedders.options import CacheOptions
from unspool.errors import AddressError, MissingDependencyError

if TYPE_CHECKING:
    from unspool.embedders.base import Embedder

WAIT_S = 0.5  # for a response; embedding again takes about as long
AWAY_S = 30.0  # pause after a failure of the server
_BATCH = 500  # vectors of 1 to 12 KB in one message


class TextRole(StrEnum):
    """Role of a text: its vector as a query may differ from its vector as a passage."""

    PASSAGE = "p"
    QUERY = "q"


class RedisCache:
    """Vectors as float32 bytes, by the vector space and the SHA-256 of their text.

    Safe to use from several threads.
    """

    def __init__(
        self,
        options: CacheOptions,
        embedder: Embedder,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._redis, self._failures = _connect(options.address)
        self._embedder = embedder
        facts = embedder.facts
        self._space = hashlib.sha256(
            f"{facts.name}\0{facts.revision}\0{facts.dimension}\0{facts.place}".encode()
        ).hexdigest()[:16]
        self._lifetime_s = options.lifetime_s
        self._clock = clock
        self._guard = threading.Lock()
        self._back_at = 0.0

    @property
    def is_away(self) -> bool:
        """True for a while after a failure of the server. It is not called then."""
        return self._clock() < self._back_at

    def get(self, role: TextRole, shas: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the vectors in the cache, by the SHA-256 of their text."""
        found: dict[bytes, bytes] = {}
        for start in range(0, len(shas), _BATCH):
            some = shas[start : start + _BATCH]
            values = self._call(self._redis.mget, [self._make_key(role, sha) for sha in some])
            for sha, value in zip(some, values or (), strict=False):
                if value is not None and self._is_valid(value):
                    found[sha] = value
        return found

    def put(self, role: TextRole, vectors: Mapping[bytes, bytes]) -> None:
        """Store vectors for the lifetime of the cache."""
        items = list(vectors.items())
        for start in range(0, len(items), _BATCH):
            pipe = self._redis.pipeline(transaction=False)
            for sha, vector in items[start : start + _BATCH]:
                pipe.set(self._make_key(role, sha), vector, ex=self._lifetime_s)
            self._call(pipe.execute)

    def is_reachable(self) -> bool:
        """Return True if the server responds."""
        return bool(self._call(self._redis.ping))

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def _call(self, call: Callable[..., Any], *given: Any) -> Any:
        """Call the server and return its response; None while it is away."""
        if self.is_away:
            return None
        try:
            return call(*given)
        except self._failures:
            with self._guard:
                self._back_at = self._clock() + AWAY_S
            return None

    def _make_key(self, role: TextRole, sha: bytes) -> str:
        return f"unspool:{role}:{self._space}:{sha.hex()}"

    def _is_valid(self, value: bytes) -> bool:
        """Return True for a vector of this space: others may write to the same server."""
        if len(value) != 4 * self._embedder.dimension:
            return False
        # squares of float64 do not overflow
        length = float(np.linalg.norm(np.frombuffer(value, dtype="<f4").astype(np.float64)))
        return abs(length - 1) < 1e-2


def _connect(address: str) -> tuple[Any, tuple[type[Exception], ...]]:
    """Return a client of a server, and the errors that it raises."""
    if importlib.util.find_spec("redis") is None:
        raise MissingDependencyError(
            "UNSPOOL_CACHE needs the package redis; pip install 'unspool[redis]'"
        )
    if urlsplit(address).scheme not in ("redis", "rediss", "unix"):
        raise AddressError(
            "UNSPOOL_CACHE is no address of a Redis server; give redis://host:6379/0, or leave it "
            "empty"
        )
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    try:
        client = redis.Redis.from_url(
            address,
            socket_timeout=WAIT_S,
            socket_connect_timeout=WAIT_S,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=30,
        )
        client.connection_pool.make_connection()  # checks the options
    except (ValueError, TypeError) as error:
        raise AddressError(
            "UNSPOOL_CACHE is an address that Redis does not take; give redis://host:6379/0, or "
            "leave it empty"
        ) from error
    return client, (redis.RedisError, OSError)
