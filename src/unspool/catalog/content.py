"""Content of documents: chunks, metadata fields, and the changes that derived indexes need.

Each function is part of the caller's transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from unspool.catalog.documents import delete_skips
from unspool.catalog.projects import ProjectRow, advance_seq
from unspool.catalog.schema import chunks, document_fields, documents, removals, shorten_field
from unspool.catalog.spaces import store_embeddings
from unspool.catalog.statements import insert_many, split_batches
from unspool.domain.documents import Kind, Metadata, Status, chunk_id, copy_key
from unspool.domain.prepared import PreparedChunk, PreparedDocument

CHUNK_COLUMNS = (
    "id",
    "project_id",
    "document_id",
    "position",
    "start_offset",
    "end_offset",
    "first_line",
    "last_line",
    "headings",
    "level",
    "symbol",
    "defines",
    "token_count",
    "text_sha",
    "seq",
    "text",
    "copy_key",
)
_UPDATE = (
    sa.update(documents)
    .where(documents.c.id == sa.bindparam("b_id"))
    .values(
        sha256=sa.bindparam("b_sha256"),
        title=sa.bindparam("b_title"),
        size_bytes=sa.bindparam("b_size_bytes"),
        modified_ns=sa.bindparam("b_modified_ns"),
        indexed_at=sa.bindparam("b_indexed_at"),
        chunk_count=sa.bindparam("b_chunk_count"),
        language=sa.bindparam("b_language"),
        kind=sa.bindparam("b_kind"),
        metadata=sa.bindparam("b_metadata", type_=sa.JSON),
        recipe=sa.bindparam("b_recipe"),
        origin=sa.bindparam("b_origin"),
        status=Status.INDEXED,
        error="",
        run_id=None,
        # A document that is deleted and stored again gets another version than before, so that
        # no writer mistakes it for the one it has read.
        version=sa.case(
            (documents.c.version >= sa.bindparam("b_seq"), documents.c.version + 1),
            else_=sa.bindparam("b_seq"),
        ),
    )
)


class NewChunk(NamedTuple):
    """A chunk that did not exist before, as derived indexes need it."""

    id: int
    document_id: int
    text_sha: bytes
    kind: str
    path: str
    title: str
    headings: str
    symbol: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes of a project's chunks in a transaction, for derived indexes."""

    added: Sequence[NewChunk] = ()  # empty for an index that catches up: it reads the change feed
    removed: Sequence[int] = ()
    vectors: Mapping[bytes, bytes] = field(default_factory=dict)  # by SHA-256 of the text


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocuments:
    """Counts and changes of a transaction.

    `lost` paths were deleted or claimed by another run meanwhile.
    """

    documents: int = 0
    chunks: int = 0
    embedded: int = 0
    lost: tuple[str, ...] = ()
    changes: Changes = Changes()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedDocuments:
    """Number of deleted documents, and the changes of their chunks."""

    documents: int = 0
    changes: Changes = Changes()


def store_documents(
    connection: sa.Connection,
    project: ProjectRow,
    prepared: Sequence[PreparedDocument],
    *,
    claimed: Mapping[str, int],
    space_id: int,
    new: Collection[str] = (),
    log_changes: bool = True,
) -> StoredDocuments:
    """Replace the content of the `claimed` documents, path -> id.

    `new` documents have no content to delete. `log_changes` stores what derived indexes need to
    catch up; without it the result contains the new chunks.
    """
    stored = [document for document in prepared if document.path in claimed]
    lost = tuple(document.path for document in prepared if document.path not in claimed)
    if not stored:
        return StoredDocuments(lost=lost)
    seq = advance_seq(connection, project.id, log_changes=log_changes)
    old_ids = [claimed[document.path] for document in stored if document.path not in new]
    old = _delete_chunks(connection, old_ids)
    rows, added = _collect_rows(project, stored, claimed, seq, old, log_changes=log_changes)
    removed = sorted(old.keys() - {row[0] for row in rows})
    if log_changes:
        log_removals(connection, project.id, seq, removed)
    insert_many(connection, chunks, CHUNK_COLUMNS, rows)
    vectors = {sha: vector for document in stored for sha, vector in document.vectors.items()}
    shas = {chunk.text_sha for document in stored for chunk in document.chunks}
    embedded = store_embeddings(connection, shas, vectors, space_id)
    _update_documents(connection, project, stored, claimed, old_ids, seq)
    return StoredDocuments(
        documents=len(stored),
        chunks=len(rows),
        embedded=embedded,
        lost=lost,
        changes=Changes(added=added, removed=removed, vectors=vectors),
    )


def _collect_rows(
    project: ProjectRow,
    stored: Sequence[PreparedDocument],
    ids: Mapping[str, int],
    seq: int,
    old: dict[int, int],
    *,
    log_changes: bool,
) -> tuple[list[tuple[Any, ...]], list[NewChunk]]:
    """Return the rows of all chunks and, unless changes are logged, the new chunks."""
    rows: list[tuple[Any, ...]] = []
    added: list[NewChunk] = []
    for document in stored:
        made = list(_build_chunk_rows(project, document, ids[document.path], seq, old))
        rows += (row for row, _ in made)
        if not log_changes:
            added += select_new_chunks(
                made, old, kind=document.kind, path=document.path, title=document.title
            )
    return rows, added


