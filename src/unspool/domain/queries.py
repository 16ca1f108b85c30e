"""Hits and pages of a search.

Score: higher is better, everywhere. Scores compare only within one result list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from functools import cached_property, partial
from typing import Any

from unspool.domain.conversations import AuthorKind
from unspool.domain.documents import Chunk
from unspool.errors import InputError

MAX_QUERY_CHARACTERS = 20_000


class Origin(StrEnum):
    """Retriever that found a hit."""

    VECTOR = "vector"
    KEYWORD = "keyword"
    FUSED = "fused"


class Served(StrEnum):
    """Source of the hits of a page."""

    WINDOW = "window"  # the ranking that the first page fixed
    HINT = "hint"  # beyond it, continued by the vector index
    WIDER = "wider"  # beyond it, a deeper search without the hits of earlier pages


class Stability(StrEnum):
    """Stability of a ranking while others write."""

    SNAPSHOT = "snapshot"  # the ranking is fixed
    DETERMINISTIC = "deterministic"  # the same content gives the same ranking
    BEST_EFFORT = "best_effort"  # the ranking may differ each time


class Form(StrEnum):
    """Form in which a page shows a hit. The budget determines it."""

    WHOLE = "whole"
    SNIPPET = "snippet"
    LOCATION = "location"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """Excerpt of a chunk. `marks` are the character ranges in it that matched."""

    text: str
    first_line: int
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Message of a conversation, with its number there. Next to a hit it may be cut."""

    number: int
    speaker: str
    kind: AuthorKind
    text: str
    at: datetime | None = None
    is_cut: bool = False

    @property
    def line(self) -> str:
        """Speaker and text, as shown and counted."""
        return f"{self.speaker}: {self.text}"


@dataclass(frozen=True, kw_only=True)
class Hit:
    """Chunk that was found, its score, and the form in which the page shows it."""

    chunk: Chunk
    score: float
    rank: int
    origin: Origin
    form: Form
    tokens: int  # of this form
    cut: Callable[[Chunk], Snippet] = field(repr=False, compare=False)
    reason: str = ""  # one line, only if requested
    changed: bool = False  # its text was replaced since the first page; this is the new text
    # its file has changed or is missing since it was indexed; None if that is unknown
    stale: bool | None = None
    message: Said | None = None  # for a hit in a conversation
    # messages around it, as far as the budget allows; each is only once on a page
    before: tuple[Said, ...] = ()
    after: tuple[Said, ...] = ()
    # other locations of the same text, as `path:lines`; such hits are not shown again
    copies: tuple[str, ...] = ()

    @cached_property
    def snippet(self) -> Snippet:
        """Best lines, searched on first use: readers of whole chunks never need them."""
        return self.cut(self.chunk)

    @property
    def within(self) -> str:
        """Symbol or headings of the chunk; for a message its speaker, time and conversation."""
        if self.message is None:
            return self.chunk.symbol or " > ".join(self.chunk.headings)
        at = self.message.at
        time = "" if at is None else f"{at:%Y-%m-%d %H:%M} UTC"
        return ", ".join(filter(None, (self.message.speaker, time, self.chunk.title)))

    @property
    def text(self) -> str:
        """Text of this form: the whole chunk, the snippet, or '' for a location."""
        if self.form is Form.SNIPPET:
            return self.snippet.text
        return self.chunk.text if self.form is Form.WHOLE else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Document with hits on a page."""

    project: str
    path: str
    title: str
    language: str
    hits: int
    best_score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Insights:
    """Statistics of hits: counts by language, files, and the range of modification times."""

    languages: Mapping[str, int] = field(default_factory=dict)
    files: int = 0
    earliest: datetime | None = None
    latest: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Page of hits, best first, with what a reader needs to judge and cite them."""

    query: str
    projects: tuple[str, ...]
    hits: tuple[Hit, ...]
    sources: tuple[Source, ...] = ()
    insights: Insights = Insights()
    notes: tuple[str, ...] = ()  # facts, such as a stale file or a hit that did not fit
    warnings: tuple[str, ...] = ()  # problems for the caller to solve
    tokens: int = 0  # of the hits in their form
    tokens_remaining: int | None = None  # of `max_total_tokens`, if that is limited
    alpha: float = 0.0  # share of semantic search: 0 keywords only, 1 semantic only
    number: int = 1
    served: Served = Served.WINDOW
    stability: Stability = Stability.SNAPSHOT
    remaining: int = 0  # further hits that are known already; there may be more
    relevance_dropped: bool = False  # the following hits are hardly relevant
    continuation: str | None = None  # of the next page; None at the end
    # implementation of `more`
    follow: Callable[[str], Page] | None = field(default=None, repr=False, compare=False)

    def more(self) -> Page:
        """Return the next page.

        At the end, or for a page without an open corpus, raise an `InputError`.
        """
        if self.continuation is None:
            raise InputError("this is the last page; page.continuation is None here")
        if self.follow is None:
            raise InputError(
                "this page is not tied to a corpus; give page.continuation to corpus.more()"
            )
        return self.follow(self.continuation)

    def __reduce__(self) -> tuple[Any, ...]:
        # a copy for another process is not tied to the corpus of this one
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.compare}
        return partial(Page, **values), ()
