"""Progress of a call, reported to the client, and cancellation by the client."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any

import anyio.from_thread

from unspool.domain.reports import Progress

INTERVAL_S = 0.25  # between two reports


class ProgressReporter:
    """Callback for the steps of a task. It raises in the task's thread if the call was cancelled.

    The protocol wants numbers that only grow. A task counts from 0 in each of its parts, so the
    steps of earlier parts are added.
    """

    def __init__(
        self, send: Callable[[float, float | None, str | None], Coroutine[Any, Any, None]]
    ) -> None:
        self._send = send
        self._last = Progress(task="", done=0, total=0)
        self._earlier = 0  # steps of the parts that are complete
        self._sent = 0
        self._sent_at = 0.0

    def __call__(self, progress: Progress) -> None:
        anyio.from_thread.check_cancelled()
        if progress.task != self._last.task or progress.done < self._last.done:
            self._earlier += self._last.done
        self._last = progress
        now, done = time.monotonic(), self._earlier + progress.done
        if now - self._sent_at < INTERVAL_S or done <= self._sent:
            return
        self._sent_at, self._sent = now, done
        total = self._earlier + progress.total if progress.total else None
        of = f" of {progress.total}" if progress.total else ""
        message = f"{progress.task} {progress.done}{of}"
        anyio.from_thread.run(self._send, done, total, message)
