"""SQLite: a catalog in one file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

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
from unspool.catalog.options import DatabaseOptions
from unspool.catalog.sqlite_file import (
    begin_write,
    create_engine,
    enable_wal,
    measure_size,
    translate_errors,
)
from unspool.errors import AddressError, ConflictError, NotFoundError, ServiceError, UnspoolError

NAME = "sqlite"


class SqliteCatalog(Catalog):
    """Catalog in a file: one writer at a time, and readers that never wait."""

    engine_name = NAME

    def __init__(self, engine: sa.Engine, *, path: Path, identity: Identity) -> None:
        address = f"sqlite:///{path.as_posix()}"
        super().__init__(engine, address=address, options=DatabaseOptions(), identity=identity)
        self._write_lock = threading.Lock()
        self.path = path

    @property
    def place(self) -> str:
        return str(self.path)

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a connection that reads one consistent state."""
        self._check_open()
        with translate_errors(self.path, with_files=False), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Open a transaction: all of it is committed, or nothing."""
        self._check_open()
        # SQLite admits one writer at a time. Queueing our threads here spares them its polling.
        with (
            self._write_lock,
            translate_errors(self.path, with_files=False),
            begin_write(self._engine) as connection,
        ):
            yield connection

    @contextmanager
    def try_lock(self, task: str) -> Iterator[bool]:
        """Lock a file beside the catalog."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.get_folder(f"{task}.lock"), thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        except OSError as error:
            raise ServiceError(
                f"{self.path.parent} cannot be written ({error.strerror}); free disk space or "
                f"correct the permissions"
            ) from error
        try:
            yield True
        finally:
            lock.release()

    def open_windows(self) -> WindowDatabase:
        """Open a file beside the catalog."""
        from unspool.catalog.window_file import WindowFile, get_window_path

        return WindowFile(get_window_path(self.path))

    def get_folder(self, name: str) -> Path:
        """Return a path beside the catalog."""
        return self.path.with_name(f"{self.path.name}.{name}")

    def measure_size(self) -> int:
        """Return the size of the file and its log in bytes."""
        return measure_size(self.path)


def open_catalog(address: str, *, create: bool, options: DatabaseOptions) -> SqliteCatalog:
    """Open the file at an address. A missing one is created, an older one upgraded."""
    path = parse_address(address)
    if not path.exists() and not create:
        raise NotFoundError(
            f"no catalog at {path}; index something first, or correct UNSPOOL_DATABASE"
        )
    engine = create_engine(path)
    try:
        with translate_errors(path):
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                # Private, because it contains all indexed text. SQLite gives its log the same
                # permissions.
                path.touch(mode=0o600)
            with engine.connect() as connection:
                is_current = read_revision(connection, path) == schema.HEAD
                identity = read_identity(connection) if is_current else None
            if identity is None:
                identity = _migrate(engine, path, schema.HEAD)
                assert identity is not None
    except UnspoolError:
        engine.dispose()
        raise
    return SqliteCatalog(engine, path=path, identity=identity)


def migrate(address: str, target: str, *, options: DatabaseOptions) -> str:
    """Migrate the file at an address to a revision and return the revision before."""
    path = parse_address(address)
    if target == "base" and not path.exists():
        raise NotFoundError(f"no catalog at {path}; there is nothing to remove")
    engine = create_engine(path)
    try:
        with translate_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with engine.connect() as connection:
                before = read_revision(connection, path) or "base"
            if before != target:
                _migrate(engine, path, target)
    finally:
        engine.dispose()
    return before


def describe_place(address: str) -> str:
    """Return the path of the file."""
    return str(parse_address(address))


def parse_address(address: str) -> Path:
    """Return the path that a `sqlite:///` address names."""
    _, _, rest = address.partition("://")
    if not rest.startswith("/") or not rest.strip("/"):
        raise AddressError(
            "catalog address begins with 'sqlite'; give sqlite:///relative.db or "
            "sqlite:////absolute.db in UNSPOOL_DATABASE"
        )
    if "?" in rest:
        raise AddressError("a sqlite address takes no options; leave out everything from the '?'")
    return Path(unquote(rest[1:])).expanduser().absolute()


def read_revision(connection: sa.Connection, path: Path) -> str:
    """Return the revision of a catalog, '' for a new file.

    Refuse a file of another program, and a catalog that is newer than this code.
    """
    application = connection.exec_driver_sql("PRAGMA application_id").scalar_one()
    tables = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()
    if application != schema.APPLICATION_ID:
        if tables or application:
            raise ConflictError(
                f"{path} belongs to another program; point UNSPOOL_DATABASE at another path, "
                f"nothing was changed"
            )
        return ""
    if not connection.exec_driver_sql(
        "SELECT count(*) FROM sqlite_master WHERE name='alembic_version'"
    ).scalar_one():
        return ""
    return check_revision(
        connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar(), str(path)
    )


def _migrate(engine: sa.Engine, path: Path, target: str) -> Identity | None:
    """Migrate the file. A process that tries at the same time waits and finds it done."""
    enable_wal(path)
    with begin_write(engine) as connection:
        current = read_revision(connection, path)
        connection.exec_driver_sql(f"PRAGMA application_id={schema.APPLICATION_ID}")
        return run_migrations(connection, current=current, target=target)
