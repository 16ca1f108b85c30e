"""Checks of a catalog in a file: the disk, the file, its continuations, and the derived folder."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from unspool.catalog import sqlite, sqlite_file
from unspool.catalog.projects import ProjectRow
from unspool.catalog.sqlite import SqliteCatalog
from unspool.catalog.window_file import get_window_path
from unspool.diagnosis import check_revision
from unspool.domain.reports import Check, ProjectStatus
from unspool.errors import UnspoolError
from unspool.index.follower import TAIL_LIMIT
from unspool.index.indexes import Indexes
from unspool.settings import Settings

MIN_FREE_BYTES, MIN_FREE_SHARE = 500_000_000, 0.05
MAX_PROBLEMS = 5  # in a detail
REQUIRED = ("catalog", "migrations", "integrity")  # checks that must pass before projects


def check_catalog(settings: Settings) -> Iterator[Check]:
    """Check the disk and the file."""
    path = sqlite.parse_address(settings.database_address)
    yield _check_disk(path)
    if path.exists():
        yield from _check_file(path)
        yield _check_windows(path)
    else:
        detail = f"there is none at {path} yet; the first index creates it"
        yield Check(name="catalog", ok=True, detail=detail)


def _check_disk(path: Path) -> Check:
    folder = next((parent for parent in path.parents if parent.exists()), Path("/"))
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        detail = f"{folder} cannot be read ({error.strerror})"
        cure = "check the disk and the permissions"
        return Check(name="disk", ok=False, detail=detail, cure=cure)
    ok = usage.free >= MIN_FREE_BYTES or usage.free >= MIN_FREE_SHARE * usage.total
    percent = 100 * usage.free / max(usage.total, 1)
    return Check(
        name="disk",
        ok=ok,
        detail=f"{usage.free / 1e9:.1f} GB free ({percent:.0f} %) at {folder}",
        cure="" if ok else "free some space, or move the catalog with UNSPOOL_DATABASE",
    )


def _check_file(path: Path) -> Iterator[Check]:
    """Check the catalog's file.

    It is opened read-only, because opening a catalog in the usual way would upgrade an old one.
    """
    try:
        with (
            sqlite_file.translate_errors(path),
            closing(sqlite_file.open_read_only(path)) as connection,
        ):
            revision = _read_revision(connection, path)
            yield _check_access(path)
            yield check_revision(revision)
            problems = [str(row[0]) for row in connection.execute("PRAGMA quick_check")]
    except UnspoolError as error:
        cure = "point UNSPOOL_DATABASE at another path, or restore this file from a backup"
        yield Check(name="catalog", ok=False, detail=str(error), cure=cure)
        return
    if problems == ["ok"]:
        yield Check(name="integrity", ok=True, detail="SQLite finds no errors")
    else:
        cure = "restore the file from a backup, or delete it and index again"
        detail = "; ".join(problems[:MAX_PROBLEMS])
        yield Check(name="integrity", ok=False, detail=detail, cure=cure)


def _check_access(path: Path) -> Check:
    """Report the size of the catalog, and whether it is read-only, which may be intended."""
    detail, cure = f"{path}, {sqlite_file.measure_size(path) / 1e6:.1f} MB", ""
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        detail += ", read-only: it can be searched, but nothing can be indexed"
        cure = "to index, mount its disk writable and give this user write permission"
    return Check(name="catalog", ok=True, detail=detail, cure=cure)


def _check_windows(path: Path) -> Check:
    """Check the file of continuations.

    It is opened read-only, because a damaged file would otherwise be replaced.
    """
    name, file = "continuations", get_window_path(path)
    if not file.exists():
        return Check(name=name, ok=True, detail="none stored yet")
    try:
        with closing(sqlite_file.open_read_only(file)) as connection:
            count, size = connection.execute(
                "SELECT (SELECT count(*) FROM windows), page_count * page_size "
                "FROM pragma_page_count(), pragma_page_size()"
            ).fetchone()
    except (sqlite3.Error, OSError) as error:
        cure = f"move {file} away; searches work without it, but their continuations are longer"
        return Check(name=name, ok=False, detail=f"{file} cannot be read ({error})", cure=cure)
    detail = f"searches that can be resumed: {count}, {size / 1e6:.1f} MB"
    return Check(name=name, ok=True, detail=detail)


def _read_revision(connection: sqlite3.Connection, path: Path) -> str:
    """Return the catalog's revision; reject other files like `Catalog.open` does."""
    engine = sa.create_engine(
        "sqlite+pysqlite://", creator=lambda: connection, poolclass=sa.pool.StaticPool
    )
    with engine.connect() as wrapped:
        return sqlite.read_revision(wrapped, path)


def check_index(
    catalog: SqliteCatalog, indexes: Indexes, row: ProjectRow, status: ProjectStatus
) -> Check:
    """Check that a project's derived folder exists, is intact, and is up to date.

    Searches read a short tail from the catalog.
    """
    folder = catalog.get_folder("derived") / f"p{row.id}"
    # every run creates a folder, a few small writes do not need one
    is_expected = bool(status.chunks > TAIL_LIMIT or (status.chunks and row.root))
    if problem := _find_problem(folder, indexes, row, status, is_expected=is_expected):
        cure = "unspool repair rebuilds it; so does the next search"
        detail = f"{folder} is {problem}"
        return Check(name=f"index of {status.name}", ok=False, detail=detail, cure=cure)
    ok = status.waiting <= TAIL_LIMIT
    return Check(
        name=f"index of {status.name}",
        ok=ok,
        detail=f"{status.chunks} chunks, {status.waiting} not indexed yet",
        cure="" if ok else "unspool repair indexes them; so does the next search",
    )


def _find_problem(
    folder: Path,
    indexes: Indexes,
    row: ProjectRow,
    status: ProjectStatus,
    *,
    is_expected: bool,
) -> str:
    """Describe a missing, damaged or incomplete folder; '' if there is no problem."""
    if not folder.is_dir():
        return "missing" if is_expected else ""
    if damage := indexes.find_damage(row.id):
        more = f" and {len(damage) - MAX_PROBLEMS} more" if len(damage) > MAX_PROBLEMS else ""
        return f"damaged: {', '.join(damage[:MAX_PROBLEMS])}{more}"
    if status.chunks and status.waiting >= status.chunks and not indexes.is_filled(row.id):
        return "incomplete or of another version"
    return ""
