"""When a call may be made, and made again: not while a server has asked to be left alone, and
not more often than allowed.
"""

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
LONGEST_WAIT_S = 120.0  # a server that asks for more than this is believed and not waited for


def pause_after(error: UnspoolError, attempt: int) -> float | None:
    """How long to wait before a call is repeated that has failed so many times, in seconds; None
    where it should not be.

    What a server asks for counts; otherwise twice as long every time, half of it by chance, so that
    callers who failed together come back apart.
    """
    if not error.retryable:
        return None
    if isinstance(error, RateLimitedError | ThrottledError) and error.retry_after is not None:
        return error.retry_after if error.retry_after <= LONGEST_WAIT_S else None
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (attempt - 1))
    return longest * random.uniform(0.5, 1)  # noqa: S311 - nothing secret


class Pace:
    """One for all threads that call a server. What is asked of one of them holds for all."""

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
        """Wait for the turn of a call with so many tokens.

        A `sleep` that returns early for good ends it.
        """
        with self._guard:
            now = self._clock()
            turn = max(self._free_at, now)
            self._free_at = turn + max(self._per_request_s, tokens * self._per_token_s)
        while (left := turn - self._clock()) > 0:
            if (sleep or self._sleep)(left):
                return
            with self._guard:
                turn = max(turn, self._paused_until)

    def pause(self, seconds: float) -> None:
        """Let nobody call for so long."""
        with self._guard:
            self._paused_until = max(self._paused_until, self._clock() + seconds)
            self._free_at = max(self._free_at, self._paused_until)


def repeated(
    call: Callable[[], _T],
    *,
    pace: Pace,
    tokens: int = 0,
    retries: int,
    patience_s: float = LONGEST_WAIT_S,
    abandoned: threading.Event,
) -> _T:
    """What a call gives, made again as long as that may help and nobody has to wait longer than
    `patience_s` for the next attempt.

    Set `abandoned` where nobody waits any more: it ends the waiting with a `CancelledError`.
    """
    for attempt in count(1):
        pace.wait(tokens, sleep=abandoned.wait)
        if abandoned.is_set():
            raise CancelledError
        try:
            return call()
        except UnspoolError as error:
            pause = pause_after(error, attempt)
            if pause is None or pause > patience_s or attempt > retries or abandoned.is_set():
                raise
        pace.pause(pause)
    raise AssertionError("unreachable")
