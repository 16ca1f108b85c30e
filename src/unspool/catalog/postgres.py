"""PostgreSQL: a catalog in a schema of its own, `unspool` unless the address names another."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa

from unspool.catalog import schema
from unspool.catalog.database import (
    Catalog,
    Identity,
    WindowDatabase,
    check_revision,
    read_identity,
    run_migrations,
)
from unspool.catalog.driver import disable_timeouts, get_driver
from unspool.catalog.options import DatabaseOptions
from unspool.catalog.postgres_errors import may_repeat, translate_errors
from unspool.catalog.postgres_server import (
    RETRIES_S,
    Target,
    check_server,
    connect,
    create_engine,
    lock_migrations,
    parse_address,
)
from unspool.errors import ConflictError, NotFoundError, UnspoolError

NAME = "postgresql"
_TASK_LOCK = 0x756E7372  # first half of the key of a task's advisory lock
_T = TypeVar("_T")


class PostgresCatalog(Catalog):
    """Catalog on a server: one writer at a time in each project, and readers that never wait."""

    engine_name = NAME

    def __init__(
        self,
        engine: sa.Engine,
        *,
        address: str,
        target: Target,
        options: DatabaseOptions,
        identity: Identity,
    ) -> None:
        super().__init__(engine, address=address, options=options, identity=identity)
        self.target = target
        self._reading = engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        self._snapshot: ContextVar[sa.Connection | None] = ContextVar("snapshot", default=None)

    @property
    def place(self) -> str:
        return self.target.place

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a connection that reads one consistent state."""
        self._check_open()
        snapshot = self._snapshot.get()
        if snapshot is not None:
            with translate_errors(self.place):
                yield snapshot
            return
        with translate_errors(self.place), connect(self._reading) as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Use one connection and one transaction for all reads inside.

        A search runs eight queries, and each would begin and end a transaction.
        """
        self._check_open()
        with translate_errors(self.place), connect(self._reading) as connection:
            token = self._snapshot.set(connection)
            try:
                yield
            finally:
                self._snapshot.reset(token)

    @contextmanager
    def leave_snapshot(self) -> Iterator[None]:
        """Let the reads of this thread inside it see the current state."""
        token = self._snapshot.set(None)
        try:
            yield
        finally:
            self._snapshot.reset(token)

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Open a transaction: all of it is committed, or nothing."""
        self._check_open()
        with translate_errors(self.place), connect(self._engine) as connection, connection.begin():
            yield connection

    @contextmanager
    def autocommit(self) -> Iterator[sa.Connection]:
        """Open a connection without transaction and time limit, such as for building an index."""
        self._check_open()
        with translate_errors(self.place), connect(self._engine) as raw:
            connection = raw.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql("SET statement_timeout = 0; SET lock_timeout = 0")
            try:
                yield connection
            finally:
                connection.invalidate()  # discards its settings

    @contextmanager
    def try_lock(self, task: str) -> Iterator[bool]:
        """Take an advisory lock, which ends with its connection."""
        with self.autocommit() as connection:
            lock = sa.text(
                "SELECT pg_try_advisory_lock(:kind, hashtext(current_schema() || '.' || :task))"
            )
            yield bool(connection.execute(lock, {"kind": _TASK_LOCK, "task": task}).scalar_one())

    def transact(self, work: Callable[[sa.Connection], _T]) -> _T:
        """Run a function in a transaction.

        Repeat it after a serialization failure, or if the connection broke before the commit.
        """
        self._check_open()
        for pause in (*RETRIES_S, None):
            is_connected = committing = False
            try:
                with (
                    translate_errors(self.place),
                    connect(self._engine) as connection,
                    connection.begin() as transaction,
                ):
                    is_connected = True
                    result = work(connection)
                    committing = True
                    transaction.commit()
                    return result
            except UnspoolError as error:
                # Connecting has its own retries.
                if (
                    pause is None
                    or not is_connected
                    or not may_repeat(error, committing=committing)
                ):
                    raise
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - so that two writers do not collide again
        raise AssertionError("unreachable")

    def open_windows(self) -> WindowDatabase:
        """Use tables of the same database."""
        return _WindowTables(self)

    def get_folder(self, name: str) -> Path:
        """Return a path in the user's cache folder: the server may be another machine."""
        import platformdirs

        cache = Path(platformdirs.user_cache_dir("unspool", appauthor=False))
        return cache / f"{self.identity}.{name}"

    def measure_size(self) -> int:
        """Return the size of the schema's tables and indexes in bytes."""
        query = sa.text(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c JOIN "
            "pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = :schema AND c.relkind = 'r'"
        )
        with self.read() as connection:
            return int(connection.execute(query, {"schema": self.target.schema}).scalar_one())


