"""The word half of the store: BM25 inside the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from pgvector import SparseVector
from sqlalchemy.engine import Connection

from unspool.catalog import driver
from unspool.catalog.content import NewChunk
from unspool.domain.filters import Filter
from unspool.index import analysis
from unspool.index.bm25 import inverse_document_frequency
from unspool.index.ports import Ids, Matches, Statistics, Vectors, in_order
from unspool.index.postgres import terms as bm25
from unspool.index.postgres import textsearch

if TYPE_CHECKING:
    from unspool.index.postgres.store import PostgresStore

# What is kept of a project's words: with tokens for pg_textsearch, or without. Both change when the
# analysis does.
PLAIN, WITH_TOKENS = 1, 2
# Chunks among which the best are looked for: at least so many, and so many for each that is wanted;
# see `terms.leading`.
CANDIDATES, CANDIDATES_PER_HIT = 4_000, 20
_COLUMNS = {
    "project_id": "int8",
    "chunk_id": "int8",
    "document_id": "int8",
    "keys": "int4[]",
    "body": "sparsevec",
}


class PostgresWords:
    """The word half of the store, as the `WordIndex` port."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    def search(
        self, project: int, weights: Mapping[str, float], *, k: int, where: Filter | None = None
    ) -> Matches:
        """The k best chunks that hold at least one of the terms."""
        with self._store.reading() as connection:
            selection = self._store.select(connection, project, where)
            if not weights or (selection is not None and selection.is_empty):
                return Matches.none()
            query, counts = self._query(connection, project, weights)
            if selection is None and self._store.has_tokens(project):
                return _matches(self._by_extension(connection, project, query, weights, k))
            leading = bm25.leading(query, counts, max(CANDIDATES, CANDIDATES_PER_HIT * k))
            condition, values = self._store.condition(selection)
            statement = (
                # Adding nothing keeps every index but that of the keys out of it: one by project
                # would read them all.
                f"SELECT chunk_id, body <#> %(query)b FROM words WHERE project_id + 0 = "
                f"%(project)s AND keys && %(keys)b::int4[]{condition} "
                "ORDER BY 2, 1 LIMIT %(k)s"
            )
            # common terms would make it read everything
            driver.execute(connection, "SET LOCAL enable_seqscan = off")
            rows: Sequence[tuple[int, float]] = ()
            # all of them only where those that lead give too few
            for keys in (leading, list(counts)):
                if keys:
                    asked = {
                        "project": project,
                        "query": _sparse(query),
                        "keys": keys,
                        "k": k,
                        **values,
                    }
                    rows = driver.fetch_rows(connection, statement, asked)
                if len(rows) >= k or len(leading) == len(counts):
                    break
        return _matches(rows)

    def _by_extension(
        self,
        connection: Connection,
        project: int,
        query: Mapping[int, float],
        weights: Mapping[str, float],
        k: int,
    ) -> Sequence[tuple[int, float]]:
        """The best of what pg_textsearch finds.

        It is asked by itself: with a condition or a query around it, it takes ten times as long.
        """
        places = bm25.Places(project)
        text = textsearch.question({places[term]: weight for term, weight in weights.items()})
        enough = max(textsearch.CANDIDATES, textsearch.CANDIDATES_PER_HIT * k)
        # its index, and no other way
        driver.execute(connection, "SET LOCAL enable_sort = off; SET LOCAL enable_seqscan = off")
        find = (
            "SELECT chunk_id FROM words ORDER BY tokens <@> to_bm25query(%(text)s, %(index)s) "
            "LIMIT %(enough)s"
        )
        found = [
            row[0]
            for row in driver.fetch_rows(
                connection, find, {"text": text, "index": textsearch.INDEX, "enough": enough}
            )
        ]
        rank = (
            "SELECT chunk_id, body <#> %(query)b FROM words WHERE project_id = %(project)s AND "
            "chunk_id = ANY(%(ids)b::int8[]) "
            "AND body <#> %(query)b < 0 ORDER BY 2, 1 LIMIT %(k)s"
        )
        return driver.fetch_rows(
            connection, rank, {"project": project, "ids": found, "query": _sparse(query), "k": k}
        )

    def score(self, project: int, weights: Mapping[str, float], ids: Ids) -> Vectors:
        """The score of each id; 0 for what holds none of the terms."""
        with self._store.reading() as connection:
            query, _ = self._query(connection, project, weights)
            statement = (
                "SELECT chunk_id, body <#> %(query)b FROM words WHERE project_id = %(project)s "
                "AND chunk_id = ANY(%(ids)b::int8[])"
            )
            rows = driver.fetch_rows(
                connection,
                statement,
                {"project": project, "query": _sparse(query), "ids": ids.tolist()},
            )
        return in_order({row[0]: -row[1] for row in rows}, ids, absent=0.0)

    def statistics(self, project: int, terms: Iterable[str]) -> Statistics:
        """What makes the scores of one project comparable with another's."""
        places = bm25.Places(project)
        wanted = {term: places[term] for term in terms}
        with self._store.reading() as connection:
            held = _frequencies(self._counts(connection, project, wanted.values()))
            chunks = self._store.chunks(connection, project)
        return Statistics(
            chunks=chunks, frequencies={term: held[at] for term, at in wanted.items()}
        )

    def _query(
        self, connection: Connection, project: int, weights: Mapping[str, float]
    ) -> tuple[dict[int, float], dict[int, int]]:
        """The query's vector by place, and how many chunks have each of the keys that it asks
        for.
        """
        places = bm25.Places(project)
        wanted = {places[term]: weight for term, weight in weights.items()}
        counts = self._counts(connection, project, wanted)
        held = _frequencies(counts)
        chunks = self._store.chunks(connection, project)
        return {
            at: weight * inverse_document_frequency(held[at], chunks)
            for at, weight in wanted.items()
        }, counts

    def _counts(
        self, connection: Connection, project: int, places: Iterable[int]
    ) -> dict[int, int]:
        statement = (
            "SELECT key, chunks FROM word_counts WHERE project_id = %(project)s AND key = "
            "ANY(%(keys)b::int4[]) AND chunks > 0"
        )
        return dict(
            driver.fetch_rows(
                connection, statement, {"project": project, "keys": bm25.keys_of(places)}
            )
        )


