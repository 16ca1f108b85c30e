"""Rows of documents and of skipped files.

Each function is part of the caller's transaction. `content.py` stores the content of documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from unspool.catalog.projects import hash_name
from unspool.catalog.schema import documents, projects, skipped
from unspool.catalog.statements import split_batches
from unspool.domain.documents import DocumentRecord, Kind, Origin, Status, moment
from unspool.domain.reports import Skip
from unspool.errors import ConflictError


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentState:
    """State of a document that decides whether its file is indexed again."""

    id: int
    path: str
    sha256: str
    size_bytes: int
    modified_ns: int | None
    status: Status
    recipe: str
    origin: Origin
    run_id: int | None
    indexed_at: datetime | None = None
    is_conversation: bool = False


def load_states(connection: sa.Connection, project_id: int) -> dict[str, DocumentState]:
    """Return the state of every document of a project, by path."""
    columns = [
        documents.c[name] for name in DocumentState.__dataclass_fields__ if name in documents.c
    ]
    query = sa.select(*columns, documents.c.kind).where(documents.c.project_id == project_id)
    return {
        row.path: DocumentState(
            id=row.id,
            path=row.path,
            sha256=row.sha256,
            size_bytes=row.size_bytes,
            modified_ns=row.modified_ns,
            status=Status(row.status),
            recipe=row.recipe,
            origin=Origin(row.origin),
            run_id=row.run_id,
            indexed_at=row.indexed_at,
            is_conversation=row.kind == Kind.CHAT,
        )
        for row in connection.execute(query)
    }


def list_documents(
    connection: sa.Connection,
    *,
    project_ids: Sequence[int] | None,
    status: Status | None = None,
    path: str | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> Iterator[DocumentRecord]:
    """Yield documents by project and path. `after` skips all up to a path."""
    query = sa.select(documents, projects.c.name.label("project")).join(
        projects, projects.c.id == documents.c.project_id
    )
    if project_ids is not None:
        query = query.where(documents.c.project_id.in_(project_ids))
    if status is not None:
        query = query.where(documents.c.status == status)
    if path is not None:
        query = query.where(documents.c.path_sha == hash_name(path))
    if after is not None:
        query = query.where(documents.c.path > after)
    for row in connection.execute(query.order_by(projects.c.name, documents.c.path).limit(limit)):
        yield _build_record(row)


def _build_record(row: Any) -> DocumentRecord:
    return DocumentRecord(
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


def count_by_status(connection: sa.Connection, project_id: int) -> dict[Status, int]:
    """Count the documents of a project by status."""
    query = (
        sa.select(documents.c.status, sa.func.count())
        .where(documents.c.project_id == project_id)
        .group_by(documents.c.status)
    )
    return {Status(status): count for status, count in connection.execute(query)}


def queue_documents(
    connection: sa.Connection, project_id: int, *, new: Sequence[str], stale: Sequence[int]
) -> None:
    """Store the plan of a run: new paths become pending, changed documents stale."""
    rows = [_build_empty_row(project_id, path) for path in new]
    if rows:
        connection.execute(sa.insert(documents), rows)
    for ids in split_batches(stale):
        indexed = documents.c.id.in_(ids) & (documents.c.status == Status.INDEXED)
        connection.execute(sa.update(documents).where(indexed).values(status=Status.STALE))


def claim_documents(
    connection: sa.Connection,
    project_id: int,
    run_id: int,
    paths: Sequence[str],
    live: frozenset[int],
) -> dict[str, int]:
    """Claim documents for a run and return path -> id.

    Documents that another live run has claimed or finished meanwhile are left out.
    """
    columns = (documents.c.path, documents.c.id, documents.c.status, documents.c.run_id)
    claimed = {
        path: id_
        for path, id_, status, owner in _select_by_path(connection, project_id, paths, *columns)
        if status != Status.INDEXED
        and not (status == Status.INDEXING and owner in live and owner != run_id)
    }
    for ids in split_batches(claimed.values()):
        update = sa.update(documents).where(documents.c.id.in_(ids))
        connection.execute(update.values(status=Status.INDEXING, run_id=run_id))
    return claimed


def refresh_documents(
    connection: sa.Connection, seen: Sequence[tuple[int, int | None, int]]
) -> None:
    """Store id, modification time and size of documents whose content has not changed."""
    rows = [
        {"b_id": id_, "modified_ns": modified, "size_bytes": size} for id_, modified, size in seen
    ]
    _finish_documents(connection, rows, status=Status.INDEXED, error="")


def record_failures(connection: sa.Connection, failures: Sequence[tuple[int, str]]) -> None:
    """Store why documents could not be indexed. Their earlier content stays searchable."""
    rows = [{"b_id": id_, "error": error[:2000]} for id_, error in failures]
    _finish_documents(connection, rows, status=Status.FAILED)


def _finish_documents(
    connection: sa.Connection, rows: Sequence[dict[str, Any]], **values: object
) -> None:
    """Update documents by the rows and the values, and end their claims."""
    if rows:
        statement = sa.update(documents).where(documents.c.id == sa.bindparam("b_id"))
        connection.execute(statement.values(**values, run_id=None), rows)


def find_ids(connection: sa.Connection, project_id: int, paths: Sequence[str]) -> dict[str, int]:
    """Return path -> id of the documents that exist."""
    rows = _select_by_path(connection, project_id, paths, documents.c.path, documents.c.id)
    return {row.path: row.id for row in rows}


def find_claims(
    connection: sa.Connection, project_id: int, paths: Sequence[str], run_id: int | None
) -> dict[str, int]:
    """Return path -> id of the documents that a run has claimed; without a run, of all."""
    columns = (documents.c.path, documents.c.id, documents.c.run_id)
    rows = _select_by_path(connection, project_id, paths, *columns)
    return {path: id_ for path, id_, owner in rows if run_id in (None, owner)}


def check_versions(connection: sa.Connection, project_id: int, expected: Mapping[str, int]) -> None:
    """Refuse documents that are not at the version their writer has read; 0 means missing."""
    columns = (documents.c.path, documents.c.version)
    versions = {
        row[0]: row[1] for row in _select_by_path(connection, project_id, expected, *columns)
    }
    for path, version in expected.items():
        if (now := versions.get(path, 0)) != version:
            actual = f"is at version {now}" if now else "does not exist (any more)"
            wanted = f"not at {version}" if version else "but was to be new"
            raise ConflictError(
                f"document {path!r} {actual}, {wanted}; another writer was faster, so read it "
                f"again and repeat the change"
            )


def check_not_conversations(
    connection: sa.Connection, project_id: int, paths: Sequence[str]
) -> None:
    """Refuse paths of conversations, which a document must not replace."""
    columns = (documents.c.path, documents.c.kind)
    rows = _select_by_path(connection, project_id, paths, *columns)
    conversations = [path for path, kind in rows if kind == Kind.CHAT]
    if conversations:
        raise ConflictError(
            f"{conversations[0]!r} is a conversation of this project, not a document; give the "
            f"document another path, or delete the conversation first"
        )


def ensure_documents(
    connection: sa.Connection, project_id: int, paths: Sequence[str]
) -> tuple[dict[str, int], frozenset[str]]:
    """Return path -> id of documents, and the paths of those that were created."""
    known = find_ids(connection, project_id, paths)
    new = [path for path in paths if path not in known]
    if new:
        insert = sa.insert(documents).returning(documents.c.path, documents.c.id)
        rows = connection.execute(insert, [_build_empty_row(project_id, path) for path in new])
        known |= {row[0]: row[1] for row in rows}
    return known, frozenset(new)


def record_skips(
    connection: sa.Connection,
    project_id: int,
    skips: Sequence[tuple[Skip, int, int]],
    *,
    recipe: str,
) -> None:
    """Store skipped files with size and modification time, and the recipe that rejected them."""
    delete_skips(connection, project_id, [skip.path for skip, _, _ in skips])
    rows = [
        {
            "project_id": project_id,
            "path_sha": hash_name(skip.path),
            "path": skip.path,
            "size_bytes": size,
            "modified_ns": modified,
            "reason": skip.reason,
            "detail": skip.detail,
            "recipe": recipe,
        }
        for skip, size, modified in skips
    ]
    if rows:
        connection.execute(sa.insert(skipped), rows)


def load_skips(
    connection: sa.Connection, project_id: int, *, recipe: str
) -> dict[str, tuple[int, int, Skip]]:
    """Return path -> size, modification time and skip of the files that a recipe rejected."""
    rows = connection.execute(
        sa.select(skipped).where(skipped.c.project_id == project_id, skipped.c.recipe == recipe)
    )
    return {
        row.path: (
            row.size_bytes,
            row.modified_ns,
            Skip(path=row.path, reason=row.reason, detail=row.detail),
        )
        for row in rows
    }


def delete_skips(connection: sa.Connection, project_id: int, paths: Sequence[str]) -> None:
    """Delete skips of files that no longer exist or are indexed now."""
    for batch in split_batches(paths):
        query = sa.delete(skipped).where(
            skipped.c.project_id == project_id,
            skipped.c.path_sha.in_([hash_name(path) for path in batch]),
        )
        connection.execute(query)


def _select_by_path(
    connection: sa.Connection,
    project_id: int,
    paths: Iterable[str],
    *columns: sa.ColumnElement[Any],
) -> Iterator[Any]:
    for batch in split_batches(paths):
        yield from connection.execute(
            sa.select(*columns).where(
                documents.c.project_id == project_id,
                documents.c.path_sha.in_([hash_name(path) for path in batch]),
            )
        )


def _build_empty_row(project_id: int, path: str) -> dict[str, Any]:
    return {
        "project_id": project_id,
        "path": path,
        "path_sha": hash_name(path),
        "sha256": "",
        "title": "",
        "size_bytes": 0,
        "modified_ns": None,
        "chunk_count": 0,
        "status": Status.PENDING,
        "error": "",
        "language": "",
        "kind": Kind.DOCS,
        "metadata": {},
        "recipe": "",
        "origin": Origin.FILE,
        "version": 0,
    }
