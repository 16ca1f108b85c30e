"""Documents and chunks, read: for pages, for ranking, and for what is derived to catch up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unspool.catalog.documents import batches
from unspool.catalog.projects import name_sha
from unspool.catalog.schema import chunks, documents, embeddings, projects, removals, sequences
from unspool.domain.documents import Chunk, DocumentRecord, Kind, Lines, Status, moment


class Candidate(NamedTuple):
    """What ranking needs to know of a chunk; its text stays in the database."""

    id: int
    document_id: int
    path: str
    symbol: str
    defines: str
    kind: str
    language: str
    first_line: int


class ChangedChunk(NamedTuple):
    """A chunk as what is derived takes it in."""

    id: int
    document_id: int
    seq: int
    path: str
    title: str
    headings: str
    symbol: str
    text: str
    vector: bytes


def candidates(connection: Connection, ids: Sequence[int]) -> dict[int, Candidate]:
    """The chunks that still exist, by id."""
    found: dict[int, Candidate] = {}
    for some in batches(ids):
        query = _CANDIDATES.where(chunks.c.id.in_(some))
        found.update((row[0], Candidate(*row)) for row in connection.execute(query).all())
    return found


_CANDIDATES = sa.select(
    chunks.c.id,
    chunks.c.document_id,
    documents.c.path,
    chunks.c.symbol,
    chunks.c.defines,
    documents.c.kind,
    documents.c.language,
    chunks.c.first_line,
).join(documents, documents.c.id == chunks.c.document_id)


def hydrate(connection: Connection, ids: Sequence[int]) -> dict[int, Chunk]:
    """Whole chunks by id; what is gone is left out."""
    found: dict[int, Chunk] = {}
    for some in batches(ids):
        for row in connection.execute(_HYDRATE.where(chunks.c.id.in_(some))):
            found[row.id] = _chunk(row)
    return found


_HYDRATE = (
    sa.select(
        chunks,
        projects.c.name.label("project"),
        documents.c.path,
        documents.c.title,
        documents.c.language,
        documents.c.kind,
        documents.c.modified_ns,
        documents.c.status,
        documents.c.metadata,
    )
    .join(documents, documents.c.id == chunks.c.document_id)
    .join(projects, projects.c.id == documents.c.project_id)
)


def _chunk(row: sa.Row[tuple[object, ...]]) -> Chunk:
    return Chunk(
        id=row.id,
        project=row.project,
        path=row.path,
        index=row.position,
        text=row.text,
        start=row.start_offset,
        end=row.end_offset,
        lines=Lines(row.first_line, row.last_line),
        token_count=row.token_count,
        title=row.title,
        headings=tuple(row.headings.split("\n")) if row.headings else (),
        level=row.level,
        symbol=row.symbol,
        defines=tuple(row.defines.split("\n")) if row.defines else (),
        language=row.language,
        kind=Kind(row.kind),
        modified=moment(row.modified_ns),
        status=Status(row.status),
        metadata=row.metadata,
    )


def chunk_at(connection: Connection, project_id: int, path: str, line: int) -> Chunk | None:
    """The chunk that holds a line of a document, or the nearest one before or after it."""
    query = _HYDRATE.where(documents.c.project_id == project_id, documents.c.path_sha == name_sha(path))
    distance = sa.case((chunks.c.first_line > line, chunks.c.first_line - line), (chunks.c.last_line < line, line - chunks.c.last_line), else_=0)
    row = connection.execute(query.order_by(distance, chunks.c.position).limit(1)).first()
    return _chunk(row) if row else None


def vector_of(connection: Connection, chunk_id: int, space_id: int) -> bytes | None:
    """The stored vector of a chunk."""
    query = sa.select(embeddings.c.vector).join(chunks, chunks.c.text_sha == embeddings.c.text_sha)
    return connection.execute(query.where(chunks.c.id == chunk_id, embeddings.c.space_id == space_id)).scalar()


def counters(connection: Connection, project_id: int) -> tuple[int, int]:
    """A project's sequence number and the one up to which removals are forgotten; (0, 0) for a project that is gone."""
    row = connection.execute(sa.select(projects.c.seq, projects.c.floor).where(projects.c.id == project_id)).first()
    return (row[0], row[1]) if row else (0, 0)


