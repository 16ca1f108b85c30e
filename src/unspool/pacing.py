"""Rate limits and retries of calls to a server."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from itertools import count
from typing import TypeVar

from unspool.errors import RateLimitedError, ThrottledError, UnspoolError

_T = TypeVar("_T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
LONGEST_WAIT_S = 120.0  # a call is not retried if a server asks for a longer wait


def compute_pause(error: UnspoolError, attempt: int) -> float | None:
    """Return the seconds to wait before the next attempt; None if it would fail again.

    A wait that the server asks for counts. Otherwise the pause doubles with each attempt, and half
    of it is random, so that callers who failed together come back apart.
    """
    if not error.retryable:
        return None
    if isinstance(error, RateLimitedError | ThrottledError) and error.retry_after is not None:
        return error.retry_after if error.retry_after <= LONGEST_WAIT_S else None
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (attempt - 1))
    return longest * random.uniform(0.5, 1)  # noqa: S311 - nothing secret


class Backoff:
    """Rate limits and pauses that all threads calling a server share."""

    def __init__(
        self,
        *,
        requests_per_minute: int = 0,
        tokens_per_minute: int = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._per_request_s = 60 / requests_per_minute if requests_per_minute else 0.0
        self._per_token_s = 60 / tokens_per_minute if tokens_per_minute else 0.0
        self._clock = clock
        self._sleep = sleep
        self._guard = threading.Lock()
        self._free_at = 0.0  # when the next call may begin
        self._paused_until = 0.0

    def wait(self, tokens: int, *, sleep: Callable[[float], object] | None = None) -> None:
        """Wait until a call with this number of tokens may begin.

        A `sleep` that returns True ends the wait.
        """
        with self._guard:
            now = self._clock()
            begin = max(self._free_at, now)
            self._free_at = begin + max(self._per_request_s, tokens * self._per_token_s)
        while (left := begin - self._clock()) > 0:
            if (sleep or self._sleep)(left):
                return
            with self._guard:
                begin = max(begin, self._paused_until)

    def pause(self, seconds: float) -> None:
        """Delay all calls."""
        with self._guard:
            self._paused_until = max(self._paused_until, self._clock() + seconds)
            self._free_at = max(self._free_at, self._paused_until)


def retry(
    call: Callable[[], _T],
    *,
    backoff: Backoff,
    tokens: int = 0,
    retries: int,
    patience_s: float = LONGEST_WAIT_S,
    abandoned: threading.Event,
) -> _T:
    """Call a function, and retry it while that may help and a pause takes at most `patience_s`.

    Setting `abandoned` ends the wait with a `CancelledError`.
    """
    for attempt in count(1):
        backoff.wait(tokens, sleep=abandoned.wait)
        if abandoned.is_set():
            raise CancelledError
        try:
            return call()
        except UnspoolError as error:
            pause = compute_pause(error, attempt)
            if pause is None or pause > patience_s or attempt > retries or abandoned.is_set():
                raise
        backoff.pause(pause)
    raise AssertionError("unreachable")
