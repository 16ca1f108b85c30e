"""PostgreSQL servers: addresses, connections, required versions, and the extension pgvector."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from unspool.catalog.driver import get_driver
from unspool.catalog.options import DatabaseOptions
from unspool.catalog.postgres_errors import get_cause, is_disconnect, translate_errors
from unspool.errors import AddressError, ConfigError, MissingDependencyError, RejectedError

try:
    import psycopg
    from pgvector.psycopg import register_vector
except ImportError as error:
    raise MissingDependencyError(
        "a catalog on PostgreSQL needs psycopg and pgvector; pip install 'unspool[postgres]'"
    ) from error

DEFAULT_SCHEMA = "unspool"
MIN_SERVER = 140_000  # 14: the oldest maintained version
MIN_PGVECTOR = (0, 8, 0)  # iterative scans, without which filtered searches return too few
GOOD_PGVECTOR = (0, 8, 4)  # HNSW indexes survive a vacuum
RETRIES_S = (0.1, 0.2, 0.4, 0.8, 1.6)  # together longer than a server takes to restart
_MIGRATION_LOCK = 0x756E7370  # of the advisory lock: "unsp"
# pgvector may be in any schema. Its types and operators have to be visible.
_PREPARE = """SELECT
  set_config('search_path', concat_ws(', ', quote_ident(%s), 'public', (
    SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace
    WHERE extname = 'vector' AND nspname <> 'public')), false),
  set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false),
  set_config('idle_in_transaction_session_timeout', %s, false), set_config('jit', 'off', false)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Server, database and schema of a catalog."""

    url: sa.URL
    schema: str

    @property
    def place(self) -> str:
        """Server, database and schema, without user and password."""
        host = self.url.host or self.url.query.get("host", "localhost")
        port = f":{self.url.port}" if self.url.port else ""
        option = "" if self.schema == DEFAULT_SCHEMA else f"?schema={self.schema}"
        return f"postgresql://{host}{port}/{self.url.database or ''}{option}"


def parse_address(address: str) -> Target:
    """Parse a `postgresql://` address. `schema` is our option, all others are libpq's."""
    try:
        url = sa.make_url(address)
    except (sa.exc.ArgumentError, ValueError):
        raise AddressError(
            "the address of the catalog cannot be read; give "
            "postgresql://user:password@host:port/database"
        ) from None
    schema = url.query.get("schema", DEFAULT_SCHEMA)
    if not isinstance(schema, str) or not re.fullmatch(r"(?!pg_)[a-z_][a-z0-9_]{0,62}", schema):
        raise AddressError(
            "schema in the address is not a plain name; give lower-case letters, digits and "
            "underscores, beginning with a letter"
        )
    url = url.set(drivername="postgresql+psycopg").difference_update_query(["schema"])
    return Target(url=url, schema=schema)


def replace_schema(address: str, schema: str) -> str:
    """Return the address of another schema in the same database."""
    url = sa.make_url(address).update_query_dict({"schema": schema})
    return url.render_as_string(hide_password=False)


