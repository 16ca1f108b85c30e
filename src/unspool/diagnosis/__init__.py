"""Checks of `unspool doctor`: the installation, the catalog, the index and the documents.

Each failed check names its cure. Nothing is changed.
"""

from __future__ import annotations

import importlib
import importlib.util
import shlex
import sqlite3
import sys
from collections.abc import Iterator
from typing import Any

from unspool.catalog import projects, schema, spaces
from unspool.catalog.database import get_engine_name
from unspool.corpus import Corpus
from unspool.domain.documents import Status
from unspool.domain.reports import Check, ProjectStatus
from unspool.errors import ConfigError, ConflictError, UnspoolError
from unspool.index.indexes import Indexes
from unspool.session import check_settings, open_cache, open_embedder
from unspool.settings import Settings
from unspool.settings.folders import summarize_ignored_settings

MIN_PYTHON = (3, 11)
MIN_SQLITE = (3, 35)  # RETURNING, which SQLAlchemy uses if it is available
EXTRAS = (  # module, extra, detail if it is installed, detail if it is missing
    ("pypdf", "pdf", "PDF files are read", "PDF files are not read, pypdf is not installed"),
    ("docx", "docx", "DOCX files are read", "DOCX files are not read, docx is not installed"),
    (
        "psycopg",
        "postgres",
        "catalogs on PostgreSQL can be opened",
        "catalogs on PostgreSQL cannot be opened, psycopg is not installed",
    ),
    (
        "selectolax",
        "html",
        "HTML pages of prose are read as documents",
        "HTML is read as source, selectolax is not installed",
    ),
)
_ENGINES = {"sqlite": "unspool.diagnosis.sqlite", "postgresql": "unspool.diagnosis.postgres"}


def diagnose(settings: Settings) -> list[Check]:
    """Run every check, except those that depend on a failed check."""
    embedder = _check_embedder(settings)
    checks = [
        _check_settings(settings),
        *_check_folder(settings),
        *_check_installation(),
        embedder,
    ]
    if settings.cache.address and embedder.ok:
        checks.append(_check_cache(settings))
    try:
        check_settings(settings)
    except UnspoolError as error:
        return [*checks, make_failure("vectors", error)]
    try:
        engine = _import_engine(settings)
        about: list[Check] = list(engine.check_catalog(settings))
    except UnspoolError as error:
        cure = "set UNSPOOL_DATABASE to sqlite:////absolute/path.db or postgresql://user@host/name"
        return [*checks, Check(name="catalog", ok=False, detail=str(error), cure=cure)]
    checks += about
    passed = {check.name for check in about if check.ok}
    if embedder.ok and passed.issuperset(engine.REQUIRED):
        checks += _check_content(settings, engine)
    return checks


def diagnose_without_settings(error: ConfigError) -> list[Check]:
    """Run the checks that need no settings, because the settings are invalid."""
    cure = "correct the value; `unspool settings` shows where each one comes from"
    return [
        Check(name="settings", ok=False, detail=str(error), cure=cure),
        *_check_installation(),
    ]


def make_failure(name: str, error: UnspoolError) -> Check:
    """Return a failed check; the part of a message after a semicolon is the cure."""
    detail, _, cure = str(error).partition("; ")
    return Check(name=name, ok=False, detail=detail, cure=cure)


def check_revision(revision: str) -> Check:
    """Check that a catalog is at the newest revision; '' is the base."""
    is_current = revision == schema.HEAD
    return Check(
        name="migrations",
        ok=is_current,
        detail=f"at {revision or 'base'}, the newest is {schema.HEAD}",
        cure="" if is_current else "unspool migrate upgrades it; so does any command that opens it",
    )


def _check_settings(settings: Settings) -> Check:
    given = [f"{name} ({origin})" for name, _, origin, _ in settings.rows() if origin != "default"]
    return Check(name="settings", ok=True, detail=", ".join(given) or "all at their defaults")


def _check_folder(settings: Settings) -> Iterator[Check]:
    """Yield a check if settings of the current folder are ignored.

    The check passes, because the folder may belong to another user.
    """
    if settings.ignored:
        yield Check(
            name="folder settings",
            ok=True,
            detail=f"ignored: {summarize_ignored_settings(settings.ignored)}",
            cure=f"to allow them: unspool trust {shlex.quote(str(settings.folder))}",
        )


