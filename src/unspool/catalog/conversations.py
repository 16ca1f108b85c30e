"""Conversations and their messages, read: whole, from their end, in lists.

A conversation is a document whose chunks are its messages, so everything about documents and chunks
applies to it too. Its messages are also stored unchanged. A chunk's line is the number of its
message. Each function is part of the caller's transaction; `conversation_content.py` writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from unspool.catalog.projects import ProjectRow, hash_name
from unspool.catalog.schema import chunks, conversations, documents, messages, projects
from unspool.catalog.statements import ChunkQuery, IdsByProject, count_rows, split_batches
from unspool.domain.conversations import AuthorKind, Conversation, ConversationRecord, Message
from unspool.domain.documents import Kind, moment
from unspool.domain.prepared import PreparedConversation, PreparedMessage
from unspool.domain.queries import Said
from unspool.errors import ConflictError

_SPEAKER_LENGTH = 200
_HEADS = sa.select(
    documents.c.path,
    documents.c.id,
    documents.c.sha256,
    documents.c.title,
    documents.c.recipe,
    conversations.c.message_count,
    documents.c.chunk_count,
    documents.c.modified_ns,
).join(conversations, conversations.c.document_id == documents.c.id, isouter=True)
# A literal: a bound value would have to be given with every call.
_ONE: sa.ColumnElement[int] = sa.literal_column("1")
_ADJACENT = ChunkQuery(
    sa.select(
        chunks.c.id,
        messages.c.number,
        messages.c.author,
        messages.c.kind,
        messages.c.at_ns,
        messages.c.text,
    ).join_from(
        chunks,
        messages,
        sa.and_(
            messages.c.document_id == chunks.c.document_id,
            messages.c.number >= chunks.c.first_line - _ONE,
            messages.c.number <= chunks.c.first_line + _ONE,
        ),
    ),
    chunks,
)
_SELECT = (
    sa.select(
        projects.c.name.label("project"),
        documents.c.path,
        documents.c.metadata,
        documents.c.modified_ns,
        conversations.c.document_id,
        documents.c.title,
        conversations.c.scenario_title,
        conversations.c.url,
        conversations.c.created_at,
        conversations.c.message_count,
    )
    .join_from(conversations, documents, documents.c.id == conversations.c.document_id)
    .join(projects, projects.c.id == documents.c.project_id)
)


class Head(NamedTuple):
    """Properties of a stored conversation that saving it needs."""

    document_id: int
    sha256: str
    title: str
    recipe: str
    messages: int
    chunks: int
    updated_ns: int


def load_heads(connection: sa.Connection, project_id: int, ids: Iterable[str]) -> dict[str, Head]:
    """Return the stored conversations among these, by id.

    A document with the id of a conversation is a conflict.
    """
    heads: dict[str, Head] = {}
    for batch in split_batches(ids):
        query = _HEADS.where(
            documents.c.project_id == project_id,
            documents.c.path_sha.in_([hash_name(id_) for id_ in batch]),
        )
        for row in connection.execute(query).all():
            if row.message_count is None:
                raise ConflictError(
                    f"{row.path!r} is a document of this project, not a conversation; give the "
                    f"conversation another id"
                )
            heads[row.path] = Head._make(row[1:])
    return heads


def find_document_id(connection: sa.Connection, project_id: int, id_: str) -> int | None:
    """Return the document id of a conversation; None if it does not exist."""
    row = connection.execute(_select_conversation(project_id, id_)).first()
    return None if row is None else int(row.document_id)


def load_fingerprints(connection: sa.Connection, document_id: int) -> list[bytes]:
    """Return the fingerprints of a conversation's messages, in order."""
    query = (
        sa.select(messages.c.sha)
        .where(messages.c.document_id == document_id)
        .order_by(messages.c.number)
    )
    return [bytes(row[0]) for row in connection.execute(query)]


def select_new_messages(
    connection: sa.Connection, head: Head, conversation: PreparedConversation
) -> tuple[PreparedMessage, ...]:
    """Return the messages whose ids the stored conversation does not contain.

    A different message with a stored id is a conflict. Without ids nothing is read.
    """
    ids = (message.message.id for message in conversation.messages if message.message.id)
    known: dict[str, bytes] = {}
    for batch in split_batches(ids):
        query = sa.select(messages.c.name, messages.c.sha).where(
            messages.c.document_id == head.document_id, messages.c.name.in_(batch)
        )
        known.update((name, bytes(sha)) for name, sha in connection.execute(query))
    for prepared in conversation.messages:
        if known.get(prepared.message.id, prepared.sha) != prepared.sha:
            raise ConflictError(
                f"conversation {conversation.path!r} has another message with the id "
                f"{prepared.message.id[:80]!r}; give the new one another id, or none"
            )
    return tuple(one for one in conversation.messages if one.message.id not in known)


