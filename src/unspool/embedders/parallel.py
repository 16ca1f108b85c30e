"""Several calls at once, without waiting for those that nobody wants any more."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def run_all(jobs: Sequence[Callable[[], _T]], *, at_once: int) -> list[_T]:
    """What each gives, in order. The first that fails is raised at once, and so is Ctrl-C: what is
    under way ends by itself, in threads that do not keep the process alive."""
    if len(jobs) <= 1 or at_once == 1:
        return [job() for job in jobs]
    waiting = deque(range(len(jobs)))
    done: queue.SimpleQueue[tuple[int, _T | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        while True:
            try:
                place = waiting.popleft()
            except IndexError:
                return
            try:
                done.put((place, jobs[place](), None))
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is waited for
                done.put((place, None, error))

    for number in range(min(at_once, len(jobs))):
        threading.Thread(target=work, name=f"unspool-call-{number}", daemon=True).start()
    found: dict[int, _T] = {}
    try:
        while len(found) < len(jobs):
            place, value, error = done.get()
            if error is not None:
                raise error
            found[place] = value  # type: ignore[assignment]
    finally:
        waiting.clear()
    return [found[place] for place in range(len(jobs))]
