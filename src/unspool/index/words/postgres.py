"""Words in tables of the PostgreSQL catalog, and BM25 search over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from pgvector import SparseVector
from sqlalchemy.engine import Connection

from unspool.catalog import chunks as chunk_rows
from unspool.catalog import driver
from unspool.catalog.feed import Changes, ChunkText
from unspool.catalog.filters import Selection, SelectionCache
from unspool.catalog.postgres import PostgresCatalog
from unspool.catalog.projects import ProjectRow, ProjectVersion, lock_project
from unspool.catalog.statements import split_batches
from unspool.domain.filters import Filter
from unspool.domain.reports import OnProgress, Progress
from unspool.errors import ServiceError
from unspool.index import analysis
from unspool.index.bm25 import compute_idf
from unspool.index.ports import Candidates, Ids, Statistics, Vectors, align_scores
from unspool.index.postgres import repairing, textsearch
from unspool.index.postgres import terms as bm25
from unspool.index.postgres.queries import build_condition

# Formats of a project's words: without or with tokens for pg_textsearch. Both change when the
# analysis does.
PLAIN, WITH_TOKENS = 1, 2
# Chunks to score: a minimum, and a number for each hit; see `terms.choose_keys`.
CANDIDATES, CANDIDATES_PER_HIT = 4_000, 20
# The format of a project's words is the least one that a writer has used.
_SET_FORMAT = (
    (
        "INSERT INTO word_formats (project_id, format) VALUES (%(project)s, %(format)s) ON "
        "CONFLICT DO NOTHING"
    ),
    (
        "UPDATE word_formats SET format = %(format)s WHERE project_id = %(project)s AND format > "
        "%(format)s"
    ),
)
_COLUMNS = {
    "project_id": "int8",
    "chunk_id": "int8",
    "document_id": "int8",
    "keys": "int4[]",
    "body": "sparsevec",
}


DELETE_BATCH = 5_000  # chunks that a statement deletes


@dataclass(frozen=True, slots=True)
class WordFacts:
    """Cached facts about a project, as of a sequence number."""

    seq: int
    chunks: int
    has_tokens: bool


class PostgresWords:
    """Words of all projects, as the ports `WordIndex`, `Transactional` and `Upkeep`."""

    def __init__(self, catalog: PostgresCatalog, *, has_textsearch: bool = False) -> None:
        self._catalog = catalog
        self._has_textsearch = has_textsearch
        self._facts: dict[int, WordFacts] = {}
        self._selections = SelectionCache()

    @classmethod
    def open(cls, catalog: PostgresCatalog) -> PostgresWords:
        """Return the words of a catalog; create the index of pg_textsearch if that is possible."""
        with catalog.read() as connection:
            has_index = textsearch.has_index(connection)
            can_create = not has_index and textsearch.can_create_index(connection)
        if can_create:

            def create(connection: Connection) -> bool:
                driver.disable_timeouts(connection)
                textsearch.create_index(connection)
                return textsearch.has_index(connection)

            # it is optional; a user with the permission creates it later
            with suppress(ServiceError):
                has_index = catalog.transact(create)
        return cls(catalog, has_textsearch=has_index)

    # Changes

    def apply_in(self, connection: Connection, changes: Changes) -> None:
        """Change words in the transaction that changes their chunks."""
        for some in split_batches(changes.removed, DELETE_BATCH):
            delete_words(connection, changes.project_id, some)
        if changes.added:
            add_words(
                connection, changes.project_id, changes.added, with_tokens=self._has_textsearch
            )

    def delete_in(self, connection: Connection, project: int) -> None:
        """Delete a project's words."""
        driver.disable_timeouts(connection)
        delete_project(connection, project)

    def complete_in(self, connection: Connection, project: int) -> None:
        """Do nothing: words are the same in every vector space."""

    # Upkeep

    def catch_up(
        self, project: ProjectRow | ProjectVersion, on_progress: OnProgress | None = None
    ) -> int:
        """Return 0, because everything is searchable; update the cached facts of the project."""
        known = self._facts.get(project.id)
        if known is not None and known.seq == project.seq:
            return 0
        with self._catalog.read() as connection:
            kind = repairing.read_format(connection, project.id)
            is_usable = kind in (PLAIN, WITH_TOKENS)
            needs_repair = (
                not is_usable and project.chunk_count > 0 and repairing.is_writable(connection)
            )
        if needs_repair:  # another version wrote the words, or a migration deleted them
            self.repair(project.id, on_progress=on_progress)
        has_tokens = self._has_textsearch and kind == WITH_TOKENS
        self._facts[project.id] = WordFacts(project.seq, project.chunk_count, has_tokens)
        return 0

    def flush(self, project: int) -> None:
        """Do nothing: changes are indexed in their transactions."""

    def finish_run(
        self, project: int, *, put: int | None = None, on_progress: OnProgress | None = None
    ) -> None:
        """Clean up after a run: later searches read less."""
        if put is None:
            self._catalog.transact(clean_pending_list)
            self._catalog.transact(lambda connection: merge_counts(connection, project))

    def fill(self, project: int, on_progress: OnProgress | None = None) -> bool:
        """Return true: words are the same in every vector space."""
        return True

    def repair(
        self, project: int, *, verify: bool = False, on_progress: OnProgress | None = None
    ) -> None:
        """Make a project's words agree with its chunks."""

        def repair(connection: Connection) -> None:
            driver.disable_timeouts(connection)
            if lock_project(connection, project):  # it was not deleted meanwhile
                self._repair(connection, project, on_progress)

        self._catalog.transact(repair)
        self._facts.pop(project, None)

    def _repair(self, connection: Connection, project: int, on_progress: OnProgress | None) -> None:
        wanted = WITH_TOKENS if self._has_textsearch else PLAIN
        if repairing.read_format(connection, project) != wanted:
            delete_project(connection, project)
        orphans = repairing.find_orphans(connection, project, "words")
        for some in split_batches(orphans, DELETE_BATCH):
            delete_words(connection, project, some)
        total, after, done = repairing.count_missing(connection, project, "words"), -1, 0
        while chunks := repairing.list_missing(connection, project, "words", after):
            add_words(connection, project, chunks, with_tokens=self._has_textsearch)
            after, done = chunks[-1].id, done + len(chunks)
            if on_progress is not None:
                on_progress(Progress(task="rebuilding", done=done, total=total))
        repairing.recount(connection, project)

    def count_pending(self, connection: Connection, project: int) -> int:
        """Return the number of chunks without words.

        There are none, unless another program has changed the database.
        """
        return repairing.count_missing(connection, project, "words")

    def find_damage(self, project: int) -> list[str]:
        """Return nothing: the server keeps its tables intact."""
        return []

    def is_filled(self, project: int) -> bool:
        """Return true: changes are indexed in their transactions."""
        return True

    def drop(self, project: int) -> None:
        """Forget a deleted project."""
        self._facts.pop(project, None)

    def take_warnings(self) -> list[str]:
        """Return nothing: the server keeps its tables intact."""
        return []

    def close(self) -> None:
        """Do nothing: the catalog closes its connections."""

    # Search

    def search(
        self, project: int, weights: Mapping[str, float], *, k: int, where: Filter | None = None
    ) -> Candidates:
        """Return the k best chunks that contain at least one of the terms."""
        with self._catalog.read() as connection:
            selection = self._select(connection, project, where)
            if not weights or (selection is not None and selection.is_empty):
                return Candidates.empty()
            query, counts = self._build_query(connection, project, weights)
            if selection is None and self._has_tokens(project):
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
        with self._catalog.read() as connection:
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
        with self._catalog.read() as connection:
            frequencies = _sum_levels(_read_counts(connection, project, wanted.values()))
            chunks = self._count_chunks(connection, project)
        return Statistics(
            chunks=chunks, frequencies={term: frequencies[at] for term, at in wanted.items()}
        )

    def _count_chunks(self, connection: Connection, project: int) -> int:
        known = self._facts.get(project)
        return known.chunks if known else chunk_rows.count_chunks(connection, project)

    def _has_tokens(self, project: int) -> bool:
        known = self._facts.get(project)
        return known is not None and known.has_tokens

    def _select(
        self, connection: Connection, project: int, where: Filter | None
    ) -> Selection | None:
        return None if where is None else self._selections.get(connection, project, where)

    def _build_query(
        self, connection: Connection, project: int, weights: Mapping[str, float]
    ) -> tuple[dict[int, float], dict[int, int]]:
        """Return the query's weight of each dimension, and the number of chunks of each key."""
        dimensions = bm25.TermDimensions(project)
        wanted = {dimensions[term]: weight for term, weight in weights.items()}
        counts = _read_counts(connection, project, wanted)
        frequencies = _sum_levels(counts)
        chunks = self._count_chunks(connection, project)
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
        "SELECT key, sum(chunks)::int8 FROM word_counts WHERE project_id = %(project)s AND key = "
        "ANY(%(keys)b::int4[]) GROUP BY key HAVING sum(chunks) > 0",
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
    connection: Connection, project: int, chunks: Sequence[ChunkText], *, with_tokens: bool
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
    _add_counts(connection, project, keys, sign=1)
    values = {"project": project, "format": WITH_TOKENS if with_tokens else PLAIN}
    for statement in _SET_FORMAT:
        driver.execute(connection, statement, values)


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
    _add_counts(connection, project, keys, sign=-1)


