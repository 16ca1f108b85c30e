"""Vectors in a table of the PostgreSQL catalog. They change in the transactions of their chunks."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from sqlalchemy.engine import Connection

from unspool.catalog import chunks as chunk_rows
from unspool.catalog import driver, feed, spaces
from unspool.catalog.feed import Changes
from unspool.catalog.filters import Selection
from unspool.catalog.postgres import PostgresCatalog
from unspool.catalog.projects import ProjectRow, ProjectVersion, lock_project
from unspool.catalog.statements import split_batches
from unspool.domain.queries import Stability
from unspool.domain.reports import OnProgress, Progress
from unspool.errors import UnspoolError
from unspool.index.options import Metric, VectorOptions
from unspool.index.ports import Candidates, Capabilities, Ids, Vectors, Within
from unspool.index.postgres import repairing, tables
from unspool.index.postgres.indexes import IndexBuilder
from unspool.index.postgres.queries import VectorQueries
from unspool.index.postgres.tables import VectorTable

# Up to here every vector of a project, or every vector that a filter accepts, is compared, and
# nothing is missed. An index that misses 2 % takes as long somewhere between 10 000 and 30 000
# vectors of 256 dimensions (bench/postgres.py --parts exact).
EXACT_BELOW = 20_000
# If an index finds too few, up to this many vectors are compared to find the rest.
EXACT_IF_TRUNCATED = 200_000
MAX_BY_INDEX = 2_000  # hits; beyond this an index is slower than comparing every vector
MAX_IDS = 2**31  # any list is passed as an array
DELETE_BATCH = 5_000  # chunks that a statement deletes


@dataclass(frozen=True, slots=True)
class VectorFacts:
    """Cached facts about a project, as of a sequence number."""

    seq: int
    chunks: int
    is_indexed: bool


class IndexState(NamedTuple):
    """State of the index over a project's vectors, as `doctor` reports it."""

    ok: bool
    detail: str


