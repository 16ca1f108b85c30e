"""Building of indexes over vectors, concurrently with readers and writers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
from sqlalchemy.engine import Connection

from unspool.catalog.driver import get_driver
from unspool.catalog.postgres import PostgresCatalog
from unspool.domain.reports import OnProgress, Progress
from unspool.errors import UnspoolError
from unspool.index.options import VectorOptions
from unspool.index.postgres import tables
from unspool.index.postgres.tables import VectorTable

POLL_EVERY_S = 0.5
# of a build: at least a server's default, at most the memory of a small server
MEMORY_MB = (64, 2_000)
_LOCK = 0x756E7371  # first half of the advisory lock's key; a hash of the index is the second


class IndexBuilder:
    """Builder of the indexes of a vector table."""

    def __init__(
        self, catalog: PostgresCatalog, table: VectorTable, options: VectorOptions
    ) -> None:
        self._catalog = catalog
        self._table = table
        self._options = options
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._running: psycopg.Connection[object] | None = None
        self._is_closed = False

    def is_built(self, connection: Connection, project: int) -> bool:
        """Return whether the index over a project's vectors exists and is valid."""
        return bool(
            tables.has_valid_index(connection, self._table.name_index(project, self._options))
        )

    def is_broken(self, connection: Connection, project: int) -> bool:
        """Return whether a build of the index was interrupted; False while it is running."""
        name = self._table.name_index(project, self._options)
        if tables.has_valid_index(connection, name) is not None:
            return False
        running = (
            f"SELECT count(*) FROM pg_stat_progress_create_index WHERE index_relid = {tables.OWN}"
        )
        return not connection.exec_driver_sql(running, {"name": name}).scalar_one()

    def build(self, project: int, on_progress: OnProgress | None = None) -> None:
        """Build the index, unless it exists or another process is building it.

        An index whose build was interrupted is built again.
        """
        with self._catalog.autocommit() as connection:
            part = tables.find_part(connection, self._table, project)
            name = self._table.name_index(project, self._options)
            lock = f"SELECT pg_try_advisory_lock({_LOCK}, hashtext(current_schema() || '.{name}'))"
            if not part or not connection.exec_driver_sql(lock).scalar_one():
                return
            is_valid = tables.has_valid_index(connection, name)
            if is_valid:
                return
            if is_valid is None:
                connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY {name}")
            counted = f"SELECT count(*) FROM {part} WHERE project_id = {project:d}"
            rows = int(connection.exec_driver_sql(counted).scalar_one())
            memory = _estimate_memory_mb(self._table, rows)
            connection.exec_driver_sql(f"SET maintenance_work_mem = '{memory}MB'")
            with self._run(get_driver(connection), rows, on_progress) as is_open:
                if is_open:
                    statement = self._table.build_index_sql(part, project, self._options, rows)
                    connection.exec_driver_sql(statement)
                    exists = "SELECT count(*) FROM projects WHERE id = %(id)s"
                    # the project may have been deleted meanwhile
                    if not connection.exec_driver_sql(exists, {"id": project}).scalar_one():
                        connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY {name}")

    @contextmanager
    def _run(
        self, raw: psycopg.Connection[object], rows: int, on_progress: OnProgress | None
    ) -> Iterator[bool]:
        """Report the progress of a build, and let `close` cancel it; yield False after `close`."""
        with self._guard:
            is_open = not self._is_closed
            if is_open:
                self._running = raw
        if not is_open:
            yield False
            return
        done = threading.Event()
        watch = threading.Thread(
            target=self._watch, args=(raw.info.backend_pid, rows, on_progress, done), daemon=True
        )
        try:
            if on_progress is not None:
                watch.start()
            yield True
        finally:
            done.set()
            with self._guard:
                self._running = None
            if on_progress is not None:
                watch.join()

    def start(self, project: int) -> bool:
        """Build the index in the background; return False if another build is running.

        Errors are ignored, because searches work without the index.
        """
        with self._guard:
            if self._is_closed or (self._thread is not None and self._thread.is_alive()):
                return False
            self._thread = threading.Thread(
                target=self._build_quietly, args=(project,), name="unspool-index", daemon=True
            )
            self._thread.start()
            return True

    def drop(self, project: int) -> None:
        """Delete the indexes of a deleted project."""
        with self._catalog.autocommit() as connection:
            # another catalog in the database may have a project of the same number
            names = connection.exec_driver_sql(
                "SELECT c.oid::regclass::text FROM pg_class c WHERE relkind IN ('i', 'I') AND "
                "starts_with(relname, %(prefix)s) "
                "AND relnamespace = current_schema()::regnamespace",
                {"prefix": f"ix_{self._table.name}_{project:d}_"},
            )
            for name in names.scalars().all():
                connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")

    def close(self) -> None:
        """Cancel a running build. The next one starts from the beginning."""
        with self._guard:
            self._is_closed = True
            raw, thread = self._running, self._thread
            if raw is not None:
                with suppress(psycopg.Error):
                    raw.cancel_safe(timeout=5)
        if thread is not None:
            thread.join(timeout=10)

    def _build_quietly(self, project: int) -> None:
        with suppress(UnspoolError):
            self.build(project)

    def _watch(self, pid: int, rows: int, on_progress: OnProgress, done: threading.Event) -> None:
        statement = (
            "SELECT tuples_done, tuples_total FROM pg_stat_progress_create_index WHERE pid = "
            "%(pid)s"
        )
        while not done.wait(POLL_EVERY_S):
            with suppress(UnspoolError):
                with self._catalog.read() as connection:
                    row = connection.exec_driver_sql(statement, {"pid": pid}).first()
                if row is not None:
                    total = max(int(row[1]), rows)
                    on_progress(Progress(task="building the index", done=int(row[0]), total=total))


def _estimate_memory_mb(table: VectorTable, rows: int) -> int:
    """Return the memory that contains the graph of so many vectors during a build."""
    low, high = MEMORY_MB
    return min(high, max(low, int(rows * (table.dimension * 4 + 500) * 1.2 / 1_000_000)))
