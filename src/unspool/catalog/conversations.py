"""Conversations and their messages: written from a message on, read whole or from their end,
listed. Each function is part of a caller's transaction.

A conversation is a document whose chunks are its messages: what is said of documents, chunks and
what is derived from them holds for it, too. Beside that its messages are kept as they were said. A
chunk's line is the number of its message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unspool.catalog import documents as writing
from unspool.catalog.documents import CHUNK_COLUMNS, Changes, NewChunk
from unspool.catalog.projects import ProjectRow, name_sha, next_seq
from unspool.catalog.schema import (
    chunks,
    conversations,
    document_fields,
    documents,
    messages,
    projects,
    removals,
)
from unspool.catalog.statements import ByIds, batches, insert_many
from unspool.domain.conversations import (
    AuthorKind,
    Conversation,
    ConversationRecord,
    Message,
    chained,
)
from unspool.domain.documents import Kind, Lines, Origin, Status, chunk_id, moment, nanoseconds
from unspool.domain.prepared import PreparedChunk, PreparedConversation, PreparedMessage
from unspool.domain.queries import Said
from unspool.errors import ConflictError

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
_SPEAKER_LENGTH = 200
NO_CHANGES = Changes()


class Head(NamedTuple):
    """What saving a conversation needs to know of the one that is stored."""

    document_id: int
    sha256: str
    title: str
    recipe: str
    messages: int
    chunks: int
    updated_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a transaction wrote."""

    messages: int = 0  # that are new or another than the one in their place was
    chunks: int = 0
    embedded: int = 0
    changes: Changes = NO_CHANGES


def heads(connection: Connection, project_id: int, ids: Iterable[str]) -> dict[str, Head]:
    """The stored conversations among these, by id.

    A document of the same name that is none is a conflict.
    """
    found: dict[str, Head] = {}
    query = (
        sa.select(
            documents.c.path,
            documents.c.id,
            documents.c.sha256,
            documents.c.title,
            documents.c.recipe,
            conversations.c.message_count,
            documents.c.chunk_count,
            documents.c.modified_ns,
        )
        .join(conversations, conversations.c.document_id == documents.c.id, isouter=True)
        .where(documents.c.project_id == project_id)
    )
    for some in batches(ids):
        for row in connection.execute(
            query.where(documents.c.path_sha.in_([name_sha(id_) for id_ in some]))
        ):
            if row.message_count is None:
                raise ConflictError(
                    f"{row.path!r} is a document of this project, not a conversation; give the "
                    f"conversation another id"
                )
            found[row.path] = Head._make(row[1:])
    return found


def document_id(connection: Connection, project_id: int, id_: str) -> int | None:
    """What a conversation has its rows under; None where there is none of that id."""
    row = connection.execute(_one(project_id, id_)).first()
    return None if row is None else int(row.document_id)


def fingerprints(connection: Connection, document_id: int) -> list[bytes]:
    """The fingerprints of a conversation's messages, in order."""
    query = (
        sa.select(messages.c.sha)
        .where(messages.c.document_id == document_id)
        .order_by(messages.c.number)
    )
    return [bytes(row[0]) for row in connection.execute(query)]


def news(
    connection: Connection, head: Head, one: PreparedConversation
) -> tuple[PreparedMessage, ...]:
    """The messages that a conversation has not yet, by their names; one that has the name of
    another is a conflict. Without names nothing is read.
    """
    known: dict[str, bytes] = {}
    for some in batches(said.message.id for said in one.messages if said.message.id):
        query = sa.select(messages.c.name, messages.c.sha).where(
            messages.c.document_id == head.document_id, messages.c.name.in_(some)
        )
        known.update((name, bytes(sha)) for name, sha in connection.execute(query))
    for said in one.messages:
        if known.get(said.message.id, said.sha) != said.sha:
            raise ConflictError(
                f"conversation {one.path!r} has another message with the id "
                f"{said.message.id[:80]!r}; give the new one another id, or none"
            )
    return tuple(said for said in one.messages if said.message.id not in known)


def kept(stored: Sequence[bytes], given: Sequence[bytes]) -> int:
    """How many messages, from the first on, are the same."""
    for number, (one, other) in enumerate(zip(stored, given, strict=False)):
        if one != other:
            return number
    return min(len(stored), len(given))


