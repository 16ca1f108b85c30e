"""What `unspool doctor` finds: the installation, the catalog, the index and the documents, each
with its cure. It changes nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import shlex
import sqlite3
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from unspool.domain.documents import Status
from unspool.domain.reports import Check, ProjectStatus
from unspool.errors import ConfigError, ConflictError, UnspoolError
from unspool.settings import Settings
from unspool.settings.folders import summarize_ignored_settings

if TYPE_CHECKING:
    from unspool.catalog import Catalog
    from unspool.catalog.projects import ProjectRow
    from unspool.corpus import Corpus
    from unspool.embedders.base import Embedder

MIN_PYTHON = (3, 11)
MIN_SQLITE = (3, 35)  # RETURNING, which SQLAlchemy uses where it is there
EXTRAS = (  # module, extra, what is so with it, what without
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
    """Every check that can be made; what depends on a failed one is left out."""
    found = [
        _settings(settings),
        *_check_folder(settings),
        *_installation(),
        *_embedder_loads(settings),
    ]
    embedder_is_well = found[-1].ok
    if settings.cache and embedder_is_well:
        found.append(_cache(settings))
    try:
        engine = _engine(settings)
        about: list[Check] = list(engine.look(settings))
    except UnspoolError as error:
        cure = "set UNSPOOL_DATABASE to sqlite:////absolute/path.db or postgresql://user@host/name"
        return [*found, Check(name="catalog", ok=False, detail=str(error), cure=cure)]
    found += about
    if settings.vectors:
        return [
            *found,
            Check(
                name="vectors",
                ok=False,
                detail="an address for vectors is set",
                cure="leave UNSPOOL_VECTORS empty",
            ),
        ]
    if embedder_is_well and engine.is_usable(about):
        found += _content(settings, engine)
    return found


def without_settings(error: ConfigError) -> list[Check]:
    """What can be said when not even the settings can be read."""
    return [
        Check(
            name="settings",
            ok=False,
            detail=str(error),
            cure="correct the value; `unspool settings` shows where each one comes from",
        ),
        *_installation(),
    ]


def _settings(settings: Settings) -> Check:
    given = [f"{name} ({origin})" for name, _, origin, _ in settings.rows() if origin != "default"]
    return Check(name="settings", ok=True, detail=", ".join(given) or "all at their defaults")


def _check_folder(settings: Settings) -> Iterator[Check]:
    """Yield a check for the settings of the current folder that are ignored.

    They are no fault: the folder may be somebody else's.
    """
    if settings.ignored:
        yield Check(
            name="folder settings",
            ok=True,
            detail=f"ignored: {summarize_ignored_settings(settings.ignored)}",
            cure=f"to allow them: unspool trust {shlex.quote(str(settings.folder))}",
        )


def _installation() -> Iterator[Check]:
    new_enough = sys.version_info[:2] >= MIN_PYTHON
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check(
        name="python",
        ok=new_enough,
        detail=version,
        cure="" if new_enough else "use Python 3.11 or newer",
    )
    new_enough = sqlite3.sqlite_version_info[:2] >= MIN_SQLITE
    yield Check(
        name="sqlite",
        ok=new_enough,
        detail=sqlite3.sqlite_version,
        cure="" if new_enough else "use a Python with SQLite 3.35 or newer",
    )
    for module, extra, detail_with, detail_without in EXTRAS:
        there = importlib.util.find_spec(module) is not None
        detail = detail_with if there else detail_without
        yield Check(
            name=f"extra {extra}",
            ok=True,
            detail=detail,
            cure="" if there else f"if they are wanted: pip install 'unspool[{extra}]'",
        )


def _embedder_loads(settings: Settings) -> list[Check]:
    try:
        embedder = _embedder(settings)
        embedder.embed_query("hello")  # weights are read when they are first used
    except UnspoolError as error:
        detail, _, cure = str(error).partition("; ")
        return [Check(name="embedder", ok=False, detail=detail, cure=cure)]
    return [
        Check(
            name="embedder",
            ok=True,
            detail=f"{embedder.name} (revision {embedder.revision}, {embedder.dimension} dimensions)",  # noqa: E501
        )
    ]


def _embedder(settings: Settings) -> Embedder:
    from unspool.wiring import open_embedder

    return open_embedder(settings)[0]


def _cache(settings: Settings) -> Check:
    from unspool.wiring import open_cache

    try:
        cache = open_cache(settings, _embedder(settings))
        assert cache is not None
        answers = cache.answers()
        cache.close()
    except UnspoolError as error:
        detail, _, cure = str(error).partition("; ")
        return Check(name="cache", ok=False, detail=detail, cure=cure)
    if answers:
        return Check(name="cache", ok=True, detail="Redis answers")
    return Check(
        name="cache",
        ok=False,
        detail="Redis does not answer, everything works without it",
        cure="start it, or leave UNSPOOL_CACHE empty",
    )


def _engine(settings: Settings) -> Any:
    """The module that looks after the engine that the address names."""
    from unspool.catalog.database import get_engine_name

    searched = settings.database or settings.database_read or settings.database_address
    return importlib.import_module(_ENGINES[get_engine_name(searched)])


def _content(settings: Settings, engine: Any) -> Iterator[Check]:
    from unspool.corpus import Corpus

    try:
        with Corpus(settings) as corpus:
            yield _space(corpus)
            for status in corpus.status():
                yield engine.index(
                    corpus._parts.catalog, corpus._parts.store, corpus._project(status.name), status
                )
                yield _documents(corpus, status)
    except ConflictError as error:
        detail, _, cure = str(error).partition("; ")
        yield Check(name="vector space", ok=False, detail=detail, cure=cure)
    except UnspoolError as error:
        yield Check(
            name="projects",
            ok=False,
            detail=str(error),
            cure="run doctor again; if it stays, restore the catalog from a backup",
        )


def _space(corpus: Corpus) -> Check:
    """The vectors in use, and those that are only kept."""
    from unspool.catalog import spaces

    with corpus._parts.catalog.read() as connection:
        kept = {
            str(space): spaces.count_embeddings(connection, space.id)
            for space in spaces.list_spaces(connection)
            if not space.active
        }
    detail = "it belongs to this embedder"
    if not kept:
        return Check(name="vector space", ok=True, detail=detail)
    others = ", ".join(f"{count} vectors of {name}" for name, count in kept.items())
    return Check(
        name="vector space",
        ok=True,
        detail=f"{detail}; kept beside it: {others}",
        cure="unspool reembed --drop-old forgets those",
    )


def _row(corpus: Corpus, name: str) -> tuple[Catalog, ProjectRow]:
    return corpus._parts.catalog, corpus._project(name)


def _documents(corpus: Corpus, status: ProjectStatus) -> Check:
    from unspool.catalog import projects

    name = f"documents of {status.name}"
    failed = status.documents.get(Status.FAILED, 0)
    open_count = sum(
        status.documents.get(one, 0) for one in (Status.PENDING, Status.INDEXING, Status.STALE)
    )
    detail = (
        ", ".join(
            f"{count} {one.value}" for one in Status if (count := status.documents.get(one, 0))
        )
        or "none"
    )
    if failed:
        return Check(
            name=name,
            ok=False,
            detail=detail,
            cure=(
                "unspool documents --status failed says why each failed; the next index tries "
                "them again"
            ),
        )
    catalog, row = _row(corpus, status.name)
    with catalog.read() as connection:
        at_work = bool(projects.list_live_runs(connection, row.id))
    if open_count and not at_work:
        return Check(
            name=name,
            ok=False,
            detail=f"{detail}; a run was interrupted",
            cure=f"unspool index {status.root or 'SOURCE'} --project {status.name}",
        )
    return Check(name=name, ok=True, detail=f"{detail}; a run is at work" if at_work else detail)