class Position(NamedTuple):
    """How far something derived has come. The stamp tells this sequence number from the same one of another history: a restored back-up's."""

    seq: int
    stamp: int


def position_at(connection: Connection, project_id: int, seq: int) -> Position:
    """A sequence number with its stamp; 0 for the beginning, -1 where it is not known (any more)."""
    if seq == 0:
        return Position(0, 0)
    found = connection.execute(sa.select(sequences.c.stamp).where(sequences.c.project_id == project_id, sequences.c.seq == seq)).scalar()
    return Position(seq, -1 if found is None else int(found))


def changed(connection: Connection, project_id: int, *, space_id: int, after: tuple[int, int], limit: int) -> list[ChangedChunk]:
    """Chunks changed after (seq, id), oldest first."""
    seq, id_ = after
    query = (
        sa.select(
            chunks.c.id,
            chunks.c.document_id,
            chunks.c.seq,
            documents.c.path,
            documents.c.title,
            chunks.c.headings,
            chunks.c.symbol,
            chunks.c.text,
            embeddings.c.vector,
        )
        .join(documents, documents.c.id == chunks.c.document_id)
        .join(embeddings, sa.and_(embeddings.c.text_sha == chunks.c.text_sha, embeddings.c.space_id == space_id))
        .where(chunks.c.project_id == project_id, sa.or_(chunks.c.seq > seq, sa.and_(chunks.c.seq == seq, chunks.c.id > id_)))
        .order_by(chunks.c.seq, chunks.c.id)
        .limit(limit)
    )
    return [ChangedChunk(*row) for row in connection.execute(query).all()]


def removed(connection: Connection, project_id: int, *, after: int) -> list[int]:
    """Chunks removed after a sequence number."""
    query = sa.select(removals.c.chunk_id).where(removals.c.project_id == project_id, removals.c.seq > after)
    return [row[0] for row in connection.execute(query)]


def changed_count(connection: Connection, project_id: int, *, after: int) -> int:
    """How many chunks have changed after a sequence number."""
    query = sa.select(sa.func.count()).select_from(chunks).where(chunks.c.project_id == project_id, chunks.c.seq > after)
    return int(connection.execute(query).scalar_one())


def records(
    connection: Connection, *, project_ids: Sequence[int] | None, status: Status | None = None, path: str | None = None
) -> Iterable[DocumentRecord]:
    """Documents by project and path."""
    query = sa.select(documents, projects.c.name.label("project")).join(projects, projects.c.id == documents.c.project_id)
    if project_ids is not None:
        query = query.where(documents.c.project_id.in_(project_ids))
    if status is not None:
        query = query.where(documents.c.status == status)
    if path is not None:
        query = query.where(documents.c.path_sha == name_sha(path))
    for row in connection.execute(query.order_by(projects.c.name, documents.c.path)):
        yield DocumentRecord(
            id=row.id,
            project=row.project,
            path=row.path,
            sha256=row.sha256,
            title=row.title,
            size_bytes=row.size_bytes,
            modified=moment(row.modified_ns),
            indexed_at=row.indexed_at,
            chunk_count=row.chunk_count,
            status=Status(row.status),
            error=row.error,
            language=row.language,
            kind=Kind(row.kind),
            metadata=row.metadata,
            version=row.version,
        )


def chunk_count(connection: Connection, project_id: int) -> int:
    """How many chunks a project holds."""
    return int(connection.execute(sa.select(sa.func.count()).select_from(chunks).where(chunks.c.project_id == project_id)).scalar_one())


def status_counts(connection: Connection, project_id: int) -> dict[Status, int]:
    """How many documents of a project stand where."""
    query = sa.select(documents.c.status, sa.func.count()).where(documents.c.project_id == project_id).group_by(documents.c.status)
    return {Status(status): count for status, count in connection.execute(query)}
