"""Chunks, words and vectors in partitions by project: each is smaller, and so is its index.

For catalogs of a million chunks and more.
"""

from __future__ import annotations

import re

from sqlalchemy.engine import Connection

from unspool.catalog.driver import disable_timeouts
from unspool.catalog.postgres import PostgresCatalog
from unspool.errors import InputError

MAX_PARTITIONS = 1_024
_META = "partitions"  # the row of `meta`

# What each table has when it is whole and when it is in partitions: every key must then hold the
# project.
_CHUNKS_WHOLE = (
    "ALTER TABLE chunks ADD CONSTRAINT chunks_pkey PRIMARY KEY (id)",
    "ALTER TABLE chunks ADD CONSTRAINT uq_chunks_position UNIQUE (document_id, position)",
)
_CHUNKS_PARTED = (
    "ALTER TABLE chunks ADD CONSTRAINT chunks_pkey PRIMARY KEY (project_id, id)",
    (
        "ALTER TABLE chunks ADD CONSTRAINT uq_chunks_position UNIQUE (project_id, document_id, "
        "position)"
    ),
    "CREATE INDEX ix_chunks_id ON chunks (id)",
    "CREATE INDEX ix_chunks_document ON chunks (document_id)",
)
_CHUNKS_ALWAYS = (
    (
        "ALTER TABLE chunks ADD CONSTRAINT chunks_document_id_fkey FOREIGN KEY (document_id) "
        "REFERENCES documents (id) ON DELETE CASCADE"
    ),
    "CREATE INDEX ix_chunks_seq ON chunks (project_id, seq)",
)
_WORDS = (
    "ALTER TABLE words ADD CONSTRAINT words_pkey PRIMARY KEY (project_id, chunk_id)",
    "CREATE INDEX ix_words_keys ON words USING gin (keys) WITH (gin_pending_list_limit = 1024)",
    "CREATE INDEX ix_words_document ON words (document_id)",
)


def vector_keys(table: str) -> tuple[str, ...]:
    """What a table of vectors has, whole or not."""
    return (
        f"ALTER TABLE {table} ADD CONSTRAINT {table}_pkey PRIMARY KEY (project_id, chunk_id)",
        f"CREATE INDEX ix_{table}_document ON {table} (document_id)",
    )


def count(connection: Connection) -> int:
    """In how many partitions a catalog keeps its chunks; 1 for whole tables."""
    found = connection.exec_driver_sql(
        "SELECT value FROM meta WHERE key = %(key)s", {"key": _META}
    ).scalar()
    return int(found or 1)


def add_partitions(connection: Connection, table: str, number: int) -> None:
    """The partitions of a table that has none yet."""
    for part in range(number):
        connection.exec_driver_sql(
            f"CREATE TABLE {table}_p{part} PARTITION OF {table} FOR VALUES WITH (MODULUS "
            f"{number}, REMAINDER {part})"
        )


def check(number: int) -> None:
    """Refuse a number of partitions that cannot be."""
    if not 1 <= number <= MAX_PARTITIONS:
        raise InputError(f"partitions is {number}; give a number from 1 to {MAX_PARTITIONS}")


def partition(catalog: PostgresCatalog, number: int) -> int:
    """Put a catalog's chunks into so many partitions, or with 1 into whole tables again; returns
    how many there were.

    Everything is copied in one transaction, while which nobody else can use the catalog. Indexes
    over vectors are built anew afterwards.
    """
    check(number)

    def rearrange(connection: Connection) -> int:
        disable_timeouts(connection)
        connection.exec_driver_sql("SELECT value FROM meta WHERE key = 'catalog' FOR UPDATE")
        before = count(connection)
        if before == number:
            return before
        spaces = _vector_tables(connection)
        # All at once, before anything is copied: who reads or writes takes them in another order.
        connection.exec_driver_sql(
            f"LOCK TABLE {', '.join(('documents', *spaces, 'words', 'chunks'))} IN ACCESS "
            f"EXCLUSIVE MODE"
        )
        for table in ("chunks", "words", *spaces):
            _move(connection, table, number)
        for statement in (
            *(_CHUNKS_PARTED if number > 1 else _CHUNKS_WHOLE),
            *_CHUNKS_ALWAYS,
            *_WORDS,
        ):
            connection.exec_driver_sql(statement)
        for table in spaces:
            for statement in vector_keys(table):
                connection.exec_driver_sql(statement)
        # What other processes know of the projects is no longer so, nor is the index of
        # pg_textsearch there.
        connection.exec_driver_sql("UPDATE word_totals SET format = 1")
        connection.exec_driver_sql("UPDATE projects SET seq = seq + 1")
        connection.exec_driver_sql("DELETE FROM meta WHERE key = %(key)s", {"key": _META})
        connection.exec_driver_sql(
            "INSERT INTO meta (key, value) VALUES (%(key)s, %(value)s)",
            {"key": _META, "value": str(number)},
        )
        return before

    return catalog.transact(rearrange)


def _vector_tables(connection: Connection) -> list[str]:
    query = (
        "SELECT name FROM (SELECT 'vectors_' || id AS name FROM spaces) s WHERE "
        "to_regclass(format('%%I.%%I', current_schema(), name)) IS NOT NULL"
    )
    return list(connection.exec_driver_sql(query, {}).scalars())


def _move(connection: Connection, table: str, number: int) -> None:
    """Copy a table into one of the other kind that takes its name."""
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
    if table == "words":  # a table in partitions takes no such options, its partitions do
        for part in [f"words_p{part}" for part in range(number)] if number > 1 else ["words"]:
            connection.exec_driver_sql(f"ALTER TABLE {part} SET (toast_tuple_target = 8160)")
    connection.exec_driver_sql(f"INSERT INTO {table} SELECT * FROM {table}_before")
    connection.exec_driver_sql(f"DROP TABLE {table}_before")
