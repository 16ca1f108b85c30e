"""SQLite files: connections, transactions, write-ahead logging, and translation of errors."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa

from unspool.errors import (
    ConflictError,
    InputError,
    ServiceError,
    ServiceTimeoutError,
    UnspoolError,
)

# A writer locks the file for a batch, well under a second. A minute covers a disk that stalls.
BUSY_TIMEOUT_MS = 60_000

# The log is checkpointed every 32 MB rather than every 4: each time waits for the disk, and a batch
# writes 4 to 8 MB.
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
_C = TypeVar("_C", bound=sqlite3.Connection)


class ReadOnlyConnection(sqlite3.Connection):
    """A connection to a file that SQLite cannot open for writing.

    Without a write-ahead log the file is read as immutable, without locks. `version` detects that
    the file has changed.
    """

    version: tuple[int, ...] | None = None


def create_engine(path: Path) -> sa.Engine:
    """Create an engine that begins SQLite's transactions explicitly, not by the driver's guess."""
    engine = sa.create_engine(
        "sqlite+pysqlite://",
        creator=lambda: _connect(path),
        poolclass=sa.pool.QueuePool,
        pool_size=8,
        max_overflow=64,
    )

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # A transaction that reads before it writes would fail if another wrote in between.
        is_write = connection.get_execution_options().get("unspool_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")

    @sa.event.listens_for(engine, "checkout")
    def _check_version(connection: sqlite3.Connection, record: object, proxy: object) -> None:
        if isinstance(connection, ReadOnlyConnection) and connection.version not in (
            None,
            _read_version(path),
        ):
            raise sa.exc.DisconnectionError  # the pool opens another one

    return engine


@contextmanager
def begin_write(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Open a transaction that locks the file for writing."""
    with engine.connect() as raw:
        if isinstance(raw.connection.dbapi_connection, ReadOnlyConnection):
            raw.invalidate()  # the file may be writable by now
        connection = raw.execution_options(unspool_write=True)
        with connection.begin():
            yield connection


def _connect(path: Path) -> sqlite3.Connection:
    """Open a file for writing, or else for reading.

    It can only be read on a read-only file system, without permission or on a full disk.
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
    """Open a file for reading, even if its log cannot be created or locked."""
    address = path.as_uri()
    try:
        return _open(f"{address}?mode=ro", ReadOnlyConnection)
    except sqlite3.OperationalError:
        version = _read_version(path)
        if _measure_log(path):  # it contains committed rows, without which the file is outdated
            return _open(f"{address}?mode=ro&readonly_shm=1", ReadOnlyConnection)
        connection = _open(f"{address}?immutable=1", ReadOnlyConnection)
        connection.version = version
        return connection


def _open(name: str, factory: type[_C]) -> _C:
    connection = sqlite3.connect(
        name,
        timeout=BUSY_TIMEOUT_MS / 1000,
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


def _read_version(path: Path) -> tuple[int, ...]:
    """Return numbers that change with the file or its log."""
    try:
        stat = path.stat()
    except OSError:
        return ()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, _measure_log(path)


def _measure_log(path: Path) -> int:
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


def enable_wal(path: Path) -> None:
    """Switch a file to write-ahead logging, permanently.

    SQLite itself does not wait here for another process that does the same.
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


def measure_size(path: Path) -> int:
    """Return the size of a file and its log in bytes."""
    return (path.stat().st_size if path.exists() else 0) + _measure_log(path)


@contextmanager
def translate_errors(
    path: Path, *, with_files: bool = True, what: str = "catalog"
) -> Iterator[None]:
    """Raise errors of SQLite and, with `with_files`, of the file system as ours.

    Inside a transaction a file may belong to somebody else, so leave those errors alone there.
    """
    try:
        yield
    except (sa.exc.DBAPIError, sqlite3.Error) as error:
        raise _translate_error(error, path, what) from error
    except OSError as error:
        if not with_files:
            raise
        raise ServiceError(
            f"the {what} at {path} cannot be used: {error.strerror or error}; check the disk and "
            f"the permissions"
        ) from error


_FULL = (
    "the disk that contains {path} is full; free some space and run again, finished work is kept"
)
# The first row with a part of SQLite's message decides.
_MESSAGES: tuple[tuple[tuple[str, ...], type[UnspoolError], str], ...] = (
    (
        ("not a database",),
        ConflictError,
        "{path} is not an SQLite file; {cure}, nothing was changed",
    ),
    (
        ("malformed", "disk image"),
        ServiceError,
        "the {what} at {path} is damaged; restore it from a backup, or delete it and index again",
    ),
    (
        ("locked", "busy"),
        ServiceTimeoutError,
        (
            "the {what} at {path} stayed locked for {timeout_s} s by another process; try "
            "again when that has finished"
        ),
    ),
    (("full",), ServiceError, _FULL),
    (
        ("readonly", "read-only"),
        ServiceError,
        (
            "the {what} at {path} is read-only: its file system is, or this user may not write "
            "it; make it writable, or give another UNSPOOL_DATABASE"
        ),
    ),
    (
        ("unable to open",),
        ServiceError,
        "the {what} at {path} cannot be opened; check that the folder exists and can be written",
    ),
)


def _translate_error(
    error: sa.exc.DBAPIError | sqlite3.Error, path: Path, what: str
) -> UnspoolError:
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    text = str(cause).lower()
    for parts, kind, message in _MESSAGES:
        if any(part in text for part in parts):
            if "readonly" in parts and shutil.disk_usage(path.parent).free < _NO_SPACE:
                message = _FULL
            cure = "point UNSPOOL_DATABASE at another path" if what == "catalog" else "move it away"
            timeout_s = BUSY_TIMEOUT_MS // 1000
            return kind(message.format(what=what, path=path, cure=cure, timeout_s=timeout_s))
    if isinstance(cause, sqlite3.IntegrityError):
        return ConflictError(
            f"the {what} at {path} refused a write that contradicts its content ({cause}); run "
            f"again"
        )
    if isinstance(cause, sqlite3.DatabaseError):
        return ServiceError(f"the {what} at {path} failed: {cause}; unspool doctor checks it")
    return InputError(f"the {what} at {path} could not store a value ({cause})")
