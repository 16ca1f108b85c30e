"""The store inside a PostgreSQL catalog.

What it holds changes in the same transactions as the documents do, so nothing is ever behind.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, cast

import numpy as np
from pgvector import HalfVector, Vector
from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, driver, spaces
from unspool.catalog.content import Changes, NewChunk
from unspool.catalog.filters import Selection, SelectionCache
from unspool.catalog.postgres import PostgresCatalog
from unspool.catalog.projects import ProjectRow, lock_project
from unspool.catalog.statements import split_batches
from unspool.domain.filters import Filter
from unspool.domain.queries import Stability
from unspool.domain.reports import Progress
from unspool.errors import (
    ConflictError,
    DimensionError,
    ServiceError,
    UnspoolError,
    UnsupportedError,
)
from unspool.index.options import Metric, VectorOptions
from unspool.index.ports import Capabilities, Ids, Matches, Points, Vectors, best_matches, in_order
from unspool.index.postgres import indexes, mending, tables, textsearch, words
from unspool.index.postgres.tables import OPERATOR, VectorTable
from unspool.index.postgres.words import PostgresWords

# Up to here every vector of a project, or of what a filter lets through, is compared, and nothing
# is missed. An index that misses 2 % takes as long somewhere between 10 000 and 30 000 vectors of
# 256 dimensions (bench/postgres.py --parts exact).
EXACT_BELOW = 20_000
# Where an index gives fewer than there are, this many are compared one by one rather than to come
# back short.
EXACT_RATHER_THAN_SHORT = 200_000
MAX_BY_INDEX = 2_000  # hits; deeper than this an index is slower than no index
# How many candidates an HNSW index keeps in view: four for each hit finds 97 % of 200, fewer than
# this miss one of ten.
EF_PER_HIT, MIN_EF, MAX_EF = 4, 800, 1_000
AT_ONCE = 5_000  # chunks that are removed by one statement

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a project, as of a sequence number."""

    seq: int
    chunks: int
    is_indexed: bool
    has_tokens: bool


class IndexState(NamedTuple):
    """What `doctor` says of the index over a project's vectors."""

    ok: bool
    detail: str


