"""Checks of a catalog on PostgreSQL: server, pgvector, migrations, replica and indexes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.engine import Connection

from unspool.catalog import postgres, postgres_errors, postgres_server
from unspool.catalog.postgres import PostgresCatalog
from unspool.catalog.postgres_server import Target
from unspool.catalog.projects import ProjectRow
from unspool.diagnosis import check_revision, make_failure
from unspool.domain.reports import Check, ProjectStatus
from unspool.errors import UnspoolError
from unspool.index.follower import TAIL_LIMIT
from unspool.index.indexes import Indexes
from unspool.index.vectors.pgvector import PgvectorIndex
from unspool.settings import Settings

REQUIRED = ("server", "migrations")  # checks that must pass before projects are checked


def check_catalog(settings: Settings) -> Iterator[Check]:
    """Check the server and its catalog; create and upgrade nothing."""
    target = postgres_server.parse_address(
        settings.database.address or settings.database.read_address
    )
    try:
        with _connect(target, settings) as connection:
            yield _check_server(connection, target)
            migrations = list(_check_migrations(connection, target))
            yield _check_pgvector(connection, is_new=migrations[0].name == "catalog")
            yield _check_connections(connection, settings)
            yield from migrations
    except UnspoolError as error:
        yield Check(
            name="server",
            ok=False,
            detail=str(error),
            cure="correct that first, then run doctor again",
        )
    if settings.database.read_address:
        yield _check_replica(settings)


@contextmanager
def _connect(target: Target, settings: Settings) -> Iterator[Connection]:
    engine = postgres_server.create_engine(target, settings.database)
    try:
        with (
            postgres_errors.translate_errors(target.place),
            postgres_server.connect(engine) as connection,
        ):
            yield connection
    finally:
        engine.dispose()


def _check_server(connection: Connection, target: Target) -> Check:
    version, number, encoding = (
        connection.exec_driver_sql(f"SHOW {name}").scalar_one()
        for name in ("server_version", "server_version_num", "server_encoding")
    )
    cure = ""
    if int(number) < postgres_server.MIN_SERVER:
        cure = f"use PostgreSQL {postgres_server.MIN_SERVER // 10_000} or newer"
    elif encoding != "UTF8":
        cure = "create a database with ENCODING 'UTF8' and name that in UNSPOOL_DATABASE"
    detail = f"PostgreSQL {version} at {target.place}, encoded as {encoding}"
    return Check(name="server", ok=not cure, detail=detail, cure=cure)


def _check_pgvector(connection: Connection, *, is_new: bool) -> Check:
    version = postgres_server.read_pgvector_version(connection)
    if version is None:
        return _check_missing_pgvector(connection, is_new=is_new)
    detail = ".".join(map(str, version))
    if version >= postgres_server.GOOD_PGVECTOR:
        return Check(name="pgvector", ok=True, detail=detail)
    wanted = ".".join(map(str, postgres_server.GOOD_PGVECTOR))
    why = "a vacuum may damage HNSW indexes"
    if version < postgres_server.MIN_PGVECTOR:
        why = "filtered searches return too few hits"
    cure = f"install {wanted} or newer on the server and run ALTER EXTENSION vector UPDATE"
    return Check(name="pgvector", ok=False, detail=f"{detail}: {why}", cure=cure)


def _check_missing_pgvector(connection: Connection, *, is_new: bool) -> Check:
    available = connection.exec_driver_sql(
        "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
    ).scalar()
    if available is None:
        cure = (
            "install pgvector on the server: the Debian package is postgresql-NN-pgvector, the "
            "image pgvector/pgvector"
        )
        detail = "it is not installed on the server"
        return Check(name="pgvector", ok=False, detail=detail, cure=cure)
    return Check(
        name="pgvector",
        ok=is_new,
        detail=f"{available} is on the server, but not created in this database",
        cure=(
            "unspool migrate creates it if the user may; otherwise let an administrator run "
            "CREATE EXTENSION vector"
        ),
    )


def _check_connections(connection: Connection, settings: Settings) -> Check:
    """Check that the server allows as many connections as the pool may open."""
    query = (
        "SELECT current_setting('max_connections')::int, (SELECT count(*) FROM pg_stat_activity "
        "WHERE backend_type = 'client backend')"
    )
    most, used = connection.exec_driver_sql(query).one()
    wanted = settings.database.pool_size + settings.database.pool_overflow
    cure = (
        "lower UNSPOOL_POOL_SIZE and UNSPOOL_POOL_OVERFLOW, or raise max_connections on the server"
    )
    return Check(
        name="connections",
        ok=wanted <= most,
        detail=f"{used} of {most} in use, this process may open {wanted}",
        cure="" if wanted <= most else cure,
    )


def _check_migrations(connection: Connection, target: Target) -> Iterator[Check]:
    try:
        revision = postgres.read_revision(connection, target)
    except UnspoolError as error:
        yield make_failure("migrations", error)
        return
    if not revision:
        detail = f"there is none at {target.place} yet; the first index creates it"
        yield Check(name="catalog", ok=True, detail=detail)
        return
    yield (check := check_revision(revision))
    if check.ok:
        count = connection.exec_driver_sql("SELECT count(*) FROM windows").scalar_one()
        yield Check(name="continuations", ok=True, detail=f"searches that can be resumed: {count}")


def _check_replica(settings: Settings) -> Check:
    """Check the replica that answers searches, and report its delay."""
    target = postgres_server.parse_address(settings.database.read_address)
    query = (
        "SELECT pg_is_in_recovery(), coalesce(extract(epoch FROM now() - "
        "pg_last_xact_replay_timestamp()), 0)"
    )
    try:
        with _connect(target, settings) as connection:
            is_replica, delay_s = connection.exec_driver_sql(query).one()
    except UnspoolError as error:
        return Check(
            name="replica",
            ok=False,
            detail=str(error),
            cure="correct that, or leave UNSPOOL_DATABASE_READ empty",
        )
    kind = "a replica" if is_replica else "not a replica but can be searched"
    detail = f"{target.place} is {kind}; its last change is {float(delay_s):.0f} s old"
    return Check(name="replica", ok=True, detail=detail)


def check_index(
    catalog: PostgresCatalog, indexes: Indexes, row: ProjectRow, status: ProjectStatus
) -> Check:
    """Check that a project's vectors and words are complete, and that its index is valid."""
    name, detail = f"index of {status.name}", f"{status.chunks} chunks"
    if status.waiting > (0 if indexes.outside is None else TAIL_LIMIT):
        detail += f", {status.waiting} without a vector or words"
        return Check(name=name, ok=False, detail=detail, cure="unspool repair creates them")
    if problems := indexes.find_damage(row.id):
        detail += f", {', '.join(problems)}"
        return Check(name=name, ok=False, detail=detail, cure="unspool repair corrects that")
    store = indexes.vectors.index
    if not isinstance(store, PgvectorIndex):
        return Check(name=name, ok=True, detail=detail)
    with catalog.read() as connection:
        ok, about = store.describe_index(connection, row.id, status.chunks)
    cure = "" if ok else "unspool repair builds it"
    return Check(name=name, ok=ok, detail=f"{detail}, {about}", cure=cure)
