"""What `repair` does to a project: chunks without a vector or words get them, vectors and words
without a chunk go, counts are made right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy.engine import Connection

from unspool.catalog.content import NewChunk
from unspool.domain.reports import Progress
from unspool.index.postgres import tables, words
from unspool.index.postgres.tables import VectorTable

PAGE = 2_000  # chunks that are made good at a time
AddVectors = Callable[[Connection, int, Sequence[NewChunk], Mapping[bytes, bytes]], None]


class Totals(NamedTuple):
    """How many chunks of a project have words, and in which format they are kept."""

    chunks: int
    format: int


def totals(connection: Connection, project: int) -> Totals | None:
    """What is noted of a project's words; None for one that has none."""
    statement = "SELECT chunks, format FROM word_totals WHERE project_id = %(project)s"
    row = connection.exec_driver_sql(statement, {"project": project}).first()
    return None if row is None else Totals(*row)


def can_mend(connection: Connection, project: int) -> bool:
    """Whether there are chunks to make something of, and the database can be written."""
    statement = (
        "SELECT NOT pg_is_in_recovery() AND EXISTS (SELECT FROM chunks WHERE project_id = "
        "%(project)s)"
    )
    return bool(connection.exec_driver_sql(statement, {"project": project}).scalar_one())


def missing_count(connection: Connection, project: int, table: VectorTable) -> int:
    """How many chunks of a project have no vector or no words."""
    statement = (
        f"SELECT count(*) FROM chunks c LEFT JOIN {table.name} v ON v.project_id = c.project_id "
        f"AND v.chunk_id = c.id "
        "LEFT JOIN words w ON w.project_id = c.project_id AND w.chunk_id = c.id "
        "WHERE c.project_id = %(project)s AND (v.chunk_id IS NULL OR w.chunk_id IS NULL)"
    )
    return int(connection.exec_driver_sql(statement, {"project": project}).scalar_one())


def mend(
    connection: Connection,
    project: int,
    table: VectorTable,
    add_vectors: AddVectors,
    *,
    with_tokens: bool,
    on_progress: Callable[[Progress], None] | None,
) -> None:
    """Make a project's vectors and words agree with its chunks; inside a writing transaction
    that has the project to itself.
    """
    noted = totals(connection, project)
    wanted = words.WITH_TOKENS if with_tokens else words.PLAIN
    if noted is None or noted.format != wanted:
        words.drop(connection, project)
    remove_orphans(connection, project, table)
    if gone := _orphans(connection, project, "words"):
        words.remove(connection, project, gone)
    total, done = 2 * missing_count(connection, project, table), 0
    for name in (table.name, "words"):
        after = -1
        while chunks := _missing(connection, project, name, after):
            after = chunks[-1].id
            if name == "words":
                words.add(connection, project, chunks, with_tokens=with_tokens)
            else:
                add_vectors(connection, project, chunks, {})
            done += len(chunks)
            if on_progress is not None:
                on_progress(Progress(task="rebuilding", done=done, total=total))
    _recount(connection, project, wanted)
    connection.exec_driver_sql(
        "DELETE FROM word_counts WHERE project_id = %(project)s AND chunks <= 0",
        {"project": project},
    )


def remove_orphans(connection: Connection, project: int, table: VectorTable) -> None:
    """Forget the vectors of chunks that are gone, or belong to another document now: it was
    forgotten and put again.
    """
    if gone := _orphans(connection, project, table.name):
        tables.remove(connection, table, project, gone)


def _orphans(connection: Connection, project: int, table: str) -> list[int]:
    statement = (
        f"SELECT x.chunk_id FROM {table} x LEFT JOIN chunks c ON c.id = x.chunk_id AND "
        f"c.document_id = x.document_id "
        "WHERE x.project_id = %(project)s AND c.id IS NULL"
    )
    return [row[0] for row in connection.exec_driver_sql(statement, {"project": project})]


def without_vector(
    connection: Connection, project: int, table: VectorTable, after: int
) -> list[NewChunk]:
    """Chunks of a project that have no vector in a table, by id; a page of them."""
    return _missing(connection, project, table.name, after)


def missing_vectors(connection: Connection, project: int, table: VectorTable) -> int:
    """How many chunks of a project have no vector in a table."""
    statement = f"SELECT count(*) {_MISSING.format(table=table.name)}"
    return int(
        connection.exec_driver_sql(statement, {"project": project, "after": -1}).scalar_one()
    )


def _missing(connection: Connection, project: int, table: str, after: int) -> list[NewChunk]:
    statement = (
        "SELECT c.id, c.document_id, c.text_sha, d.kind, d.path, d.title, c.headings, c.symbol, "
        "c.text "
        f"{_MISSING.format(table=table)} ORDER BY c.id LIMIT {PAGE}"
    )
    return [
        NewChunk(*row)
        for row in connection.exec_driver_sql(statement, {"project": project, "after": after})
    ]


_MISSING = (
    "FROM chunks c JOIN documents d ON d.id = c.document_id LEFT JOIN {table} x ON x.project_id "
    "= c.project_id AND x.chunk_id = c.id "
    "WHERE c.project_id = %(project)s AND c.id > %(after)s AND x.chunk_id IS NULL"
)


def _recount(connection: Connection, project: int, kind: int) -> None:
    """Count again how many chunks have each key, where the note disagrees."""
    counted = "SELECT count(*) FROM words WHERE project_id = %(project)s"
    chunks = connection.exec_driver_sql(counted, {"project": project}).scalar_one()
    noted = totals(connection, project)
    if noted is not None and noted.chunks == chunks:
        return
    connection.exec_driver_sql(
        "DELETE FROM word_counts WHERE project_id = %(project)s", {"project": project}
    )
    connection.exec_driver_sql(
        "INSERT INTO word_counts (project_id, key, chunks) "
        "SELECT project_id, key, count(*) FROM words, unnest(keys) AS key WHERE project_id = "
        "%(project)s GROUP BY project_id, key",
        {"project": project},
    )
    connection.exec_driver_sql(
        "INSERT INTO word_totals (project_id, chunks, format) VALUES (%(project)s, %(chunks)s, "
        "%(format)s) "
        "ON CONFLICT (project_id) DO UPDATE SET chunks = excluded.chunks, format = excluded.format",
        {"project": project, "chunks": chunks, "format": kind},
    )
