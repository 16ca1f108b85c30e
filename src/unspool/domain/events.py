"""What happened, for whoever watches: logs, metrics, traces.

Events hold names, counts and durations, never text, vectors or keys.
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
    """A page was handed out. Durations are in seconds; a part that was not needed took none."""

    store: str
    projects: int
    number: int
    served: Served
    stability: Stability
    searched: bool  # the stores were asked; a page out of a window needs no search
    embedding: str  # of the query: "computed", "cached" or "unneeded"
    hits: int
    tokens: int
    is_last: bool
    embed_s: float
    search_s: float
    hydrate_s: float
    total_s: float


class Outcome(StrEnum):
    """How an answer ended."""

    ANSWERED = "answered"
    NOTHING = "nothing"  # found: no model was called
    CONTEXT = "context"  # there is no model: what it would be shown
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFinished:
    """An answer came to its end, whichever.

    Durations are in seconds; `first_s` is that of the first piece of text, None where none came.
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
    """Documents or conversations were taken in.

    `embedded` of the chunks had to be; the others' vectors were known.
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


class _Watcher:
    """One registration of a hook."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.has_failed = False


class Hooks:
    """Who is told of events.

    One that fails is reported once to the log `unspool`, and never breaks a call.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._watchers: tuple[_Watcher, ...] = ()

    def add(self, hook: Hook) -> Callable[[], None]:
        """Tell a hook from now on; what is returned ends it."""
        watcher = _Watcher(hook)
        with self._guard:
            self._watchers = (*self._watchers, watcher)
        return lambda: self._remove(watcher)

    def emit(self, event: Event) -> None:
        """Tell everyone."""
        for watcher in self._watchers:
            try:
                watcher.hook(event)
            except Exception:
                if not watcher.has_failed:
                    watcher.has_failed = True
                    logging.getLogger("unspool").exception(
                        "a hook failed on %s; it is not reported again", type(event).__name__
                    )

    def _remove(self, watcher: _Watcher) -> None:
        with self._guard:
            self._watchers = tuple(one for one in self._watchers if one is not watcher)
