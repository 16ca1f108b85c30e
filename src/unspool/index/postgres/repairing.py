"""Repair of a project: vectors and words are made to agree with its chunks."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from unspool.catalog.feed import ChunkText
from unspool.index.postgres import tables
from unspool.index.postgres.tables import VectorTable

PAGE = 2_000  # chunks that are repaired at a time
_MISSING = (
    "FROM chunks c JOIN documents d ON d.id = c.document_id LEFT JOIN {table} x ON x.project_id "
    "= c.project_id AND x.chunk_id = c.id "
    "WHERE c.project_id = %(project)s AND c.id > %(after)s AND x.chunk_id IS NULL"
)

_RECOUNT = (
    "DELETE FROM word_counts WHERE project_id = %(project)s",
    (
        "INSERT INTO word_counts (project_id, key, chunks) "
        "SELECT project_id, key, count(*) FROM words, unnest(keys) AS key WHERE project_id = "
        "%(project)s GROUP BY project_id, key"
    ),
)


def read_format(connection: Connection, project: int) -> int | None:
    """Return the format of a project's words; None if it has no words."""
    statement = "SELECT format FROM word_formats WHERE project_id = %(project)s"
    found: int | None = connection.exec_driver_sql(statement, {"project": project}).scalar()
    return found


def is_writable(connection: Connection) -> bool:
    """Return whether the database is no replica."""
    return bool(connection.exec_driver_sql("SELECT NOT pg_is_in_recovery()").scalar_one())


def recount(connection: Connection, project: int) -> None:
    """Count the chunks of each key again, in a transaction that has locked the project."""
    for statement in _RECOUNT:
        connection.exec_driver_sql(statement, {"project": project})


def delete_orphans(connection: Connection, project: int, table: VectorTable) -> None:
    """Delete the vectors of deleted chunks.

    A chunk id that now belongs to another document counts as deleted.
    """
    if orphans := find_orphans(connection, project, table.name):
        tables.delete_vectors(connection, table, project, orphans)


def find_orphans(connection: Connection, project: int, table: str) -> list[int]:
    """Return the ids of rows in a table without their chunk."""
    found = connection.exec_driver_sql(
        f"SELECT x.chunk_id FROM {table} x LEFT JOIN chunks c ON c.project_id = x.project_id AND "
        "c.id = x.chunk_id AND c.document_id = x.document_id WHERE x.project_id = %(project)s AND "
        "c.id IS NULL",
        {"project": project},
    )
    return list(found.scalars())


def list_missing(connection: Connection, project: int, table: str, after: int) -> list[ChunkText]:
    """Return a page of the chunks that have no row in a table, by id."""
    statement = (
        "SELECT c.id, c.document_id, c.text_sha, d.kind, d.path, d.title, c.headings, c.symbol, "
        f"c.text {_MISSING.format(table=table)} ORDER BY c.id LIMIT {PAGE}"
    )
    found = connection.exec_driver_sql(statement, {"project": project, "after": after})
    return [ChunkText(*row) for row in found]


def count_missing(connection: Connection, project: int, table: str) -> int:
    """Return the number of chunks of a project that have no row in a table."""
    statement = f"SELECT count(*) {_MISSING.format(table=table)}"
    found = connection.exec_driver_sql(statement, {"project": project, "after": -1})
    return int(found.scalar_one())