class PgvectorIndex:
    """Vectors of one space, as the ports `VectorSearch`, `Scorer`, `Transactional` and `Upkeep`."""

    capabilities = Capabilities(metrics=frozenset(Metric), max_k=100_000, max_ids=MAX_IDS)

    def __init__(
        self,
        catalog: PostgresCatalog,
        *,
        space_id: int,
        table: VectorTable,
        options: VectorOptions,
    ) -> None:
        self.space_id = space_id
        self.queries = VectorQueries(table, options)
        self.builder = IndexBuilder(catalog, table, options)
        self.is_exact = options.index == "exact"
        if self.is_exact:
            self.capabilities = replace(self.capabilities, stability=Stability.DETERMINISTIC)
        self.facts: dict[int, VectorFacts] = {}
        self._catalog = catalog
        self._table = table
        self._options = options
        self._exact_below = options.exact_below or EXACT_BELOW
        # chunks added since the last check for an index, by project
        self._added: dict[int, int] = {}
        self._guard = threading.Lock()

    @classmethod
    def open(
        cls, catalog: PostgresCatalog, *, space_id: int, dimension: int, options: VectorOptions
    ) -> PgvectorIndex:
        """Return the index of a space; create its table if it does not exist."""
        with catalog.read() as connection:
            table = tables.find_table(connection, space_id)
        if table is None:

            def create(connection: Connection) -> VectorTable:
                driver.disable_timeouts(connection)
                return tables.ensure_table(connection, space_id, dimension, options)

            table = catalog.transact(create)
        if table.dimension > tables.MAX_DIMENSION[table.type]:
            options = replace(options, index="exact")  # no index supports this dimension
        return cls(catalog, space_id=space_id, table=table, options=options)

    # Changes

    def apply_in(self, connection: Connection, changes: Changes) -> None:
        """Change vectors in the transaction that changes their chunks."""
        if len(changes.removed) > DELETE_BATCH:
            driver.disable_timeouts(connection)
        for some in split_batches(changes.removed, DELETE_BATCH):
            tables.delete_vectors(connection, self._table, changes.project_id, some)
        if changes.added:
            tables.add_vectors(
                connection, self._table, changes.project_id, changes.added, changes.vectors
            )

    def delete_in(self, connection: Connection, project: int) -> None:
        """Delete a project's vectors of every space, without a time limit."""
        driver.disable_timeouts(connection)
        for name in tables.list_tables(connection):
            connection.exec_driver_sql(
                f"DELETE FROM {name} WHERE project_id = %(project)s", {"project": project}
            )

    def complete_in(self, connection: Connection, project: int) -> None:
        """Delete and add the vectors of chunks that changed since `fill`."""
        driver.disable_timeouts(connection)
        repairing.delete_orphans(connection, project, self._table)
        after = -1
        while chunks := repairing.list_missing(connection, project, self._table.name, after):
            tables.add_vectors(connection, self._table, project, chunks, {})
            after = chunks[-1].id

    def destroy_in(self, connection: Connection) -> None:
        """Delete the space's table."""
        driver.disable_timeouts(connection)
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {self._table.name}")

    # Upkeep

    def catch_up(
        self, project: ProjectRow | ProjectVersion, on_progress: OnProgress | None = None
    ) -> int:
        """Add what was written while vectors were in another store; update the cached facts.

        Returns the number of chunks that are not searchable, which only a replica has.
        """
        known = self.facts.get(project.id)
        if (
            known is not None
            and known.seq == project.seq
            and (known.is_indexed or known.chunks <= self._exact_below)
        ):
            return 0
        is_indexed = False
        with self._catalog.read() as connection:
            is_outdated = feed.load_position(connection, feed.OWN_VECTORS, project.id) is not None
            if is_outdated and not repairing.is_writable(connection):
                return self.count_pending(connection, project.id)
            if not self.is_exact and project.chunk_count > self._exact_below:
                is_indexed = self.builder.is_built(connection, project.id)
        if is_outdated:  # vectors were in another store for a while
            self.repair(project.id, on_progress=on_progress)
        with self._guard:
            known = self.facts.get(project.id)
            if known is None or known.seq <= project.seq:
                self.facts[project.id] = VectorFacts(project.seq, project.chunk_count, is_indexed)
        return 0

    def flush(self, project: int) -> None:
        """Do nothing: changes are indexed in their transactions."""

    def finish_run(
        self, project: int, *, put: int | None = None, on_progress: OnProgress | None = None
    ) -> None:
        """Build an index over the vectors of a large project.

        After small writes it is built in the background.
        """
        if self.is_exact or (put is not None and not self._is_check_due(project, put)):
            return
        with self._catalog.read() as connection:
            chunks = chunk_rows.count_chunks(connection, project)
            if chunks <= self._exact_below or self.builder.is_built(connection, project):
                return
        if put is None:
            self.builder.build(project, on_progress)
        elif chunks > 2 * self._exact_below and not self.builder.start(project):
            self._added[project] = self._exact_below  # check again next time

    def _is_check_due(self, project: int, put: int) -> bool:
        """Count chunks of small writes; return whether to check for an index after them."""
        with self._guard:
            added = self._added.get(project, self._exact_below) + put
            is_due = added >= self._exact_below // 8
            self._added[project] = 0 if is_due else added
            return is_due

    def fill(self, project: int, on_progress: OnProgress | None = None) -> bool:
        """Fill this space's table page by page while another space is searched; build its index.

        Returns False if the catalog does not contain all vectors yet.
        """
        with self._catalog.read() as connection:
            if spaces.has_missing(connection, self.space_id, project):
                return False
            total = repairing.count_missing(connection, project, self._table.name)
        after, done = -1, 0
        while True:
            after, count = self._catalog.transact(partial(self._fill_page, project, after))
            if not count:
                break
            done += count
            if on_progress is not None:
                on_progress(Progress(task="rebuilding", done=min(done, total), total=total))
        self.finish_run(project, on_progress=on_progress)
        return True

    def _fill_page(self, project: int, after: int, connection: Connection) -> tuple[int, int]:
        """Add a page of missing vectors; return the last id, and the number of chunks."""
        if not lock_project(connection, project):
            return after, 0
        chunks = repairing.list_missing(connection, project, self._table.name, after)
        if not chunks:
            return after, 0
        shas = {chunk.text_sha for chunk in chunks}
        known = spaces.find_known_texts(connection, self.space_id, shas)
        # the other chunks were added meanwhile
        ready = [chunk for chunk in chunks if chunk.text_sha in known]
        tables.add_vectors(connection, self._table, project, ready, {})
        return chunks[-1].id, len(chunks)

    def repair(
        self, project: int, *, verify: bool = False, on_progress: OnProgress | None = None
    ) -> None:
        """Add missing rows, delete orphans, and build the index of a large project."""

        def repair(connection: Connection) -> None:
            driver.disable_timeouts(connection)
            if lock_project(connection, project):  # it was not deleted meanwhile
                spaces.check_active(connection, self.space_id)
                feed.delete_positions(connection, feed.OWN_VECTORS, [project])
                self.complete_in(connection, project)

        self._catalog.transact(repair)
        self.facts.pop(project, None)
        self.finish_run(project, on_progress=on_progress)

    def count_pending(self, connection: Connection, project: int) -> int:
        """Return the number of chunks without a vector.

        There are none, unless another program has changed the database.
        """
        return repairing.count_missing(connection, project, self._table.name)

    def describe_index(self, connection: Connection, project: int, chunks: int) -> IndexState:
        """Return the state of the index over a project's vectors."""
        index = self._options.index
        if self.is_exact:
            return IndexState(ok=True, detail="every vector is compared")
        if self.builder.is_built(connection, project):
            return IndexState(ok=True, detail=f"{index} index for {self._options.metric}")
        if self.builder.is_broken(connection, project):
            return IndexState(ok=False, detail=f"the build of the {index} index was interrupted")
        if chunks > 2 * self._exact_below:
            detail = f"no {index} index yet, so every vector is compared"
            return IndexState(ok=False, detail=detail)
        return IndexState(ok=True, detail="few enough to compare every vector")

    def find_damage(self, project: int) -> list[str]:
        """Return nothing: the server keeps its tables intact."""
        return []

    def is_filled(self, project: int) -> bool:
        """Return true: changes are indexed in their transactions."""
        return True

    def drop(self, project: int) -> None:
        """Delete the index over a deleted project's vectors."""
        self.facts.pop(project, None)
        self._added.pop(project, None)
        with suppress(UnspoolError):  # an empty index does no harm
            self.builder.drop(project)

    def take_warnings(self) -> list[str]:
        """Return nothing: the server keeps its tables intact."""
        return []

    def close(self) -> None:
        """Cancel a build in the background."""
        self.builder.close()

    # Search

    def search(
        self,
        project: int,
        vector: Vectors,
        *,
        k: int,
        within: Within | None = None,
        min_similarity: float | None = None,
        hint: str | None = None,
    ) -> Candidates:
        """Return the k nearest, by the project's index if that is faster."""
        selection = (
            None
            if within is None
            else Selection(documents=within.documents, chunks=within.chunks, total=within.total)
        )
        with self._catalog.read() as connection:
            known = self.facts.get(project)
            chunks = known.chunks if known else chunk_rows.count_chunks(connection, project)
            total = chunks if within is None else within.total
            if not total:
                return Candidates.empty()
            is_indexed = known is not None and known.is_indexed
            if total > self._exact_below and k <= MAX_BY_INDEX and is_indexed:
                found = self.queries.search_index(
                    connection, project, vector, k, selection, chunks=chunks
                )
                if len(found.ids) >= min(k, total):
                    return found
                if total > EXACT_IF_TRUNCATED:
                    return replace(found, is_truncated=True)
            return self.queries.search_exact(connection, project, vector, k, selection)

    def score(self, project: int, vector: Vectors, ids: Ids) -> Vectors:
        """Return the score of each id; NaN for an absent one."""
        with self._catalog.read() as connection:
            return self.queries.score(connection, project, vector, ids)
