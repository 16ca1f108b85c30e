"""Limits of a process: requests at once, and requests per minute."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from unspool.errors import ThrottledError

SHARE = 4  # a key may use one part in so many
WINDOW_S = 60.0
_MAX_NAMES = 10_000  # beyond this, names whose limit is unused are forgotten


class ConcurrencyLimit:
    """Limit of requests at once, with a share for each key.

    Callers without a key cannot be told apart, so only the total limits them.
    """

    def __init__(self, total: int, subject: str, *, per_key: int | None = None) -> None:
        self._total = total
        self._per_key = max(1, total // SHARE) if per_key is None else per_key
        self._subject = subject
        self._counts: Counter[str] = Counter()

    @contextmanager
    def acquire(self, key: str = "") -> Iterator[None]:
        """Count a request until the block ends. Raise `ThrottledError` at the limit."""
        if self._counts.total() >= self._total:
            raise ThrottledError(
                f"{self._total} {self._subject} are running already; try again in a second",
                retry_after=1,
            )
        if key and self._counts[key] >= self._per_key:
            raise ThrottledError(
                f"{self._per_key} {self._subject} are running already with this key; wait for one "
                f"of them to end",
                retry_after=1,
            )
        self._counts[key] += 1
        try:
            yield
        finally:
            self._counts[key] -= 1
            self._counts = +self._counts  # drops keys without requests


class RateLimit:
    """Limit of calls per minute for each name; 0 means no limit.

    A minute's calls may come at once. After that, each is possible again when its share of the
    minute has passed (generic cell rate algorithm).
    """

    def __init__(
        self, per_minute: float, subject: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval_s = WINDOW_S / per_minute if per_minute else 0.0
        self._subject = subject
        self._clock = clock
        self._unused_at: dict[str, float] = {}  # when the whole limit is available again

    def acquire(self, name: str) -> None:
        """Count a call. Raise `ThrottledError` at the limit."""
        if not self._interval_s:
            return
        now = self._clock()
        unused_at = max(now, self._unused_at.get(name, now)) + self._interval_s
        wait_s = unused_at - now - max(WINDOW_S, self._interval_s)
        if wait_s > 0:
            raise ThrottledError(
                f"too many {self._subject}; try again in {max(1, round(wait_s))} s",
                retry_after=wait_s,
            )
        self._unused_at[name] = unused_at
        if len(self._unused_at) > _MAX_NAMES:
            self._unused_at = {key: at for key, at in self._unused_at.items() if at > now}
