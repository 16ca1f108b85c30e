"""Chunks, read for ranking, for pages and by their documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from unspool.catalog.projects import hash_name
from unspool.catalog.schema import chunks, documents, embeddings, projects
from unspool.catalog.statements import ChunkQuery, IdsByProject, QueryByIds
from unspool.domain.documents import Chunk, DocumentOrigin, Kind, Lines, Status, moment

REACH = 4  # positions on either side that `load_neighbours` includes
_KINDS = {kind.value: kind for kind in Kind}
_STATUSES = {status.value: status for status in Status}


class Candidate(NamedTuple):
    """Properties of a chunk that ranking needs; its text stays in the database."""

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
        """Key shared by duplicate texts within a project. Messages are never duplicates."""
        if self.kind == Kind.CHAT:
            return self.id
        return (self.copy_key ^ self.project_id * 0x9E3779B97F4A7C15) & (2**63 - 1)


class ChunkLocation(NamedTuple):
    """Path and lines of a chunk."""

    id: int
    path: str
    first_line: int
    last_line: int


class IndexedFile(NamedTuple):
    """A file as it was when it was indexed. The path is relative to the project's root."""

    root: str
    path: str
    size_bytes: int
    modified_ns: int


class StoredChunk(NamedTuple):
    """A whole chunk and its file; None for a document that was given as text."""

    chunk: Chunk
    file: IndexedFile | None
    project_id: int


def _select_candidates(table: sa.FromClause) -> sa.Select[Any]:
    return sa.select(
        table.c.id,
        table.c.document_id,
        table.c.position,
        documents.c.path,
        table.c.symbol,
        table.c.defines,
        documents.c.kind,
        documents.c.language,
        table.c.first_line,
        table.c.project_id,
        table.c.copy_key,
    ).join(documents, documents.c.id == table.c.document_id)


_CANDIDATES = ChunkQuery(_select_candidates(chunks), chunks)
_other = chunks.alias("other")
# A literal: a bound value would have to be given with every call.
_REACH: sa.ColumnElement[int] = sa.literal_column(str(REACH))
_NEIGHBOURS = ChunkQuery(
    _select_candidates(_other).join(
        chunks,
        sa.and_(
            chunks.c.document_id == _other.c.document_id,
            _other.c.position >= chunks.c.position - _REACH,
            _other.c.position <= chunks.c.position + _REACH,
        ),
    ),
    chunks,
)
_CHUNKS = (
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
        projects.c.id.label("project_id"),
    )
    .join(documents, documents.c.id == chunks.c.document_id)
    .join(projects, projects.c.id == documents.c.project_id)
)
# names of the first columns of `_CHUNKS` in `Chunk`
_CHUNK_FIELDS = (
    "id",
    "project",
    "path",
    "index",
    "text",
    "start",
    "end",
    "first_line",
    "last_line",
    "token_count",
    "title",
    "headings",
    "level",
    "symbol",
    "defines",
    "language",
    "kind",
    "modified",
    "status",
    "metadata",
)
_CHUNKS_BY_ID = ChunkQuery(_CHUNKS, chunks)
_LOCATIONS = ChunkQuery(
    sa.select(chunks.c.id, documents.c.path, chunks.c.first_line, chunks.c.last_line).join(
        documents, documents.c.id == chunks.c.document_id
    ),
    chunks,
)
_IDS = ChunkQuery(sa.select(chunks.c.id), chunks)
_VECTORS = ChunkQuery(
    sa.select(chunks.c.id, embeddings.c.vector).join(
        embeddings,
        sa.and_(
            embeddings.c.text_sha == chunks.c.text_sha,
            embeddings.c.space_id == sa.bindparam("space", type_=sa.BigInteger),
        ),
    ),
    chunks,
)
_POSITIONS = QueryByIds(
    sa.select(chunks.c.document_id, chunks.c.position, chunks.c.id), chunks.c.document_id
)


def load_candidates(connection: sa.Connection, ids: IdsByProject) -> dict[int, Candidate]:
    """Return the chunks that still exist, by id."""
    return {row[0]: Candidate(*row) for row in _CANDIDATES.fetch(connection, ids)}


