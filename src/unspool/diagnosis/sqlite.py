"""What `doctor` finds of a catalog in a file: the disk, the file, its windows, and the folder
that is derived from it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from unspool.domain.reports import Check, ProjectStatus
from unspool.errors import UnspoolError
from unspool.settings import Settings

if TYPE_CHECKING:
    from unspool.catalog.projects import ProjectRow
    from unspool.catalog.sqlite import SqliteCatalog
    from unspool.index.embedded.store import EmbeddedStore

MIN_FREE_BYTES, MIN_FREE_SHARE = 500_000_000, 0.05
_SHOWN = 5  # problems of SQLite's own check that are quoted
_ESSENTIAL = ("catalog", "migrations", "integrity")


def look(settings: Settings) -> Iterator[Check]:
    """The disk and the file."""
    from unspool.catalog.sqlite import parse_address

    path = parse_address(settings.database_address)
    yield _disk(path)
    if not path.exists():
        yield Check(
            name="catalog", ok=True, detail=f"there is none at {path} yet; the first index makes it"
        )
        return
    yield from _file(path)
    yield _windows(path)


def is_usable(checks: Sequence[Check]) -> bool:
    """Whether what the catalog holds can be looked at too."""
    essential = [check for check in checks if check.name in _ESSENTIAL]
    return len(essential) == len(_ESSENTIAL) and all(check.ok for check in essential)


def _disk(path: Path) -> Check:
    folder = next((parent for parent in path.parents if parent.exists()), Path("/"))
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        return Check(
            name="disk",
            ok=False,
            detail=f"{folder} cannot be asked ({error.strerror})",
            cure="check the disk and the permissions",
        )
    ok = usage.free >= MIN_FREE_BYTES or usage.free >= MIN_FREE_SHARE * usage.total
    detail = (
        f"{usage.free / 1e9:.1f} GB free ({100 * usage.free / max(usage.total, 1):.0f} %) at "
        f"{folder}"
    )
    return Check(
        name="disk",
        ok=ok,
        detail=detail,
        cure="" if ok else "free some space, or move the catalog with UNSPOOL_DATABASE",
    )


def _file(path: Path) -> Iterator[Check]:
    """The catalog's file as it lies there.

    It is opened read-only, because opening a catalog in the usual way would upgrade an old one.
    """
    from unspool.catalog import schema, sqlite_file

    try:
        with (
            sqlite_file.translate_errors(path),
            closing(sqlite_file.open_read_only(path)) as connection,
        ):
            revision = _revision(connection, path)
            yield _catalog(path, sqlite_file.measure_size(path))
            current = revision == schema.HEAD
            cure = (
                ""
                if current
                else "unspool migrate brings it to the newest; so does any command that opens it"
            )
            yield Check(
                name="migrations",
                ok=current,
                detail=f"at {revision or 'base'}, the newest is {schema.HEAD}",
                cure=cure,
            )
            problems = [str(row[0]) for row in connection.execute("PRAGMA quick_check")]
    except UnspoolError as error:
        yield Check(
            name="catalog",
            ok=False,
            detail=str(error),
            cure="point UNSPOOL_DATABASE at another path, or restore this file from a backup",
        )
        return
    sound = problems == ["ok"]
    cure = "" if sound else "restore the file from a backup, or delete it and index again"
    yield Check(
        name="integrity",
        ok=sound,
        detail="SQLite finds nothing wrong" if sound else "; ".join(problems[:_SHOWN]),
        cure=cure,
    )


def _catalog(path: Path, size: int) -> Check:
    """Return the size of the catalog, and report one that cannot be written: that may be meant."""
    detail, cure = f"{path}, {size / 1e6:.1f} MB", ""
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        detail += ", read-only: it can be searched, but nothing can be indexed"
        cure = "if that is not meant, mount its disk writable and give this user write permission"
    return Check(name="catalog", ok=True, detail=detail, cure=cure)


def _windows(path: Path) -> Check:
    """Check the file of continuations.

    It is opened read-only: a damaged file would otherwise be replaced.
    """
    from unspool.catalog.sqlite_file import open_read_only
    from unspool.catalog.window_file import get_window_path

    name, file = "continuations", get_window_path(path)
    if not file.exists():
        return Check(name=name, ok=True, detail="none kept yet")
    try:
        with closing(open_read_only(file)) as connection:
            count = connection.execute("SELECT count(*) FROM windows").fetchone()[0]
            size = connection.execute(
                "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
            ).fetchone()[0]
    except (sqlite3.Error, OSError) as error:
        cure = f"move {file} away; searches work without it, their continuations are only longer"
        return Check(name=name, ok=False, detail=f"{file} cannot be read ({error})", cure=cure)
    return Check(
        name=name, ok=True, detail=f"{count} searches kept to go on with, {size / 1e6:.1f} MB"
    )


def _revision(connection: sqlite3.Connection, path: Path) -> str:
    """The catalog's revision, refusing what is not ours in the same words as `Catalog.open`."""
    import sqlalchemy as sa

    from unspool.catalog import sqlite

    engine = sa.create_engine(
        "sqlite+pysqlite://", creator=lambda: connection, poolclass=sa.pool.StaticPool
    )
    with engine.connect() as wrapped:
        return sqlite.read_revision(wrapped, path)


def index(
    catalog: SqliteCatalog, store: EmbeddedStore | None, row: ProjectRow, status: ProjectStatus
) -> Check:
    """Check a project's derived folder: present, as it was written, and caught up.

    Searches read a short tail from the catalog.
    """
    from unspool.index.embedded.store import TAIL_LIMIT

    name = f"index of {status.name}"
    cure = "unspool repair rebuilds it; so does the next search"
    folder = catalog.get_folder("derived") / f"p{row.id}"
    # a run always makes one, a few puts do not need it
    expected = status.chunks > TAIL_LIMIT or (status.chunks and row.root)
    if expected and not folder.is_dir():
        return Check(name=name, ok=False, detail=f"{folder} is missing", cure=cure)
    if folder.is_dir() and store is not None and (damage := store.find_damage(row.id)):
        more = f" and {len(damage) - _SHOWN} more" if len(damage) > _SHOWN else ""
        return Check(
            name=name,
            ok=False,
            detail=f"{folder} is damaged: {', '.join(damage[:_SHOWN])}{more}",
            cure=cure,
        )
    if (
        folder.is_dir()
        and status.chunks
        and status.waiting >= status.chunks
        and (store is None or store.absorbed(row.id) < 0)
    ):
        return Check(
            name=name, ok=False, detail=f"{folder} is incomplete or of another version", cure=cure
        )
    ok = status.waiting <= TAIL_LIMIT
    detail = f"{status.chunks} chunks, {status.waiting} not absorbed yet"
    return Check(
        name=name,
        ok=ok,
        detail=detail,
        cure="" if ok else "unspool repair absorbs them; so does the next search",
    )
