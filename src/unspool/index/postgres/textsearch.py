"""pg_textsearch, a BM25 index for PostgreSQL, where a server has it: it finds the candidates, and
what is scored stays the same.

Its statistics are those of all projects together, and it knows no weights, so its order is not
ours. The best few hundred by its order hold the best by ours, and it finds them without reading the
many others that hold a common word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy.engine import Connection

from unspool.index.bm25 import K1, B
from unspool.index.postgres import partitioning, tables
from unspool.index.postgres.terms import Places

EXTENSION, INDEX = "pg_textsearch", "ix_words_tokens"
CANDIDATES, CANDIDATES_PER_HIT = 400, 2
_MAX_REPEATS = 8
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")


def is_usable(connection: Connection) -> bool:
    """Whether the index is there.

    In partitions, which would each count by themselves, there is none.
    """
    return bool(tables.has_index(connection, INDEX))


def is_possible(connection: Connection) -> bool:
    """Whether the extension is there, so that the index can be made."""
    query = (
        f"SELECT count(*) FROM pg_extension WHERE extname = '{EXTENSION}' AND NOT "
        f"pg_is_in_recovery()"
    )
    return (
        bool(connection.exec_driver_sql(query).scalar_one()) and partitioning.count(connection) == 1
    )


def prepare(connection: Connection) -> None:
    """Make the column and the index where that is possible; inside a writing transaction."""
    if is_possible(connection):
        connection.exec_driver_sql("ALTER TABLE words ADD COLUMN IF NOT EXISTS tokens text")
        options = f"text_config = 'simple', k1 = {K1}, b = {B}"
        connection.exec_driver_sql(
            f"CREATE INDEX IF NOT EXISTS {INDEX} ON words USING bm25 (tokens) WITH ({options})"
        )


def tokens(places: Places, terms: Iterable[str]) -> str:
    """The terms of a chunk as words of letters alone, which no parser takes for anything else;
    those of one project are no other's.
    """
    return " ".join(_word(places[term]) for term in terms)


def question(query: Mapping[int, float]) -> str:
    """The same of a query.

    A word that weighs more is said more often, which is all the weight that can be given.
    """
    least = min(query.values(), default=1.0)
    return " ".join(
        " ".join([_word(at)] * min(_MAX_REPEATS, max(1, round(weight / least))))
        for at, weight in query.items()
    )


def _word(place: int) -> str:
    return f"{place:07x}".translate(_LETTERS)
