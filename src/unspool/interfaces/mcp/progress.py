"""How far a call is, told to the client; and that the client has had enough, told to the call."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any

import anyio.from_thread

from unspool.domain.reports import Progress

EVERY_S = 0.25  # between two reports


class Reporter:
    """Called with every step of a task, in its thread. It ends the task where the client cancelled
    the call or went away.

    What a client is told only ever grows, as the protocol wants it, although a task begins to count
    anew with each of its parts.
    """

    def __init__(
        self, send: Callable[[float, float | None, str | None], Coroutine[Any, Any, None]]
    ) -> None:
        self._send = send
        self._told_at = 0.0
        self._task = ""
        self._before = 0  # steps of the parts that are over
        self._done = 0
        self._told = 0

    def __call__(self, progress: Progress) -> None:
        anyio.from_thread.check_cancelled()
        if progress.task != self._task or progress.done < self._done:
            self._before, self._task = self._before + self._done, progress.task
        self._done = progress.done
        now, done = time.monotonic(), self._before + progress.done
        if now - self._told_at < EVERY_S or done <= self._told:
            return
        self._told_at, self._told = now, done
        of = f" of {progress.total}" if progress.total else ""
        total = self._before + progress.total if progress.total else None
        anyio.from_thread.run(
            self._send,
            float(done),
            None if total is None else float(total),
            f"{progress.task} {progress.done}{of}",
        )
