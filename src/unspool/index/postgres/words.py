"""Words of a PostgreSQL catalog: their rows, and BM25 search over them."""

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
from unspool.index.bm25 import compute_idf
from unspool.index.ports import Candidates, Ids, Statistics, Vectors, align_scores
from unspool.index.postgres import terms as bm25
from unspool.index.postgres import textsearch
from unspool.index.postgres.vectors import build_condition

if TYPE_CHECKING:
    from unspool.index.postgres.store import PostgresStore

# Formats of a project's words: without or with tokens for pg_textsearch. Both change when the
# analysis does.
PLAIN, WITH_TOKENS = 1, 2
# Chunks to score: a minimum, and a number for each hit; see `terms.choose_keys`.
CANDIDATES, CANDIDATES_PER_HIT = 4_000, 20
_COLUMNS = {
    "project_id": "int8",
    "chunk_id": "int8",
    "document_id": "int8",
    "keys": "int4[]",
    "body": "sparsevec",
}


class PostgresWords:
    """Words of the PostgreSQL store, as the `WordIndex` port."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    def search(
        self, project: int, weights: Mapping[str, float], *, k: int, where: Filter | None = None
    ) -> Candidates:
        """Return the k best chunks that contain at least one of the terms."""
        with self._store.read() as connection:
            selection = self._store.select(connection, project, where)
            if not weights or (selection is not None and selection.is_empty):
                return Candidates.empty()
            query, counts = self._build_query(connection, project, weights)
            if selection is None and self._store.has_tokens(project):
                return _search_extension(connection, project, query, weights, k)
            condition, values = build_condition(selection)
            # Adding 0 excludes every index except that of the keys: an index by project would read
            # all rows.
            statement = (
                "SELECT chunk_id, body <#> %(query)b FROM words WHERE project_id + 0 = "
                f"%(project)s AND keys && %(keys)b::int4[]{condition} ORDER BY 2, 1 LIMIT %(k)s"
            )
            values |= {"project": project, "query": _encode_query(query), "k": k}
            # for common terms the planner would prefer to read the whole table
            driver.execute(connection, "SET LOCAL enable_seqscan = off")
            best = bm25.choose_keys(query, counts, max(CANDIDATES, CANDIDATES_PER_HIT * k))
            rows = (
                driver.fetch_rows(connection, statement, {**values, "keys": best}) if best else []
            )
            if len(rows) < k and len(best) < len(counts):
                rows = driver.fetch_rows(connection, statement, {**values, "keys": list(counts)})
        return _make_candidates(rows)

    def score(self, project: int, weights: Mapping[str, float], ids: Ids) -> Vectors:
        """Return the score of each id; 0 for a chunk that contains none of the terms."""
        with self._store.read() as connection:
            query, _ = self._build_query(connection, project, weights)
            rows = driver.fetch_rows(
                connection,
                "SELECT chunk_id, body <#> %(query)b FROM words WHERE project_id = %(project)s "
                "AND chunk_id = ANY(%(ids)b::int8[])",
                {"project": project, "query": _encode_query(query), "ids": ids.tolist()},
            )
        return align_scores({row[0]: -row[1] for row in rows}, ids, absent=0.0)

    def get_statistics(self, project: int, terms: Iterable[str]) -> Statistics:
        """Return the counts that make scores of several projects comparable."""
        dimensions = bm25.TermDimensions(project)
        wanted = {term: dimensions[term] for term in terms}
        with self._store.read() as connection:
            frequencies = _sum_levels(_read_counts(connection, project, wanted.values()))
            chunks = self._store.count_chunks(connection, project)
        return Statistics(
            chunks=chunks, frequencies={term: frequencies[at] for term, at in wanted.items()}
        )

    def _build_query(
        self, connection: Connection, project: int, weights: Mapping[str, float]
    ) -> tuple[dict[int, float], dict[int, int]]:
        """Return the query's weight of each dimension, and the number of chunks of each key."""
        dimensions = bm25.TermDimensions(project)
        wanted = {dimensions[term]: weight for term, weight in weights.items()}
        counts = _read_counts(connection, project, wanted)
        frequencies = _sum_levels(counts)
        chunks = self._store.count_chunks(connection, project)
        return {
            at: weight * compute_idf(frequencies[at], chunks) for at, weight in wanted.items()
        }, counts


