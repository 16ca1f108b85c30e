"""The windows of an SQLite catalog: a file of their own, which may be deleted at any time, and
only continuations go with it.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from filelock import FileLock
from sqlalchemy.engine import Connection, Engine

from unspool.catalog.schema import APPLICATION_ID, short_lived
from unspool.catalog.sqlite import engine_for, transaction, translated, use_log
from unspool.errors import ConflictError, ServiceError

FORMAT = 1  # of the file; another one is thrown away


class WindowFile:
    """The file, made when it is first read or written. Several processes may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._engine: Engine | None = None
        self._opening = threading.Lock()
        self._writing = threading.Lock()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for reading."""
        with self._guarded(), self._ready().connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction."""
        with self._writing, self._guarded(), transaction(self._ready()) as connection:
            yield connection

    def close(self) -> None:
        """Let go of the file."""
        with self._opening:
            if self._engine is not None:
                self._engine.dispose()
                self._engine = None

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Errors as ours.

        A file that turns out to be damaged inside is moved aside, so that the next call finds a new
        one.
        """
        try:
            with translated(self._path, what="file of continuations"):
                yield
        except (ServiceError, ConflictError) as error:
            if isinstance(error.__cause__, Exception) and _is_damage(error.__cause__):
                self.close()
                _set_aside(self._path)
                raise ServiceError(
                    f"{self._path} was damaged and is begun anew; continuations that it held are "
                    f"gone, search again"
                ) from error
            raise

    def _ready(self) -> Engine:
        with self._opening:
            if self._engine is None:
                self._engine = _open_file(self._path)
            return self._engine


def kept_at(catalog: Path) -> Path:
    """The file beside a catalog's."""
    return catalog.with_name(catalog.name + ".windows")


def _open_file(path: Path) -> Engine:
    """Open the file, and create it if it is missing.

    A damaged one is moved aside: its content is short-lived.
    """
    engine = engine_for(path)
    try:
        return _prepare(engine, path)
    except (sa.exc.DatabaseError, sqlite3.DatabaseError) as error:
        engine.dispose()
        if not _is_damage(error):
            raise
        _set_aside(path)
        return _prepare(engine_for(path), path)


def _is_damage(error: Exception) -> bool:
    text = str(getattr(error, "orig", error)).lower()
    return "not a database" in text or "malformed" in text or "disk image" in text


def _set_aside(path: Path) -> None:
    """Move a damaged file out of the way, unless another process has done so already."""
    with FileLock(path.with_name(path.name + ".lock"), timeout=10):
        engine = engine_for(path)
        try:
            with engine.connect() as connection:
                sound = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one() == "ok"
        except sa.exc.DatabaseError:
            sound = False
        finally:
            engine.dispose()
        if not sound:
            for suffix in ("-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            path.replace(path.with_name(path.name + ".damaged"))


def _prepare(engine: Engine, path: Path) -> Engine:
    """Create the tables if they are missing or of another format."""
    if not path.exists():
        path.touch(mode=0o600)  # private, because it contains queries
    with engine.connect() as connection:
        application, version = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("application_id", "user_version")
        )
        foreign = application != APPLICATION_ID and (
            application
            or connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()
        )
        if (application, version) == (APPLICATION_ID, FORMAT):
            return engine
    if foreign:
        raise ServiceError(
            f"{path} belongs to another program; move it away, unspool keeps continuations there"
        )
    use_log(path)
    with transaction(engine) as connection:
        if connection.exec_driver_sql("PRAGMA user_version").scalar_one() != FORMAT:
            short_lived.drop_all(connection)
            short_lived.create_all(connection)
            connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
            connection.exec_driver_sql(f"PRAGMA user_version={FORMAT}")
    return engine
