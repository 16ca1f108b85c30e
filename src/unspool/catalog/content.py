"""Content of documents: chunks and metadata fields.

Each function is part of the caller's transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from unspool.catalog.documents import delete_skips
from unspool.catalog.feed import Changes, ChunkText
from unspool.catalog.projects import ProjectRow
from unspool.catalog.schema import chunks, document_fields, documents, projects, shorten_field
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
    "stamp",
    "text",
    "copy_key",
)
# A document that is deleted and stored again gets another version than before, so that no writer
# mistakes it for the one it has read: the project's sequence number has grown in between.
_next_seq = (
    sa.select(projects.c.seq + 1).where(projects.c.id == documents.c.project_id).scalar_subquery()
)
NEXT_VERSION = sa.case((documents.c.version >= _next_seq, documents.c.version + 1), else_=_next_seq)
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
        version=NEXT_VERSION,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocuments:
    """Counts of a transaction."""

    documents: int = 0
    chunks: int = 0
    embedded: int = 0


def store_documents(
    connection: sa.Connection,
    project: ProjectRow,
    stored: Sequence[PreparedDocument],
    changes: Changes,
    *,
    ids: Mapping[str, int],
    space_id: int,
    new: Collection[str] = (),
) -> StoredDocuments:
    """Replace the content of documents, whose `ids` are by path.

    `new` documents have no content to delete.
    """
    if not stored:
        return StoredDocuments()
    old_ids = [ids[document.path] for document in stored if document.path not in new]
    known = _find_fields(connection, old_ids)
    old = _delete_chunks(connection, old_ids)
    rows: list[tuple[Any, ...]] = []
    for document in stored:
        document_id = ids[document.path]
        # derived indexes contain these fields
        is_same = known.get(document_id) == (document.language, document.kind)
        stamps = old if is_same else {}
        made = list(_build_chunk_rows(project, document, document_id, changes.stamp, stamps))
        rows += (row for row, _ in made)
        changes.added += select_new_chunks(
            made, old, kind=document.kind, path=document.path, title=document.title
        )
    changes.removed += sorted(old.keys() - {row[0] for row in rows})
    changes.has_documents = True
    insert_many(connection, chunks, CHUNK_COLUMNS, rows)
    vectors = {sha: vector for document in stored for sha, vector in document.vectors.items()}
    changes.vectors.update(vectors)
    shas = {chunk.text_sha for document in stored for chunk in document.chunks}
    embedded = store_embeddings(connection, shas, vectors, space_id)
    _update_documents(connection, project, stored, ids, old_ids)
    return StoredDocuments(documents=len(stored), chunks=len(rows), embedded=embedded)


def delete_documents(connection: sa.Connection, ids: Sequence[int], changes: Changes) -> int:
    """Delete documents with their chunks, and return how many of them existed."""
    changes.removed += sorted(_delete_chunks(connection, ids))
    count = 0
    for batch in split_batches(ids):
        count += connection.execute(sa.delete(documents).where(documents.c.id.in_(batch))).rowcount
    return count


def _find_fields(connection: sa.Connection, ids: Sequence[int]) -> dict[int, tuple[str, str]]:
    """Return language and kind of documents, by id."""
    found: dict[int, tuple[str, str]] = {}
    for batch in split_batches(ids):
        query = sa.select(documents.c.id, documents.c.language, documents.c.kind)
        rows = connection.execute(query.where(documents.c.id.in_(batch)))
        found.update((row[0], (row[1], row[2])) for row in rows)
    return found


def _delete_chunks(connection: sa.Connection, document_ids: Sequence[int]) -> dict[int, int]:
    """Delete the chunks of documents and return id -> stamp."""
    old: dict[int, int] = {}
    for batch in split_batches(document_ids):
        statement = sa.delete(chunks).where(chunks.c.document_id.in_(batch))
        rows = connection.execute(statement.returning(chunks.c.id, chunks.c.stamp))
        old.update((id_, stamp) for id_, stamp in rows)
    return old


def _build_chunk_rows(
    project: ProjectRow,
    document: PreparedDocument,
    document_id: int,
    stamp: int,
    old: Mapping[int, int],
) -> Iterator[tuple[tuple[Any, ...], PreparedChunk]]:
    seen: Counter[bytes] = Counter()
    for position, chunk in enumerate(document.chunks):
        id_ = chunk_id(project.name, document.path, chunk.text_sha, seen[chunk.text_sha])
        seen[chunk.text_sha] += 1
        # A chunk that only moved inside its document has not changed for derived indexes.
        own = old.get(id_, stamp)
        yield build_chunk_row(chunk, id_, project.id, document_id, position, own), chunk


def build_chunk_row(
    chunk: PreparedChunk, id_: int, project_id: int, document_id: int, position: int, stamp: int
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
        stamp,
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
) -> Iterator[ChunkText]:
    """Yield the chunks of one document whose ids are not among the `old` ones."""
    for (id_, _, document_id, *_), chunk in chunk_rows:
        if id_ not in old:
            yield ChunkText(
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
) -> None:
    """Store the rows and the metadata of documents. `old_ids` have metadata to delete."""
    if project.root:  # a given text is never skipped
        delete_skips(connection, project.id, [document.path for document in stored])
    connection.execute(
        _UPDATE, [_build_values(document, ids[document.path]) for document in stored]
    )
    for batch in split_batches(old_ids):
        connection.execute(
            sa.delete(document_fields).where(document_fields.c.document_id.in_(batch))
        )
    insert_fields(connection, {ids[document.path]: document.metadata for document in stored})


def _build_values(document: PreparedDocument, document_id: int) -> dict[str, Any]:
    return {
        "b_id": document_id,
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
