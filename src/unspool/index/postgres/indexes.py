"""Building the index over a space's vectors: while everybody goes on reading and writing, once,
and with progress.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import psycopg
from sqlalchemy.engine import Connection

from unspool.catalog.driver import get_driver
from unspool.catalog.postgres import PostgresCatalog
from unspool.domain.reports import Progress
from unspool.errors import UnspoolError
from unspool.index.options import VectorOptions
from unspool.index.postgres import tables
from unspool.index.postgres.tables import VectorTable

OnProgress = Callable[[Progress], None]
LOOK_EVERY_S = 0.5
# for a build: at least what a server gives by itself, at most what a small one has
MEMORY_MB = (64, 2_000)
_LOCK = 0x756E7371  # the first half of the advisory lock's key; the index is the second


class Builder:
    """Builds the indexes of one table."""

    def __init__(
        self, catalog: PostgresCatalog, table: VectorTable, options: VectorOptions
    ) -> None:
        self._catalog = catalog
        self._table = table
        self._options = options
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._at_work: psycopg.Connection[object] | None = None
        self._is_closed = False

    def is_built(self, connection: Connection, project: int) -> bool:
        """Whether the index over a project's vectors is there and complete."""
        return bool(self._state(connection, project))

    def is_broken(self, connection: Connection, project: int) -> bool:
        """Whether a build of it was broken off, rather than being under way."""
        running = (
            f"SELECT count(*) FROM pg_stat_progress_create_index WHERE index_relid = {tables.OWN}"
        )
        name = self._table.index_name(project, self._options)
        return (
            self._state(connection, project) is None
            and not connection.exec_driver_sql(running, {"name": name}).scalar_one()
        )

    def _state(self, connection: Connection, project: int) -> bool | None:
        return tables.has_index(connection, self._table.index_name(project, self._options))

    def build(self, project: int, on_progress: OnProgress | None = None) -> None:
        """Build the index, unless somebody else is at it.

        One whose build was broken off is made anew.
        """
        with self._catalog.autocommit() as connection:
            part = tables.part_of(connection, self._table, project)
            name = self._table.index_name(project, self._options)
            if (
                not part
                or not connection.exec_driver_sql(
                    f"SELECT pg_try_advisory_lock({_LOCK}, hashtext(current_schema() || '.{name}'))"
                ).scalar_one()
            ):
                return
            state = tables.has_index(connection, name)
            if state:
                return
            if state is None:
                connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY {name}")
            rows = int(
                connection.exec_driver_sql(
                    f"SELECT count(*) FROM {part} WHERE project_id = {project:d}"
                ).scalar_one()
            )
            connection.exec_driver_sql(
                f"SET maintenance_work_mem = '{_memory_mb(self._table, rows)}MB'"
            )
            raw = get_driver(connection)
            with self._guard:
                if self._is_closed:
                    return
                self._at_work = raw
            done = threading.Event()
            watch = threading.Thread(
                target=self._watch,
                args=(raw.info.backend_pid, rows, on_progress, done),
                daemon=True,
            )
            try:
                if on_progress is not None:
                    watch.start()
                connection.exec_driver_sql(
                    self._table.index_sql(part, project, self._options, rows)
                )
                if not connection.exec_driver_sql(
                    "SELECT count(*) FROM projects WHERE id = %(id)s", {"id": project}
                ).scalar_one():
                    # it was forgotten meanwhile
                    connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY {name}")
            finally:
                done.set()
                with self._guard:
                    self._at_work = None
                if on_progress is not None:
                    watch.join()

    def start(self, project: int) -> bool:
        """Build it in the background, unless another one is being built; whatever goes wrong
        there, searches are answered without it.
        """
        with self._guard:
            if self._is_closed or (self._thread is not None and self._thread.is_alive()):
                return False
            self._thread = threading.Thread(
                target=self._quietly, args=(project,), name="unspool-index", daemon=True
            )
            self._thread.start()
            return True

    def drop(self, project: int) -> None:
        """Remove the indexes of a project that is gone."""
        with self._catalog.autocommit() as connection:
            pattern = f"ix_{self._table.name}_{project:d}_"
            names = (  # another catalog of the database may have a project of that number too
                "SELECT c.oid::regclass::text FROM pg_class c WHERE relkind IN ('i', 'I') AND "
                "starts_with(relname, %(p)s) "
                "AND relnamespace = current_schema()::regnamespace"
            )
            for name in connection.exec_driver_sql(names, {"p": pattern}).scalars().all():
                connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")

    def close(self) -> None:
        """Break off a build that is under way; the next one begins anew."""
        with self._guard:
            self._is_closed = True
            raw, thread = self._at_work, self._thread
            if raw is not None:
                with suppress(psycopg.Error):
                    raw.cancel_safe(timeout=5)
        if thread is not None:
            thread.join(timeout=10)

    def _quietly(self, project: int) -> None:
        with suppress(UnspoolError):
            self.build(project)

    def _watch(self, pid: int, rows: int, on_progress: OnProgress, done: threading.Event) -> None:
        statement = (
            "SELECT tuples_done, tuples_total FROM pg_stat_progress_create_index WHERE pid = "
            "%(pid)s"
        )
        while not done.wait(LOOK_EVERY_S):
            with suppress(UnspoolError):
                with self._catalog.read() as connection:
                    row = connection.exec_driver_sql(statement, {"pid": pid}).first()
                if row is not None:
                    on_progress(
                        Progress(
                            task="building the index",
                            done=int(row[0]),
                            total=max(int(row[1]), rows),
                        )
                    )


def _memory_mb(table: VectorTable, rows: int) -> int:
    """What keeps the graph of so many vectors in memory while it is built."""
    low, high = MEMORY_MB
    return min(high, max(low, int(rows * (table.dimension * 4 + 500) * 1.2 / 1_000_000)))
