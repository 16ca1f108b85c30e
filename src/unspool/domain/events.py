"""Events for logs, metrics and traces.

They contain names, counts and durations, never text, vectors or keys.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from unspool.domain.queries import Served, Stability


@dataclass(frozen=True, slots=True, kw_only=True)
class PageServed:
    """Event of a page. Durations are in seconds; a stage that was not needed took 0."""

    store: str
    projects: int
    number: int
    served: Served
    stability: Stability
    searched: bool  # a page out of a window needs no search
    embedding: str  # of the query: "computed", "cached" or "unneeded"
    hits: int
    tokens: int
    is_last: bool
    embed_s: float
    search_s: float
    hydrate_s: float
    total_s: float


class Outcome(StrEnum):
    """Outcome of an answer."""

    ANSWERED = "answered"
    NOTHING = "nothing"  # no hits, so no model was called
    CONTEXT = "context"  # no model, so only hits
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFinished:
    """Event of the end of an answer.

    Durations are in seconds; `first_s` is the time to the first piece of text, if there was one.
    """

    outcome: Outcome
    model: str
    projects: int
    hits: int
    shown: int
    turns: int
    citations: int
    dropped_citations: int
    context_tokens: int
    prompt_tokens: int | None
    completion_tokens: int | None
    search_s: float
    first_s: float | None
    total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFinished:
    """Event of an indexing run or an import of conversations.

    `embedded` counts the chunks whose vectors were computed; the others were known.
    """

    task: str  # "index", "put", "remember"
    store: str
    added: int
    updated: int
    unchanged: int
    removed: int
    failed: int
    chunks: int
    embedded: int
    total_s: float


Event = PageServed | AnswerFinished | IndexFinished
Hook = Callable[[Event], None]


class Hooks:
    """Observers of events.

    The first error of a hook is logged to `unspool`. It never breaks a call.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._hooks: dict[object, Hook] = {}  # never changed, only replaced
        self._failed: set[object] = set()

    def add(self, hook: Hook) -> Callable[[], None]:
        """Register a hook, and return a function that removes it."""
        token = object()  # a hook may be registered twice
        with self._guard:
            self._hooks = {**self._hooks, token: hook}
        return lambda: self._remove(token)

    def emit(self, event: Event) -> None:
        """Pass an event to every hook."""
        for token, hook in self._hooks.items():
            try:
                hook(event)
            except Exception:
                if token not in self._failed:
                    self._failed.add(token)
                    logging.getLogger("unspool").exception(
                        "a hook failed on %s; it is not reported again", type(event).__name__
                    )

    def _remove(self, token: object) -> None:
        with self._guard:
            self._hooks = {other: hook for other, hook in self._hooks.items() if other != token}
