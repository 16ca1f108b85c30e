"""What `unspool doctor` finds: the installation, the catalog, the index and the documents, each with its cure. It changes nothing."""

from __future__ import annotations

import importlib.util
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from unspool.corpus import Check, ProjectStatus
from unspool.domain.documents import Status
from unspool.errors import ConfigError, ConflictError, UnspoolError
from unspool.settings import Settings

if TYPE_CHECKING:
    from unspool.catalog import Catalog
    from unspool.catalog.projects import ProjectRow
    from unspool.corpus import Corpus
    from unspool.embedders.base import Embedder

MIN_PYTHON = (3, 11)
MIN_SQLITE = (3, 35)  # RETURNING, which SQLAlchemy uses where it is there
MIN_FREE_BYTES, MIN_FREE_SHARE = 500_000_000, 0.05
EXTRAS = (  # module, extra, what is so with it, what without
    ("pypdf", "pdf", "PDF files are read", "PDF files are not read, pypdf is not installed"),
    ("docx", "docx", "DOCX files are read", "DOCX files are not read, docx is not installed"),
    ("selectolax", "html", "HTML pages of prose are read as documents", "HTML is read as source, selectolax is not installed"),
)
_SHOWN = 5  # problems of SQLite's own check that are quoted


def diagnose(settings: Settings) -> list[Check]:
    """Every check that can be made; what depends on a failed one is left out."""
    found = [_settings(settings), *_installation(), *_embedder_loads(settings)]
    embedder_is_well = found[-1].ok
    path, checks = _address(settings)
    found += checks
    if path is None:
        return found
    found.append(_disk(path))
    if not path.exists():
        return [*found, Check(name="catalog", ok=True, detail=f"there is none at {path} yet; the first index makes it")]
    file_checks = list(_file(path))
    found += [*file_checks, _windows(path)]
    if embedder_is_well and all(check.ok for check in file_checks):
        found += _content(settings)
    return found


def without_settings(error: ConfigError) -> list[Check]:
    """What can be said when not even the settings can be read."""
    return [
        Check(name="settings", ok=False, detail=str(error), cure="correct the value; `unspool settings` shows where each one comes from"),
        *_installation(),
    ]


def _settings(settings: Settings) -> Check:
    given = [f"{name} ({origin})" for name, _, origin, _ in settings.shown() if origin != "default"]
    return Check(name="settings", ok=True, detail=", ".join(given) or "all at their defaults")


def _installation() -> Iterator[Check]:
    new_enough = sys.version_info[:2] >= MIN_PYTHON
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check(name="python", ok=new_enough, detail=version, cure="" if new_enough else "use Python 3.11 or newer")
    new_enough = sqlite3.sqlite_version_info[:2] >= MIN_SQLITE
    yield Check(name="sqlite", ok=new_enough, detail=sqlite3.sqlite_version, cure="" if new_enough else "use a Python with SQLite 3.35 or newer")
    for module, extra, detail_with, detail_without in EXTRAS:
        there = importlib.util.find_spec(module) is not None
        detail = detail_with if there else detail_without
        yield Check(name=f"extra {extra}", ok=True, detail=detail, cure="" if there else f"if they are wanted: pip install 'unspool[{extra}]'")


def _embedder_loads(settings: Settings) -> list[Check]:
    try:
        embedder = _embedder(settings)
        embedder.embed_query("hello")  # weights are read when they are first used
    except UnspoolError as error:
        return [Check(name="embedder", ok=False, detail=str(error), cure="set UNSPOOL_EMBEDDER to one that is installed")]
    return [Check(name="embedder", ok=True, detail=f"{embedder.name} (revision {embedder.revision}, {embedder.dimension} dimensions)")]


def _embedder(settings: Settings) -> Embedder:
    from unspool.embedders import open_embedder

    return open_embedder(settings.embedder)


def _address(settings: Settings) -> tuple[Path | None, list[Check]]:
    from unspool.catalog.database import sqlite_path

    try:
        path = sqlite_path(settings.database_address)
    except UnspoolError as error:
        return None, [Check(name="catalog", ok=False, detail=str(error), cure="set UNSPOOL_DATABASE to sqlite:////absolute/path.db")]
    if settings.vectors:
        return path, [Check(name="vectors", ok=False, detail="an address for vectors is set", cure="leave UNSPOOL_VECTORS empty")]
    return path, []


def _disk(path: Path) -> Check:
    folder = next((parent for parent in path.parents if parent.exists()), Path("/"))
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        return Check(name="disk", ok=False, detail=f"{folder} cannot be asked ({error.strerror})", cure="check the disk and the permissions")
    ok = usage.free >= MIN_FREE_BYTES or usage.free >= MIN_FREE_SHARE * usage.total
    detail = f"{usage.free / 1e9:.1f} GB free ({100 * usage.free / max(usage.total, 1):.0f} %) at {folder}"
    return Check(name="disk", ok=ok, detail=detail, cure="" if ok else "free some space, or move the catalog with UNSPOOL_DATABASE")


