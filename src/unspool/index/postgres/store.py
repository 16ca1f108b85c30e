"""Store inside a PostgreSQL catalog.

Vectors and words change in the transactions that change documents, so the store is always current.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, cast

from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, driver, spaces
from unspool.catalog.content import Changes
from unspool.catalog.filters import Selection, SelectionCache
from unspool.catalog.postgres import PostgresCatalog
from unspool.catalog.projects import ProjectRow, ProjectVersion, lock_project
from unspool.catalog.statements import split_batches
from unspool.domain.filters import Filter
from unspool.domain.queries import Stability
from unspool.domain.reports import OnProgress, Progress
from unspool.errors import (
    DimensionError,
    ServiceError,
    UnspoolError,
    UnsupportedError,
)
from unspool.index.options import VectorOptions
from unspool.index.ports import Candidates, Capabilities, Ids, Vectors
from unspool.index.postgres import repairing, tables, textsearch, words
from unspool.index.postgres.indexes import IndexBuilder
from unspool.index.postgres.tables import VectorTable
from unspool.index.postgres.vectors import VectorQueries
from unspool.index.postgres.words import PostgresWords

# Up to here every vector of a project, or every vector that a filter accepts, is compared, and
# nothing is missed. An index that misses 2 % takes as long somewhere between 10 000 and 30 000
# vectors of 256 dimensions (bench/postgres.py --parts exact).
EXACT_BELOW = 20_000
# If an index finds too few, up to this many vectors are compared to find the rest.
EXACT_IF_TRUNCATED = 200_000
MAX_BY_INDEX = 2_000  # hits; beyond this an index is slower than comparing every vector
DELETE_BATCH = 5_000  # chunks that a statement deletes


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """Cached facts about a project, as of a sequence number."""

    seq: int
    chunks: int
    is_indexed: bool
    has_tokens: bool


class IndexState(NamedTuple):
    """State of the index over a project's vectors, as `doctor` reports it."""

    ok: bool
    detail: str


