"""Batches of texts, and calls in parallel."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def batches(sizes: Sequence[int], *, most: int, tokens: int, is_padded: bool) -> list[list[int]]:
    """Return the positions of texts of these sizes, in batches of at most `most` texts and
    `tokens` tokens; 0 tokens is no limit.

    Padded texts are sorted by length, because each costs as much as the longest of its batch. The
    longest are first, so that a lack of memory shows at once. A text of more than `tokens` tokens
    is a batch of its own.
    """
    order = (
        sorted(range(len(sizes)), key=lambda place: -sizes[place])
        if is_padded
        else range(len(sizes))
    )
    made: list[list[int]] = []
    total = longest = 0
    for place in order:
        size = max(1, sizes[place])
        grown = max(longest, size) * (len(made[-1]) + 1) if is_padded and made else total + size
        if not made or len(made[-1]) >= most or (tokens and grown > tokens):
            made.append([])
            total = longest = 0
        made[-1].append(place)
        total, longest = total + size, max(longest, size)
    return made


def run_all(jobs: Sequence[Callable[[], _T]], *, at_once: int) -> list[_T]:
    """Run jobs in parallel and return their results in order.

    The first error is raised at once, as is Ctrl-C. Jobs that still run end by themselves, in
    threads that do not keep the process alive.
    """
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
            except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
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
