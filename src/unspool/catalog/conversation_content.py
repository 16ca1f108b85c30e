"""Conversations, written from a message on. Each function is part of the caller's transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unspool.catalog import content
from unspool.catalog.content import Changes, NewChunk
from unspool.catalog.conversations import Head, normalize_speaker
from unspool.catalog.documents import ensure_documents
from unspool.catalog.embeddings import store_embeddings
from unspool.catalog.projects import ProjectRow, advance_seq
from unspool.catalog.schema import chunks, conversations, document_fields, documents, messages
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


class _WriteTarget(NamedTuple):
    """Conversation that is written, and how."""

    project: ProjectRow
    document_id: int
    head: Head | None
    seq: int
    is_append: bool
    log_changes: bool


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


def store_conversations(
    connection: Connection,
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
        head = heads.get(conversation.path)
        target = _WriteTarget(
            project=project,
            document_id=ids[conversation.path],
            head=head,
            seq=seq,
            is_append=append and head is not None,
            log_changes=log_changes,
        )
        _replace_messages(connection, target, conversation, rows)
    rows.removed.sort()
    if log_changes:
        content.log_removals(connection, project.id, seq, rows.removed)
    insert_many(connection, chunks, content.CHUNK_COLUMNS, rows.chunks)
    insert_many(connection, messages, _MESSAGE_COLUMNS, rows.messages)
    shas = {
        chunk.text_sha
        for conversation in prepared
        for message in conversation.messages
        for chunk in message.chunks
    }
    embedded = store_embeddings(connection, shas, vectors, space_id)
    return StoredConversations(
        messages=rows.new_messages,
        chunks=len(rows.chunks),
        embedded=embedded,
        changes=Changes(added=rows.added, removed=rows.removed, vectors=vectors),
    )


def _replace_messages(
    connection: Connection, target: _WriteTarget, conversation: PreparedConversation, rows: _Rows
) -> None:
    """Delete the messages that are replaced, update the head, and collect the new rows."""
    remainder = _delete_tail(connection, target, conversation)
    start, old = remainder.messages, remainder.old_chunks
    title = target.head.title if target.is_append and target.head else conversation.title
    made = list(_build_chunk_rows(target, conversation, title, remainder))
    rows.chunks += (row for row, _ in made)
    rows.removed += old.keys() - {row[0] for row, _ in made}
    if not target.log_changes:
        rows.added += content.select_new_chunks(
            made, old, kind=Kind.CHAT, path=conversation.path, title=title
        )
    for number, message in enumerate(conversation.messages, start + 1):
        rows.messages.append(_build_message_row(target.document_id, number, message))
        rows.new_messages += remainder.old_messages.get(number) != message.sha
    message_count = start + len(conversation.messages)
    chunk_count = remainder.chunks + len(made)
    if target.is_append:
        _update_appended(connection, target, conversation, message_count, chunk_count)
    else:
        _update_head(connection, target, conversation, message_count, chunk_count)


def _delete_tail(
    connection: Connection, target: _WriteTarget, conversation: PreparedConversation
) -> _Remainder:
    """Delete the messages that are replaced."""
    head, start = target.head, conversation.start
    if head is None:
        return _Remainder()
    if target.is_append or start == head.messages:
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
    target: _WriteTarget, conversation: PreparedConversation, title: str, remainder: _Remainder
) -> Iterator[tuple[tuple[Any, ...], PreparedChunk]]:
    """Yield rows of chunks.

    Their ids depend on all searchable text and on their position: messages hardly ever move.
    """
    project, position = target.project, remainder.chunks
    for number, message in enumerate(conversation.messages, remainder.messages + 1):
        for prepared in message.chunks:
            chunk = prepared._replace(piece=prepared.piece._replace(lines=Lines(number, number)))
            found_by = "\n".join(
                (title, "\n".join(chunk.piece.headings), chunk.piece.symbol)
            ).encode("utf-8", "surrogatepass")
            sha = hashlib.sha256(chunk.text_sha + found_by).digest()
            id_ = chunk_id(project.name, conversation.path, sha, position)
            seq = remainder.old_chunks.get(id_, target.seq)
            yield (
                content.build_chunk_row(chunk, id_, project.id, target.document_id, position, seq),
                chunk,
            )
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


def _update_appended(
    connection: Connection,
    target: _WriteTarget,
    conversation: PreparedConversation,
    message_count: int,
    chunk_count: int,
) -> None:
    """Update the counts of a conversation that got more messages."""
    assert target.head is not None
    head = target.head
    _update_document(
        connection,
        target,
        chunk_count=chunk_count,
        modified_ns=max(nanoseconds(conversation.updated_at), head.updated_ns),
        sha256=chained(head.sha256, (message.sha for message in conversation.messages)),
        size_bytes=conversation.size_bytes + documents.c.size_bytes,
    )
    connection.execute(
        sa.update(conversations)
        .where(conversations.c.document_id == target.document_id)
        .values(message_count=message_count)
    )


def _update_head(
    connection: Connection,
    target: _WriteTarget,
    conversation: PreparedConversation,
    message_count: int,
    chunk_count: int,
) -> None:
    """Store all properties of a conversation."""
    _update_document(
        connection,
        target,
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
    id_ = target.document_id
    values: dict[str, Any] = {
        "scenario_title": conversation.scenario_title,
        "url": conversation.url,
        "message_count": message_count,
    }
    # Without a given time, the time of the first save stays.
    if conversation.created_at is not None or target.head is None:
        values["created_at"] = conversation.created_at or conversation.updated_at
    if target.head is None:
        values |= {"document_id": id_, "project_id": target.project.id}
        connection.execute(sa.insert(conversations).values(**values))
    else:
        connection.execute(
            sa.update(conversations).where(conversations.c.document_id == id_).values(**values)
        )
        connection.execute(sa.delete(document_fields).where(document_fields.c.document_id == id_))
    content.insert_fields(connection, {id_: conversation.metadata})


def _update_document(connection: Connection, target: _WriteTarget, **values: Any) -> None:
    version = sa.case(
        (documents.c.version >= target.seq, documents.c.version + 1), else_=target.seq
    )
    connection.execute(
        sa.update(documents)
        .where(documents.c.id == target.document_id)
        .values(
            **values,
            version=version,
            indexed_at=datetime.now(UTC),
            status=Status.INDEXED,
            error="",
            run_id=None,
        )
    )