def delete_documents(
    connection: sa.Connection, project_id: int, ids: Sequence[int], *, log_changes: bool = True
) -> DeletedDocuments:
    """Delete documents with their chunks. `log_changes` is for derived indexes that catch up."""
    if not ids:
        return DeletedDocuments()
    removed = sorted(_delete_chunks(connection, ids))
    if removed:
        seq = advance_seq(connection, project_id, log_changes=log_changes)
        if log_changes:
            log_removals(connection, project_id, seq, removed)
    count = 0
    for batch in split_batches(ids):
        count += connection.execute(sa.delete(documents).where(documents.c.id.in_(batch))).rowcount
    return DeletedDocuments(documents=count, changes=Changes(removed=removed))


def log_removals(connection: sa.Connection, project_id: int, seq: int, ids: Sequence[int]) -> None:
    """Store ids of deleted chunks for derived indexes that catch up."""
    rows = [(project_id, seq, id_) for id_ in ids]
    insert_many(connection, removals, ("project_id", "seq", "chunk_id"), rows)


def _delete_chunks(connection: sa.Connection, document_ids: Sequence[int]) -> dict[int, int]:
    """Delete the chunks of documents and return id -> seq."""
    old: dict[int, int] = {}
    for batch in split_batches(document_ids):
        statement = sa.delete(chunks).where(chunks.c.document_id.in_(batch))
        rows = connection.execute(statement.returning(chunks.c.id, chunks.c.seq))
        old.update((id_, seq) for id_, seq in rows)
    return old


def _build_chunk_rows(
    project: ProjectRow, document: PreparedDocument, document_id: int, seq: int, old: dict[int, int]
) -> Iterator[tuple[tuple[Any, ...], PreparedChunk]]:
    seen: Counter[bytes] = Counter()
    for position, chunk in enumerate(document.chunks):
        id_ = chunk_id(project.name, document.path, chunk.text_sha, seen[chunk.text_sha])
        seen[chunk.text_sha] += 1
        # A chunk that only moved inside its document has not changed for derived indexes.
        row_seq = old.get(id_, seq)
        yield build_chunk_row(chunk, id_, project.id, document_id, position, row_seq), chunk


def build_chunk_row(
    chunk: PreparedChunk, id_: int, project_id: int, document_id: int, position: int, seq: int
) -> tuple[Any, ...]:
    """Return a chunk's values in the order of `CHUNK_COLUMNS`."""
    piece = chunk.piece
    return (
        id_,
        project_id,
        document_id,
        position,
        piece.start,
        piece.end,
        piece.lines.first,
        piece.lines.last,
        "\n".join(piece.headings),
        piece.level,
        piece.symbol,
        "\n".join(piece.defines),
        piece.token_count,
        chunk.text_sha,
        seq,
        chunk.text,
        copy_key(chunk.text),
    )


def select_new_chunks(
    chunk_rows: Iterable[tuple[tuple[Any, ...], PreparedChunk]],
    old: Collection[int],
    *,
    kind: Kind,
    path: str,
    title: str,
) -> Iterator[NewChunk]:
    """Yield the chunks of one document whose ids are not among the `old` ones."""
    for (id_, _, document_id, *_), chunk in chunk_rows:
        if id_ not in old:
            yield NewChunk(
                id=id_,
                document_id=document_id,
                text_sha=chunk.text_sha,
                kind=kind,
                path=path,
                title=title,
                headings="\n".join(chunk.piece.headings),
                symbol=chunk.piece.symbol,
                text=chunk.text,
            )


def _update_documents(
    connection: sa.Connection,
    project: ProjectRow,
    stored: Sequence[PreparedDocument],
    ids: Mapping[str, int],
    old_ids: Sequence[int],
    seq: int,
) -> None:
    """Store the rows and the metadata of documents. `old_ids` have metadata to delete."""
    if project.root:  # a given text is never skipped
        delete_skips(connection, project.id, [document.path for document in stored])
    connection.execute(
        _UPDATE, [_build_values(document, ids[document.path], seq) for document in stored]
    )
    for batch in split_batches(old_ids):
        connection.execute(
            sa.delete(document_fields).where(document_fields.c.document_id.in_(batch))
        )
    insert_fields(connection, {ids[document.path]: document.metadata for document in stored})


def _build_values(document: PreparedDocument, document_id: int, seq: int) -> dict[str, Any]:
    return {
        "b_id": document_id,
        "b_seq": seq,
        "b_sha256": document.sha256,
        "b_title": document.title,
        "b_size_bytes": document.size_bytes,
        "b_modified_ns": document.modified_ns,
        "b_indexed_at": datetime.now(UTC),
        "b_chunk_count": len(document.chunks),
        "b_language": document.language,
        "b_kind": document.kind,
        "b_metadata": dict(document.metadata),
        "b_recipe": document.recipe,
        "b_origin": document.origin,
    }


def insert_fields(connection: sa.Connection, fields: Mapping[int, Metadata]) -> None:
    """Store the metadata of documents, by id, for filters."""
    rows = [
        {
            "document_id": document_id,
            "key": key,
            "text": shorten_field(value) if isinstance(value, str) else None,
            "number": float(value) if not isinstance(value, str) else None,
        }
        for document_id, metadata in fields.items()
        for key, value in metadata.items()
    ]
    if rows:
        connection.execute(sa.insert(document_fields), rows)