def _file(path: Path) -> Iterator[Check]:
    """The catalog's file as it lies there. It is opened read-only, because opening a catalog in the usual way would upgrade an old one."""
    from unspool.catalog import database, schema

    try:
        with database.translated(path), closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=10)) as connection:
            revision = _revision(connection, path)
            yield Check(name="catalog", ok=True, detail=f"{path}, {database.size_bytes(path) / 1e6:.1f} MB")
            current = revision == schema.HEAD
            cure = "" if current else "unspool migrate brings it to the newest; so does any command that opens it"
            yield Check(name="migrations", ok=current, detail=f"at {revision or 'base'}, the newest is {schema.HEAD}", cure=cure)
            problems = [str(row[0]) for row in connection.execute("PRAGMA quick_check")]
    except UnspoolError as error:
        yield Check(name="catalog", ok=False, detail=str(error), cure="point UNSPOOL_DATABASE at another path, or restore this file from a backup")
        return
    sound = problems == ["ok"]
    cure = "" if sound else "restore the file from a backup, or delete it and index again"
    yield Check(name="integrity", ok=sound, detail="SQLite finds nothing wrong" if sound else "; ".join(problems[:_SHOWN]), cure=cure)


def _windows(path: Path) -> Check:
    """Where continuations are kept. Opened read-only: a damaged file would otherwise be begun anew."""
    from unspool.catalog.windows import kept_at

    name, file = "continuations", kept_at(path)
    if not file.exists():
        return Check(name=name, ok=True, detail="none kept yet")
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=10)) as connection:
            count = connection.execute("SELECT count(*) FROM windows").fetchone()[0]
            size = connection.execute("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()").fetchone()[0]
    except (sqlite3.Error, OSError) as error:
        cure = f"move {file} away; searches work without it, their continuations are only longer"
        return Check(name=name, ok=False, detail=f"{file} cannot be read ({error})", cure=cure)
    return Check(name=name, ok=True, detail=f"{count} searches kept to go on with, {size / 1e6:.1f} MB")


def _revision(connection: sqlite3.Connection, path: Path) -> str:
    """The catalog's revision, refusing what is not ours in the same words as `Catalog.open`."""
    import sqlalchemy as sa

    from unspool.catalog import database

    engine = sa.create_engine("sqlite+pysqlite://", creator=lambda: connection, poolclass=sa.pool.StaticPool)
    with engine.connect() as wrapped:
        return database.revision_of(wrapped, path)


def _content(settings: Settings) -> Iterator[Check]:
    from unspool.corpus import Corpus

    try:
        with Corpus(settings) as corpus:
            yield Check(name="vector space", ok=True, detail="it belongs to this embedder")
            for status in corpus.status():
                yield _index(corpus, status)
                yield _documents(corpus, status)
    except ConflictError as error:
        cure = "set UNSPOOL_EMBEDDER back to the one that filled the catalog, or use another UNSPOOL_DATABASE"
        yield Check(name="vector space", ok=False, detail=str(error), cure=cure)
    except UnspoolError as error:
        yield Check(name="projects", ok=False, detail=str(error), cure="run doctor again; if it stays, restore the catalog from a backup")


def _index(corpus: Corpus, status: ProjectStatus) -> Check:
    """A project's derived folder: there, readable, and caught up. A small rest is normal: searches read it from the catalog."""
    from unspool.embedded.store import TAIL_LIMIT

    name = f"index of {status.name}"
    catalog, row = _row(corpus, status.name)
    folder = catalog.path.with_name(catalog.path.name + ".derived") / f"p{row.id}"
    if status.chunks and not folder.is_dir():
        return Check(name=name, ok=False, detail=f"{folder} is missing", cure="unspool repair rebuilds it; so does the next search")
    if status.chunks and status.waiting >= status.chunks and _positions_are_lost(corpus, row):
        return Check(
            name=name, ok=False, detail=f"{folder} is damaged or of another version", cure="unspool repair rebuilds it; so does the next search"
        )
    ok = status.waiting <= TAIL_LIMIT
    detail = f"{status.chunks} chunks, {status.waiting} not absorbed yet"
    return Check(name=name, ok=ok, detail=detail, cure="" if ok else "unspool repair absorbs them; so does the next search")


def _row(corpus: Corpus, name: str) -> tuple[Catalog, ProjectRow]:
    return corpus._catalog, corpus._project(name)


def _positions_are_lost(corpus: Corpus, row: ProjectRow) -> bool:
    return corpus._store is None or corpus._store.absorbed(row.id) < 0


def _documents(corpus: Corpus, status: ProjectStatus) -> Check:
    from unspool.catalog import projects

    name = f"documents of {status.name}"
    failed = status.documents.get(Status.FAILED, 0)
    open_count = sum(status.documents.get(one, 0) for one in (Status.PENDING, Status.INDEXING, Status.STALE))
    detail = ", ".join(f"{count} {one.value}" for one in Status if (count := status.documents.get(one, 0))) or "none"
    if failed:
        return Check(
            name=name, ok=False, detail=detail, cure="unspool documents --status failed says why each failed; the next index tries them again"
        )
    catalog, row = _row(corpus, status.name)
    with catalog.read() as connection:
        at_work = bool(projects.live_runs(connection, row.id))
    if open_count and not at_work:
        return Check(
            name=name, ok=False, detail=f"{detail}; a run was interrupted", cure=f"unspool index {status.root or 'SOURCE'} --project {status.name}"
        )
    return Check(name=name, ok=True, detail=f"{detail}; a run is at work" if at_work else detail)
