"""Documents and their chunks, written: queued, claimed, stored, failed, removed.

Each function is part of a caller's transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unspool.catalog import spaces
from unspool.catalog.projects import ProjectRow, name_sha, next_seq
from unspool.catalog.schema import (
    chunks,
    document_fields,
    documents,
    embeddings,
    field_text,
    removals,
    skipped,
)
from unspool.catalog.statements import batches, hold, insert_many, insert_missing
from unspool.domain.documents import Kind, Metadata, Origin, Status, chunk_id, copy_key
from unspool.domain.prepared import PreparedChunk, PreparedDocument
from unspool.domain.reports import Skip
from unspool.errors import ConflictError

_REMOVAL_COLUMNS = ("project_id", "seq", "chunk_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentState:
    """What the decision about a file needs to know of its document."""

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


class NewChunk(NamedTuple):
    """A chunk that was not there before, as what is derived takes it in."""

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
    """What became of a project's chunks in a transaction, for what is derived from them."""

    added: Sequence[NewChunk] = ()  # not for what catches up: that reads them when it does
    removed: Sequence[int] = ()
    # those that were embedded for it, by the text's SHA-256
    vectors: Mapping[bytes, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a transaction wrote.

    `lost` paths were forgotten or taken over by another run meanwhile.
    """

    documents: int = 0
    chunks: int = 0
    embedded: int = 0
    lost: tuple[str, ...] = ()
    changes: Changes = Changes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What a transaction removed."""

    documents: int = 0
    changes: Changes = Changes()


def states(connection: Connection, project_id: int) -> dict[str, DocumentState]:
    """Every document of a project by path, as the last run left it."""
    d = documents.c
    query = sa.select(
        d.id,
        d.path,
        d.sha256,
        d.size_bytes,
        d.modified_ns,
        d.status,
        d.recipe,
        d.origin,
        d.run_id,
        d.indexed_at,
        d.kind,
    ).where(d.project_id == project_id)
    found = {}
    for (
        id_,
        path,
        sha,
        size,
        modified,
        status,
        recipe,
        origin,
        run_id,
        indexed_at,
        kind,
    ) in connection.execute(query):
        found[path] = DocumentState(
            id=id_,
            path=path,
            sha256=sha,
            size_bytes=size,
            modified_ns=modified,
            status=Status(status),
            recipe=recipe,
            origin=Origin(origin),
            run_id=run_id,
            indexed_at=indexed_at,
            is_conversation=kind == Kind.CHAT,
        )
    return found


def queue(
    connection: Connection, project_id: int, *, new: Sequence[str], stale: Sequence[int]
) -> None:
    """Note what a run is going to do: new paths become pending, changed documents stale."""
    rows = [_blank(project_id, path) for path in new]
    if rows:
        connection.execute(sa.insert(documents), rows)
    for ids in batches(stale):
        done = documents.c.id.in_(ids) & (documents.c.status == Status.INDEXED)
        connection.execute(sa.update(documents).where(done).values(status=Status.STALE))


def claim(
    connection: Connection, project_id: int, run_id: int, paths: Sequence[str], live: frozenset[int]
) -> dict[str, int]:
    """Take documents for a run; those that another live run holds or has finished meanwhile are
    left alone. Returns path -> id of the taken.
    """
    taken: dict[str, int] = {}
    for some in batches(paths):
        query = sa.select(
            documents.c.path, documents.c.id, documents.c.status, documents.c.run_id
        ).where(
            documents.c.project_id == project_id,
            documents.c.path_sha.in_([name_sha(path) for path in some]),
        )
        free = {
            path: id_
            for path, id_, status, holder in connection.execute(query)
            if status != Status.INDEXED
            and not (status == Status.INDEXING and holder in live and holder != run_id)
        }
        if free:
            update = sa.update(documents).where(documents.c.id.in_(list(free.values())))
            connection.execute(update.values(status=Status.INDEXING, run_id=run_id))
        taken |= free
    return taken


def store(
    connection: Connection,
    project: ProjectRow,
    prepared: Sequence[PreparedDocument],
    *,
    held: Mapping[str, int],
    space_id: int,
    new: Collection[str] = (),
    feeds: bool = True,
) -> Stored:
    """Replace documents with what was prepared: rows, chunks, vectors and what is now gone, all in
    the caller's transaction.

    Only documents that are `held`, path -> id, are touched; of those that are `new` nothing has to
    be removed. `feeds`, there is something that catches up with what changes here.
    """
    kept = [document for document in prepared if document.path in held]
    lost = tuple(document.path for document in prepared if document.path not in held)
    if not kept:
        return Stored(lost=lost)
    seq = next_seq(connection, project.id, feeds=feeds)
    before = [held[document.path] for document in kept if document.path not in new]
    old = _delete_chunks(connection, before)
    rows: list[tuple[Any, ...]] = []
    added: list[NewChunk] = []
    for document in kept:
        made = list(_chunk_rows(project, document, held[document.path], seq, old))
        rows += made
        if not feeds:
            added += (
                new_chunk(
                    row[0],
                    row[2],
                    chunk,
                    kind=document.kind,
                    path=document.path,
                    title=document.title,
                )
                for row, chunk in zip(made, document.chunks, strict=True)
                if row[0] not in old
            )
    gone = sorted(old.keys() - {row[0] for row in rows})
    if feeds:
        insert_many(
            connection, removals, _REMOVAL_COLUMNS, [(project.id, seq, id_) for id_ in gone]
        )
    insert_many(connection, chunks, CHUNK_COLUMNS, rows)
    vectors = {sha: vector for document in kept for sha, vector in document.vectors.items()}
    embedded = store_vectors(
        connection,
        {chunk.text_sha for document in kept for chunk in document.chunks},
        vectors,
        space_id,
    )
    connection.execute(
        _UPDATE, [_document_row(document, held[document.path], seq) for document in kept]
    )
    for ids in batches(before):
        connection.execute(sa.delete(document_fields).where(document_fields.c.document_id.in_(ids)))
    store_fields(connection, {held[document.path]: document.metadata for document in kept})
    if project.root:  # text that was given is never skipped
        forget_skips(connection, project.id, [document.path for document in kept])
    changes = Changes(added=added, removed=gone, vectors=vectors)
    return Stored(
        documents=len(kept), chunks=len(rows), embedded=embedded, lost=lost, changes=changes
    )


def refresh(connection: Connection, seen: Sequence[tuple[int, int | None, int]]) -> None:
    """The content turned out to be the same: note the new modification time (id, modified_ns,
    size) and that all is well.
    """
    statement = sa.update(documents).where(documents.c.id == sa.bindparam("b_id"))
    statement = statement.values(
        modified_ns=sa.bindparam("b_modified"),
        size_bytes=sa.bindparam("b_size"),
        status=Status.INDEXED,
        error="",
        run_id=None,
    )
    if seen:
        connection.execute(
            statement,
            [{"b_id": id_, "b_modified": modified, "b_size": size} for id_, modified, size in seen],
        )


def fail(connection: Connection, failures: Sequence[tuple[int, str]]) -> None:
    """Note why documents could not be indexed; what was searchable of them stays so."""
    statement = sa.update(documents).where(documents.c.id == sa.bindparam("b_id"))
    statement = statement.values(status=Status.FAILED, error=sa.bindparam("b_error"), run_id=None)
    if failures:
        connection.execute(
            statement, [{"b_id": id_, "b_error": error[:2000]} for id_, error in failures]
        )


def remove(
    connection: Connection, project_id: int, ids: Sequence[int], *, feeds: bool = True
) -> Removed:
    """Remove documents with their chunks, and note the chunks for what is derived and catches
    up.
    """
    if not ids:
        return Removed()
    gone = _delete_chunks(connection, ids)
    if gone:
        seq = next_seq(connection, project_id, feeds=feeds)
        if feeds:
            insert_many(
                connection, removals, _REMOVAL_COLUMNS, [(project_id, seq, id_) for id_ in gone]
            )
    count = 0
    for some in batches(ids):
        count += connection.execute(sa.delete(documents).where(documents.c.id.in_(some))).rowcount
    return Removed(documents=count, changes=Changes(removed=sorted(gone)))


def skip(
    connection: Connection, project_id: int, skips: Sequence[tuple[Skip, int, int]], *, recipe: str
) -> None:
    """Remember files whose content said no, with their size and modification time, and by which
    rules.
    """
    paths = [one.path for one, _, _ in skips]
    forget_skips(connection, project_id, paths)
    rows = [
        {
            "project_id": project_id,
            "path_sha": name_sha(one.path),
            "path": one.path,
            "size_bytes": size,
            "modified_ns": modified,
        }
        | {"reason": one.reason, "detail": one.detail, "recipe": recipe}
        for one, size, modified in skips
    ]
    if rows:
        connection.execute(sa.insert(skipped), rows)


def known_skips(
    connection: Connection, project_id: int, *, recipe: str
) -> dict[str, tuple[int, int, Skip]]:
    """Path -> size, modification time and the skip of files that an earlier run of the same
    rules looked into and left out.
    """
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


def ids_of(connection: Connection, project_id: int, paths: Sequence[str]) -> dict[str, int]:
    """Path -> id of the documents that exist."""
    found: dict[str, int] = {}
    for some in batches(paths):
        query = sa.select(documents.c.path, documents.c.id).where(
            documents.c.project_id == project_id,
            documents.c.path_sha.in_([name_sha(path) for path in some]),
        )
        found.update((path, id_) for path, id_ in connection.execute(query))
    return found


def check_versions(connection: Connection, project_id: int, expected: Mapping[str, int]) -> None:
    """Refuse to go on where a document is not at the version that its writer has seen; 0 is one
    that does not exist.
    """
    for some in batches(expected):
        query = sa.select(documents.c.path, documents.c.version).where(
            documents.c.project_id == project_id,
            documents.c.path_sha.in_([name_sha(path) for path in some]),
        )
        found: dict[str, int] = {row[0]: row[1] for row in connection.execute(query)}
        for path in some:
            if (now := found.get(path, 0)) != expected[path]:
                stands = f"is at version {now}" if now else "does not exist (any more)"
                wanted = f"not at {expected[path]}" if expected[path] else "but was to be new"
                raise ConflictError(
                    f"document {path!r} {stands}, {wanted}; somebody else was faster, so read it "
                    f"again and put what follows from that"
                )


def check_free(connection: Connection, project_id: int, paths: Sequence[str]) -> None:
    """Refuse to replace a conversation by a document of its name."""
    for some in batches(paths):
        query = sa.select(documents.c.path).where(
            documents.c.project_id == project_id,
            documents.c.path_sha.in_([name_sha(path) for path in some]),
            documents.c.kind == Kind.CHAT,
        )
        known = connection.execute(query.limit(1)).scalar()
        if known is not None:
            raise ConflictError(
                f"{known!r} is a conversation of this project, not a document; give the document "
                f"another path, or delete that first"
            )


def ensure_documents(
    connection: Connection, project_id: int, paths: Sequence[str]
) -> tuple[dict[str, int], frozenset[str]]:
    """The rows of documents, made where there is none yet: path -> id, and which are new."""
    known = ids_of(connection, project_id, paths)
    new = [path for path in paths if path not in known]
    if new:
        made = sa.insert(documents).returning(documents.c.path, documents.c.id)
        known |= {
            row[0]: row[1]
            for row in connection.execute(made, [_blank(project_id, path) for path in new])
        }
    return known, frozenset(new)


def _blank(project_id: int, path: str) -> dict[str, Any]:
    return {
        "project_id": project_id,
        "path": path,
        "path_sha": name_sha(path),
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


def held_by(
    connection: Connection, project_id: int, paths: Sequence[str], run_id: int | None
) -> dict[str, int]:
    """Path -> id of the documents that a run still holds; without a run, of all that exist."""
    found = ids_of(connection, project_id, paths)
    if run_id is None:
        return found
    held: set[int] = set()
    for some in batches(found.values()):
        held.update(
            row[0]
            for row in connection.execute(
                sa.select(documents.c.id).where(
                    documents.c.id.in_(some), documents.c.run_id == run_id
                )
            )
        )
    return {path: id_ for path, id_ in found.items() if id_ in held}


def _delete_chunks(connection: Connection, document_ids: Sequence[int]) -> dict[int, int]:
    """Delete the chunks of documents; returns id -> seq of what was there."""
    old: dict[int, int] = {}
    for some in batches(document_ids):
        gone = (
            sa.delete(chunks)
            .where(chunks.c.document_id.in_(some))
            .returning(chunks.c.id, chunks.c.seq)
        )
        old.update((id_, seq) for id_, seq in connection.execute(gone))
    return old


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


def _chunk_rows(
    project: ProjectRow, document: PreparedDocument, document_id: int, seq: int, old: dict[int, int]
) -> Iterator[tuple[Any, ...]]:
    seen: Counter[bytes] = Counter()
    for position, chunk in enumerate(document.chunks):
        id_ = chunk_id(project.name, document.path, chunk.text_sha, seen[chunk.text_sha])
        seen[chunk.text_sha] += 1
        # What only moved inside its document has not changed for anyone.
        yield chunk_row(chunk, id_, project.id, document_id, position, old.get(id_, seq))


def chunk_row(
    chunk: PreparedChunk, id_: int, project_id: int, document_id: int, position: int, seq: int
) -> tuple[Any, ...]:
    """A chunk's values, in the order of `CHUNK_COLUMNS`."""
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


def new_chunk(
    id_: int, document_id: int, chunk: PreparedChunk, *, kind: Kind, path: str, title: str
) -> NewChunk:
    """A chunk as what is derived takes it in."""
    return NewChunk(
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


def keep_embeddings(connection: Connection, space_id: int, vectors: Mapping[bytes, bytes]) -> int:
    """Keep the vectors of texts, by their SHA-256; returns how many were new."""
    rows = sorted((space_id, sha, vector) for sha, vector in vectors.items())
    return insert_missing(connection, embeddings, ("space_id", "text_sha", "vector"), rows)


def store_vectors(
    connection: Connection, shas: Collection[bytes], vectors: Mapping[bytes, bytes], space_id: int
) -> int:
    """Store vectors, and see that every text of these has one; returns how many were new."""
    hold(connection, embeddings, alone=False)
    spaces.check_active(connection, space_id)
    embedded = keep_embeddings(connection, space_id, vectors)
    wanted = set(shas) - vectors.keys()
    missing = wanted - known_embeddings(connection, space_id, wanted)
    if missing:  # they were there when the batch was prepared
        raise ConflictError(
            f"{len(missing)} embeddings were removed while they were needed; run again"
        )
    return embedded


def known_embeddings(connection: Connection, space_id: int, shas: Iterable[bytes]) -> set[bytes]:
    """Which of these texts have a vector already."""
    known: set[bytes] = set()
    for some in batches(shas):
        query = sa.select(embeddings.c.text_sha).where(
            embeddings.c.space_id == space_id, embeddings.c.text_sha.in_(some)
        )
        known.update(row[0] for row in connection.execute(query))
    return known


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
        # A document that is forgotten and put again in its project has another version than before,
        # so that nobody takes it for the one he saw.
        version=sa.case(
            (documents.c.version >= sa.bindparam("b_seq"), documents.c.version + 1),
            else_=sa.bindparam("b_seq"),
        ),
    )
)


def _document_row(document: PreparedDocument, document_id: int, seq: int) -> dict[str, Any]:
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


def store_fields(connection: Connection, fields: Mapping[int, Metadata]) -> None:
    """The metadata of documents once more, by their ids, as filters look at it."""
    rows = [
        {
            "document_id": document_id,
            "key": key,
            "text": field_text(value) if isinstance(value, str) else None,
            "number": float(value) if not isinstance(value, str) else None,
        }
        for document_id, metadata in fields.items()
        for key, value in metadata.items()
    ]
    if rows:
        connection.execute(sa.insert(document_fields), rows)


def forget_skips(connection: Connection, project_id: int, paths: Sequence[str]) -> None:
    """Forget skips of files that are no longer there, or that are taken in after all."""
    for some in batches(paths):
        query = sa.delete(skipped).where(
            skipped.c.project_id == project_id,
            skipped.c.path_sha.in_([name_sha(path) for path in some]),
        )
        connection.execute(query)
