"""Conversations, written from a message on. Each function is part of the caller's transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import sqlalchemy as sa

from unspool.catalog import content
from unspool.catalog.conversations import Head, normalize_speaker
from unspool.catalog.feed import Changes
from unspool.catalog.projects import ProjectRow
from unspool.catalog.schema import chunks, conversations, document_fields, documents, messages
from unspool.catalog.spaces import store_embeddings
from unspool.catalog.statements import insert_many
from unspool.domain.conversations import chain_fingerprints
from unspool.domain.documents import DocumentOrigin, Kind, Lines, Status, chunk_id, nanoseconds
from unspool.domain.prepared import PreparedChunk, PreparedConversation, PreparedMessage

_MESSAGE_COLUMNS = (
    "document_id",
    "number",
    "name",
    "author",
    "speaker",
    "kind",
    "at_ns",
    "sha",
    "text",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConversations:
    """Counts of a transaction."""

    messages: int = 0  # that are new, or differ from the one in their place
    chunks: int = 0
    embedded: int = 0


class _Remainder(NamedTuple):
    """Numbers of messages and chunks that stay, and the deleted ones."""

    messages: int = 0
    chunks: int = 0
    old_chunks: Mapping[int, int] = MappingProxyType({})  # id -> stamp
    old_messages: Mapping[int, bytes] = MappingProxyType({})  # number -> fingerprint


@dataclass(slots=True)
class _Rows:
    """Rows to insert."""

    chunks: list[tuple[Any, ...]] = field(default_factory=list)
    messages: list[tuple[Any, ...]] = field(default_factory=list)
    new_messages: int = 0

    def collect(
        self,
        project: ProjectRow,
        document_id: int,
        conversation: PreparedConversation,
        title: str,
        remainder: _Remainder,
        changes: Changes,
    ) -> int:
        """Add the rows of a conversation and return the number of its chunks."""
        old = remainder.old_chunks
        made = list(
            _build_chunk_rows(project, document_id, conversation, title, changes.stamp, remainder)
        )
        self.chunks += (row for row, _ in made)
        changes.removed += sorted(old.keys() - {row[0] for row, _ in made})
        changes.added += content.select_new_chunks(
            made, old, kind=Kind.CHAT, path=conversation.path, title=title
        )
        for number, message in enumerate(conversation.messages, remainder.messages + 1):
            self.messages.append(_build_message_row(document_id, number, message))
            self.new_messages += remainder.old_messages.get(number) != message.sha
        return len(made)


def store_conversations(
    connection: sa.Connection,
    project: ProjectRow,
    prepared: Sequence[PreparedConversation],
    ids: Mapping[str, int],
    heads: Mapping[str, Head],
    vectors: Mapping[bytes, bytes],
    changes: Changes,
    *,
    space_id: int,
    append: bool = False,
) -> StoredConversations:
    """Replace the messages of conversations from their prepared start on.

    `ids` are those of their documents, which the caller has locked. `heads` are those of the
    conversations that existed before. `append` adds the messages behind all stored
    ones and changes nothing else.
    """
    rows = _Rows()
    for conversation in prepared:
        id_, head = ids[conversation.path], heads.get(conversation.path)
        remainder = _delete_tail(connection, head, conversation, append=append)
        title = head.title if append and head is not None else conversation.title
        chunk_count = remainder.chunks + rows.collect(
            project, id_, conversation, title, remainder, changes
        )
        message_count = remainder.messages + len(conversation.messages)
        update = _update_counts if append and head is not None else _update_head
        update(connection, project.id, id_, conversation, head, message_count, chunk_count)
    changes.has_documents = True
    changes.vectors.update(vectors)
    insert_many(connection, chunks, content.CHUNK_COLUMNS, rows.chunks)
    insert_many(connection, messages, _MESSAGE_COLUMNS, rows.messages)
    shas = {row[content.CHUNK_COLUMNS.index("text_sha")] for row in rows.chunks}
    embedded = store_embeddings(connection, shas, vectors, space_id)
    return StoredConversations(
        messages=rows.new_messages, chunks=len(rows.chunks), embedded=embedded
    )


def _delete_tail(
    connection: sa.Connection,
    head: Head | None,
    conversation: PreparedConversation,
    *,
    append: bool,
) -> _Remainder:
    """Delete the messages that are replaced."""
    start = conversation.start
    if head is None:
        return _Remainder()
    if append or start == head.messages:
        return _Remainder(head.messages, head.chunks)
    chunk_rows = connection.execute(
        sa.delete(chunks)
        .where(chunks.c.document_id == head.document_id, chunks.c.first_line > start)
        .returning(chunks.c.id, chunks.c.stamp)
    )
    old_chunks = {row[0]: row[1] for row in chunk_rows}
    message_rows = connection.execute(
        sa.delete(messages)
        .where(messages.c.document_id == head.document_id, messages.c.number > start)
        .returning(messages.c.number, messages.c.sha)
    )
    old_messages = {row[0]: bytes(row[1]) for row in message_rows}
    return _Remainder(start, head.chunks - len(old_chunks), old_chunks, old_messages)


def _build_chunk_rows(
    project: ProjectRow,
    document_id: int,
    conversation: PreparedConversation,
    title: str,
    stamp: int,
    remainder: _Remainder,
) -> Iterator[tuple[tuple[Any, ...], PreparedChunk]]:
    """Yield rows of chunks.

    Their ids depend on all searchable text and on their position: messages hardly ever move.
    """
    position = remainder.chunks
    for number, message in enumerate(conversation.messages, remainder.messages + 1):
        for prepared in message.chunks:
            piece = prepared.piece._replace(lines=Lines(number, number))
            found_by = "\n".join((title, "\n".join(piece.headings), piece.symbol))
            sha = hashlib.sha256(prepared.text_sha + found_by.encode("utf-8", "surrogatepass"))
            id_ = chunk_id(project.name, conversation.path, sha.digest(), position)
            chunk = prepared._replace(piece=piece)
            own = remainder.old_chunks.get(id_, stamp)
            row = content.build_chunk_row(chunk, id_, project.id, document_id, position, own)
            yield row, chunk
            position += 1


def _build_message_row(document_id: int, number: int, prepared: PreparedMessage) -> tuple[Any, ...]:
    message = prepared.message
    return (
        document_id,
        number,
        message.id,
        message.author,
        normalize_speaker(message.speaker),
        message.kind.value,
        None if message.at is None else nanoseconds(message.at),
        prepared.sha,
        message.text,
    )


def _update_counts(
    connection: sa.Connection,
    project_id: int,
    document_id: int,
    conversation: PreparedConversation,
    head: Head | None,
    message_count: int,
    chunk_count: int,
) -> None:
    """Update a conversation that got more messages. Its title and metadata stay."""
    assert head is not None
    _update_document(
        connection,
        document_id,
        chunk_count=chunk_count,
        modified_ns=max(nanoseconds(conversation.updated_at), head.updated_ns),
        sha256=chain_fingerprints(head.sha256, (message.sha for message in conversation.messages)),
        size_bytes=conversation.size_bytes + documents.c.size_bytes,
    )
    connection.execute(
        sa.update(conversations)
        .where(conversations.c.document_id == document_id)
        .values(message_count=message_count)
    )


def _update_head(
    connection: sa.Connection,
    project_id: int,
    document_id: int,
    conversation: PreparedConversation,
    head: Head | None,
    message_count: int,
    chunk_count: int,
) -> None:
    """Store all properties of a conversation."""
    _update_document(
        connection,
        document_id,
        chunk_count=chunk_count,
        modified_ns=nanoseconds(conversation.updated_at),
        sha256=conversation.sha256,
        size_bytes=conversation.size_bytes,
        title=conversation.title,
        language="",
        kind=Kind.CHAT,
        origin=DocumentOrigin.TEXT,
        recipe=conversation.recipe,
        metadata=dict(conversation.metadata),
    )
    _store_conversation_row(connection, project_id, document_id, conversation, head, message_count)
    content.insert_fields(connection, {document_id: conversation.metadata})


def _store_conversation_row(
    connection: sa.Connection,
    project_id: int,
    document_id: int,
    conversation: PreparedConversation,
    head: Head | None,
    message_count: int,
) -> None:
    values: dict[str, Any] = {
        "scenario_title": conversation.scenario_title,
        "url": conversation.url,
        "message_count": message_count,
    }
    # Without a given time, the time of the first save stays.
    if conversation.created_at is not None or head is None:
        values["created_at"] = conversation.created_at or conversation.updated_at
    if head is None:
        values |= {"document_id": document_id, "project_id": project_id}
        connection.execute(sa.insert(conversations).values(**values))
        return
    is_own = conversations.c.document_id == document_id
    connection.execute(sa.update(conversations).where(is_own).values(**values))
    connection.execute(
        sa.delete(document_fields).where(document_fields.c.document_id == document_id)
    )


def _update_document(connection: sa.Connection, document_id: int, **values: Any) -> None:
    connection.execute(
        sa.update(documents)
        .where(documents.c.id == document_id)
        .values(
            **values,
            version=content.NEXT_VERSION,
            indexed_at=datetime.now(UTC),
            status=Status.INDEXED,
            error="",
            run_id=None,
        )
    )