def delete_project(connection: Connection, project: int) -> None:
    """Delete the words of a project."""
    for table in ("words", "word_counts", "word_formats"):
        driver.execute(
            connection, f"DELETE FROM {table} WHERE project_id = %(project)s", {"project": project}
        )


def _add_counts(
    connection: Connection, project: int, keys: Sequence[bm25.Keys], *, sign: int
) -> None:
    """Add rows to the counts of keys, or negative ones.

    Rows are never updated, because writers of the same project would wait for each other.
    """
    if not keys:
        return
    changed, counts = np.unique(np.concatenate(keys), return_counts=True)
    rows = [
        (project, key, count)
        for key, count in zip(changed.tolist(), (sign * counts).tolist(), strict=True)
    ]
    columns = {"project_id": "int8", "key": "int4", "chunks": "int4"}
    driver.copy_rows(connection, "word_counts", columns, rows)


def merge_counts(connection: Connection, project: int) -> None:
    """Replace the rows of each key by one. Rows that others add meanwhile stay."""
    driver.disable_timeouts(connection)
    driver.execute(
        connection,
        "WITH repeated AS (SELECT key FROM word_counts WHERE project_id = %(project)s GROUP BY key "
        "HAVING count(*) > 1), gone AS (DELETE FROM word_counts w USING repeated r WHERE "
        "w.project_id = %(project)s AND w.key = r.key RETURNING w.key, w.chunks) "
        "INSERT INTO word_counts (project_id, key, chunks) SELECT %(project)s, key, sum(chunks) "
        "FROM gone GROUP BY key HAVING sum(chunks) <> 0",
        {"project": project},
    )
