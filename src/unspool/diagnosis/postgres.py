"""What `doctor` finds of a catalog on a server: whether it answers, its version and pgvector's,
the migrations, and the index over the vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from unspool.domain.reports import Check, ProjectStatus
from unspool.errors import UnspoolError
from unspool.settings import Settings
from unspool.wiring import connecting

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

    from unspool.catalog.postgres import PostgresCatalog
    from unspool.catalog.postgres_server import Target
    from unspool.catalog.projects import ProjectRow
    from unspool.index.postgres.store import PostgresStore

_ESSENTIAL = ("server", "pgvector", "migrations")


def look(settings: Settings) -> Iterator[Check]:
    """The server and the catalog in it; nothing is made or upgraded."""
    yield from _server("server", settings.database or settings.database_read, settings)
    if settings.database_read:
        yield from _replica(settings)


def is_usable(checks: Sequence[Check]) -> bool:
    """Whether what the catalog holds can be looked at too."""
    essential = [check for check in checks if check.name in _ESSENTIAL]
    return len(essential) == len(_ESSENTIAL) and all(
        check.ok for check in essential if check.name != "pgvector"
    )


def _server(name: str, address: str, settings: Settings) -> Iterator[Check]:
    from unspool.catalog import postgres_errors, postgres_server

    target = postgres_server.parse_address(address)
    engine = postgres_server.create_engine(target, connecting(settings))
    try:
        with (
            postgres_errors.translate_errors(target.place),
            postgres_server.connect(engine) as connection,
        ):
            version = str(connection.exec_driver_sql("SHOW server_version").scalar_one())
            number = int(connection.exec_driver_sql("SHOW server_version_num").scalar_one())
            encoding = str(connection.exec_driver_sql("SHOW server_encoding").scalar_one())
            yield _version(name, target, version, number, encoding)
            catalog = list(_migrations(connection, target))
            yield _extension(connection, is_new=catalog[0].name == "catalog")
            yield _room(connection, settings)
            yield from catalog
    except UnspoolError as error:
        yield Check(
            name=name, ok=False, detail=str(error), cure="mend that first, then run doctor again"
        )
    finally:
        engine.dispose()


def _version(name: str, target: Target, version: str, number: int, encoding: str) -> Check:
    from unspool.catalog.postgres_server import MIN_SERVER

    detail = f"PostgreSQL {version} at {target.place}, encoded as {encoding}"
    if number < MIN_SERVER:
        return Check(
            name=name,
            ok=False,
            detail=detail,
            cure=f"use PostgreSQL {MIN_SERVER // 10_000} or newer",
        )
    if encoding != "UTF8":
        return Check(
            name=name,
            ok=False,
            detail=detail,
            cure="make a database with ENCODING 'UTF8' and name that in UNSPOOL_DATABASE",
        )
    return Check(name=name, ok=True, detail=detail)


def _extension(connection: Connection, *, is_new: bool) -> Check:
    from unspool.catalog.postgres_server import GOOD_PGVECTOR, MIN_PGVECTOR, read_pgvector_version

    version = read_pgvector_version(connection)
    if version is None:
        available = connection.exec_driver_sql(
            "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
        ).scalar()
        if available is None:
            cure = (
                "install pgvector on the server: the Debian package is postgresql-NN-pgvector, "
                "the image pgvector/pgvector"
            )
            return Check(
                name="pgvector", ok=False, detail="it is not installed on the server", cure=cure
            )
        return Check(
            name="pgvector",
            ok=is_new,
            detail=f"{available} is on the server, but not made in this database",
            cure=(
                "unspool migrate makes it if the user may; otherwise let an administrator run "
                "CREATE EXTENSION vector"
            ),
        )
    shown = ".".join(map(str, version))
    if version < GOOD_PGVECTOR:
        wanted = ".".join(map(str, GOOD_PGVECTOR))
        why = (
            "filtered searches come back short"
            if version < MIN_PGVECTOR
            else "a vacuum may damage HNSW indexes"
        )
        cure = f"install {wanted} or newer on the server and run ALTER EXTENSION vector UPDATE"
        return Check(name="pgvector", ok=False, detail=f"{shown}: {why}", cure=cure)
    return Check(name="pgvector", ok=True, detail=shown)


def _room(connection: Connection, settings: Settings) -> Check:
    """Whether the server has the connections that the pool may want."""
    query = (
        "SELECT current_setting('max_connections')::int, (SELECT count(*) FROM pg_stat_activity "
        "WHERE backend_type = 'client backend')"
    )
    most, used = connection.exec_driver_sql(query).one()
    wanted = settings.pool_size + settings.pool_overflow
    ok = wanted <= most
    cure = (
        ""
        if ok
        else (
            "lower UNSPOOL_POOL_SIZE and UNSPOOL_POOL_OVERFLOW, or raise max_connections on the "
            "server"
        )
    )
    return Check(
        name="connections",
        ok=ok,
        detail=f"{used} of {most} in use, this process may want {wanted}",
        cure=cure,
    )


def _migrations(connection: Connection, target: Target) -> Iterator[Check]:
    from unspool.catalog import schema
    from unspool.catalog.postgres import read_revision

    try:
        revision = read_revision(connection, target)
    except UnspoolError as error:
        detail, _, cure = str(error).partition("; ")
        yield Check(name="migrations", ok=False, detail=detail, cure=cure)
        return
    if not revision:
        yield Check(
            name="catalog",
            ok=True,
            detail=f"there is none at {target.place} yet; the first index makes it",
        )
        return
    current = revision == schema.HEAD
    cure = (
        ""
        if current
        else "unspool migrate brings it to the newest; so does any command that opens it"
    )
    yield Check(
        name="migrations",
        ok=current,
        detail=f"at {revision}, the newest is {schema.HEAD}",
        cure=cure,
    )
    if current:
        windows = connection.exec_driver_sql("SELECT count(*) FROM windows").scalar_one()
        yield Check(name="continuations", ok=True, detail=f"{windows} searches kept to go on with")


def _replica(settings: Settings) -> Iterator[Check]:
    """The replica that searches go to, and how far it is behind."""
    from unspool.catalog import postgres_errors, postgres_server

    target = postgres_server.parse_address(settings.database_read)
    engine: Engine = postgres_server.create_engine(target, connecting(settings))
    query = (
        "SELECT pg_is_in_recovery(), coalesce(extract(epoch FROM now() - "
        "pg_last_xact_replay_timestamp()), 0)"
    )
    try:
        with (
            postgres_errors.translate_errors(target.place),
            postgres_server.connect(engine) as connection,
        ):
            is_replica, behind_s = connection.exec_driver_sql(query).one()
    except UnspoolError as error:
        yield Check(
            name="replica",
            ok=False,
            detail=str(error),
            cure="mend that, or leave UNSPOOL_DATABASE_READ empty",
        )
        return
    finally:
        engine.dispose()
    what = (
        "a replica; its last change is"
        if is_replica
        else "not a replica but can be searched; its last change is"
    )
    yield Check(
        name="replica", ok=True, detail=f"{target.place} is {what} {float(behind_s):.0f} s old"
    )


def index(
    catalog: PostgresCatalog, store: PostgresStore | None, row: ProjectRow, status: ProjectStatus
) -> Check:
    """A project's vectors and words: complete, and with a sound index where there should be one."""
    name = f"index of {status.name}"
    if status.waiting:
        cure = "unspool repair makes them again"
        return Check(
            name=name,
            ok=False,
            detail=f"{status.chunks} chunks, {status.waiting} without a vector or words",
            cure=cure,
        )
    if store is None:
        return Check(name=name, ok=True, detail=f"{status.chunks} chunks")
    with catalog.read() as connection:
        state = store.index_state(connection, row.id, status.chunks)
    return Check(
        name=name,
        ok=state.ok,
        detail=f"{status.chunks} chunks, {state.detail}",
        cure="" if state.ok else "unspool repair builds it",
    )
