"""Search windows of an SQLite catalog, in a file of their own.

The file may be deleted at any time: only continuations are lost with it.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from filelock import FileLock

from unspool.catalog.schema import APPLICATION_ID, short_lived
from unspool.catalog.sqlite_file import (
    begin_write,
    create_engine,
    enable_wal,
    translate_errors,
)
from unspool.errors import ConflictError, ServiceError

FORMAT = 2  # of the file; tables of another format are replaced


class WindowFile:
    """File of windows, created by the first read or write. Several processes may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._engine: sa.Engine | None = None
        self._opening = threading.Lock()
        self._writing = threading.Lock()

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a connection for reading."""
        with self._handle_damage(), self._get_engine().connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Open a transaction."""
        with self._writing, self._handle_damage(), begin_write(self._get_engine()) as connection:
            yield connection

    def close(self) -> None:
        """Close the file."""
        with self._opening:
            if self._engine is not None:
                self._engine.dispose()
                self._engine = None

    @contextmanager
    def _handle_damage(self) -> Iterator[None]:
        """Translate errors, and move a damaged file aside so that the next call creates one."""
        try:
            with translate_errors(self._path, what="file of continuations"):
                yield
        except (ServiceError, ConflictError) as error:
            if isinstance(error.__cause__, Exception) and _is_damage(error.__cause__):
                self.close()
                _set_aside(self._path)
                raise ServiceError(
                    f"{self._path} was damaged and is replaced by a new file; its continuations "
                    f"are lost, search again"
                ) from error
            raise

    def _get_engine(self) -> sa.Engine:
        with self._opening:
            if self._engine is None:
                self._engine = _open_file(self._path)
            return self._engine


def get_window_path(catalog: Path) -> Path:
    """Return the path of the windows of a catalog."""
    return catalog.with_name(catalog.name + ".windows")


def _open_file(path: Path) -> sa.Engine:
    """Open the file, and create it if it is missing. A damaged one is moved aside."""
    engine = create_engine(path)
    try:
        return _prepare(engine, path)
    except (sa.exc.DatabaseError, sqlite3.DatabaseError) as error:
        engine.dispose()
        if not _is_damage(error):
            raise
        _set_aside(path)
        return _prepare(create_engine(path), path)


def _is_damage(error: Exception) -> bool:
    text = str(getattr(error, "orig", error)).lower()
    return "not a database" in text or "malformed" in text or "disk image" in text


def _set_aside(path: Path) -> None:
    """Move a damaged file out of the way, unless another process has done so already."""
    with FileLock(path.with_name(path.name + ".lock"), timeout=10):
        engine = create_engine(path)
        try:
            with engine.connect() as connection:
                is_sound = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar() == "ok"
        except sa.exc.DatabaseError:
            is_sound = False
        finally:
            engine.dispose()
        if not is_sound:
            for suffix in ("-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            path.replace(path.with_name(path.name + ".damaged"))


def _prepare(engine: sa.Engine, path: Path) -> sa.Engine:
    """Create the tables if they are missing or of another format."""
    if not path.exists():
        path.touch(mode=0o600)  # private, because it contains queries
    with engine.connect() as connection:
        application, version = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("application_id", "user_version")
        )
        is_foreign = application != APPLICATION_ID and (
            application
            or connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()
        )
        if (application, version) == (APPLICATION_ID, FORMAT):
            return engine
    if is_foreign:
        raise ServiceError(
            f"{path} belongs to another program; move it away, unspool keeps continuations there"
        )
    enable_wal(path)
    with begin_write(engine) as connection:
        if connection.exec_driver_sql("PRAGMA user_version").scalar_one() != FORMAT:
            short_lived.drop_all(connection)
            short_lived.create_all(connection)
            connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
            connection.exec_driver_sql(f"PRAGMA user_version={FORMAT}")
    return engine