def load_neighbours(connection: sa.Connection, ids: IdsByProject) -> dict[int, Candidate]:
    """Return the chunks within `REACH` of these in their documents, themselves included, by id."""
    return {row[0]: Candidate(*row) for row in _NEIGHBOURS.fetch(connection, ids)}


def load_chunks(connection: sa.Connection, ids: IdsByProject) -> dict[int, StoredChunk]:
    """Return whole chunks by id; missing ones are left out."""
    rows = _CHUNKS_BY_ID.fetch(connection, ids)
    return {row[0]: StoredChunk(_build_chunk(row), _build_file(row), row[-1]) for row in rows}


def load_locations(connection: sa.Connection, ids: IdsByProject) -> dict[int, ChunkLocation]:
    """Return path and lines of the chunks that still exist, by id."""
    return {row[0]: ChunkLocation(*row) for row in _LOCATIONS.fetch(connection, ids)}


def find_existing(connection: sa.Connection, ids: IdsByProject) -> set[int]:
    """Return the ids of the chunks that still exist."""
    return {row[0] for row in _IDS.fetch(connection, ids)}


def load_positions(
    connection: sa.Connection, document_ids: Sequence[int]
) -> dict[tuple[int, int], int]:
    """Return (document, position) -> id of the chunks of documents."""
    return {(row[0], row[1]): row[2] for row in _POSITIONS.fetch(connection, document_ids)}


def find_chunk_at(connection: sa.Connection, project_id: int, path: str, line: int) -> Chunk | None:
    """Return the chunk that contains a line of a document, or the nearest one."""
    distance = sa.case(
        (chunks.c.first_line > line, chunks.c.first_line - line),
        (chunks.c.last_line < line, line - chunks.c.last_line),
        else_=0,
    )
    query = _select_document(project_id, path).order_by(distance, chunks.c.position)
    row = connection.execute(query.limit(1)).first()
    return _build_chunk(row) if row else None


def list_chunks(connection: sa.Connection, project_id: int, path: str) -> list[Chunk]:
    """Return the chunks of a document, in order."""
    query = _select_document(project_id, path).order_by(chunks.c.position)
    return [_build_chunk(row) for row in connection.execute(query)]


def load_vectors(
    connection: sa.Connection, project_id: int, ids: Sequence[int], space_id: int
) -> dict[int, bytes]:
    """Return the stored vectors of chunks, by id."""
    rows = _VECTORS.fetch(connection, {project_id: ids}, space=space_id)
    return {row[0]: row[1] for row in rows}


def count_chunks(connection: sa.Connection, project_id: int) -> int:
    """Return the number of chunks of a project."""
    query = sa.select(projects.c.chunk_count).where(projects.c.id == project_id)
    return connection.execute(query).scalar() or 0


def list_ids(connection: sa.Connection, project_id: int, *, after: int, limit: int) -> list[int]:
    """Return a page of the ids of a project's chunks, in ascending order."""
    query = (
        sa.select(chunks.c.id)
        .where(chunks.c.project_id == project_id, chunks.c.id > after)
        .order_by(chunks.c.id)
        .limit(limit)
    )
    return list(connection.execute(query).scalars())


def _select_document(project_id: int, path: str) -> sa.Select[Any]:
    return _CHUNKS.where(
        documents.c.project_id == project_id, documents.c.path_sha == hash_name(path)
    )


def _build_file(row: Sequence[Any]) -> IndexedFile | None:
    path, modified_ns = row[2], row[_CHUNK_FIELDS.index("modified")]
    size_bytes, origin, root = row[-4:-1]
    if origin != DocumentOrigin.FILE or modified_ns is None:
        return None
    return IndexedFile(root, path, size_bytes, modified_ns)


def _build_chunk(row: Sequence[Any]) -> Chunk:
    values: dict[str, Any] = dict(zip(_CHUNK_FIELDS, row, strict=False))
    headings, defines, metadata = (values[name] for name in ("headings", "defines", "metadata"))
    values |= {
        "lines": Lines(values.pop("first_line"), values.pop("last_line")),
        "headings": tuple(headings.split("\n")) if headings else (),
        "defines": tuple(defines.split("\n")) if defines else (),
        "kind": _KINDS[values["kind"]],
        "modified": moment(values["modified"]),
        "status": _STATUSES[values["status"]],
        "metadata": json.loads(metadata) if isinstance(metadata, str) else metadata,
    }
    return Chunk(**values)