def _check_installation() -> Iterator[Check]:
    for name, version, least, cure in (
        ("python", sys.version_info[:3], MIN_PYTHON, "use Python 3.11 or newer"),
        (
            "sqlite",
            sqlite3.sqlite_version_info,
            MIN_SQLITE,
            "use a Python with SQLite 3.35 or newer",
        ),
    ):
        ok = version[:2] >= least
        detail = ".".join(map(str, version))
        yield Check(name=name, ok=ok, detail=detail, cure="" if ok else cure)
    for module, extra, detail_with, detail_without in EXTRAS:
        is_installed = importlib.util.find_spec(module) is not None
        yield Check(
            name=f"extra {extra}",
            ok=True,
            detail=detail_with if is_installed else detail_without,
            cure="" if is_installed else f"if they are wanted: pip install 'unspool[{extra}]'",
        )


def _check_embedder(settings: Settings) -> Check:
    try:
        embedder = open_embedder(settings)[0]
        embedder.embed_query("hello")  # weights are read when they are first used
    except UnspoolError as error:
        return make_failure("embedder", error)
    return Check(
        name="embedder",
        ok=True,
        detail=(f"{embedder.name} (revision {embedder.revision}, {embedder.dimension} dimensions)"),
    )


def _check_cache(settings: Settings) -> Check:
    try:
        cache = open_cache(settings, open_embedder(settings)[0])
        assert cache is not None
        is_reachable = cache.is_reachable()
        cache.close()
    except UnspoolError as error:
        return make_failure("cache", error)
    if is_reachable:
        return Check(name="cache", ok=True, detail="Redis answers")
    return Check(
        name="cache",
        ok=False,
        detail="Redis does not answer, everything works without it",
        cure="start it, or leave UNSPOOL_CACHE empty",
    )


def _import_engine(settings: Settings) -> Any:
    """Return the module with the checks of the engine that the address names."""
    address = (
        settings.database.address or settings.database.read_address or settings.database_address
    )
    return importlib.import_module(_ENGINES[get_engine_name(address)])


def _check_content(settings: Settings, engine: Any) -> Iterator[Check]:
    try:
        with Corpus(settings) as corpus:
            yield _check_spaces(corpus)
            for status in corpus.status():
                row = corpus._find(status.name)
                indexes = corpus._resources.session.indexes
                yield engine.check_index(corpus._resources.catalog, indexes, row, status)
                yield from _check_vectors(indexes, row.id, status)
                yield _check_documents(corpus, row.id, status)
    except ConflictError as error:
        yield make_failure("vector space", error)
    except UnspoolError as error:
        cure = "run doctor again; if it still fails, restore the catalog from a backup"
        yield Check(name="projects", ok=False, detail=str(error), cure=cure)


def _check_vectors(indexes: Indexes, project_id: int, status: ProjectStatus) -> Iterator[Check]:
    """Check that a vector index outside the catalog's database contains a project's points."""
    if indexes.outside is None:
        return
    damage = "; ".join(indexes.outside.find_damage(project_id))
    cure = "start it or correct UNSPOOL_VECTORS, then run unspool repair" if damage else ""
    detail = damage or f"{indexes.name} answers, {status.waiting} chunks wait for it"
    yield Check(name=f"vectors of {status.name}", ok=not damage, detail=detail, cure=cure)


def _check_spaces(corpus: Corpus) -> Check:
    """Report the vectors of other embedders that the catalog still contains."""
    with corpus._resources.catalog.read() as connection:
        others = ", ".join(
            f"{spaces.count_embeddings(connection, space.id)} vectors of {space}"
            for space in spaces.list_spaces(connection)
            if not space.active
        )
    return Check(
        name="vector space",
        ok=True,
        detail="it belongs to this embedder" + (f"; also stored: {others}" if others else ""),
        cure="unspool reembed --drop-old deletes those" if others else "",
    )


def _check_documents(corpus: Corpus, project_id: int, status: ProjectStatus) -> Check:
    name, counts = f"documents of {status.name}", status.documents
    found = [f"{count} {one.value}" for one in Status if (count := counts.get(one, 0))]
    detail = ", ".join(found) or "none"
    if counts.get(Status.FAILED):
        cure = (
            "unspool documents --status failed shows why each failed; the next index tries them "
            "again"
        )
        return Check(name=name, ok=False, detail=detail, cure=cure)
    with corpus._resources.catalog.read() as connection:
        is_running = bool(projects.list_live_runs(connection, project_id))
    if is_running:
        return Check(name=name, ok=True, detail=f"{detail}; a run is at work")
    if any(counts.get(one) for one in (Status.PENDING, Status.INDEXING, Status.STALE)):
        cure = f"unspool index {status.root or 'SOURCE'} --project {status.name}"
        return Check(name=name, ok=False, detail=f"{detail}; a run was interrupted", cure=cure)
    return Check(name=name, ok=True, detail=detail)
