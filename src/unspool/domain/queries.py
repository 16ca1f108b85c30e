"""Queries, hits and pages: what is asked and what comes back.

Score: higher is better, everywhere. Scores compare only within one result list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from unspool.domain.documents import Chunk


class Origin(StrEnum):
    """Which retriever a hit came from."""

    VECTOR = "vector"
    KEYWORD = "keyword"
    FUSED = "fused"


class Form(StrEnum):
    """How much of a chunk a hit shows; the budget decides."""

    WHOLE = "whole"
    SNIPPET = "snippet"
    LOCATION = "location"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """An excerpt of a chunk: its text, its first line in the document, and the character ranges in it that matched."""

    text: str
    first_line: int
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One answer: a chunk, how well it fits, and what of it the page shows."""

    chunk: Chunk
    score: float
    rank: int
    origin: Origin
    form: Form
    snippet: Snippet  # the best few lines, always there
    tokens: int  # what showing it in this form costs
    reason: str = ""  # one line, only if asked for

    @property
    def text(self) -> str:
        """What the budget allows to be shown: the whole chunk, the snippet, or nothing but the location."""
        return {Form.WHOLE: self.chunk.text, Form.SNIPPET: self.snippet.text, Form.LOCATION: ""}[self.form]


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
    """What the hits have in common: counts by language, files, and the span of their modification times."""

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
    alpha: float = 0.0  # the share of meaning that was used: 0 words only, 1 meaning only
    continuation: str | None = None
