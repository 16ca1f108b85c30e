"""Events for tests of those who watch: one of each kind, with every field changeable, and
something that tells of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from unspool.domain.events import (
    AnswerFinished,
    Event,
    Hook,
    Hooks,
    IndexFinished,
    Outcome,
    PageServed,
)
from unspool.domain.queries import Served, Stability

PAGE = PageServed(
    store="embedded",
    projects=1,
    number=1,
    served=Served.WINDOW,
    stability=Stability.SNAPSHOT,
    searched=True,
    embedding="computed",
    hits=7,
    tokens=900,
    is_last=False,
    embed_s=0.002,
    search_s=0.004,
    hydrate_s=0.001,
    total_s=0.008,
)
ANSWER = AnswerFinished(
    outcome=Outcome.ANSWERED,
    model="openai:gpt-test",
    projects=1,
    hits=10,
    shown=6,
    turns=0,
    citations=2,
    dropped_citations=1,
    context_tokens=1200,
    prompt_tokens=1300,
    completion_tokens=80,
    search_s=0.01,
    first_s=0.4,
    total_s=1.5,
)
INDEX = IndexFinished(
    task="index",
    store="embedded",
    added=3,
    updated=2,
    unchanged=10,
    removed=1,
    failed=1,
    chunks=40,
    embedded=25,
    total_s=0.7,
)
ALL: tuple[Event, ...] = (PAGE, ANSWER, INDEX)


def page(**changes: Any) -> PageServed:
    return replace(PAGE, **changes)


class Teller:
    """Tells of events as a corpus does, without being one."""

    def __init__(self) -> None:
        self._hooks = Hooks()

    def observe(self, hook: Hook) -> Callable[[], None]:
        return self._hooks.add(hook)

    def tell(self, *events: Event) -> None:
        for event in events:
            self._hooks.emit(event)
