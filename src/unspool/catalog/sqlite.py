"""SQLite: a catalog in one file."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from unspool.catalog import schema
from unspool.catalog.database import (
    Catalog,
    Home,
    complete_own,
    is_complete,
    known_revision,
    read_own,
    run_migrations,
)
from unspool.catalog.options import DatabaseOptions
from unspool.errors import (
    AddressError,
    ConflictError,
    InputError,
    NotFoundError,
    ServiceError,
    ServiceTimeoutError,
    UnspoolError,
)

NAME = "sqlite"
# a writer holds the lock for a batch, well under a second; a minute covers a disk that stalls
BUSY_TIMEOUT_MS = 60_000

# The log is folded back into the file every 32 MB rather than every 4: each time waits for the
# disk, and a batch writes 4 to 8 MB.
_PRAGMAS = (
    "foreign_keys=ON",
    "synchronous=NORMAL",
    "temp_store=MEMORY",
    "cache_size=-32000",
    "wal_autocheckpoint=8000",
)


_UNWRITABLE = frozenset(
    (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY)
)
_NO_SPACE = 65_536  # bytes: with less, not even the log's index can be created


class SqliteCatalog(Catalog):
    """One writer at a time; readers never wait."""

    engine_name = NAME

    def __init__(self, engine: Engine, *, path: Path, own: dict[str, str]) -> None:
        super().__init__(
            engine, address=f"sqlite:///{path.as_posix()}", options=DatabaseOptions(), own=own
        )
        self._write_lock = threading.Lock()
        self.path = path

    @property
    def place(self) -> str:
        return str(self.path)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for reading; it sees one consistent state."""
        self._check_open()
        with translated(self.path, with_files=False), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction: all of it happens, or none of it."""
        self._check_open()
        # SQLite lets one writer in at a time; queueing our own threads here spares them its
        # polling.
        with (
            self._write_lock,
            translated(self.path, with_files=False),
            transaction(self._engine) as connection,
        ):
            yield connection

    @contextmanager
    def occupy(self, task: str) -> Iterator[bool]:
        """By a lock on a file beside the catalog's."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.folder(f"{task}.lock"), thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def home(self) -> Home:
        """A file beside the catalog's."""
        from unspool.catalog.window_file import WindowFile, kept_at

        return WindowFile(kept_at(self.path))

    def folder(self, name: str) -> Path:
        """Beside the catalog's file."""
        return self.path.with_name(f"{self.path.name}.{name}")

    def size_bytes(self) -> int:
        """What the file and its log take."""
        return size_bytes(self.path)


def open_catalog(address: str, *, create: bool, options: DatabaseOptions) -> SqliteCatalog:
    """Open the file at an address, making or upgrading it first if need be."""
    path = path_of(address)
    if not path.exists() and not create:
        raise NotFoundError(
            f"no catalog at {path}; index something first, or correct UNSPOOL_DATABASE"
        )
    engine = engine_for(path)
    try:
        with translated(path):
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                # private, because it contains all indexed text; SQLite gives its log the same
                # permissions
                path.touch(mode=0o600)
            with engine.connect() as connection:
                revision = revision_of(connection, path)
            if revision != schema.HEAD:
                _migrate(engine, path, schema.HEAD)
            own = _own(engine)
    except UnspoolError:
        engine.dispose()
        raise
    return SqliteCatalog(engine, path=path, own=own)


