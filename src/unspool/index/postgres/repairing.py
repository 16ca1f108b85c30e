"""Repair of a project: vectors and words are made to agree with its chunks."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy.engine import Connection

from unspool.catalog.content import NewChunk
from unspool.domain.reports import OnProgress, Progress
from unspool.index.postgres import tables, words
from unspool.index.postgres.tables import VectorTable

PAGE = 2_000  # chunks that are repaired at a time
_MISSING = (
    "FROM chunks c JOIN documents d ON d.id = c.document_id LEFT JOIN {table} x ON x.project_id "
    "= c.project_id AND x.chunk_id = c.id "
    "WHERE c.project_id = %(project)s AND c.id > %(after)s AND x.chunk_id IS NULL"
)

_DELETE_COUNTS = "DELETE FROM word_counts WHERE project_id = %(project)s"
_INSERT_COUNTS = (
    "INSERT INTO word_counts (project_id, key, chunks) "
    "SELECT project_id, key, count(*) FROM words, unnest(keys) AS key WHERE project_id = "
    "%(project)s GROUP BY project_id, key"
)
_UPSERT_TOTALS = (
    "INSERT INTO word_totals (project_id, chunks, format) VALUES (%(project)s, %(chunks)s, "
    "%(format)s) "
    "ON CONFLICT (project_id) DO UPDATE SET chunks = excluded.chunks, format = excluded.format"
)


class WordTotals(NamedTuple):
    """Number of chunks of a project that have words, and the format of the words."""

    chunks: int
    format: int


def read_totals(connection: Connection, project: int) -> WordTotals | None:
    """Return the recorded totals of a project; None if it has no words."""
    statement = "SELECT chunks, format FROM word_totals WHERE project_id = %(project)s"
    row = connection.exec_driver_sql(statement, {"project": project}).first()
    return None if row is None else WordTotals(*row)


def can_repair(connection: Connection, project: int) -> bool:
    """Return whether a project has chunks and the database is writable."""
    found = connection.exec_driver_sql(
        "SELECT NOT pg_is_in_recovery() AND EXISTS (SELECT FROM chunks WHERE project_id = "
        "%(project)s)",
        {"project": project},
    )
    return bool(found.scalar_one())


def count_missing(connection: Connection, project: int, table: VectorTable) -> int:
    """Return the number of chunks of a project without a vector or without words."""
    found = connection.exec_driver_sql(
        f"SELECT count(*) FROM chunks c LEFT JOIN {table.name} v ON v.project_id = c.project_id "
        "AND v.chunk_id = c.id "
        "LEFT JOIN words w ON w.project_id = c.project_id AND w.chunk_id = c.id "
        "WHERE c.project_id = %(project)s AND (v.chunk_id IS NULL OR w.chunk_id IS NULL)",
        {"project": project},
    )
    return int(found.scalar_one())


def repair_project(
    connection: Connection,
    project: int,
    table: VectorTable,
    *,
    with_tokens: bool,
    on_progress: OnProgress | None,
) -> None:
    """Make a project's vectors and words agree with its chunks.

    The transaction must have locked the project.
    """
    recorded = read_totals(connection, project)
    wanted = words.WITH_TOKENS if with_tokens else words.PLAIN
    if recorded is None or recorded.format != wanted:
        words.delete_project(connection, project)
    delete_orphans(connection, project, table)
    words.delete_words(connection, project, _find_orphans(connection, project, "words"))
    total, done = 2 * count_missing(connection, project, table), 0
    for name in (table.name, "words"):
        after = -1
        while chunks := list_missing(connection, project, name, after):
            after = chunks[-1].id
            if name == "words":
                words.add_words(connection, project, chunks, with_tokens=with_tokens)
            else:
                tables.add_vectors(connection, table, project, chunks, {})
            done += len(chunks)
            if on_progress is not None:
                on_progress(Progress(task="rebuilding", done=done, total=total))
    _recount(connection, project, wanted)
    connection.exec_driver_sql(
        "DELETE FROM word_counts WHERE project_id = %(project)s AND chunks <= 0",
        {"project": project},
    )


def delete_orphans(connection: Connection, project: int, table: VectorTable) -> None:
    """Delete the vectors of deleted chunks.

    A chunk id that now belongs to another document counts as deleted.
    """
    if orphans := _find_orphans(connection, project, table.name):
        tables.delete_vectors(connection, table, project, orphans)


def _find_orphans(connection: Connection, project: int, table: str) -> list[int]:
    found = connection.exec_driver_sql(
        f"SELECT x.chunk_id FROM {table} x LEFT JOIN chunks c ON c.id = x.chunk_id AND "
        "c.document_id = x.document_id WHERE x.project_id = %(project)s AND c.id IS NULL",
        {"project": project},
    )
    return list(found.scalars())


def list_missing(connection: Connection, project: int, table: str, after: int) -> list[NewChunk]:
    """Return a page of the chunks that have no row in a table, by id."""
    statement = (
        "SELECT c.id, c.document_id, c.text_sha, d.kind, d.path, d.title, c.headings, c.symbol, "
        f"c.text {_MISSING.format(table=table)} ORDER BY c.id LIMIT {PAGE}"
    )
    found = connection.exec_driver_sql(statement, {"project": project, "after": after})
    return [NewChunk(*row) for row in found]


def count_without_vector(connection: Connection, project: int, table: VectorTable) -> int:
    """Return the number of chunks of a project that have no vector."""
    statement = f"SELECT count(*) {_MISSING.format(table=table.name)}"
    found = connection.exec_driver_sql(statement, {"project": project, "after": -1})
    return int(found.scalar_one())


def _recount(connection: Connection, project: int, kind: int) -> None:
    """Count the chunks of each key again, if the recorded total is wrong."""
    counted = "SELECT count(*) FROM words WHERE project_id = %(project)s"
    values = {"project": project, "format": kind}
    chunks = connection.exec_driver_sql(counted, values).scalar_one()
    recorded = read_totals(connection, project)
    if recorded is not None and recorded.chunks == chunks:
        return
    values["chunks"] = chunks
    for statement in (_DELETE_COUNTS, _INSERT_COUNTS, _UPSERT_TOTALS):
        connection.exec_driver_sql(statement, values)