class PostgresStore:
    """Both retrievers in one database.

    Satisfies the `Store` port; `words` satisfies `WordIndex`.
    """

    name = "postgresql"
    catches_up = False

    def __init__(
        self,
        catalog: PostgresCatalog,
        *,
        space_id: int,
        space: str,
        table: VectorTable,
        options: VectorOptions,
        has_textsearch: bool = False,
    ) -> None:
        self.space_id = space_id
        self._catalog = catalog
        self.reading = catalog.read
        self._space = space
        self._table = table
        self._options = options
        self._textsearch = has_textsearch
        self._exact_below = options.exact_below or EXACT_BELOW
        self._known: dict[int, _Known] = {}
        # chunks since it was last looked whether there should be an index, by project
        self._put: dict[int, int] = {}
        self._selections = SelectionCache()
        self._guard = threading.Lock()
        self._builder = indexes.Builder(catalog, table, options)
        self.words = PostgresWords(self)
        self.capabilities = Capabilities(
            knn=True,
            filters=True,
            metadata_filtering=True,
            exact=options.index == "exact",
            max_k=100_000,
            stability=Stability.DETERMINISTIC
            if options.index == "exact"
            else Stability.BEST_EFFORT,
        )

    # Keeping up with the catalog

    def follow(self, connection: Connection, project: int, changes: Changes) -> None:
        """Change vectors and words together with the chunks they belong to."""
        if len(changes.removed) > AT_ONCE:
            driver.disable_timeouts(connection)
        for some in split_batches(changes.removed, AT_ONCE):
            tables.remove(connection, self._table, project, some)
            words.remove(connection, project, some)
        if changes.added:
            self.add_vectors(connection, project, changes.added, changes.vectors)
            words.add(connection, project, changes.added, with_tokens=self._textsearch)

    def add_vectors(
        self,
        connection: Connection,
        project: int,
        chunks: Sequence[NewChunk],
        known: Mapping[bytes, bytes],
    ) -> None:
        """Take in the vectors of chunks; those that are not given are in the catalog."""
        vectors = dict(known)
        missing = list({chunk.text_sha for chunk in chunks} - vectors.keys())
        if missing:
            statement = (
                "SELECT text_sha, vector FROM embeddings WHERE space_id = %(space)s AND text_sha "
                "= ANY(%(shas)s)"
            )
            vectors.update(
                driver.fetch_rows(connection, statement, {"space": self.space_id, "shas": missing})
            )
            if any(sha not in vectors for sha in missing):
                raise ConflictError(
                    "some embeddings are not in the catalog; index again, which makes them"
                )
        columns = {
            "project_id": "int8",
            "chunk_id": "int8",
            "document_id": "int8",
            "vector": self._table.type,
        }
        driver.copy_rows(
            connection,
            self._table.name,
            columns,
            [
                (
                    project,
                    chunk.id,
                    chunk.document_id,
                    self._as_type(np.frombuffer(vectors[chunk.text_sha], dtype="<f4")),
                )
                for chunk in chunks
            ],
        )

    def forget(self, connection: Connection, project: int) -> None:
        """Remove a project's vectors, those of every space, and words together with its
        documents, however long that takes.
        """
        driver.disable_timeouts(connection)
        for name in tables.names(connection):
            connection.exec_driver_sql(
                f"DELETE FROM {name} WHERE project_id = %(project)s", {"project": project}
            )
        words.drop(connection, project)

    def fresh(self, project: ProjectRow, on_progress: OnProgress | None = None) -> int:
        """Everything that was committed is findable already; this only looks whether an index
        has to be made use of.
        """
        known = self._known.get(project.id)
        if (
            known is not None
            and known.seq == project.seq
            and (known.is_indexed or known.chunks <= self._exact_below)
        ):
            return 0
        with self.reading() as connection:
            found = mending.totals(connection, project.id)
            is_indexed = self._options.index != "exact" and self._builder.is_built(
                connection, project.id
            )
        if self._has_to_mend(project, found):
            # another version's, or none at all after a migration down and up
            self.absorb(project.id, on_progress=on_progress)
            with self.reading() as connection:
                found = mending.totals(connection, project.id)
        has_tokens = self._textsearch and found is not None and found.format == words.WITH_TOKENS
        with self._guard:
            known = self._known.get(project.id)
            if known is None or known.seq <= project.seq:
                self._known[project.id] = _Known(
                    project.seq, 0 if found is None else found.chunks, is_indexed, has_tokens
                )
        return 0

    def _has_to_mend(self, project: ProjectRow, found: mending.Totals | None) -> bool:
        if found is not None:
            return found.format not in (words.PLAIN, words.WITH_TOKENS)
        if not project.seq:
            return False
        with self.reading() as connection:
            return mending.can_mend(connection, project.id)

    def keep_up(self, project: int) -> None:
        """Nothing: nothing is behind."""

    def settle(
        self, project: int, *, put: int | None = None, on_progress: OnProgress | None = None
    ) -> str:
        """Tidy up after a run, and make the index over the vectors once a project has become
        large: at once, after puts in the background.
        """
        try:
            self._settle(project, put, on_progress)
        # who repeated a put for this would be told of a conflict with himself
        except UnspoolError as error:
            return f"everything is stored and found, but its index could not be built: {error}"
        return ""

    def _settle(self, project: int, put: int | None, on_progress: OnProgress | None) -> None:
        if put is None:
            self._catalog.transact(words.tidy)
        if self._options.index == "exact" or not self._is_time(project, put):
            return
        with self.reading() as connection:
            found = mending.totals(connection, project)
            chunks = 0 if found is None else found.chunks
            if chunks <= self._exact_below or self._builder.is_built(connection, project):
                return
        if put is None:
            self._builder.build(project, on_progress)
        elif chunks > 2 * self._exact_below and not self._builder.start(project):
            self._put[project] = self._exact_below  # look again next time

    def _is_time(self, project: int, put: int | None) -> bool:
        """Whether to look if there should be an index: after every run, and now and then between
        puts.
        """
        if put is None:
            return True
        with self._guard:
            self._put[project] = self._put.get(project, self._exact_below) + put
            if self._put[project] < self._exact_below // 8:
                return False
            self._put[project] = 0
            return True

    def absorb(
        self, project: int, *, verify: bool = False, on_progress: OnProgress | None = None
    ) -> bool:
        """Make what is missing again, remove what should not be there, and build the index if
        there should be one.
        """

        def mend(connection: Connection) -> None:
            driver.disable_timeouts(connection)
            if not lock_project(connection, project):
                return  # it was forgotten
            spaces.check_active(connection, self.space_id)
            mending.mend(
                connection,
                project,
                self._table,
                self.add_vectors,
                with_tokens=self._textsearch,
                on_progress=on_progress,
            )

        self._catalog.transact(mend)
        self._known.pop(project, None)
        self._settle(project, None, on_progress)
        return True

    def build(self, project: int, *, on_progress: OnProgress | None = None) -> bool:
        """Fill this space's table while another's is searched, a portion at a time, and build
        its index.
        """
        with self.reading() as connection:
            if spaces.has_missing(connection, self.space_id, project):
                return False
            total = mending.missing_vectors(connection, project, self._table)
        after, done = -1, 0
        while True:
            after, count = self._catalog.transact(partial(self._fill, project, after))
            if not count:
                break
            done += count
            if on_progress is not None:
                on_progress(Progress(task="rebuilding", done=min(done, total), total=total))
        self._settle(project, None, on_progress)
        return True

    def _fill(self, project: int, after: int, connection: Connection) -> tuple[int, int]:
        if not lock_project(connection, project):
            return after, 0
        chunks = mending.without_vector(connection, project, self._table, after)
        if chunks:
            known = spaces.find_known_texts(
                connection, self.space_id, {chunk.text_sha for chunk in chunks}
            )
            # the others came meanwhile
            self.add_vectors(
                connection, project, [chunk for chunk in chunks if chunk.text_sha in known], {}
            )
            after = chunks[-1].id
        return after, len(chunks)

    def complete(self, connection: Connection, project: int) -> None:
        """Take out what went since `build`, lock_project in what came."""
        driver.disable_timeouts(connection)
        mending.remove_orphans(connection, project, self._table)
        after = -1
        while chunks := mending.without_vector(connection, project, self._table, after):
            self.add_vectors(connection, project, chunks, {})
            after = chunks[-1].id

    def drop_space(self, connection: Connection) -> None:
        """Remove the space's table."""
        driver.disable_timeouts(connection)
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {self._table.name}")

    def sweep(self, spaces_kept: Collection[int]) -> None:
        """Nothing: what is dropped is gone."""

    def unseen(self, connection: Connection, project: int) -> int:
        """How many chunks have no vector or no words: none, unless something else wrote into the
        database.
        """
        return mending.missing_count(connection, project, self._table)

    def index_state(self, connection: Connection, project: int, chunks: int) -> IndexState:
        """Whether the index over a project's vectors is as it should be."""
        if self._options.index == "exact":
            return IndexState(ok=True, detail="every vector is compared")
        if self._builder.is_built(connection, project):
            return IndexState(
                ok=True, detail=f"{self._options.index} index for {self._options.metric}"
            )
        if self._builder.is_broken(connection, project):
            return IndexState(
                ok=False, detail=f"the build of the {self._options.index} index was broken off"
            )
        if chunks > 2 * self._exact_below:
            return IndexState(
                ok=False, detail=f"no {self._options.index} index yet, so every vector is compared"
            )
        return IndexState(ok=True, detail="few enough to compare every vector")

    def take_warnings(self) -> list[str]:
        """Return nothing: the server keeps its tables sound."""
        return []

    def position(self, project: int) -> int:
        """Refused: nothing is ever behind."""
        raise UnsupportedError(
            "the PostgreSQL store takes part in every change; it has no position"
        )

    # The VectorIndex port

    def search(
        self,
        project: int,
        vector: Vectors,
        *,
        k: int,
        where: Filter | None = None,
        hint: str | None = None,
    ) -> Matches:
        """The k nearest. This store has no native continuation, so a hint is refused."""
        if hint is not None:
            raise UnsupportedError(
                "the PostgreSQL store has no native continuation; search again with a larger k"
            )
        self._check(vector)
        with self.reading() as connection:
            selection = self.select(connection, project, where)
            total = self.chunks(connection, project) if selection is None else selection.total
            if not total:
                return Matches.none()
            known = self._known.get(project)
            if (
                total <= self._exact_below
                or k > MAX_BY_INDEX
                or known is None
                or not known.is_indexed
            ):
                return self._exact(connection, project, vector, k, selection)
            found = self._by_index(connection, project, vector, k, selection)
            if len(found.ids) >= min(k, total):
                return found
            if total <= EXACT_RATHER_THAN_SHORT:
                return self._exact(connection, project, vector, k, selection)
            return Matches(ids=found.ids, scores=found.scores, is_short=True)

    def _exact(
        self,
        connection: Connection,
        project: int,
        vector: Vectors,
        k: int,
        selection: Selection | None,
    ) -> Matches:
        # adding nothing keeps an index out of it
        return self._nearest(
            connection, project, vector, k, selection, order="({distance}) + 0, chunk_id"
        )

    def _by_index(
        self,
        connection: Connection,
        project: int,
        vector: Vectors,
        k: int,
        selection: Selection | None,
    ) -> Matches:
        self._tune(connection, project, k)
        return self._nearest(connection, project, vector, k, selection, order="{distance}")

    def _nearest(
        self,
        connection: Connection,
        project: int,
        vector: Vectors,
        k: int,
        selection: Selection | None,
        *,
        order: str,
    ) -> Matches:
        condition, values = self.condition(selection)
        distance = f"vector {OPERATOR[self._options.metric]} %(vector)b"
        # the project stands there as a number: an index over it alone is only taken for one that is
        # known
        statement = (
            f"SELECT chunk_id, {distance} FROM {self._table.name} WHERE project_id = "
            f"{project:d}{condition} "
            f"ORDER BY {order.format(distance=distance)} LIMIT %(k)s"
        )
        return self._matches(
            connection, statement, {"vector": self._as_type(vector), "k": k, **values}
        )

    def _tune(self, connection: Connection, project: int, k: int) -> None:
        """Let the index look far enough for k, go on until a filter has let k through, and be
        what the planner takes.
        """
        if self._options.index == "hnsw":
            own = {
                "hnsw.ef_search": min(max(EF_PER_HIT * k, MIN_EF), MAX_EF),
                "hnsw.iterative_scan": "relaxed_order",
            }
            own["hnsw.max_scan_tuples"] = max(
                self._options.max_scan_tuples,
                4 * k if self._options.max_scan_tuples >= 20_000 else 0,
            )
        else:
            lists = tables.lists(self._options, self.chunks(connection, project))
            own = {
                "ivfflat.probes": max(10, 2 * math.isqrt(lists)),
                "ivfflat.iterative_scan": "relaxed_order",
            }
        own |= {"enable_sort": "off", "plan_cache_mode": "force_custom_plan"}
        calls = ", ".join(f"set_config('{name}', %({name})s, true)" for name in own)
        driver.execute(
            connection, f"SELECT {calls}", {name: str(value) for name, value in own.items()}
        )

    def _matches(
        self, connection: Connection, statement: str, values: Mapping[str, object]
    ) -> Matches:
        rows = driver.fetch_rows(connection, statement, values)
        ids = np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows))
        return best_matches(
            ids,
            self._scores(np.fromiter((row[1] for row in rows), dtype=np.float64, count=len(rows))),
        )

    def _scores(self, distances: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Vectors:
        if self._options.metric is Metric.COSINE:
            scores = 1.0 - distances
        elif self._options.metric is Metric.L2:
            scores = 1.0 / (1.0 + distances)
        else:
            scores = -distances  # PostgreSQL sorts upwards, so its inner product comes negative
        return scores.astype(np.float32)

    def score(self, project: int, vector: Vectors, ids: Ids) -> Vectors:
        """The score of each id; NaN for what is absent."""
        self._check(vector)
        statement = (
            f"SELECT chunk_id, vector {OPERATOR[self._options.metric]} %(vector)b FROM "
            f"{self._table.name} "
            "WHERE project_id = %(project)s AND chunk_id = ANY(%(ids)s)"
        )
        with self.reading() as connection:
            found = self._matches(
                connection,
                statement,
                {"project": project, "vector": self._as_type(vector), "ids": ids.tolist()},
            )
        return in_order(
            dict(zip(found.ids.tolist(), found.scores.tolist(), strict=True)), ids, absent=np.nan
        )

    def count(self, project: int) -> int:
        """How many points are findable."""
        with self.reading() as connection:
            statement = f"SELECT count(*) FROM {self._table.name} WHERE project_id = %(project)s"
            return int(connection.exec_driver_sql(statement, {"project": project}).scalar_one())

    def ids(self, project: int, *, after: int = -1, limit: int = 1000) -> Ids:
        """Ids in ascending order."""
        statement = (
            f"SELECT chunk_id FROM {self._table.name} WHERE project_id = %(project)s AND "
            f"chunk_id > %(after)s ORDER BY chunk_id LIMIT %(limit)s"
        )
        with self.reading() as connection:
            rows = connection.exec_driver_sql(
                statement, {"project": project, "after": after, "limit": limit}
            ).fetchall()
        return np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows))

    def upsert(self, project: int, points: Points) -> None:
        """Refused: what this store holds follows the catalog alone."""
        raise UnsupportedError(
            "the PostgreSQL store takes its points from the catalog; store documents there"
        )

    def delete(self, project: int, ids: Sequence[int]) -> None:
        """Refused, as `upsert` is."""
        raise UnsupportedError(
            "the PostgreSQL store takes its points from the catalog; remove documents there"
        )

    def drop(self, project: int) -> None:
        """What a project had is gone with it, except the index over it."""
        self._known.pop(project, None)
        self._put.pop(project, None)
        with suppress(UnspoolError):  # an empty index does no harm
            self._builder.drop(project)

    def close(self) -> None:
        """Break off what is done in the background."""
        self._builder.close()

    # For both halves

    def chunks(self, connection: Connection, project: int) -> int:
        """How many chunks a project has."""
        known = self._known.get(project)
        if known is not None:
            return known.chunks
        found = mending.totals(connection, project)
        return 0 if found is None else found.chunks

    def has_tokens(self, project: int) -> bool:
        """Whether all words of a project are where pg_textsearch finds them."""
        known = self._known.get(project)
        return known is not None and known.has_tokens

    def select(
        self, connection: Connection, project: int, where: Filter | None
    ) -> Selection | None:
        """What a filter lets through, remembered while the project stays as it is."""
        if where is None:
            return None
        known = self._known.get(project)
        return self._selections.get(
            connection, project, where, seq=None if known is None else known.seq
        )

    def condition(self, selection: Selection | None) -> tuple[str, dict[str, object]]:
        """A selection as SQL, with its values."""
        if selection is None:
            return "", {}
        if selection.chunks is not None:
            return " AND chunk_id = ANY(%(selected)b::int8[])", {
                "selected": selection.chunks.tolist()
            }
        assert selection.documents is not None
        return " AND document_id = ANY(%(selected)b::int8[])", {
            "selected": selection.documents.tolist()
        }

    def _as_type(self, vector: Vectors) -> Vector | HalfVector:
        return Vector(vector) if self._table.type == "vector" else HalfVector(vector)

    def _check(self, vector: Vectors) -> None:
        if vector.shape != (self._table.dimension,):
            raise DimensionError(
                f"the vector has {vector.size} numbers, the vector space "
                f"{self._table.dimension}; embed with {self._space}"
            )


def open_store(
    catalog: Catalog, *, space_id: int, space: str, dimension: int, options: VectorOptions
) -> PostgresStore:
    """The store inside a PostgreSQL catalog; its table is made if need be."""
    own = cast(PostgresCatalog, catalog)
    with own.read() as connection:
        table = tables.find(connection, space_id)
        has_textsearch = textsearch.is_usable(connection)
        is_wanted = not has_textsearch and textsearch.is_possible(connection)
    if table is None or is_wanted:

        def prepare(connection: Connection) -> tuple[VectorTable, bool]:
            driver.disable_timeouts(connection)
            made = tables.ensure(connection, space_id, dimension, options)
            textsearch.prepare(connection)
            return made, textsearch.is_usable(connection)

        try:
            table, has_textsearch = own.transact(prepare)
        except ServiceError:
            if table is None:
                raise  # otherwise it goes without: whoever may change the tables makes it some time
    if table.dimension > tables.MAX_DIMENSION[table.type]:
        options = replace(options, index="exact")  # more than an index takes
    return PostgresStore(
        own,
        space_id=space_id,
        space=space,
        table=table,
        options=options,
        has_textsearch=has_textsearch,
    )