class PostgresStore:
    """Both retrievers in a database, as the `IndexStore` port; `words` is the `WordIndex` port."""

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
        self.read = catalog.read
        self.vectors = VectorQueries(table, options)
        self.words = PostgresWords(self)
        self.builder = IndexBuilder(catalog, table, options)
        is_exact = options.index == "exact"
        self.capabilities = Capabilities(
            exact=is_exact,
            max_k=100_000,
            stability=Stability.DETERMINISTIC if is_exact else Stability.BEST_EFFORT,
        )
        self.facts: dict[int, ProjectFacts] = {}
        self._catalog = catalog
        self._space = space
        self._table = table
        self._options = options
        self._has_textsearch = has_textsearch
        self._exact_below = options.exact_below or EXACT_BELOW
        # chunks added since the last check for an index, by project
        self._added: dict[int, int] = {}
        self._selections = SelectionCache()
        self._guard = threading.Lock()

    # Following the catalog

    def apply_changes(self, connection: Connection, project: int, changes: Changes) -> None:
        """Change vectors and words in the transaction that changes their chunks."""
        if len(changes.removed) > DELETE_BATCH:
            driver.disable_timeouts(connection)
        for some in split_batches(changes.removed, DELETE_BATCH):
            tables.delete_vectors(connection, self._table, project, some)
            words.delete_words(connection, project, some)
        if changes.added:
            tables.add_vectors(connection, self._table, project, changes.added, changes.vectors)
            words.add_words(connection, project, changes.added, with_tokens=self._has_textsearch)

    def delete_project(self, connection: Connection, project: int) -> None:
        """Delete a project's words, and its vectors of every space, without a time limit."""
        driver.disable_timeouts(connection)
        for name in tables.list_tables(connection):
            connection.exec_driver_sql(
                f"DELETE FROM {name} WHERE project_id = %(project)s", {"project": project}
            )
        words.delete_project(connection, project)

    def catch_up(
        self, project: ProjectRow | ProjectVersion, on_progress: OnProgress | None = None
    ) -> int:
        """Return 0, because everything is searchable; update the cached facts of the project."""
        known = self.facts.get(project.id)
        if (
            known is not None
            and known.seq == project.seq
            and (known.is_indexed or known.chunks <= self._exact_below)
        ):
            return 0
        with self.read() as connection:
            totals = repairing.read_totals(connection, project.id)
            is_indexed = not self.capabilities.exact and self.builder.is_built(
                connection, project.id
            )
        if self._needs_repair(project, totals):
            self.repair(project.id, on_progress=on_progress)
            with self.read() as connection:
                totals = repairing.read_totals(connection, project.id)
        chunks, kind = (0, 0) if totals is None else totals
        has_tokens = self._has_textsearch and kind == words.WITH_TOKENS
        with self._guard:
            known = self.facts.get(project.id)
            if known is None or known.seq <= project.seq:
                self.facts[project.id] = ProjectFacts(project.seq, chunks, is_indexed, has_tokens)
        return 0

    def _needs_repair(
        self, project: ProjectRow | ProjectVersion, totals: repairing.WordTotals | None
    ) -> bool:
        """Return whether another version wrote the words, or a migration deleted them."""
        if totals is not None:
            return totals.format not in (words.PLAIN, words.WITH_TOKENS)
        if not project.seq:
            return False
        with self.read() as connection:
            return repairing.can_repair(connection, project.id)

    def flush(self, project: int) -> None:
        """Do nothing: changes are indexed in their transactions."""

    def finish_run(
        self, project: int, *, put: int | None = None, on_progress: OnProgress | None = None
    ) -> str:
        """Clean up after a run, and build an index over the vectors of a large project.

        After small writes the index is built in the background. Returns a warning if it could not
        be built.
        """
        try:
            self._finish_run(project, put, on_progress)
        # everything is stored, so the caller must not repeat the write
        except UnspoolError as error:
            return f"everything is stored and found, but its index could not be built: {error}"
        return ""

    def _finish_run(self, project: int, put: int | None, on_progress: OnProgress | None) -> None:
        if put is None:
            self._catalog.transact(words.clean_pending_list)
        if self.capabilities.exact or (put is not None and not self._is_check_due(project, put)):
            return
        with self.read() as connection:
            totals = repairing.read_totals(connection, project)
            chunks = 0 if totals is None else totals.chunks
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

    def repair(
        self, project: int, *, verify: bool = False, on_progress: OnProgress | None = None
    ) -> bool:
        """Add missing rows, delete orphans, and build the index of a large project."""

        def repair(connection: Connection) -> None:
            driver.disable_timeouts(connection)
            if lock_project(connection, project):  # it was not deleted meanwhile
                spaces.check_active(connection, self.space_id)
                repairing.repair_project(
                    connection,
                    project,
                    self._table,
                    with_tokens=self._has_textsearch,
                    on_progress=on_progress,
                )

        self._catalog.transact(repair)
        self.facts.pop(project, None)
        self._finish_run(project, None, on_progress)
        return True

    def build_space(self, project: int, *, on_progress: OnProgress | None = None) -> bool:
        """Fill this space's table page by page while another space is searched; build its index.

        Returns False if the catalog does not contain all vectors yet.
        """
        with self.read() as connection:
            if spaces.has_missing(connection, self.space_id, project):
                return False
            total = repairing.count_without_vector(connection, project, self._table)
        after, done = -1, 0
        while True:
            after, count = self._catalog.transact(partial(self._fill_page, project, after))
            if not count:
                break
            done += count
            if on_progress is not None:
                on_progress(Progress(task="rebuilding", done=min(done, total), total=total))
        self._finish_run(project, None, on_progress)
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

    def complete_space(self, connection: Connection, project: int) -> None:
        """Delete and add the vectors of chunks that changed since `build_space`."""
        driver.disable_timeouts(connection)
        repairing.delete_orphans(connection, project, self._table)
        after = -1
        while chunks := repairing.list_missing(connection, project, self._table.name, after):
            tables.add_vectors(connection, self._table, project, chunks, {})
            after = chunks[-1].id

    def drop_space(self, connection: Connection) -> None:
        """Delete the space's table."""
        driver.disable_timeouts(connection)
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {self._table.name}")

    def sweep_spaces(self, spaces_kept: Collection[int]) -> None:
        """Do nothing: `drop_space` deletes everything."""

    def count_pending(self, connection: Connection, project: int) -> int:
        """Return the number of chunks without a vector or words.

        There are none, unless another program has changed the database.
        """
        return repairing.count_missing(connection, project, self._table)

    def describe_index(self, connection: Connection, project: int, chunks: int) -> IndexState:
        """Return the state of the index over a project's vectors."""
        index = self._options.index
        if self.capabilities.exact:
            return IndexState(ok=True, detail="every vector is compared")
        if self.builder.is_built(connection, project):
            return IndexState(ok=True, detail=f"{index} index for {self._options.metric}")
        if self.builder.is_broken(connection, project):
            return IndexState(ok=False, detail=f"the build of the {index} index was interrupted")
        if chunks > 2 * self._exact_below:
            detail = f"no {index} index yet, so every vector is compared"
            return IndexState(ok=False, detail=detail)
        return IndexState(ok=True, detail="few enough to compare every vector")

    def take_warnings(self) -> list[str]:
        """Return nothing: the server keeps its tables intact."""
        return []

    def get_position(self, project: int) -> int:
        """Raise `UnsupportedError`: the store is always current."""
        raise UnsupportedError(
            "the PostgreSQL store is changed in every transaction; it has no position"
        )

    # Search

    def search(
        self,
        project: int,
        vector: Vectors,
        *,
        k: int,
        where: Filter | None = None,
        hint: str | None = None,
    ) -> Candidates:
        """Return the k nearest; reject a hint, since there is no native continuation."""
        if hint is not None:
            raise UnsupportedError(
                "the PostgreSQL store has no native continuation; search again with a larger k"
            )
        self._check_dimension(vector)
        with self.read() as connection:
            selection = self.select(connection, project, where)
            chunks = self.count_chunks(connection, project)
            total = chunks if selection is None else selection.total
            if not total:
                return Candidates.empty()
            known = self.facts.get(project)
            is_indexed = known is not None and known.is_indexed
            if total > self._exact_below and k <= MAX_BY_INDEX and is_indexed:
                found = self.vectors.search_index(
                    connection, project, vector, k, selection, chunks=chunks
                )
                if len(found.ids) >= min(k, total):
                    return found
                if total > EXACT_IF_TRUNCATED:
                    return replace(found, is_truncated=True)
            return self.vectors.search_exact(connection, project, vector, k, selection)

    def score(self, project: int, vector: Vectors, ids: Ids) -> Vectors:
        """Return the score of each id; NaN for an absent one."""
        self._check_dimension(vector)
        with self.read() as connection:
            return self.vectors.score(connection, project, vector, ids)

    def drop(self, project: int) -> None:
        """Delete the index over a deleted project's vectors."""
        self.facts.pop(project, None)
        self._added.pop(project, None)
        with suppress(UnspoolError):  # an empty index does no harm
            self.builder.drop(project)

    def close(self) -> None:
        """Cancel a build in the background."""
        self.builder.close()

    # For both retrievers

    def count_chunks(self, connection: Connection, project: int) -> int:
        """Return the number of chunks of a project."""
        found = self.facts.get(project) or repairing.read_totals(connection, project)
        return 0 if found is None else found.chunks

    def has_tokens(self, project: int) -> bool:
        """Return whether pg_textsearch can find all words of a project."""
        known = self.facts.get(project)
        return known is not None and known.has_tokens

    def select(
        self, connection: Connection, project: int, where: Filter | None
    ) -> Selection | None:
        """Return the documents or chunks that a filter accepts; None without a filter.

        The result is cached until the project changes.
        """
        if where is None:
            return None
        known = self.facts.get(project)
        return self._selections.get(
            connection, project, where, seq=None if known is None else known.seq
        )

    def _check_dimension(self, vector: Vectors) -> None:
        if vector.shape != (self._table.dimension,):
            raise DimensionError(
                f"the vector has {vector.size} numbers, the vector space "
                f"{self._table.dimension}; embed with {self._space}"
            )


def open_store(
    catalog: Catalog, *, space_id: int, space: str, dimension: int, options: VectorOptions
) -> PostgresStore:
    """Return the store inside a PostgreSQL catalog; create its table if it does not exist."""
    own = cast(PostgresCatalog, catalog)
    with own.read() as connection:
        table = tables.find_table(connection, space_id)
        has_textsearch = textsearch.has_index(connection)
        can_add_textsearch = not has_textsearch and textsearch.can_create_index(connection)
    if table is None or can_add_textsearch:

        def prepare(connection: Connection) -> tuple[VectorTable, bool]:
            driver.disable_timeouts(connection)
            created = tables.ensure_table(connection, space_id, dimension, options)
            textsearch.create_index(connection)
            return created, textsearch.has_index(connection)

        try:
            table, has_textsearch = own.transact(prepare)
        except ServiceError:
            # the index of pg_textsearch is optional; a user with the permission creates it later
            if table is None:
                raise
    if table.dimension > tables.MAX_DIMENSION[table.type]:
        options = replace(options, index="exact")  # no index supports this dimension
    return PostgresStore(
        own,
        space_id=space_id,
        space=space,
        table=table,
        options=options,
        has_textsearch=has_textsearch,
    )
