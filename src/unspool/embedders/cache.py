"""Embeddings in Redis, for other catalogs, processes and machines.

What is there is not computed again; when it is away, nothing fails.
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

WAIT_S = 0.5  # for an answer; embedding anew takes about as long
AWAY_S = 30.0  # for so long a server that failed is left alone
_AT_ONCE = 500  # vectors of 1 to 12 KB in one message


class Kind(StrEnum):
    """A text may have another vector as a query than as a passage."""

    PASSAGE = "p"
    QUERY = "q"


class RedisCache:
    """Vectors as float32 bytes by the SHA-256 of their text, each under its embedder's space.

    Safe to use from several threads.
    """

    def __init__(
        self,
        options: CacheOptions,
        embedder: Embedder,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if importlib.util.find_spec("redis") is None:
            raise MissingDependencyError(
                "UNSPOOL_CACHE needs the package redis; pip install 'unspool[redis]'"
            )
        if urlsplit(options.address).scheme not in ("redis", "rediss", "unix"):
            raise AddressError(
                "UNSPOOL_CACHE is no address of a Redis server; give redis://host:6379/0, or "
                "leave it empty"
            )
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        try:
            self._redis: Any = redis.Redis.from_url(
                options.address,
                socket_timeout=WAIT_S,
                socket_connect_timeout=WAIT_S,
                retry=Retry(NoBackoff(), 0),
                health_check_interval=30,
            )
            self._redis.connection_pool.make_connection()  # which looks at the options
        except (ValueError, TypeError) as error:
            raise AddressError(
                "UNSPOOL_CACHE is an address that Redis does not take; give redis://host:6379/0, "
                "or leave it empty"
            ) from error
        self._failures: tuple[type[Exception], ...] = (redis.RedisError, OSError)
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
        """Whether the server failed a moment ago, so that it is not asked."""
        return self._clock() < self._back_at

    def get(self, kind: Kind, shas: Sequence[bytes]) -> dict[bytes, bytes]:
        """Those of the vectors that are there, by their text's SHA-256."""
        found: dict[bytes, bytes] = {}
        for start in range(0, len(shas), _AT_ONCE):
            some = shas[start : start + _AT_ONCE]
            values = self._ask(
                lambda some=some: self._redis.mget([self._key(kind, sha) for sha in some])  # type: ignore[misc]
            )
            if values is None:
                break
            found.update(
                (sha, value)
                for sha, value in zip(some, values, strict=True)
                if value is not None and self._is_sound(value)
            )
        return found

    def put(self, kind: Kind, vectors: Mapping[bytes, bytes]) -> None:
        """Keep vectors for a while."""
        items = list(vectors.items())
        for start in range(0, len(items), _AT_ONCE):
            if (
                self._ask(lambda some=items[start : start + _AT_ONCE]: self._send(kind, some))  # type: ignore[misc]
                is None
            ):
                break

    def answers(self) -> bool:
        """Whether the server is there."""
        return bool(self._ask(self._redis.ping))

    def close(self) -> None:
        """Let go of the connections."""
        self._redis.close()

    def _send(self, kind: Kind, items: Sequence[tuple[bytes, bytes]]) -> bool:
        pipe = self._redis.pipeline(transaction=False)
        for sha, vector in items:
            pipe.set(self._key(kind, sha), vector, ex=self._lifetime_s)
        pipe.execute()
        return True

    def _ask(self, call: Callable[[], Any]) -> Any:
        """What a call gives; None where the server is away."""
        if self.is_away:
            return None
        try:
            return call()
        except self._failures:
            with self._guard:
                self._back_at = self._clock() + AWAY_S
            return None

    def _key(self, kind: Kind, sha: bytes) -> str:
        return f"unspool:{kind}:{self._space}:{sha.hex()}"

    def _is_sound(self, value: bytes) -> bool:
        """Whether it is a vector of this space: others may write to the same server."""
        if len(value) != 4 * self._embedder.dimension:
            return False
        # whose squares do not overflow
        length = float(np.linalg.norm(np.frombuffer(value, dtype="<f4").astype(np.float64)))
        return abs(length - 1) < 1e-2
