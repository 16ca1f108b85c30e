"""The word half of the store: BM25 inside the database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pgvector import SparseVector
from sqlalchemy.engine import Connection

from unspool.catalog.copying import copy
from unspool.catalog.documents import NewChunk
from unspool.domain.filters import Filter
from unspool.postgres import terms as bm25
from unspool.vectors.base import Ids, Matches, Vectors
from unspool.words import analysis
from unspool.words.base import Statistics

if TYPE_CHECKING:
    from unspool.postgres.store import PostgresStore

FORMAT = 1  # of what is kept of a chunk's words; raised when the analysis changes
# Chunks among which the best are looked for, for each that is wanted; see `terms.leading`.
CANDIDATES, CANDIDATES_PER_HIT = 4_000, 20
_COLUMNS = {"project_id": "int8", "chunk_id": "int8", "document_id": "int8", "terms": "int4[]", "body": "sparsevec"}


class PostgresWords:
    """The word half of the store, as the `WordIndex` port."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    def search(self, project: int, weights: Mapping[str, float], *, k: int, where: Filter | None = None) -> Matches:
        """The k best chunks that hold at least one of the terms."""
        with self._store.reading() as connection:
            selection = self._store.select(connection, project, where)
            if not weights or (selection is not None and selection.is_empty):
                return Matches.none()
            query, frequencies = self._query(connection, project, weights)
            held = [term for term, frequency in frequencies.items() if frequency]
            leading = bm25.leading(frequencies, max(CANDIDATES, CANDIDATES_PER_HIT * k))
            condition, values = self._store.condition(selection)
            statement = (
                f"SELECT chunk_id, body <#> %(query)b FROM words WHERE project_id = %(project)s AND terms && %(terms)s::int4[]{condition} "
                "ORDER BY 2, 1 LIMIT %(k)s"
            )
            rows: Sequence[tuple[int, float]] = ()
            for among in (leading, held):
                if among:
                    asked = {"project": project, "query": query, "terms": among, "k": k, **values}
                    rows = connection.exec_driver_sql(statement, asked).fetchall()
                if len(rows) >= k or len(leading) == len(held):
                    break
        return Matches(
            ids=np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows)),
            scores=-np.fromiter((row[1] for row in rows), dtype=np.float32, count=len(rows)),
        )

    def score(self, project: int, weights: Mapping[str, float], ids: Ids) -> Vectors:
        """The score of each id; 0 for what holds none of the terms."""
        with self._store.reading() as connection:
            query, _ = self._query(connection, project, weights)
            statement = "SELECT chunk_id, body <#> %(query)b FROM words WHERE project_id = %(project)s AND chunk_id = ANY(%(ids)s)"
            rows = connection.exec_driver_sql(statement, {"project": project, "query": query, "ids": ids.tolist()}).fetchall()
        known = {row[0]: -row[1] for row in rows}
        return np.array([known.get(id_, 0.0) for id_ in ids.tolist()], dtype=np.float32)

    def statistics(self, project: int, terms: Iterable[str]) -> Statistics:
        """What makes the scores of one project comparable with another's."""
        at = bm25.Places(project)
        wanted = {term: at[term] for term in terms}
        with self._store.reading() as connection:
            held = self._counts(connection, project, list(wanted.values()))
            chunks = self._store.chunks(connection, project)
        return Statistics(chunks=chunks, frequencies={term: held.get(place, 0) for term, place in wanted.items()})

    def _query(self, connection: Connection, project: int, weights: Mapping[str, float]) -> tuple[SparseVector, dict[int, int]]:
        """The query's vector, and in how many chunks each of its terms is."""
        places = bm25.Places(project)
        wanted = {places[term]: weight for term, weight in weights.items()}
        held = self._counts(connection, project, list(wanted))
        chunks = self._store.chunks(connection, project)
        frequencies = {at: held.get(at, 0) for at in wanted}
        query = {at: weight * bm25.rarity(frequencies[at], chunks) for at, weight in wanted.items()}
        return SparseVector(query, bm25.DIMENSIONS), frequencies

    def _counts(self, connection: Connection, project: int, places: list[int]) -> dict[int, int]:
        statement = "SELECT term, chunks FROM word_counts WHERE project_id = %(project)s AND term = ANY(%(terms)s)"
        return {row[0]: row[1] for row in connection.exec_driver_sql(statement, {"project": project, "terms": places})}


def add(connection: Connection, project: int, chunks: Sequence[NewChunk]) -> None:
    """Take in the words of chunks."""
    places = bm25.Places(project)
    bodies = [
        bm25.body(places, analysis.chunk_terms(path=one.path, title=one.title, headings=one.headings, symbol=one.symbol, text=one.text))
        for one in chunks
    ]
    rows = ((project, one.id, one.document_id, body.terms.tolist(), body) for one, body in zip(chunks, bodies, strict=True))
    copy(connection, "words", _COLUMNS, rows)
    _count(connection, project, [body.terms for body in bodies], sign=1)


def remove(connection: Connection, project: int, ids: Sequence[int]) -> None:
    """Forget the words of chunks."""
    statement = "DELETE FROM words WHERE project_id = %(project)s AND chunk_id = ANY(%(ids)s) RETURNING terms"
    gone = [np.array(row[0], dtype=np.int32) for row in connection.exec_driver_sql(statement, {"project": project, "ids": list(ids)})]
    _count(connection, project, gone, sign=-1)


def drop(connection: Connection, project: int) -> None:
    """Forget the words of a project."""
    for table in ("words", "word_counts", "word_totals"):
        connection.exec_driver_sql(f"DELETE FROM {table} WHERE project_id = %(project)s", {"project": project})


def _count(connection: Connection, project: int, terms: Sequence[npt.NDArray[np.int32]], *, sign: int) -> None:
    """Keep count of how many chunks hold each term; in the same order everywhere, so that two writers never wait for each other."""
    if not terms:
        return
    changed, counts = np.unique(np.concatenate(terms), return_counts=True)
    connection.exec_driver_sql(
        "INSERT INTO word_counts (project_id, term, chunks) SELECT %(project)s, * FROM unnest(%(terms)b::int4[], %(counts)b::int4[]) "
        "ON CONFLICT (project_id, term) DO UPDATE SET chunks = word_counts.chunks + excluded.chunks",
        {"project": project, "terms": changed.tolist(), "counts": (sign * counts).tolist()},
    )
    connection.exec_driver_sql(
        "INSERT INTO word_totals (project_id, chunks, format) VALUES (%(project)s, %(chunks)s, %(format)s) "
        "ON CONFLICT (project_id) DO UPDATE SET chunks = word_totals.chunks + excluded.chunks",
        {"project": project, "chunks": sign * len(terms), "format": FORMAT},
    )
