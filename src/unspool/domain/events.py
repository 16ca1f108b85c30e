"""What happened, for whoever watches: logs, metrics, traces. Events hold names, counts and durations, never text, vectors or keys."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

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


Event = PageServed
Hook = Callable[[Event], None]


class Hooks:
    """Who is told of events. One that fails is reported once to the log `unspool`, and never breaks a call."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._hooks: tuple[Hook, ...] = ()
        self._failed: set[Hook] = set()

    def add(self, hook: Hook) -> Callable[[], None]:
        """Tell a hook from now on; what is returned ends it."""
        with self._guard:
            self._hooks = (*self._hooks, hook)
        return lambda: self._remove(hook)

    def emit(self, event: Event) -> None:
        """Tell everyone."""
        for hook in self._hooks:
            try:
                hook(event)
            except Exception:
                if hook not in self._failed:
                    self._failed.add(hook)
                    logging.getLogger("unspool").exception("a hook failed on %s; it is not reported again", type(event).__name__)

    def _remove(self, hook: Hook) -> None:
        with self._guard:
            self._hooks = tuple(one for one in self._hooks if one is not hook)
