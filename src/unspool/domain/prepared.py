"""A document on its way into the catalog: read, cut, fingerprinted, embedded where that was
needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from unspool.domain.conversations import Message
from unspool.domain.documents import Kind, Metadata, Origin, Piece
from unspool.domain.reports import Masked


class PreparedChunk(NamedTuple):
    """A piece with its text and the fingerprint of what is embedded for it.

    A named tuple for the same reason as the piece.
    """

    piece: Piece
    text: str
    text_sha: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDocument:
    """Everything the catalog stores of a document, ready for one transaction.

    `vectors` holds only what was not known yet.
    """

    path: str
    sha256: str
    title: str
    size_bytes: int
    modified_ns: int | None
    language: str
    kind: Kind
    recipe: str
    origin: Origin
    chunks: tuple[PreparedChunk, ...]
    vectors: Mapping[bytes, bytes] = field(default_factory=dict)
    metadata: Metadata = field(default_factory=dict)
    masked: tuple[Masked, ...] = ()


class PreparedMessage(NamedTuple):
    """A message with its secrets masked, the fingerprint that it had before, and its chunks; a
    blank one has none.
    """

    message: Message
    sha: bytes
    chunks: tuple[PreparedChunk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedConversation:
    """Everything the catalog stores of a conversation from a message on; the first `start` are
    stored already.
    """

    path: str
    sha256: str
    title: str
    scenario_title: str
    url: str
    created_at: datetime | None  # None where neither the conversation nor a message says
    updated_at: datetime
    metadata: Metadata
    recipe: str
    size_bytes: int
    follows: str  # the fingerprint of the conversation that the first `start` messages are of
    start: int
    messages: tuple[PreparedMessage, ...]
    masked: tuple[Masked, ...] = ()


def embedded_text(*, title: str, headings: tuple[str, ...], symbol: str, text: str) -> str:
    """What is embedded for a chunk: where it stands, then what it says.

    The path is left out on purpose, so that a renamed or copied file costs no embedding.
    """
    place = [title] if title and (not headings or headings[0] != title) else []
    place += [heading for heading in headings if heading not in text[: len(heading) + 8]]
    if symbol and symbol not in text:
        place.append(symbol)
    return "\n".join([" > ".join(place), text]) if place else text


def text_fingerprint(text: str) -> bytes:
    """The key under which an embedding is kept."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
