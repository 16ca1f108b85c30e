"""Queries, hits and pages: what is asked and what comes back.

Score: higher is better, everywhere. Scores compare only within one result list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from unspool.domain.conversations import AuthorKind
from unspool.domain.documents import Chunk
from unspool.errors import InputError

MAX_QUERY_CHARACTERS = 20_000


class Origin(StrEnum):
    """Which retriever a hit came from."""

    VECTOR = "vector"
    KEYWORD = "keyword"
    FUSED = "fused"


class Served(StrEnum):
    """Where the hits of a page came from."""

    # the order that the first page fixed; the first page itself is served from it too
    WINDOW = "window"
    HINT = "hint"  # past it, the vector index went on by itself
    WIDER = "wider"  # past it, a deeper search without what was given


class Stability(StrEnum):
    """What may happen to an order while others write."""

    SNAPSHOT = "snapshot"  # nothing: it is fixed
    DETERMINISTIC = "deterministic"  # the same content gives the same order
    BEST_EFFORT = "best_effort"  # the store may answer differently each time


class Form(StrEnum):
    """How much of a chunk a hit shows; the budget decides."""

    WHOLE = "whole"
    SNIPPET = "snippet"
    LOCATION = "location"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """An excerpt of a chunk: its text, its first line in the document, and the character ranges
    in it that matched.
    """

    text: str
    first_line: int
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message of a conversation, by its number there.

    One that only stands beside a hit may be cut.
    """

    number: int
    speaker: str
    kind: AuthorKind
    text: str
    at: datetime | None = None
    is_cut: bool = False

    @property
    def line(self) -> str:
        """Who said what, as it is read and counted."""
        return f"{self.speaker}: {self.text}"


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A chunk that was found, how well it fits, and how much of it the page shows."""

    chunk: Chunk
    score: float
    rank: int
    origin: Origin
    form: Form
    tokens: int  # what showing it in this form costs
    cut: Callable[[Chunk], Snippet] = field(repr=False, compare=False)
    reason: str = ""  # one line, only if asked for
    changed: bool = False  # its text has been replaced since the first page; this is the new one
    # its file has changed or is missing since it was indexed; None if that is unknown
    stale: bool | None = None
    message: Said | None = None  # what was said, where the hit is in a conversation
    # the exchange around it, as far as the budget allows; no message is on a page twice
    before: tuple[Said, ...] = ()
    after: tuple[Said, ...] = ()
    # where the same text stands elsewhere, as `path:lines`; such hits are not shown again
    copies: tuple[str, ...] = ()

    @cached_property
    def snippet(self) -> Snippet:
        """The best few lines.

        Looked for when it is first asked for: who reads whole chunks never needs it.
        """
        return self.cut(self.chunk)

    @property
    def within(self) -> str:
        """What it stands in: the code that it is part of, or the headings above it; of a message
        who said it, when, and in which conversation.
        """
        if self.message is None:
            return self.chunk.symbol or " > ".join(self.chunk.headings)
        at = self.message.at
        return ", ".join(
            filter(
                None,
                (
                    self.message.speaker,
                    "" if at is None else f"{at:%Y-%m-%d %H:%M} UTC",
                    self.chunk.title,
                ),
            )
        )

    @property
    def text(self) -> str:
        """What the budget allows to be shown: the whole chunk, the snippet, or nothing but the
        location.
        """
        if self.form is Form.SNIPPET:
            return self.snippet.text
        return self.chunk.text if self.form is Form.WHOLE else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A document that has hits on the page."""

    project: str
    path: str
    title: str
    language: str
    hits: int
    best_score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Insights:
    """What the hits have in common: counts by language, files, and the span of their
    modification times.
    """

    languages: Mapping[str, int] = field(default_factory=dict)
    files: int = 0
    earliest: datetime | None = None
    latest: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Hits, best first, with what one needs to judge and cite them."""

    query: str
    projects: tuple[str, ...]
    hits: tuple[Hit, ...]
    sources: tuple[Source, ...] = ()
    insights: Insights = Insights()
    notes: tuple[str, ...] = ()  # what happened: a file was stale, an unused hit did not fit
    warnings: tuple[str, ...] = ()  # what the caller should act on
    tokens: int = 0  # used by the hits in the form they are shown
    # of `max_total_tokens`; None where the walk has no such limit
    tokens_remaining: int | None = None
    alpha: float = 0.0  # the share of meaning that was used: 0 words only, 1 meaning only
    number: int = 1
    served: Served = Served.WINDOW
    stability: Stability = Stability.SNAPSHOT
    remaining: int = 0  # so many more are found already; there may be more behind them
    relevance_dropped: bool = False  # what follows is hardly worth reading
    continuation: str | None = None  # gives the next page; None at the end
    # how `more` gets there
    follow: Callable[[str], Page] | None = field(default=None, repr=False, compare=False)

    def more(self) -> Page:
        """The next page.

        At the end, or with a page that did not come from an open corpus, an `InputError`.
        """
        if self.continuation is None:
            raise InputError("this is the last page; page.continuation is None here")
        if self.follow is None:
            raise InputError(
                "this page is not tied to a corpus; give page.continuation to corpus.more()"
            )
        return self.follow(self.continuation)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy for another process is not tied to this one's corpus.
        return _page, (
            {one.name: getattr(self, one.name) for one in fields(self) if one.name != "follow"},
        )


def _page(values: dict[str, Any]) -> Page:
    return Page(**values)