class _WindowTables:
    """Search windows in the catalog's database.

    A crash of the server may lose the newest, so that no search waits for the disk.
    """

    def __init__(self, catalog: PostgresCatalog) -> None:
        self._catalog = catalog
        self.read = catalog.read

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        with self._catalog.write() as connection:
            connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
            yield connection

    def close(self) -> None:
        """Do nothing: the catalog closes the connections."""


def open_catalog(address: str, *, create: bool, options: DatabaseOptions) -> PostgresCatalog:
    """Open the catalog at an address. A missing one is created, an older one upgraded."""
    target = parse_address(address)
    engine = create_engine(target, options)
    try:
        with translate_errors(target.place):
            with connect(engine) as connection:
                has_types = get_driver(connection).adapters.types.get("sparsevec") is not None
                is_standby = connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar_one()
                revision = read_revision(connection, target)
                identity = read_identity(connection) if revision == schema.HEAD else None
            if identity is None:
                if is_standby:
                    raise NotFoundError(
                        f"no catalog of this version at {target.place}, and a replica cannot be "
                        f"written; open the primary once"
                    )
                if not create and not revision:
                    raise NotFoundError(
                        f"no catalog at {target.place}; index something first, or correct "
                        f"UNSPOOL_DATABASE"
                    )
                identity = _migrate(engine, target, schema.HEAD)
                assert identity is not None
            # The connection is older than the extension, which another process may have created.
            if not has_types:
                engine.dispose()
    except UnspoolError:
        engine.dispose()
        raise
    return PostgresCatalog(
        engine, address=address, target=target, options=options, identity=identity
    )


def migrate(address: str, revision: str, *, options: DatabaseOptions) -> str:
    """Migrate the catalog at an address to a revision and return the revision before."""
    target = parse_address(address)
    engine = create_engine(target, options)
    try:
        with translate_errors(target.place):
            with connect(engine) as connection:
                before = read_revision(connection, target) or "base"
            if revision == "base" and before == "base":
                raise NotFoundError(f"no catalog at {target.place}; there is nothing to remove")
            if before != revision:
                _migrate(engine, target, revision)
    finally:
        engine.dispose()
    return before


def drop_catalog(address: str, *, options: DatabaseOptions) -> None:
    """Drop the schema of a catalog with everything in it."""
    target = parse_address(address)
    engine = create_engine(target, options)
    try:
        with translate_errors(target.place), connect(engine) as connection, connection.begin():
            if read_revision(connection, target):  # refuses a schema of another program
                connection.exec_driver_sql(f'DROP SCHEMA "{target.schema}" CASCADE')
    finally:
        engine.dispose()


def describe_place(address: str) -> str:
    """Return server, database and schema, without user and password."""
    return parse_address(address).place


def read_revision(connection: sa.Connection, target: Target) -> str:
    """Return the revision of a catalog, '' if there is none.

    Refuse tables of another program, and a catalog that is newer than this code.
    """
    query = sa.text(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE "
        "n.nspname = :s AND c.relkind IN ('r', 'p')"
    )
    tables = set(connection.execute(query, {"s": target.schema}).scalars())
    if not tables:
        return ""
    if not {"alembic_version", "meta"} <= tables and tables != {"alembic_version"}:
        raise ConflictError(
            f"schema {target.schema} at {target.place} belongs to another program; add "
            f"?schema=another_name to the address, nothing was changed"
        )
    version = f'SELECT version_num FROM "{target.schema}".alembic_version'  # noqa: S608 - a plain name; qualified, so that a missing right is an error
    revision = check_revision(connection.exec_driver_sql(version).scalar(), target.place)
    missing = {
        *schema.metadata.tables,
        *schema.short_lived.tables,
        *schema.WORD_TABLES,
    } - tables
    if revision == schema.HEAD and missing:
        raise ConflictError(
            f"the catalog at {target.place} lacks the tables {', '.join(sorted(missing))} that "
            f"its version has; restore it from a backup, "
            "or remove it with `unspool migrate base --yes` and index again"
        )
    return revision


def _migrate(engine: sa.Engine, target: Target, revision: str) -> Identity | None:
    """Migrate in one transaction and return the identity, None for an empty database.

    A process that tries at the same time waits and finds it done.
    """
    check_server(engine, target)
    with connect(engine) as connection, connection.begin():
        disable_timeouts(connection)
        lock_migrations(connection)
        if not connection.exec_driver_sql(
            "SELECT count(*) FROM pg_namespace WHERE nspname = %(name)s", {"name": target.schema}
        ).scalar_one():
            # Even with IF NOT EXISTS this needs a right that the user may lack.
            connection.exec_driver_sql(f'CREATE SCHEMA "{target.schema}"')
        current = read_revision(connection, target)
        return run_migrations(
            connection, current=current, target=revision, schema_name=target.schema
        )