def _matches(rows: Sequence[tuple[int, float]]) -> Matches:
    return Matches(
        ids=np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows)),
        scores=-np.fromiter((row[1] for row in rows), dtype=np.float32, count=len(rows)),
    )


def _frequencies(counts: Mapping[int, int]) -> Counter[int]:
    """In how many chunks each place is, whatever its weight there."""
    found: Counter[int] = Counter()
    for key, chunks in counts.items():
        found[key // 4] += chunks
    return found


def _sparse(query: Mapping[int, float]) -> SparseVector:
    return SparseVector(dict(query), bm25.PLACES)


def add(
    connection: Connection, project: int, chunks: Sequence[NewChunk], *, with_tokens: bool
) -> None:
    """Take in the words of chunks."""
    places = bm25.Places(project)
    terms = [
        analysis.chunk_terms(
            kind=one.kind,
            path=one.path,
            title=one.title,
            headings=one.headings,
            symbol=one.symbol,
            text=one.text,
        )
        for one in chunks
    ]
    bodies = [bm25.body(places, own) for own in terms]
    keys = [body.keys for body in bodies]
    rows: Iterable[tuple[object, ...]] = (
        (project, one.id, one.document_id, own.tolist(), body)
        for one, own, body in zip(chunks, keys, bodies, strict=True)
    )
    if with_tokens:
        rows = (
            (*row, textsearch.tokens(places, own)) for row, own in zip(rows, terms, strict=True)
        )
    driver.copy_rows(
        connection, "words", _COLUMNS | ({"tokens": "text"} if with_tokens else {}), rows
    )
    _count(connection, project, keys, sign=1, kind=WITH_TOKENS if with_tokens else PLAIN)


def tidy(connection: Connection) -> None:
    """Sort in what the index of the keys has put aside while much was written; a search would
    have to read all of that.
    """
    driver.fetch_rows(
        connection,
        "SELECT gin_clean_pending_list(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = "
        "i.indexrelid JOIN pg_am a ON a.oid = c.relam "
        "WHERE a.amname = 'gin' AND c.relkind = 'i' AND (i.indrelid = 'words'::regclass OR "
        "i.indrelid IN "
        "(SELECT inhrelid FROM pg_inherits WHERE inhparent = 'words'::regclass))",
        {},
    )


def remove(connection: Connection, project: int, ids: Sequence[int]) -> None:
    """Forget the words of chunks."""
    statement = (
        "DELETE FROM words WHERE project_id = %(project)s AND chunk_id = ANY(%(ids)s) RETURNING "
        "keys"
    )
    gone = [
        np.array(row[0], dtype=np.int32)
        for row in driver.fetch_rows(connection, statement, {"project": project, "ids": list(ids)})
    ]
    _count(connection, project, gone, sign=-1, kind=WITH_TOKENS)  # what stays is as it was


def drop(connection: Connection, project: int) -> None:
    """Forget the words of a project."""
    for table in ("words", "word_counts", "word_totals"):
        driver.execute(
            connection, f"DELETE FROM {table} WHERE project_id = %(project)s", {"project": project}
        )


def _count(
    connection: Connection, project: int, keys: Sequence[bm25.Keys], *, sign: int, kind: int
) -> None:
    """Keep count of how many chunks have each key; in the same order everywhere, so that two
    writers never wait for each other.
    """
    if not keys:
        return
    changed, counts = np.unique(np.concatenate(keys), return_counts=True)
    driver.execute(
        connection,
        "INSERT INTO word_counts (project_id, key, chunks) SELECT %(project)s, * FROM "
        "unnest(%(keys)b::int4[], %(counts)b::int4[]) "
        "ON CONFLICT (project_id, key) DO UPDATE SET chunks = word_counts.chunks + excluded.chunks",
        {"project": project, "keys": changed.tolist(), "counts": (sign * counts).tolist()},
    )
    driver.execute(
        connection,
        "INSERT INTO word_totals (project_id, chunks, format) VALUES (%(project)s, %(chunks)s, "
        "%(format)s) "
        "ON CONFLICT (project_id) DO UPDATE SET chunks = word_totals.chunks + excluded.chunks, "
        "format = least(word_totals.format, excluded.format)",
        {"project": project, "chunks": sign * len(keys), "format": kind},
    )
