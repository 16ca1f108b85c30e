"""Preparation of conversations: mask secrets, split long messages, fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from unspool.domain.conversations import Conversation, Message, chain_fingerprints, fingerprint
from unspool.domain.documents import Kind, Lines, Piece
from unspool.domain.prepared import PreparedChunk, PreparedConversation, PreparedMessage
from unspool.domain.reports import Masked
from unspool.indexing.preparing import Chunker, build_chunk
from unspool.sources.reading import mask_metadata, mask_text, mask_value

MAX_TITLE = 300
# Longer messages are chunked in segments. Splitting 8 million equal characters at once took 630 MB.
SEGMENT_CHARS = 2**20
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


def prepare_conversation(
    conversation: Conversation, *, start: int, chunker: Chunker
) -> PreparedConversation:
    """Prepare a conversation without its first `start` messages."""
    masked: list[Masked] = []
    prepared: list[PreparedMessage] = []
    for number, message in enumerate(conversation.messages[start:], start + 1):
        text, found = mask_text(message.text, conversation.id)
        masked += (replace(one, line=number) for one in found)
        stored = replace(message, text=text, author=mask_value(message.author))
        chunks = tuple(_chunk_message(stored, chunker))
        prepared.append(PreparedMessage(stored, fingerprint(message), chunks))
    times = [message.at for message in conversation.messages if message.at is not None]
    created_at = conversation.created_at or min(times, default=None)
    return PreparedConversation(
        path=conversation.id,
        sha256=fingerprint_conversation(conversation, chunker.recipe),
        title=build_title(conversation),
        scenario_title=mask_value(conversation.scenario_title),
        url=mask_value(conversation.url),
        created_at=created_at,
        updated_at=max(times, default=created_at or datetime.now(UTC)),
        metadata=mask_metadata(conversation.metadata),
        recipe=chunker.recipe,
        size_bytes=sum(
            len(message.text.encode("utf-8", "surrogatepass")) for message in conversation.messages
        ),
        follows="",
        start=start,
        messages=tuple(prepared),
        masked=tuple(masked),
    )


def build_title(conversation: Conversation) -> str:
    """Return the title as it is stored."""
    return mask_value(conversation.title)[:MAX_TITLE]


def fingerprint_conversation(conversation: Conversation, recipe: str) -> str:
    """Return a fingerprint of everything that is stored of a conversation."""
    head = (
        conversation.title,
        conversation.scenario_title,
        conversation.url,
        str(conversation.created_at),
        sorted(conversation.metadata.items()),
    )
    beginning = hashlib.sha256(repr((recipe, *head)).encode("utf-8", "surrogatepass")).hexdigest()
    return chain_fingerprints(beginning, map(fingerprint, conversation.messages))


def format_day(moment: datetime) -> str:
    """Return a date as people write it in a question."""
    return f"{_DAYS[moment.weekday()]}, {moment.day} {_MONTHS[moment.month - 1]} {moment.year}"


def collect_passages(prepared: Sequence[PreparedConversation]) -> dict[bytes, str]:
    """Return the passages of conversations by fingerprint, each distinct passage once."""
    return {
        chunk.text_sha: chunk.text
        for conversation in prepared
        for message in conversation.messages
        for chunk in message.chunks
    }


def _chunk_message(message: Message, chunker: Chunker) -> list[PreparedChunk]:
    """Return one chunk for a message, or several if it is longer than a chunk may be."""
    headings = () if message.at is None else (format_day(message.at),)
    return [
        build_chunk(
            Piece(
                start=offset + piece.start,
                end=offset + piece.end,
                lines=Lines(1, 1),
                token_count=piece.token_count,
                headings=headings,
                symbol=message.speaker,
            ),
            message.text,
            Kind.CHAT,
        )
        for offset in range(0, len(message.text), SEGMENT_CHARS)
        for piece in _split_text(message.text[offset : offset + SEGMENT_CHARS], chunker)
    ]


def _split_text(text: str, chunker: Chunker) -> list[Piece]:
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    # a much longer text is not counted, only split
    if start < end <= start + 16 * chunker.limit:
        tokens = chunker.counter.count_tokens(text[start:end])
        if tokens <= chunker.limit:
            return [Piece(start=start, end=end, lines=Lines(1, 1), token_count=tokens)]
    return chunker.chunk(text, language="markdown", kind=Kind.DOCS) if start < end else []
