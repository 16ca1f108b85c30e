"""Partitions of chunks, words and vectors by project, for catalogs of a million chunks and more.

Each partition is smaller, and so are its indexes.
"""

from __future__ import annotations

import re
from functools import partial

from sqlalchemy.engine import Connection

from unspool.catalog.driver import disable_timeouts
from unspool.catalog.postgres import PostgresCatalog
from unspool.errors import InputError

MAX_PARTITIONS = 1_024
_META = "partitions"  # the row of `meta`

# Keys and indexes of whole and of partitioned tables. Each key of a partitioned table must contain
# the project.
_CHUNKS = (
    "ALTER TABLE chunks ADD CONSTRAINT chunks_pkey PRIMARY KEY (project_id, id)",
    (
        "ALTER TABLE chunks ADD CONSTRAINT uq_chunks_position UNIQUE (document_id, position, "
        "project_id)"
    ),
    (
        "ALTER TABLE chunks ADD CONSTRAINT chunks_document_id_fkey FOREIGN KEY (document_id) "
        "REFERENCES documents (id) ON DELETE CASCADE"
    ),
    "CREATE INDEX ix_chunks_stamp ON chunks (project_id, stamp)",
)
_WORDS = (
    "ALTER TABLE words ADD CONSTRAINT words_pkey PRIMARY KEY (project_id, chunk_id)",
    "CREATE INDEX ix_words_keys ON words USING gin (keys) WITH (gin_pending_list_limit = 1024)",
    "CREATE INDEX ix_words_document ON words (document_id)",
)


def build_vector_keys_sql(table: str) -> tuple[str, ...]:
    """Return the statements that create the keys of a table of vectors."""
    return (
        f"ALTER TABLE {table} ADD CONSTRAINT {table}_pkey PRIMARY KEY (project_id, chunk_id)",
        f"CREATE INDEX ix_{table}_document ON {table} (document_id)",
    )


def count_partitions(connection: Connection) -> int:
    """Return the number of partitions of a catalog; 1 for whole tables."""
    found = connection.exec_driver_sql(
        "SELECT value FROM meta WHERE key = %(key)s", {"key": _META}
    ).scalar()
    return int(found or 1)


def add_partitions(connection: Connection, table: str, number: int) -> None:
    """Create the partitions of a table."""
    for part in range(number):
        connection.exec_driver_sql(
            f"CREATE TABLE {table}_p{part} PARTITION OF {table} FOR VALUES WITH (MODULUS "
            f"{number}, REMAINDER {part})"
        )


def check_number(number: int) -> None:
    """Raise `InputError` if the number of partitions is out of range."""
    if not 1 <= number <= MAX_PARTITIONS:
        raise InputError(f"partitions is {number}; give a number from 1 to {MAX_PARTITIONS}")


def partition_catalog(catalog: PostgresCatalog, number: int) -> int:
    """Move a catalog's chunks into partitions, or with 1 into whole tables; return the old number.

    Everything is copied in a transaction that locks the catalog. Afterwards indexes over vectors
    have to be built again.
    """
    check_number(number)
    return catalog.transact(partial(_partition, number))


def _partition(number: int, connection: Connection) -> int:
    disable_timeouts(connection)
    connection.exec_driver_sql("SELECT value FROM meta WHERE key = 'catalog' FOR UPDATE")
    before = count_partitions(connection)
    if before == number:
        return before
    spaces = _list_vector_tables(connection)
    # All at once, before anything is copied: readers and writers lock them in another order.
    connection.exec_driver_sql(
        f"LOCK TABLE {', '.join(('documents', *spaces, 'words', 'chunks'))} IN ACCESS EXCLUSIVE "
        f"MODE"
    )
    for table in ("chunks", "words", *spaces):
        _move_table(connection, table, number)
    for statement in (
        *_CHUNKS,
        *_WORDS,
        *(statement for table in spaces for statement in build_vector_keys_sql(table)),
        # other processes must refresh their cached facts; the index of pg_textsearch was dropped
        "UPDATE word_formats SET format = 1",
        "UPDATE projects SET seq = seq + 1",
    ):
        connection.exec_driver_sql(statement)
    values = {"key": _META, "value": str(number)}
    connection.exec_driver_sql("DELETE FROM meta WHERE key = %(key)s", values)
    connection.exec_driver_sql("INSERT INTO meta (key, value) VALUES (%(key)s, %(value)s)", values)
    return before


def _list_vector_tables(connection: Connection) -> list[str]:
    query = (
        "SELECT name FROM (SELECT 'vectors_' || id AS name FROM spaces) s WHERE "
        "to_regclass(format('%%I.%%I', current_schema(), name)) IS NOT NULL"
    )
    return list(connection.exec_driver_sql(query, {}).scalars())


def _move_table(connection: Connection, table: str, number: int) -> None:
    """Replace a table by a partitioned or whole copy."""
    assert re.fullmatch(r"[a-z_0-9]+", table)
    connection.exec_driver_sql(f"ALTER TABLE {table} RENAME TO {table}_before")
    parts = (
        "SELECT relname FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = "
        "%(table)s::regclass"
    )
    for part in connection.exec_driver_sql(parts, {"table": f"{table}_before"}).scalars().all():
        connection.exec_driver_sql(f"ALTER TABLE {part} RENAME TO {part}_before")
    parted = " PARTITION BY HASH (project_id)" if number > 1 else ""
    connection.exec_driver_sql(
        f"CREATE TABLE {table} (LIKE {table}_before INCLUDING DEFAULTS INCLUDING STORAGE){parted}"
    )
    if number > 1:
        add_partitions(connection, table, number)
    if table == "words":
        # a partitioned table has no such option, its partitions have it
        for part in [f"words_p{part}" for part in range(number)] if number > 1 else ["words"]:
            connection.exec_driver_sql(f"ALTER TABLE {part} SET (toast_tuple_target = 8160)")
    connection.exec_driver_sql(f"INSERT INTO {table} SELECT * FROM {table}_before")
    connection.exec_driver_sql(f"DROP TABLE {table}_before")
