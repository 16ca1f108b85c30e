"""What is stored: documents, conversations, and what became of them."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from unspool.interfaces.shapes.found import AuthorKind, Kind, Scalar, Status


class Masked(TypedDict):
    """A secret that was masked before anything was stored."""

    path: str
    line: int
    kind: str


class Failure(TypedDict):
    """A document that could not be indexed."""

    path: str
    error: str


class Skip(TypedDict):
    """A file that was left out, and why."""

    path: str
    reason: str
    detail: str


class IndexReport(TypedDict):
    """What an indexing run did."""

    project: str
    added: int
    updated: int
    unchanged: int
    removed: int
    failed: int
    busy: int
    chunks: int
    embedded: int
    seconds: float
    skipped: dict[str, int]
    masked: list[Masked]
    failures: list[Failure]
    warnings: list[str]
    skips: NotRequired[list[Skip]]


class BadRecord(TypedDict):
    """Something in an export that could not be read."""

    source: str
    position: str
    reason: str


class RememberReport(TypedDict):
    """What became of conversations that were taken in."""

    project: str
    added: int
    updated: int
    unchanged: int
    messages: int
    chunks: int
    embedded: int
    duplicates: int
    bad_count: int
    bad: list[BadRecord]
    seconds: float
    masked: list[Masked]
    warnings: list[str]


class Reembedding(TypedDict):
    """What going over to another embedder came to."""

    before: str
    after: str
    texts: int
    tokens: int
    price: float | None
    too_long: int
    embedded: int
    chunks: int
    seconds: float
    kept: list[str]
    dropped: list[str]
    warnings: list[str]


class Document(TypedDict):
    """What the catalog knows of a document."""

    project: str
    path: str
    title: str
    status: Status
    error: str
    language: str
    kind: Kind
    size_bytes: int
    chunks: int
    sha256: str
    version: int
    modified: str | None
    indexed_at: str | None
    metadata: dict[str, Scalar | None]


class Documents(TypedDict):
    """Documents of a project by path; `next` is what to give as `after` for those behind them,
    or null.
    """

    documents: list[Document]
    next: str | None


class Passage(TypedDict):
    """Some lines of a document, as it was indexed."""

    project: str
    path: str
    title: str
    language: str
    kind: Kind
    lines: list[int]
    last_line: int
    text: str


class DocumentText(TypedDict):
    """A document and some of its lines."""

    document: Document
    passage: Passage


class Forgotten(TypedDict):
    """How many documents went."""

    forgotten: int


class Message(TypedDict):
    """One turn of a conversation."""

    text: str
    author: str
    kind: AuthorKind
    at: str | None
    id: str


class ConversationHead(TypedDict):
    """What is known of a conversation but what was said."""

    project: str
    id: str
    title: str
    scenario_title: str
    url: str
    created_at: str | None
    metadata: dict[str, Scalar | None]


class ConversationRecord(ConversationHead):
    """A conversation in a list."""

    updated_at: str
    messages: int


class Conversation(ConversationHead):
    """A conversation with its messages in order."""

    messages: list[Message]


class Conversations(TypedDict):
    """Conversations of a project, those that began last first, and how many there are in all."""

    conversations: list[ConversationRecord]
    count: int
