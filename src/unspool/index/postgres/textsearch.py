"""Candidates from pg_textsearch, a BM25 extension, if a server has it.

Its statistics cover all projects together, and its terms have no weights, so its order differs from
ours. But its best few hundred contain our best, and it finds them without reading the many other
chunks with a common word. The candidates are then scored as usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy.engine import Connection

from unspool.index.bm25 import K1, B
from unspool.index.postgres import partitioning, tables
from unspool.index.postgres.terms import TermDimensions

EXTENSION, INDEX = "pg_textsearch", "ix_words_tokens"
CANDIDATES, CANDIDATES_PER_HIT = 400, 2
_MAX_REPEATS = 8
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")


def has_index(connection: Connection) -> bool:
    """Return whether the index exists."""
    return bool(tables.has_valid_index(connection, INDEX))


def can_create_index(connection: Connection) -> bool:
    """Return whether the extension is installed and the tables are not partitioned.

    Each partition would have its own statistics.
    """
    found = connection.exec_driver_sql(
        f"SELECT count(*) FROM pg_extension WHERE extname = '{EXTENSION}' AND NOT "
        "pg_is_in_recovery()"
    )
    return bool(found.scalar_one()) and partitioning.count_partitions(connection) == 1


def create_index(connection: Connection) -> None:
    """Create the column and the index, if that is possible."""
    if can_create_index(connection):
        connection.exec_driver_sql("ALTER TABLE words ADD COLUMN IF NOT EXISTS tokens text")
        options = f"text_config = 'simple', k1 = {K1}, b = {B}"
        connection.exec_driver_sql(
            f"CREATE INDEX IF NOT EXISTS {INDEX} ON words USING bm25 (tokens) WITH ({options})"
        )


def encode_terms(dimensions: TermDimensions, terms: Iterable[str]) -> str:
    """Return the terms of a chunk as words that consist of letters only.

    Every parser leaves such words as they are. Words of two projects differ.
    """
    return " ".join(_encode(dimensions[term]) for term in terms)


def encode_query(query: Mapping[int, float]) -> str:
    """Return the terms of a query as words; terms with a higher weight are repeated."""
    least = min(query.values(), default=1.0)
    return " ".join(
        " ".join([_encode(dimension)] * min(_MAX_REPEATS, max(1, round(weight / least))))
        for dimension, weight in query.items()
    )


def _encode(dimension: int) -> str:
    return f"{dimension:07x}".translate(_LETTERS)