def _search_extension(
    connection: Connection,
    project: int,
    query: Mapping[int, float],
    weights: Mapping[str, float],
    k: int,
) -> Candidates:
    """Return the best of the candidates of pg_textsearch.

    They are queried separately: a condition or an outer query makes it ten times slower.
    """
    dimensions = bm25.TermDimensions(project)
    text = textsearch.encode_query({dimensions[term]: weight for term, weight in weights.items()})
    enough = max(textsearch.CANDIDATES, textsearch.CANDIDATES_PER_HIT * k)
    # the planner must use its index
    driver.execute(connection, "SET LOCAL enable_sort = off; SET LOCAL enable_seqscan = off")
    found = driver.fetch_rows(
        connection,
        "SELECT chunk_id FROM words ORDER BY tokens <@> to_bm25query(%(text)s, %(index)s) "
        "LIMIT %(enough)s",
        {"text": text, "index": textsearch.INDEX, "enough": enough},
    )
    rows = driver.fetch_rows(
        connection,
        "SELECT chunk_id, body <#> %(query)b FROM words WHERE project_id = %(project)s AND "
        "chunk_id = ANY(%(ids)b::int8[]) "
        "AND body <#> %(query)b < 0 ORDER BY 2, 1 LIMIT %(k)s",
        {
            "project": project,
            "ids": [row[0] for row in found],
            "query": _encode_query(query),
            "k": k,
        },
    )
    return _make_candidates(rows)


def _make_candidates(rows: Sequence[tuple[int, float]]) -> Candidates:
    return Candidates(
        ids=np.array([row[0] for row in rows], dtype=np.int64),
        scores=-np.array([row[1] for row in rows], dtype=np.float32),
    )


def _read_counts(connection: Connection, project: int, dimensions: Iterable[int]) -> dict[int, int]:
    """Return the number of chunks of each key of these dimensions."""
    rows = driver.fetch_rows(
        connection,
        "SELECT key, chunks FROM word_counts WHERE project_id = %(project)s AND key = "
        "ANY(%(keys)b::int4[]) AND chunks > 0",
        {"project": project, "keys": bm25.list_keys(dimensions)},
    )
    return dict(rows)


def _sum_levels(counts: Mapping[int, int]) -> Counter[int]:
    """Return the number of chunks of each dimension, over all levels."""
    total: Counter[int] = Counter()
    for key, chunks in counts.items():
        total[key // 4] += chunks
    return total


def _encode_query(query: Mapping[int, float]) -> SparseVector:
    return SparseVector(dict(query), bm25.DIMENSIONS)


def add_words(
    connection: Connection, project: int, chunks: Sequence[NewChunk], *, with_tokens: bool
) -> None:
    """Insert the words of chunks."""
    dimensions = bm25.TermDimensions(project)
    columns = _COLUMNS | ({"tokens": "text"} if with_tokens else {})
    rows, keys = [], []
    for chunk in chunks:
        terms = analysis.extract_chunk_terms(
            kind=chunk.kind,
            path=chunk.path,
            title=chunk.title,
            headings=chunk.headings,
            symbol=chunk.symbol,
            text=chunk.text,
        )
        vector = bm25.build_vector(dimensions, terms)
        tokens = (textsearch.encode_terms(dimensions, terms),) if with_tokens else ()
        keys.append(vector.keys)
        rows.append((project, chunk.id, chunk.document_id, vector.keys.tolist(), vector, *tokens))
    driver.copy_rows(connection, "words", columns, rows)
    _update_counts(connection, project, keys, sign=1, kind=WITH_TOKENS if with_tokens else PLAIN)


def clean_pending_list(connection: Connection) -> None:
    """Merge the pending list of the index over keys; otherwise every search would read it."""
    driver.fetch_rows(
        connection,
        "SELECT gin_clean_pending_list(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = "
        "i.indexrelid JOIN pg_am a ON a.oid = c.relam "
        "WHERE a.amname = 'gin' AND c.relkind = 'i' AND (i.indrelid = 'words'::regclass OR "
        "i.indrelid IN "
        "(SELECT inhrelid FROM pg_inherits WHERE inhparent = 'words'::regclass))",
        {},
    )


def delete_words(connection: Connection, project: int, ids: Sequence[int]) -> None:
    """Delete the words of chunks."""
    rows = driver.fetch_rows(
        connection,
        "DELETE FROM words WHERE project_id = %(project)s AND chunk_id = ANY(%(ids)s) RETURNING "
        "keys",
        {"project": project, "ids": list(ids)},
    )
    keys = [np.array(row[0], dtype=np.int32) for row in rows]
    # deleting does not change the format of the other chunks
    _update_counts(connection, project, keys, sign=-1, kind=WITH_TOKENS)


def delete_project(connection: Connection, project: int) -> None:
    """Delete the words of a project."""
    for table in ("words", "word_counts", "word_totals"):
        driver.execute(
            connection, f"DELETE FROM {table} WHERE project_id = %(project)s", {"project": project}
        )


def _update_counts(
    connection: Connection, project: int, keys: Sequence[bm25.Keys], *, sign: int, kind: int
) -> None:
    """Add chunks to the counts of their keys, or subtract them.

    Keys are updated in ascending order, so that two writers never deadlock.
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