def write(
    connection: Connection,
    project: ProjectRow,
    prepared: Sequence[PreparedConversation],
    known: Mapping[str, Head],
    vectors: Mapping[bytes, bytes],
    *,
    space_id: int,
    feeds: bool,
    appends: bool = False,
) -> Written:
    """Store conversations from the messages on that they were prepared from; all of the messages
    behind those are replaced. `known`, the heads of those that exist.

    With `appends` the messages come behind whatever is stored, and the rest of the conversation
    stays as it is.
    """
    seq = next_seq(connection, project.id, feeds=feeds)
    held, _ = writing.ensure_documents(connection, project.id, [one.path for one in prepared])
    gone: list[int] = []
    chunk_rows: list[tuple[Any, ...]] = []
    message_rows: list[tuple[Any, ...]] = []
    added: list[NewChunk] = []
    new = 0
    for one in prepared:
        id_, head = held[one.path], known.get(one.path)
        start, position, old, said_before = _cleared(connection, head, one, appends=appends)
        title = head.title if appends and head is not None else one.title
        made = list(
            _chunk_rows(project, one, title, id_, seq, start=start, position=position, old=old)
        )
        gone += old.keys() - {row[0] for row, _ in made}
        if not feeds:
            added += (
                writing.new_chunk(row[0], id_, chunk, kind=Kind.CHAT, path=one.path, title=title)
                for row, chunk in made
                if row[0] not in old
            )
        chunk_rows += (row for row, _ in made)
        message_rows += (
            _message_row(id_, number, said) for number, said in enumerate(one.messages, start + 1)
        )
        new += sum(
            said_before.get(number) != said.sha
            for number, said in enumerate(one.messages, start + 1)
        )
        count, total = start + len(one.messages), position + len(made)
        _store_head(
            connection,
            project.id,
            id_,
            one,
            head,
            count=count,
            chunk_count=total,
            seq=seq,
            appends=appends,
        )
    if feeds:
        insert_many(
            connection,
            removals,
            ("project_id", "seq", "chunk_id"),
            [(project.id, seq, id_) for id_ in sorted(gone)],
        )
    insert_many(connection, chunks, CHUNK_COLUMNS, chunk_rows)
    insert_many(connection, messages, _MESSAGE_COLUMNS, message_rows)
    wanted = {chunk.text_sha for one in prepared for said in one.messages for chunk in said.chunks}
    embedded = writing.store_vectors(connection, wanted, vectors, space_id)
    changes = Changes(added=added, removed=sorted(gone), vectors=vectors)
    return Written(messages=new, chunks=len(chunk_rows), embedded=embedded, changes=changes)


class _Cleared(NamedTuple):
    """How many messages and chunks stay, and what went."""

    messages: int = 0
    chunks: int = 0
    old: Mapping[int, int] = MappingProxyType({})  # the id of a chunk -> its seq
    said: Mapping[int, bytes] = MappingProxyType({})  # the number of a message -> its fingerprint


def _cleared(
    connection: Connection, head: Head | None, one: PreparedConversation, *, appends: bool
) -> _Cleared:
    """Remove what is replaced."""
    if head is None:
        return _Cleared()
    if appends or one.start == head.messages:
        return _Cleared(head.messages, head.chunks)
    behind = sa.and_(chunks.c.document_id == head.document_id, chunks.c.first_line > one.start)
    old = {
        row[0]: row[1]
        for row in connection.execute(
            sa.delete(chunks).where(behind).returning(chunks.c.id, chunks.c.seq)
        )
    }
    gone = sa.delete(messages).where(
        messages.c.document_id == head.document_id, messages.c.number > one.start
    )
    said = {
        row[0]: bytes(row[1])
        for row in connection.execute(gone.returning(messages.c.number, messages.c.sha))
    }
    return _Cleared(one.start, head.chunks - len(old), old, said)


def _chunk_rows(
    project: ProjectRow,
    one: PreparedConversation,
    title: str,
    document_id: int,
    seq: int,
    *,
    start: int,
    position: int,
    old: Mapping[int, int],
) -> Iterator[tuple[tuple[Any, ...], PreparedChunk]]:
    """The rows of chunks.

    Their ids depend on everything they are found by, and on their place: messages hardly ever move.
    """
    for number, said in enumerate(one.messages, start + 1):
        for prepared in said.chunks:
            chunk = prepared._replace(piece=prepared.piece._replace(lines=Lines(number, number)))
            found_by = "\n".join(
                (title, "\n".join(chunk.piece.headings), chunk.piece.symbol)
            ).encode("utf-8", "surrogatepass")
            id_ = chunk_id(
                project.name, one.path, hashlib.sha256(chunk.text_sha + found_by).digest(), position
            )
            yield (
                writing.chunk_row(chunk, id_, project.id, document_id, position, old.get(id_, seq)),
                chunk,
            )
            position += 1


def _message_row(document_id: int, number: int, said: PreparedMessage) -> tuple[Any, ...]:
    message = said.message
    return (
        document_id,
        number,
        message.id,
        message.author,
        speaker_key(message.speaker),
        message.kind.value,
        None if message.at is None else nanoseconds(message.at),
        said.sha,
        message.text,
    )


def speaker_key(name: str) -> str:
    """A speaker's name as it is compared."""
    return name.casefold()[:_SPEAKER_LENGTH]


