"""What a search finds and what an answer is made of."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

Scalar = str | int | float | bool
Kind = Literal["code", "docs", "data", "chat"]
Status = Literal["pending", "indexing", "indexed", "failed", "stale"]
AuthorKind = Literal["user", "assistant", "system", "tool"]


class Snippet(TypedDict):
    """The few lines of a chunk that fit best."""

    text: str
    first_line: int
    marks: list[list[int]]


class Said(TypedDict):
    """A message beside a hit. That of the hit itself has no text: the hit has it."""

    number: int
    speaker: str
    kind: AuthorKind
    at: str | None
    is_cut: bool
    text: NotRequired[str]


class ChunkRest(TypedDict):
    """What a page does not show of a chunk."""

    id: str
    index: int
    level: int
    defines: list[str]
    token_count: int
    status: Status


class HitChunk(ChunkRest):
    """The rest of what is stored of a hit's chunk."""

    text: str | None


class Chunk(ChunkRest):
    """A chunk as it is stored."""

    project: str
    path: str
    lines: list[int]
    symbol: str
    headings: list[str]
    title: str
    language: str
    kind: Kind
    start: int
    end: int
    text: str
    modified: str | None
    metadata: dict[str, Scalar | None]


class Hit(TypedDict):
    """A chunk that was found, how well it fits, and what of it is shown."""

    rank: int
    score: float | None
    origin: Literal["vector", "keyword", "fused"]
    form: Literal["whole", "snippet", "location"]
    project: str
    path: str
    lines: list[int]
    symbol: str
    headings: list[str]
    title: str
    language: str
    kind: Kind
    start: int
    end: int
    text: str
    snippet: Snippet
    tokens: int
    modified: str | None
    metadata: dict[str, Scalar | None]
    changed: bool
    stale: bool | None
    copies: list[str]
    message: Said | None
    before: list[Said]
    after: list[Said]
    reason: NotRequired[str]
    chunk: NotRequired[HitChunk]


class Source(TypedDict):
    """A document that has hits on a page."""

    project: str
    path: str
    title: str
    language: str
    hits: int
    best_score: float | None


class Insights(TypedDict):
    """What the hits of a page have in common."""

    languages: dict[str, int]
    files: int
    earliest: str | None
    latest: str | None


class Page(TypedDict):
    """Hits, best first, and how to get more."""

    query: str
    projects: list[str]
    alpha: float
    hits: list[Hit]
    sources: list[Source]
    insights: Insights
    notes: list[str]
    warnings: list[str]
    tokens: int
    tokens_remaining: int | None
    number: int
    served: Literal["window", "hint", "wider"]
    stability: Literal["snapshot", "deterministic", "best_effort"]
    remaining: int
    relevance_dropped: bool
    continuation: str | None


class Hits(TypedDict):
    """Hits of a search by vector alone."""

    hits: list[Hit]


class Vector(TypedDict):
    """A text's vector, and whose."""

    vector: list[float]
    embedder: str
    dimension: int


class Tokens(TypedDict):
    """How many tokens a text has."""

    tokens: int


class Citation(TypedDict):
    """Where something that an answer cites stands."""

    number: int
    project: str
    path: str
    lines: list[int]
    symbol: str
    headings: list[str]
    start: int
    end: int
    score: float | None
    hit: NotRequired[Hit]


class Usage(TypedDict):
    """What an answer took."""

    searches: int
    hits: int
    shown: int
    context_tokens: int
    prompt_tokens: int | None
    completion_tokens: int | None


class Answer(TypedDict):
    """What a question was answered with."""

    question: str
    found: bool
    text: str
    model: str
    citations: list[Citation]
    dropped_citations: int
    context: str
    usage: Usage
    notes: list[str]
    warnings: list[str]


class Chunks(TypedDict):
    """Chunks in their order."""

    chunks: list[Chunk]
