"""From a conversation to what the catalog stores of it: secrets masked, messages cut where they
are long, fingerprinted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from unspool import chunking
from unspool.domain.conversations import Conversation, Message, chained, fingerprint
from unspool.domain.documents import Kind, Lines, Piece
from unspool.domain.prepared import (
    PreparedChunk,
    PreparedConversation,
    PreparedMessage,
    text_fingerprint,
)
from unspool.domain.reports import Masked
from unspool.indexing.preparing import TokenCounter, limit_of, passage, recipe
from unspool.sources.reading import mask_metadata, mask_text, mask_value

MAX_TITLE = 300
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


def prepare(
    conversation: Conversation, *, start: int, counter: TokenCounter, chunk_tokens: int
) -> PreparedConversation:
    """A conversation from a message on, without vectors."""
    masked: list[Masked] = []
    said = [
        _message(one, number, conversation.id, counter, chunk_tokens, masked)
        for number, one in enumerate(conversation.messages[start:], start + 1)
    ]
    created, updated = _times(conversation)
    return PreparedConversation(
        path=conversation.id,
        sha256=whole_fingerprint(conversation, recipe(counter, chunk_tokens)),
        title=title_of(conversation),
        scenario_title=mask_value(conversation.scenario_title),
        url=mask_value(conversation.url),
        created_at=created,
        updated_at=updated,
        metadata=mask_metadata(conversation.metadata),
        recipe=recipe(counter, chunk_tokens),
        size_bytes=sum(
            len(message.text.encode("utf-8", "surrogatepass")) for message in conversation.messages
        ),
        follows="",
        start=start,
        messages=tuple(said),
        masked=tuple(masked),
    )


def title_of(conversation: Conversation) -> str:
    """The title as it is stored."""
    return mask_value(conversation.title)[:MAX_TITLE]


def whole_fingerprint(conversation: Conversation, recipe: str) -> str:
    """The same for the same conversation, cut in the same way."""
    head = (
        conversation.title,
        conversation.scenario_title,
        conversation.url,
        str(conversation.created_at),
        sorted(conversation.metadata.items()),
    )
    beginning = hashlib.sha256(repr((recipe, *head)).encode("utf-8", "surrogatepass")).hexdigest()
    return chained(beginning, map(fingerprint, conversation.messages))


def day(moment: datetime) -> str:
    """A day as people write and ask for it."""
    return f"{_DAYS[moment.weekday()]}, {moment.day} {_MONTHS[moment.month - 1]} {moment.year}"


def passages(prepared: Sequence[PreparedConversation]) -> dict[bytes, str]:
    """What is embedded for conversations: each different text once, by its fingerprint."""
    return {
        chunk.text_sha: chunk.text
        for one in prepared
        for said in one.messages
        for chunk in said.chunks
    }


def _times(conversation: Conversation) -> tuple[datetime | None, datetime]:
    """When it began, if that is known, and when it was last spoken in: now, where nothing says
    so.
    """
    times = [message.at for message in conversation.messages if message.at is not None]
    created = conversation.created_at or min(times, default=None)
    return created, max(times, default=created or datetime.now(UTC))


def _message(
    message: Message,
    number: int,
    conversation: str,
    counter: TokenCounter,
    chunk_tokens: int,
    masked: list[Masked],
) -> PreparedMessage:
    text, found = mask_text(message.text, conversation)
    masked += (replace(one, line=number) for one in found)
    own = Message(
        text=text,
        author=mask_value(message.author),
        kind=message.kind,
        at=message.at,
        id=message.id,
    )
    return PreparedMessage(
        message=own, sha=fingerprint(message), chunks=tuple(_chunks(own, counter, chunk_tokens))
    )


def _chunks(message: Message, counter: TokenCounter, chunk_tokens: int) -> list[PreparedChunk]:
    """A message is one chunk, unless it is longer than a chunk may be."""
    text = message.text
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    if start >= end:
        return []
    headings = (day(message.at),) if message.at is not None else ()
    limit = limit_of(counter)
    tokens = counter.count_tokens(text[start:end]) if end - start <= 16 * limit else limit + 1
    cuts = (
        [(start, end, tokens)]
        if tokens <= limit
        else _cut(text, limit, min(chunk_tokens, limit), counter)
    )
    return [
        PreparedChunk(
            piece=Piece(
                start=a,
                end=b,
                lines=Lines(1, 1),
                token_count=count,
                headings=headings,
                symbol=message.speaker,
            ),
            text=text[a:b],
            text_sha=text_fingerprint(passage(Kind.CHAT, "", headings, message.speaker, text[a:b])),
        )
        for a, b, count in cuts
    ]


def _cut(text: str, limit: int, target: int, counter: TokenCounter) -> list[tuple[int, int, int]]:
    pieces = chunking.chunk(
        text,
        language="markdown",
        kind=Kind.DOCS,
        limit=limit,
        count=counter.count_tokens,
        target=target,
        ruler=getattr(counter, "ruler", None),
    )
    return [(piece.start, piece.end, piece.token_count) for piece in pieces]