def _store_head(
    connection: Connection,
    project_id: int,
    document_id: int,
    one: PreparedConversation,
    head: Head | None,
    *,
    count: int,
    chunk_count: int,
    seq: int,
    appends: bool,
) -> None:
    """The conversation's own rows. What is appended leaves the title and all that alone."""
    updated = nanoseconds(one.updated_at)
    values: dict[str, Any] = {
        "modified_ns": max(updated, head.updated_ns) if appends and head is not None else updated,
        "indexed_at": datetime.now(UTC),
        "chunk_count": chunk_count,
        "sha256": one.sha256
        if head is None or not appends
        else chained(head.sha256, (said.sha for said in one.messages)),
        "status": Status.INDEXED,
        "error": "",
        "run_id": None,
        "version": sa.case((documents.c.version >= seq, documents.c.version + 1), else_=seq),
        "size_bytes": one.size_bytes
        + (documents.c.size_bytes if appends and head is not None else 0),
    }
    if appends and head is not None:
        connection.execute(
            sa.update(documents).where(documents.c.id == document_id).values(**values)
        )
        connection.execute(
            sa.update(conversations)
            .where(conversations.c.document_id == document_id)
            .values(message_count=count)
        )
        return
    values |= {
        "title": one.title,
        "language": "",
        "kind": Kind.CHAT,
        "origin": Origin.TEXT,
        "recipe": one.recipe,
        "metadata": dict(one.metadata),
    }
    connection.execute(sa.update(documents).where(documents.c.id == document_id).values(**values))
    own: dict[str, Any] = {
        "scenario_title": one.scenario_title,
        "url": one.url,
        "message_count": count,
    }
    # where nothing says when it began, that stays the time of its first save
    if one.created_at is not None or head is None:
        own["created_at"] = one.created_at or one.updated_at
    if head is None:
        connection.execute(
            sa.insert(conversations).values(document_id=document_id, project_id=project_id, **own)
        )
    else:
        connection.execute(
            sa.update(conversations).where(conversations.c.document_id == document_id).values(**own)
        )
        connection.execute(
            sa.delete(document_fields).where(document_fields.c.document_id == document_id)
        )
    writing.store_fields(connection, {document_id: one.metadata})


# Reading


def get(
    connection: Connection, project: ProjectRow, id_: str, *, last: int | None = None
) -> Conversation | None:
    """A conversation with all of its messages, or only the last few."""
    row = connection.execute(_one(project.id, id_)).first()
    if row is None:
        return None
    query = sa.select(messages).where(messages.c.document_id == row.document_id)
    if last is not None:
        query = query.where(messages.c.number > row.message_count - last)
    said = [_message(one) for one in connection.execute(query.order_by(messages.c.number))]
    return Conversation(
        id=row.path,
        project=project.name,
        title=row.title,
        scenario_title=row.scenario_title,
        url=row.url,
        created_at=row.created_at,
        metadata=row.metadata,
        messages=said,
    )


def records(
    connection: Connection, project_ids: Sequence[int], *, skip: int, limit: int
) -> list[ConversationRecord]:
    """Conversations, the newest first."""
    query = _SELECT.where(conversations.c.project_id.in_(project_ids))
    order = (conversations.c.created_at.desc(), conversations.c.document_id.desc())
    return [
        _record(row) for row in connection.execute(query.order_by(*order).offset(skip).limit(limit))
    ]


def count(connection: Connection, project_ids: Sequence[int]) -> int:
    """How many conversations there are."""
    query = (
        sa.select(sa.func.count())
        .select_from(conversations)
        .where(conversations.c.project_id.in_(project_ids))
    )
    return int(connection.execute(query).scalar_one())


def unknown(
    connection: Connection, project_ids: Sequence[int], ids: Iterable[str], speakers: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Which of these conversations and speakers there are not in the projects."""
    inside = documents.c.project_id.in_(project_ids)

    def has(condition: sa.ColumnElement[bool]) -> bool:
        said = sa.select(messages.c.number).join(
            documents, documents.c.id == messages.c.document_id
        )
        return connection.execute(said.where(inside, condition).limit(1)).first() is not None

    def known(id_: str) -> bool:
        query = sa.select(documents.c.id).where(
            inside, documents.c.kind == Kind.CHAT, documents.c.path_sha == name_sha(id_)
        )
        return connection.execute(query.limit(1)).first() is not None

    names = {one: speaker_key(one) for one in speakers}
    return (
        [id_ for id_ in ids if not known(id_)],
        [
            one
            for one, name in names.items()
            if not has(sa.or_(messages.c.speaker == name, messages.c.kind == name))
        ],
    )


def around(connection: Connection, chunk_ids: Sequence[int]) -> dict[int, list[Said]]:
    """The message of each chunk and those right before and after it, in order."""
    found: dict[int, list[Said]] = {}
    for id_, number, author, kind, at_ns, text in sorted(
        _AROUND.rows(connection, chunk_ids), key=lambda row: row[:2]
    ):
        speaker = author or kind
        found.setdefault(id_, []).append(
            Said(number=number, speaker=speaker, kind=AuthorKind(kind), at=moment(at_ns), text=text)
        )
    return found


# a value would have to be given with every call
_ONE: sa.ColumnElement[int] = sa.literal_column("1")
_AROUND = ByIds(
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
    chunks.c.id,
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


def _one(project_id: int, id_: str) -> sa.Select[Any]:
    return _SELECT.where(
        documents.c.project_id == project_id, documents.c.path_sha == name_sha(id_)
    )


def _record(row: Any) -> ConversationRecord:
    return ConversationRecord(
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


def _message(row: Any) -> Message:
    return Message(
        text=row.text,
        author=row.author,
        kind=AuthorKind(row.kind),
        at=moment(row.at_ns),
        id=row.name,
    )
