"""Documents and conversations prepared for the catalog: read, chunked, hashed and embedded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from unspool.domain.conversations import Message
from unspool.domain.documents import DocumentOrigin, Kind, Metadata, Piece
from unspool.domain.reports import Masked, Skip


class PreparedChunk(NamedTuple):
    """Piece with its text, and the hash of the passage that is embedded for it.

    A named tuple for the same reason as the piece.
    """

    piece: Piece
    text: str
    text_sha: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDocument:
    """Document, ready for one transaction. `vectors` has only new ones."""

    path: str
    sha256: str
    title: str
    size_bytes: int
    modified_ns: int | None
    language: str
    kind: Kind
    recipe: str
    origin: DocumentOrigin
    chunks: tuple[PreparedChunk, ...]
    vectors: Mapping[bytes, bytes] = field(default_factory=dict)
    metadata: Metadata = field(default_factory=dict)
    masked: tuple[Masked, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFile:
    """A file whose content is not worth indexing, with its size and time at the scan."""

    skip: Skip
    size_bytes: int
    modified_ns: int

    @property
    def path(self) -> str:
        return self.skip.path


class PreparedMessage(NamedTuple):
    """Message with masked secrets, the fingerprint of the original, and its chunks.

    A blank message has none.
    """

    message: Message
    sha: bytes
    chunks: tuple[PreparedChunk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedConversation:
    """Conversation from a message on, ready for one transaction.

    The first `start` messages are stored already.
    """

    path: str
    sha256: str
    title: str
    scenario_title: str
    url: str
    created_at: datetime | None  # None if neither the conversation nor a message has a time
    updated_at: datetime
    metadata: Metadata
    recipe: str
    size_bytes: int
    follows: str  # fingerprint of the conversation of the first `start` messages
    start: int
    messages: tuple[PreparedMessage, ...]
    masked: tuple[Masked, ...] = ()


def compose_passage(*, title: str, headings: tuple[str, ...], symbol: str, text: str) -> str:
    """Return the passage that is embedded for a chunk: its title and headings, then its text.

    The path is left out, so that a renamed or copied file costs no embedding.
    """
    place = [title] if title and (not headings or headings[0] != title) else []
    place += [heading for heading in headings if heading not in text[: len(heading) + 8]]
    if symbol and symbol not in text:
        place.append(symbol)
    return "\n".join([" > ".join(place), text]) if place else text


def hash_text(text: str) -> bytes:
    """Return the hash of a passage, under which its embedding is stored."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
