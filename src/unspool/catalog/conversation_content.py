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
from unspool.catalog.content import Changes, NewChunk
from unspool.catalog.conversations import Head, normalize_speaker
from unspool.catalog.documents import ensure_documents
from unspool.catalog.projects import ProjectRow, advance_seq
from unspool.catalog.schema import chunks, conversations, document_fields, documents, messages
from unspool.catalog.spaces import store_embeddings
from unspool.catalog.statements import insert_many
from unspool.domain.conversations import chained
from unspool.domain.documents import Kind, Lines, Origin, Status, chunk_id, nanoseconds
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
    """Counts and changes of a transaction."""

    messages: int = 0  # that are new, or differ from the one in their place
    chunks: int = 0
    embedded: int = 0
    changes: Changes = field(default_factory=Changes)


class _Remainder(NamedTuple):
    """Numbers of messages and chunks that stay, and the deleted ones."""

    messages: int = 0
    chunks: int = 0
    old_chunks: Mapping[int, int] = MappingProxyType({})  # id -> seq
    old_messages: Mapping[int, bytes] = MappingProxyType({})  # number -> fingerprint


@dataclass(slots=True)
class _Rows:
    """Rows to insert, and the changes that they make."""

    chunks: list[tuple[Any, ...]] = field(default_factory=list)
    messages: list[tuple[Any, ...]] = field(default_factory=list)
    added: list[NewChunk] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    new_messages: int = 0

    def collect(
        self,
        project: ProjectRow,
        document_id: int,
        conversation: PreparedConversation,
        title: str,
        seq: int,
        remainder: _Remainder,
        *,
        log_changes: bool,
    ) -> int:
        """Add the rows of a conversation and return the number of its chunks."""
        old = remainder.old_chunks
        made = list(_build_chunk_rows(project, document_id, conversation, title, seq, remainder))
        self.chunks += (row for row, _ in made)
        self.removed += old.keys() - {row[0] for row, _ in made}
        if not log_changes:
            self.added += content.select_new_chunks(
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
    heads: Mapping[str, Head],
    vectors: Mapping[bytes, bytes],
    *,
    space_id: int,
    log_changes: bool,
    append: bool = False,
) -> StoredConversations:
    """Replace the messages of conversations from their prepared start on.

    `heads` are those of the conversations that exist. `append` adds the messages behind all stored
    ones and changes nothing else. `log_changes` is for derived indexes that catch up.
    """
    seq = advance_seq(connection, project.id, log_changes=log_changes)
    ids, _ = ensure_documents(connection, project.id, [one.path for one in prepared])
    rows = _Rows()
    for conversation in prepared:
        id_, head = ids[conversation.path], heads.get(conversation.path)
        remainder = _delete_tail(connection, head, conversation, append=append)
        title = head.title if append and head is not None else conversation.title
        chunk_count = remainder.chunks + rows.collect(
            project, id_, conversation, title, seq, remainder, log_changes=log_changes
        )
        message_count = remainder.messages + len(conversation.messages)
        update = _update_counts if append and head is not None else _update_head
        update(connection, project.id, id_, conversation, head, seq, message_count, chunk_count)
    if log_changes:
        content.log_removals(connection, project.id, seq, sorted(rows.removed))
    insert_many(connection, chunks, content.CHUNK_COLUMNS, rows.chunks)
    insert_many(connection, messages, _MESSAGE_COLUMNS, rows.messages)
    shas = {row[content.CHUNK_COLUMNS.index("text_sha")] for row in rows.chunks}
    embedded = store_embeddings(connection, shas, vectors, space_id)
    return StoredConversations(
        messages=rows.new_messages,
        chunks=len(rows.chunks),
        embedded=embedded,
        changes=Changes(added=rows.added, removed=sorted(rows.removed), vectors=vectors),
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
        .returning(chunks.c.id, chunks.c.seq)
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
    seq: int,
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
            row_seq = remainder.old_chunks.get(id_, seq)
            row = content.build_chunk_row(chunk, id_, project.id, document_id, position, row_seq)
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
    seq: int,
    message_count: int,
    chunk_count: int,
) -> None:
    """Update a conversation that got more messages. Its title and metadata stay."""
    assert head is not None
    _update_document(
        connection,
        document_id,
        seq,
        chunk_count=chunk_count,
        modified_ns=max(nanoseconds(conversation.updated_at), head.updated_ns),
        sha256=chained(head.sha256, (message.sha for message in conversation.messages)),
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
    seq: int,
    message_count: int,
    chunk_count: int,
) -> None:
    """Store all properties of a conversation."""
    _update_document(
        connection,
        document_id,
        seq,
        chunk_count=chunk_count,
        modified_ns=nanoseconds(conversation.updated_at),
        sha256=conversation.sha256,
        size_bytes=conversation.size_bytes,
        title=conversation.title,
        language="",
        kind=Kind.CHAT,
        origin=Origin.TEXT,
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


def _update_document(connection: sa.Connection, document_id: int, seq: int, **values: Any) -> None:
    version = sa.case((documents.c.version >= seq, documents.c.version + 1), else_=seq)
    connection.execute(
        sa.update(documents)
        .where(documents.c.id == document_id)
        .values(
            **values,
            version=version,
            indexed_at=datetime.now(UTC),
            status=Status.INDEXED,
            error="",
            run_id=None,
        )
    )
