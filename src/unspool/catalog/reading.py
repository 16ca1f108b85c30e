"""Documents and chunks, read: for pages, for ranking, and for what is derived to catch up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unspool.catalog.projects import name_sha
from unspool.catalog.schema import chunks, documents, embeddings, projects, removals, sequences
from unspool.catalog.statements import ByIds
from unspool.domain.documents import Chunk, DocumentRecord, Kind, Lines, Origin, Status, moment


class Candidate(NamedTuple):
    """What ranking needs to know of a chunk; its text stays in the database."""

    id: int
    document_id: int
    position: int
    path: str
    symbol: str
    defines: str
    kind: str
    language: str
    first_line: int
    project_id: int
    copy_key: int

    @property
    def text_key(self) -> int:
        """The same for the same text in the same project: who asks several projects wants to hear
        of each. A message is no copy of another: 'yes' says something else each time."""
        if self.kind == Kind.CHAT:
            return self.id
        return (self.copy_key ^ self.project_id * 0x9E3779B97F4A7C15) & (2**63 - 1)


class ChangedChunk(NamedTuple):
    """A chunk as what is derived takes it in."""

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


def candidates(connection: Connection, ids: Sequence[int]) -> dict[int, Candidate]:
    """The chunks that still exist, by id."""
    return {row[0]: Candidate(*row) for row in _CANDIDATES.rows(connection, ids)}


def neighbours(connection: Connection, ids: Sequence[int]) -> dict[int, Candidate]:
    """The chunks that stand within `REACH` of these in their documents, themselves included, by
    id.
    """
    return {row[0]: Candidate(*row) for row in _NEIGHBOURS.rows(connection, ids)}


REACH = 4


def _candidate(of: Any) -> sa.Select[Any]:
    return sa.select(
        of.c.id,
        of.c.document_id,
        of.c.position,
        documents.c.path,
        of.c.symbol,
        of.c.defines,
        documents.c.kind,
        documents.c.language,
        of.c.first_line,
        of.c.project_id,
        of.c.copy_key,
    ).join(documents, documents.c.id == of.c.document_id)


_CANDIDATES = ByIds(_candidate(chunks), chunks.c.id)
_other = chunks.alias("other")
# a value would have to be given with every call
_REACH: sa.ColumnElement[int] = sa.literal_column(str(REACH))
_NEIGHBOURS = ByIds(
    _candidate(_other).join(
        chunks,
        sa.and_(
            chunks.c.document_id == _other.c.document_id,
            _other.c.position >= chunks.c.position - _REACH,
            _other.c.position <= chunks.c.position + _REACH,
        ),
    ),
    chunks.c.id,
)


class IndexedFile(NamedTuple):
    """A file as it was when it was indexed: its project's root, its path there, its size and its
    time.
    """

    root: str
    path: str
    size_bytes: int
    modified_ns: int


class StoredChunk(NamedTuple):
    """A whole chunk, and the file that it was cut from; None for a document that was given as
    text.
    """

    chunk: Chunk
    file: IndexedFile | None


def hydrate(connection: Connection, ids: Sequence[int]) -> dict[int, StoredChunk]:
    """Return whole chunks by id; missing ones are left out."""
    return {row[0]: StoredChunk(_chunk(row), _file(row)) for row in _HYDRATE.rows(connection, ids)}


def _file(row: Sequence[Any]) -> IndexedFile | None:
    path, modified_ns = row[2], row[_MODIFIED]
    size_bytes, origin, root = row[-3:]
    if origin != Origin.FILE or modified_ns is None:
        return None
    return IndexedFile(root, path, size_bytes, modified_ns)


_WHOLE = (
    sa.select(
        chunks.c.id,
        projects.c.name,
        documents.c.path,
        chunks.c.position,
        chunks.c.text,
        chunks.c.start_offset,
        chunks.c.end_offset,
        chunks.c.first_line,
        chunks.c.last_line,
        chunks.c.token_count,
        documents.c.title,
        chunks.c.headings,
        chunks.c.level,
        chunks.c.symbol,
        chunks.c.defines,
        documents.c.language,
        documents.c.kind,
        documents.c.modified_ns,
        documents.c.status,
        documents.c.metadata,
        documents.c.size_bytes,
        documents.c.origin,
        projects.c.root,
    )
    .join(documents, documents.c.id == chunks.c.document_id)
    .join(projects, projects.c.id == documents.c.project_id)
)
_MODIFIED = 17  # the column of `modified_ns`
_HYDRATE = ByIds(_WHOLE, chunks.c.id)


def _chunk(row: Sequence[Any]) -> Chunk:
    (
        id_,
        project,
        path,
        position,
        text,
        start,
        end,
        first,
        last,
        tokens,
        title,
        headings,
        level,
        symbol,
        defines,
        language,
        kind,
        *rest,
    ) = row
    modified_ns, status, metadata, *_ = rest
    return Chunk(
        id=id_,
        project=project,
        path=path,
        index=position,
        text=text,
        start=start,
        end=end,
        lines=Lines(first, last),
        token_count=tokens,
        title=title,
        headings=tuple(headings.split("\n")) if headings else (),
        level=level,
        symbol=symbol,
        defines=tuple(defines.split("\n")) if defines else (),
        language=language,
        kind=_KINDS[kind],
        modified=moment(modified_ns),
        status=_STATUSES[status],
        metadata=json.loads(metadata) if isinstance(metadata, str) else metadata,
    )


_KINDS = {kind.value: kind for kind in Kind}
_STATUSES = {status.value: status for status in Status}


class Place(NamedTuple):
    """Where a chunk stands, without its text."""

    id: int
    path: str
    first_line: int
    last_line: int


def places(connection: Connection, ids: Sequence[int]) -> dict[int, Place]:
    """Where the chunks stand that still exist, by id."""
    return {row[0]: Place(*row) for row in _PLACES.rows(connection, ids)}


_PLACES = ByIds(
    sa.select(chunks.c.id, documents.c.path, chunks.c.first_line, chunks.c.last_line).join(
        documents, documents.c.id == chunks.c.document_id
    ),
    chunks.c.id,
)


def present(connection: Connection, ids: Sequence[int]) -> set[int]:
    """Which of these chunks still exist."""
    return {row[0] for row in _PRESENT.rows(connection, ids)}


_PRESENT = ByIds(sa.select(chunks.c.id), chunks.c.id)


def chunks_of(connection: Connection, document_ids: Sequence[int]) -> dict[tuple[int, int], int]:
    """Which chunk stands where in these documents: (document, position) -> id."""
    return {(row[0], row[1]): row[2] for row in _CHUNKS_OF.rows(connection, document_ids)}


_CHUNKS_OF = ByIds(
    sa.select(chunks.c.document_id, chunks.c.position, chunks.c.id), chunks.c.document_id
)


def chunk_at(connection: Connection, project_id: int, path: str, line: int) -> Chunk | None:
    """The chunk that holds a line of a document, or the nearest one before or after it."""
    query = _WHOLE.where(
        documents.c.project_id == project_id, documents.c.path_sha == name_sha(path)
    )
    distance = sa.case(
        (chunks.c.first_line > line, chunks.c.first_line - line),
        (chunks.c.last_line < line, line - chunks.c.last_line),
        else_=0,
    )
    row = connection.execute(query.order_by(distance, chunks.c.position).limit(1)).first()
    return _chunk(row) if row else None


def chunks_in(connection: Connection, project_id: int, path: str) -> list[Chunk]:
    """The chunks of a document, in order."""
    query = _WHOLE.where(
        documents.c.project_id == project_id, documents.c.path_sha == name_sha(path)
    )
    return [_chunk(row) for row in connection.execute(query.order_by(chunks.c.position))]


def vector_of(connection: Connection, chunk_id: int, space_id: int) -> bytes | None:
    """The stored vector of a chunk."""
    query = sa.select(embeddings.c.vector).join(chunks, chunks.c.text_sha == embeddings.c.text_sha)
    return connection.execute(
        query.where(chunks.c.id == chunk_id, embeddings.c.space_id == space_id)
    ).scalar()


def counters(connection: Connection, project_id: int) -> tuple[int, int]:
    """A project's sequence number and the one up to which removals are forgotten; (0, 0) for a
    project that is gone.
    """
    row = connection.execute(
        sa.select(projects.c.seq, projects.c.floor).where(projects.c.id == project_id)
    ).first()
    return (row[0], row[1]) if row else (0, 0)


class Position(NamedTuple):
    """How far something derived has come.

    The stamp tells this sequence number from the same one of another history: a restored back-up's.
    """

    seq: int
    stamp: int


def position_at(connection: Connection, project_id: int, seq: int) -> Position:
    """A sequence number with its stamp; 0 for the beginning, -1 where it is not known (any
    more).
    """
    if seq == 0:
        return Position(0, 0)
    found = connection.execute(
        sa.select(sequences.c.stamp).where(
            sequences.c.project_id == project_id, sequences.c.seq == seq
        )
    ).scalar()
    return Position(seq, -1 if found is None else int(found))


def changed(
    connection: Connection, project_id: int, *, space_id: int, after: tuple[int, int], limit: int
) -> list[ChangedChunk]:
    """Chunks changed after (seq, id), oldest first."""
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


def removed(connection: Connection, project_id: int, *, after: int) -> list[int]:
    """Chunks removed after a sequence number."""
    query = sa.select(removals.c.chunk_id).where(
        removals.c.project_id == project_id, removals.c.seq > after
    )
    return [row[0] for row in connection.execute(query)]


def changed_count(connection: Connection, project_id: int, *, after: int) -> int:
    """How many chunks have changed after a sequence number."""
    query = (
        sa.select(sa.func.count())
        .select_from(chunks)
        .where(chunks.c.project_id == project_id, chunks.c.seq > after)
    )
    return int(connection.execute(query).scalar_one())


def records(
    connection: Connection,
    *,
    project_ids: Sequence[int] | None,
    status: Status | None = None,
    path: str | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> Iterable[DocumentRecord]:
    """Documents by project and path; those behind a path, and so many of them, where that is
    given.
    """
    query = sa.select(documents, projects.c.name.label("project")).join(
        projects, projects.c.id == documents.c.project_id
    )
    if project_ids is not None:
        query = query.where(documents.c.project_id.in_(project_ids))
    if status is not None:
        query = query.where(documents.c.status == status)
    if path is not None:
        query = query.where(documents.c.path_sha == name_sha(path))
    if after is not None:
        query = query.where(documents.c.path > after)
    for row in connection.execute(query.order_by(projects.c.name, documents.c.path).limit(limit)):
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
    return int(
        connection.execute(
            sa.select(sa.func.count()).select_from(chunks).where(chunks.c.project_id == project_id)
        ).scalar_one()
    )


def status_counts(connection: Connection, project_id: int) -> dict[Status, int]:
    """How many documents of a project stand where."""
    query = (
        sa.select(documents.c.status, sa.func.count())
        .where(documents.c.project_id == project_id)
        .group_by(documents.c.status)
    )
    return {Status(status): count for status, count in connection.execute(query)}
