"""Rows of documents and of skipped files.

Each function is part of the caller's transaction. `content.py` stores the content of documents.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa

from unspool.catalog.projects import hash_name
from unspool.catalog.schema import documents, projects, skipped
from unspool.catalog.statements import insert_missing_rows, split_batches
from unspool.domain.documents import DocumentOrigin, DocumentRecord, Kind, Status, moment
from unspool.domain.prepared import SkippedFile
from unspool.domain.reports import Skip
from unspool.errors import ConflictError

_STREAM = {"yield_per": 5_000}  # rows in memory


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
    origin: DocumentOrigin
    run_id: int | None
    indexed_at: datetime | None = None
    kind: Kind = Kind.DOCS


_STATE_COLUMNS = [documents.c[name] for name in DocumentState.__dataclass_fields__]


def stream_states(connection: sa.Connection, project_id: int) -> Iterator[DocumentState]:
    """Yield the state of every document of a project, read page by page."""
    query = sa.select(*_STATE_COLUMNS).where(documents.c.project_id == project_id)
    yield from map(_build_state, connection.execute(query, execution_options=_STREAM))


def lock_unchanged(
    connection: sa.Connection, project_id: int, states: Collection[DocumentState]
) -> list[int]:
    """Lock documents, and return the ids of those that are in the given states.

    Documents that another writer is changing right now are left out.
    """
    paths = [state.path for state in states]
    rows = _select_by_path(connection, project_id, paths, *_STATE_COLUMNS, lock="free")
    return [row.id for row in rows if _build_state(row) in states]


def _build_state(row: Any) -> DocumentState:
    types = {
        "status": Status(row.status),
        "origin": DocumentOrigin(row.origin),
        "kind": Kind(row.kind),
    }
    return DocumentState(**{**row._mapping, **types})


def list_documents(
    connection: sa.Connection,
    *,
    project_ids: Sequence[int],
    status: Status | None = None,
    path: str | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> Iterator[DocumentRecord]:
    """Yield documents by project and path. `after` skips all up to a path."""
    query = sa.select(documents, projects.c.name.label("project")).join(
        projects, projects.c.id == documents.c.project_id
    )
    if status is not None:
        query = query.where(documents.c.status == status)
    if path is not None:
        query = query.where(documents.c.path_sha == hash_name(path))
    if after is not None:
        query = query.where(documents.c.path > after)
    query = query.order_by(projects.c.name, documents.c.path).limit(limit)
    for batch in split_batches(project_ids):
        rows = connection.execute(query.where(documents.c.project_id.in_(batch)))
        yield from map(_build_record, rows)


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


def mark_stale(connection: sa.Connection, ids: Sequence[int]) -> None:
    """Store that indexed documents may have changed."""
    for batch in split_batches(ids):
        indexed = documents.c.id.in_(batch) & (documents.c.status == Status.INDEXED)
        connection.execute(sa.update(documents).where(indexed).values(status=Status.STALE))


def claim_documents(
    connection: sa.Connection,
    project_id: int,
    run_id: int,
    paths: Sequence[str],
    live: frozenset[int],
) -> dict[str, int]:
    """Claim documents for a run and return path -> id.

    Documents that another live run has claimed or finished meanwhile are left out, and those that
    another writer is changing right now: two runs of a project would wait for each other.
    """
    columns = (documents.c.path, documents.c.id, documents.c.status, documents.c.run_id)
    rows = _select_by_path(connection, project_id, paths, *columns, lock="free")
    claimed = {
        path: id_
        for path, id_, status, owner in rows
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


def lock_claims(
    connection: sa.Connection, project_id: int, paths: Sequence[str], run_id: int
) -> dict[str, int]:
    """Lock documents and return path -> id of those that a run has claimed."""
    columns = (documents.c.path, documents.c.id, documents.c.run_id)
    rows = _select_by_path(connection, project_id, paths, *columns, lock="all")
    return {path: id_ for path, id_, owner in rows if owner == run_id}


def lock_documents(connection: sa.Connection, ids: Sequence[int]) -> None:
    """Exclude other writers of documents until the transaction ends."""
    for batch in split_batches(sorted(ids)):
        query = sa.select(documents.c.id).where(documents.c.id.in_(batch))
        connection.execute(query.order_by(documents.c.id).with_for_update())


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
    """Lock documents, created if they are missing.

    Return path -> id of all, and the paths of those that were created.
    """
    columns = (documents.c.path, documents.c.id)
    known: dict[str, int] = {}
    new: set[str] = set()
    # It repeats if another writer has created a document meanwhile, or deleted one.
    while missing := sorted(set(paths) - known.keys(), key=hash_name):
        rows = list(_select_by_path(connection, project_id, missing, *columns, lock="all"))
        known.update((row.path, row.id) for row in rows)
        added = [_build_empty_row(project_id, path) for path in missing if path not in known]
        if added:
            created = insert_missing_rows(connection, documents, added, returning=columns)
            known.update((row.path, row.id) for row in created)
            new.update(row.path for row in created)
    return known, frozenset(new)


def record_skips(
    connection: sa.Connection,
    project_id: int,
    files: Sequence[SkippedFile],
    *,
    recipe: str,
) -> None:
    """Store skipped files and the recipe that rejected them."""
    delete_skips(connection, project_id, [file.path for file in files])
    rows = [
        {
            "project_id": project_id,
            "path_sha": hash_name(file.path),
            "path": file.path,
            "size_bytes": file.size_bytes,
            "modified_ns": file.modified_ns,
            "reason": file.skip.reason,
            "detail": file.skip.detail,
            "recipe": recipe,
        }
        for file in files
    ]
    if rows:
        connection.execute(sa.insert(skipped), rows)


def stream_skips(
    connection: sa.Connection, project_id: int, *, recipe: str
) -> Iterator[SkippedFile]:
    """Yield the files that a recipe rejected, read page by page."""
    query = sa.select(skipped).where(skipped.c.project_id == project_id, skipped.c.recipe == recipe)
    for row in connection.execute(query, execution_options=_STREAM):
        skip = Skip(path=row.path, reason=row.reason, detail=row.detail)
        yield SkippedFile(skip=skip, size_bytes=row.size_bytes, modified_ns=row.modified_ns)


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
    lock: Literal["", "all", "free"] = "",
) -> Iterator[Any]:
    """Yield columns of documents. `lock` excludes other writers until the transaction ends.

    With "free" it leaves out documents that others have locked.
    """
    for batch in split_batches(paths):
        query = sa.select(*columns).where(
            documents.c.project_id == project_id,
            documents.c.path_sha.in_([hash_name(path) for path in batch]),
        )
        if lock:  # in one order everywhere: two writers would deadlock otherwise
            query = query.order_by(documents.c.id).with_for_update(skip_locked=lock == "free")
        yield from connection.execute(query)


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
        "origin": DocumentOrigin.FILE,
        "version": 0,
    }