def count_common_prefix(stored: Sequence[bytes], given: Sequence[bytes]) -> int:
    """Count the messages at the beginning that are equal."""
    for number, (one, other) in enumerate(zip(stored, given, strict=False)):
        if one != other:
            return number
    return min(len(stored), len(given))


def normalize_speaker(name: str) -> str:
    """Return a speaker's name in the form that is compared."""
    return name.casefold()[:_SPEAKER_LENGTH]


def load_conversation(
    connection: sa.Connection, project: ProjectRow, id_: str, *, last: int | None = None
) -> Conversation | None:
    """Return a conversation with all of its messages, or only the last few."""
    row = connection.execute(_select_conversation(project.id, id_)).first()
    if row is None:
        return None
    query = sa.select(messages).where(messages.c.document_id == row.document_id)
    if last is not None:
        query = query.where(messages.c.number > row.message_count - last)
    return Conversation(
        id=row.path,
        project=project.name,
        title=row.title,
        scenario_title=row.scenario_title,
        url=row.url,
        created_at=row.created_at,
        metadata=row.metadata,
        messages=[
            Message(
                text=message.text,
                author=message.author,
                kind=AuthorKind(message.kind),
                at=moment(message.at_ns),
                id=message.name,
            )
            for message in connection.execute(query.order_by(messages.c.number))
        ],
    )


def list_conversations(
    connection: sa.Connection, project_ids: Sequence[int], *, skip: int, limit: int
) -> list[ConversationRecord]:
    """Return conversations, newest first."""
    query = _SELECT.where(conversations.c.project_id.in_(project_ids))
    query = query.order_by(conversations.c.created_at.desc(), conversations.c.document_id.desc())
    return [
        ConversationRecord(
            project=row.project,
            id=row.path,
            title=row.title,
            scenario_title=row.scenario_title,
            url=row.url,
            created_at=row.created_at,
            updated_at=moment(row.modified_ns) or row.created_at,
            messages=row.message_count,
            metadata=row.metadata,
        )
        for row in connection.execute(query.offset(skip).limit(limit))
    ]


def count_conversations(connection: sa.Connection, project_ids: Sequence[int]) -> int:
    """Count the conversations of projects."""
    return count_rows(connection, conversations.c.project_id.in_(project_ids))


def find_unknown(
    connection: sa.Connection,
    project_ids: Sequence[int],
    ids: Iterable[str],
    speakers: Iterable[str],
) -> tuple[list[str], list[str]]:
    """Return those of the conversations and speakers that the projects do not contain."""
    is_inside = documents.c.project_id.in_(project_ids)
    chats = sa.select(documents.c.id).where(is_inside, documents.c.kind == Kind.CHAT)
    said = sa.select(messages.c.number).join(documents, documents.c.id == messages.c.document_id)

    def is_missing(query: sa.Select[Any], *conditions: sa.ColumnElement[bool]) -> bool:
        return connection.execute(query.where(*conditions).limit(1)).first() is None

    def is_silent(speaker: str) -> bool:
        name = normalize_speaker(speaker)
        is_speaker = sa.or_(messages.c.speaker == name, messages.c.kind == name)
        return is_missing(said, is_inside, is_speaker)

    return (
        [id_ for id_ in ids if is_missing(chats, documents.c.path_sha == hash_name(id_))],
        [speaker for speaker in dict.fromkeys(speakers) if is_silent(speaker)],
    )


def load_adjacent_messages(connection: sa.Connection, ids: IdsByProject) -> dict[int, list[Said]]:
    """Return the message of each chunk with its neighbours, in order."""
    found: dict[int, list[Said]] = {}
    rows = sorted(_ADJACENT.fetch(connection, ids), key=lambda row: row[:2])
    for id_, number, author, kind, at_ns, text in rows:
        speaker = author or kind
        found.setdefault(id_, []).append(
            Said(number=number, speaker=speaker, kind=AuthorKind(kind), at=moment(at_ns), text=text)
        )
    return found


def _select_conversation(project_id: int, id_: str) -> sa.Select[Any]:
    return _SELECT.where(
        documents.c.project_id == project_id, documents.c.path_sha == hash_name(id_)
    )