def migrate(address: str, target: str, *, options: DatabaseOptions) -> str:
    """Bring the file at an address to a revision; returns the one before."""
    path = path_of(address)
    if target == "base" and not path.exists():
        raise NotFoundError(f"no catalog at {path}; there is nothing to remove")
    engine = engine_for(path)
    try:
        with translated(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with engine.connect() as connection:
                before = revision_of(connection, path) or "base"
            if before != target:
                _migrate(engine, path, target)
    finally:
        engine.dispose()
    return before


def place_of(address: str) -> str:
    """The file."""
    return str(path_of(address))


def path_of(address: str) -> Path:
    """The file that a `sqlite:///` address names."""
    _, _, rest = address.partition("://")
    if not rest.startswith("/") or not rest.strip("/"):
        raise AddressError(
            "catalog address begins with 'sqlite'; give sqlite:///relative.db or "
            "sqlite:////absolute.db in UNSPOOL_DATABASE"
        )
    if "?" in rest:
        raise AddressError("a sqlite address takes no options; leave out everything from the '?'")
    return Path(unquote(rest[1:])).expanduser().absolute()


class ReadOnlyConnection(sqlite3.Connection):
    """A connection to a file that SQLite cannot open for writing.

    Without a write-ahead log the file is read as immutable, without locks: `version` tells whether
    it still is the same.
    """

    version: tuple[int, ...] | None = None


def engine_for(path: Path) -> Engine:
    """Return an engine whose transactions are SQLite's own, opened by us rather than guessed by
    the driver.
    """
    engine = sa.create_engine(
        "sqlite+pysqlite://",
        creator=lambda: _connect(path),
        poolclass=sa.pool.QueuePool,
        pool_size=8,
        max_overflow=64,
    )

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # IMMEDIATE, because a transaction that begins by reading and then writes fails at once when
        # another wrote in between.
        connection.exec_driver_sql(
            "BEGIN IMMEDIATE"
            if connection.get_execution_options().get("unspool_write")
            else "BEGIN"
        )

    @event.listens_for(engine, "checkout")
    def _check_version(connection: sqlite3.Connection, record: object, proxy: object) -> None:
        if isinstance(connection, ReadOnlyConnection) and connection.version not in (
            None,
            _version(path),
        ):
            raise sa.exc.DisconnectionError  # the pool opens another one

    return engine


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Yield a connection that locks the file for writing, until all is committed or none."""
    with engine.connect() as raw:
        if isinstance(raw.connection.dbapi_connection, ReadOnlyConnection):
            raw.invalidate()  # the file may be writable by now
        connection = raw.execution_options(unspool_write=True)
        with connection.begin():
            yield connection


def _connect(path: Path) -> sqlite3.Connection:
    """Open a file for writing, or only for reading on a read-only file system, without
    permission and on a full disk.
    """
    try:
        return _open(str(path), sqlite3.Connection)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in _UNWRITABLE or not path.exists():
            raise
        try:
            return open_read_only(path)
        except sqlite3.Error:
            raise error from None


def open_read_only(path: Path) -> ReadOnlyConnection:
    """Open a file for reading, also where its log cannot be created or locked."""
    address = path.as_uri()
    try:
        return _open(f"{address}?mode=ro", ReadOnlyConnection)
    except sqlite3.OperationalError:
        version = _version(path)
        if _log_size(path):  # it contains committed rows, without which the file is outdated
            return _open(f"{address}?mode=ro&readonly_shm=1", ReadOnlyConnection)
        found = _open(f"{address}?immutable=1", ReadOnlyConnection)
        found.version = version
        return found


_C = TypeVar("_C", bound=sqlite3.Connection)


def _open(name: str, factory: type[_C]) -> _C:
    timeout_s = BUSY_TIMEOUT_MS / 1000
    connection = sqlite3.connect(
        name,
        timeout=timeout_s,
        isolation_level=None,
        check_same_thread=False,
        factory=factory,
        uri=factory is ReadOnlyConnection,
    )
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").close()  # opens the log
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _version(path: Path) -> tuple[int, ...]:
    """Return numbers that change with a file, or with its log."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns, _log_size(path)


def _log_size(path: Path) -> int:
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


@contextmanager
def translated(path: Path, *, with_files: bool = True, what: str = "catalog") -> Iterator[None]:
    """Turn what SQLite and, if asked, the file system say into our errors; inside a transaction
    a file may be somebody else's.
    """
    try:
        yield
    except (sa.exc.DBAPIError, sqlite3.Error) as error:
        raise _translation(error, path, what) from error
    except OSError as error:
        if not with_files:
            raise
        raise ServiceError(
            f"the {what} at {path} cannot be used: {error.strerror or error}; check the disk and "
            f"the permissions"
        ) from error


def _translation(error: sa.exc.DBAPIError | sqlite3.Error, path: Path, what: str) -> UnspoolError:
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    text = str(cause).lower()
    if "not a database" in text:
        cure = "point UNSPOOL_DATABASE at another path" if what == "catalog" else "move it away"
        return ConflictError(f"{path} is not an SQLite file; {cure}, nothing was changed")
    if "malformed" in text or "disk image" in text:
        return ServiceError(
            f"the {what} at {path} is damaged; restore it from a backup, or delete it and index "
            f"again"
        )
    if "locked" in text or "busy" in text:
        return ServiceTimeoutError(
            f"the {what} at {path} stayed locked for {BUSY_TIMEOUT_MS // 1000} s by another "
            f"process; try again when that has finished"
        )
    is_readonly = "readonly" in text or "read-only" in text
    if "full" in text or (is_readonly and shutil.disk_usage(path.parent).free < _NO_SPACE):
        return ServiceError(
            f"the disk that holds {path} is full; free some space and run again, what was "
            f"finished is kept"
        )
    if is_readonly:
        return ServiceError(
            f"the {what} at {path} is read-only: its file system is, or this user may not write "
            f"it; "
            "make it writable, or give another UNSPOOL_DATABASE"
        )
    if "unable to open" in text:
        return ServiceError(
            f"the {what} at {path} cannot be opened; check that the folder exists and can be "
            f"written"
        )
    if isinstance(cause, sqlite3.IntegrityError):
        return ConflictError(
            f"the {what} at {path} refused a write that contradicts what it holds ({cause}); run "
            f"again"
        )
    if isinstance(cause, sqlite3.OperationalError | sqlite3.DatabaseError):
        return ServiceError(f"the {what} at {path} failed: {cause}; unspool doctor checks it")
    return InputError(f"the {what} at {path} could not take a value ({cause})")


def revision_of(connection: Connection, path: Path) -> str:
    """The migration a catalog stands at, '' for a new file; refuses a file that is not ours or
    newer than we are.
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
    return known_revision(
        connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar(), str(path)
    )


def _migrate(engine: Engine, path: Path, target: str) -> None:
    """Two processes may try at once: the second waits and finds it done."""
    use_log(path)
    with transaction(engine) as connection:
        current = revision_of(connection, path)
        connection.exec_driver_sql(f"PRAGMA application_id={schema.APPLICATION_ID}")
        run_migrations(connection, current=current, target=target)


def _own(engine: Engine) -> dict[str, str]:
    """What a catalog says of itself; made if it is missing."""
    with engine.connect() as connection:
        own = read_own(connection)
    if is_complete(own):
        return own
    with transaction(engine) as connection:
        return complete_own(connection)


def use_log(path: Path) -> None:
    """Switch a file to write-ahead logging, which stays in its header.

    SQLite does not wait here by itself while another process does the same.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    with closing(_connect(path)) as plain:
        while True:
            try:
                plain.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def size_bytes(path: Path) -> int:
    """What the catalog's file and its log take on disk."""
    return sum(
        file.stat().st_size for file in (path, path.with_name(path.name + "-wal")) if file.exists()
    )