def create_engine(target: Target, options: DatabaseOptions) -> sa.Engine:
    """Create an engine with a pool, whose connections use the catalog's schema and time limits."""
    with translate_errors(target.place):
        engine = sa.create_engine(
            target.url,
            pool_size=options.pool_size,
            max_overflow=options.pool_overflow,
            pool_timeout=options.pool_timeout_s,
            pool_recycle=options.pool_recycle_s,
            pool_pre_ping=options.pool_pre_ping,
            pool_reset_on_return=None,  # see `connect`
            connect_args={
                "connect_timeout": options.connect_timeout_s,
                "application_name": "unspool",
                "client_encoding": "utf8",
            },
        )
    timeout_ms = options.statement_timeout_s * 1000
    # The lock times out first, so that the error can name it.
    settings = (target.schema, str(timeout_ms), str(timeout_ms // 2), str(10 * timeout_ms))

    @sa.event.listens_for(engine, "connect")
    def _prepare(raw: Any, record: object) -> None:
        with raw.cursor() as cursor:
            cursor.execute(_PREPARE, settings)
            cursor.execute(
                "SELECT to_regtype('vector') IS NOT NULL AND to_regtype('sparsevec') IS NOT NULL"
            )
            has_types = cursor.fetchone()[0]
        if has_types:
            register_vector(raw)
        raw.commit()

    @sa.event.listens_for(engine, "checkin")
    def _reset_read_only(raw: Any, record: object) -> None:
        # After a read SQLAlchemy leaves "not read-only", which would overrule the server's default.
        if raw is not None and not raw.closed and raw.read_only is not None:
            raw.read_only = None

    return engine


@contextmanager
def connect(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Open a connection. Wait a little for a server that is starting."""
    for pause in (*RETRIES_S[:-1], None):
        try:
            connection = engine.connect()
            break
        except (sa.exc.OperationalError, psycopg.OperationalError) as error:
            if pause is None or not is_disconnect(get_cause(error)):
                raise
        time.sleep(pause)
    with connection:
        try:
            yield connection
        finally:
            _rollback(connection)


def _rollback(connection: sa.Connection) -> None:
    """Roll back. The pool would do so too, but warn if the connection is broken."""
    if not connection.invalidated:
        try:
            get_driver(connection).rollback()
        except psycopg.Error:
            connection.invalidate()


def lock_migrations(connection: sa.Connection) -> None:
    """Wait for other processes that migrate, and exclude them until the transaction ends."""
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")


def check_server(engine: sa.Engine, target: Target) -> None:
    """Refuse a server that is too old, and create the extension if it is missing."""
    with connect(engine) as connection:
        number, encoding = connection.exec_driver_sql(
            "SELECT current_setting('server_version_num')::int, current_setting('server_encoding')"
        ).one()
        version = read_pgvector_version(connection)
        if number < MIN_SERVER:
            raise ConfigError(
                f"PostgreSQL at {target.place} is version {number // 10_000}; unspool needs "
                f"{MIN_SERVER // 10_000} or newer"
            )
        if encoding != "UTF8":
            raise ConfigError(
                f"the database at {target.place} is encoded as {encoding}; make one with "
                f"ENCODING 'UTF8'"
            )
    if version is None:
        _create_extension(engine, target)
    elif version < MIN_PGVECTOR:
        old, needed = (".".join(map(str, numbers)) for numbers in (version, MIN_PGVECTOR))
        raise ConfigError(
            f"pgvector at {target.place} is version {old}, and unspool needs {needed} or newer; "
            "install a newer pgvector on the server and run ALTER EXTENSION vector UPDATE"
        )


def read_pgvector_version(connection: sa.Connection) -> tuple[int, ...] | None:
    """Return the version of the extension; None if it is missing."""
    version = connection.exec_driver_sql(
        "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    ).scalar()
    return None if version is None else tuple(map(int, re.findall(r"\d+", str(version))))


def _create_extension(engine: sa.Engine, target: Target) -> None:
    try:
        with connect(engine) as connection, connection.begin():
            lock_migrations(connection)
            # In the catalog's own schema it would be dropped with it.
            in_public = connection.exec_driver_sql(
                "SELECT has_schema_privilege('public', 'CREATE') FROM pg_namespace WHERE nspname "
                "= 'public'"
            ).scalar()
            connection.exec_driver_sql(
                "CREATE EXTENSION IF NOT EXISTS vector" + (" SCHEMA public" if in_public else "")
            )
    except sa.exc.DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None)
        if state == "42501":
            raise RejectedError(
                f"the database at {target.place} has no extension 'vector', and this user may "
                f"not create it; let an administrator run CREATE EXTENSION vector there once"
            ) from error
        if state in ("0A000", "58P01", "22023"):
            raise ConfigError(
                f"the server of {target.place} has no pgvector; install it: Debian has "
                f"postgresql-NN-pgvector, Docker pgvector/pgvector"
            ) from error
        raise
    engine.dispose()  # earlier connections do not see its types
