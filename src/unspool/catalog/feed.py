"""Change feed of a project: derived indexes read it to catch up."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa

from unspool.catalog.schema import chunks, documents, embeddings, projects, removals, sequences
from unspool.catalog.statements import count_rows


class ChangedChunk(NamedTuple):
    """A chunk as derived indexes read it."""

    id: int
    document_id: int
    seq: int
    kind: str
    path: str
    title: str
    headings: str
    symbol: str
    text: str
    vector: bytes


class Position(NamedTuple):
    """Position of a derived index in the feed.

    The stamp distinguishes this sequence number from the same one of a restored backup.
    """

    seq: int
    stamp: int


def read_counters(connection: sa.Connection, project_id: int) -> tuple[int, int]:
    """Return a project's sequence number, and the one up to which removals are deleted.

    Both are 0 for a project that does not exist.
    """
    query = sa.select(projects.c.seq, projects.c.floor).where(projects.c.id == project_id)
    row = connection.execute(query).first()
    return (row[0], row[1]) if row else (0, 0)


def read_position(connection: sa.Connection, project_id: int, seq: int) -> Position:
    """Return a sequence number with its stamp: 0 for the beginning, -1 for an unknown one."""
    if seq == 0:
        return Position(0, 0)
    query = sa.select(sequences.c.stamp).where(
        sequences.c.project_id == project_id, sequences.c.seq == seq
    )
    stamp = connection.execute(query).scalar()
    return Position(seq, -1 if stamp is None else int(stamp))


def list_changes(
    connection: sa.Connection, project_id: int, *, space_id: int, after: tuple[int, int], limit: int
) -> list[ChangedChunk]:
    """Return the chunks changed after (seq, id), oldest first."""
    seq, id_ = after
    query = (
        sa.select(
            chunks.c.id,
            chunks.c.document_id,
            chunks.c.seq,
            documents.c.kind,
            documents.c.path,
            documents.c.title,
            chunks.c.headings,
            chunks.c.symbol,
            chunks.c.text,
            embeddings.c.vector,
        )
        .join(documents, documents.c.id == chunks.c.document_id)
        .join(
            embeddings,
            sa.and_(embeddings.c.text_sha == chunks.c.text_sha, embeddings.c.space_id == space_id),
        )
        .where(
            chunks.c.project_id == project_id,
            sa.or_(chunks.c.seq > seq, sa.and_(chunks.c.seq == seq, chunks.c.id > id_)),
        )
        .order_by(chunks.c.seq, chunks.c.id)
        .limit(limit)
    )
    return [ChangedChunk._make(row) for row in connection.execute(query).all()]


def list_removals(connection: sa.Connection, project_id: int, *, after: int) -> list[int]:
    """Return the ids of chunks deleted after a sequence number."""
    query = sa.select(removals.c.chunk_id).where(
        removals.c.project_id == project_id, removals.c.seq > after
    )
    return list(connection.execute(query).scalars())


def count_changes(connection: sa.Connection, project_id: int, *, after: int) -> int:
    """Count the chunks changed after a sequence number."""
    return count_rows(connection, chunks.c.project_id == project_id, chunks.c.seq > after)
