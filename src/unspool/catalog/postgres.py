"""PostgreSQL: a catalog in a schema of its own, `unspool` unless the address names another, with
pgvector beside it.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine, make_url

from unspool.catalog import schema
from unspool.catalog.database import (
    Catalog,
    Connecting,
    Home,
    complete_own,
    is_complete,
    known_revision,
    read_own,
    run_migrations,
)
from unspool.catalog.driving import driver, without_hurry
from unspool.errors import (
    AddressError,
    ConfigError,
    ConflictError,
    InputError,
    MissingDependencyError,
    NotFoundError,
    RejectedError,
    ServiceError,
    ServiceTimeoutError,
    UnreachableError,
    UnspoolError,
)

try:
    import psycopg
    from pgvector.psycopg import register_vector
except ImportError as error:
    raise MissingDependencyError(
        "a catalog on PostgreSQL needs psycopg and pgvector; pip install 'unspool[postgres]'"
    ) from error

NAME = "postgresql"
DEFAULT_SCHEMA = "unspool"
MIN_SERVER = 140_000  # 14: the oldest that is still looked after
MIN_PGVECTOR = (0, 8, 0)  # iterative scans, without which a filter makes searches come back short
GOOD_PGVECTOR = (0, 8, 4)  # HNSW indexes survive a vacuum
RETRIES_S = (0.1, 0.2, 0.4, 0.8, 1.6)  # what a restarted server takes to come back, and then some
_MIGRATION_LOCK = 0x756E7370  # of the advisory lock: "unsp"
_TASK_LOCK = 0x756E7372  # the first half of another's key; the task is the second
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What an address names."""

    url: URL
    schema: str

    @property
    def place(self) -> str:
        """The server, the database and the schema, without user and password."""
        host = self.url.host or self.url.query.get("host", "localhost")
        port = f":{self.url.port}" if self.url.port else ""
        return f"postgresql://{host}{port}/{self.url.database or ''}" + (
            "" if self.schema == DEFAULT_SCHEMA else f"?schema={self.schema}"
        )


class PostgresCatalog(Catalog):
    """Many writers at once, one at a time in each project; readers see one state and never wait."""

    engine_name = NAME

    def __init__(
        self,
        engine: Engine,
        *,
        address: str,
        target: Target,
        connecting: Connecting,
        own: dict[str, str],
    ) -> None:
        super().__init__(engine, address=address, connecting=connecting, own=own)
        self.target = target
        self._reading = engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        self._held: ContextVar[Connection | None] = ContextVar("held", default=None)

    @property
    def place(self) -> str:
        return self.target.place

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for reading; it sees one consistent state."""
        self._check_open()
        held = self._held.get()
        if held is not None:
            with translated(self.target):
                yield held
            return
        with translated(self.target), connected(self._reading) as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """One connection and one transaction for all that is read inside: a search asks eight
        things, and each would begin and end one.
        """
        self._check_open()
        with translated(self.target), connected(self._reading) as connection:
            token = self._held.set(connection)
            try:
                yield
            finally:
                self._held.reset(token)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction: all of it happens, or none of it."""
        self._check_open()
        with translated(self.target), connected(self._engine) as connection, connection.begin():
            yield connection

    @contextmanager
    def alone(self) -> Iterator[Connection]:
        """A connection without a transaction and without a time limit: for what takes long and
        cannot be part of one, such as an index.
        """
        self._check_open()
        with translated(self.target), connected(self._engine) as raw:
            connection = raw.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql("SET statement_timeout = 0; SET lock_timeout = 0")
            try:
                yield connection
            finally:
                connection.invalidate()  # its settings go with it

    @contextmanager
    def occupy(self, task: str) -> Iterator[bool]:
        """By a lock that a connection holds; it is over when that breaks."""
        with self.alone() as connection:
            lock = sa.text(
                "SELECT pg_try_advisory_lock(:kind, hashtext(current_schema() || '.' || :task))"
            )
            yield bool(connection.execute(lock, {"kind": _TASK_LOCK, "task": task}).scalar_one())

    def transact(self, work: Callable[[Connection], _T]) -> _T:
        """What a function does, in one transaction; again where it lost against another one, or
        the server went away before it was committed.
        """
        self._check_open()
        for pause in (*RETRIES_S, None):
            is_connected = committing = False
            try:
                with (
                    translated(self.target),
                    connected(self._engine) as connection,
                    connection.begin() as transaction,
                ):
                    is_connected = True
                    result = work(connection)
                    committing = True
                    transaction.commit()
                    return result
            except UnspoolError as error:
                # Connecting has had its own attempts.
                if (
                    pause is None
                    or not is_connected
                    or not _may_repeat(error, committing=committing)
                ):
                    raise
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - so that two that met do not meet again
        raise AssertionError("unreachable")

    def home(self) -> Home:
        """Tables of the same database."""
        return _Tables(self)

    def folder(self, name: str) -> Path:
        """In the user's cache: the server is somewhere else."""
        import platformdirs

        return (
            Path(platformdirs.user_cache_dir("unspool", appauthor=False))
            / f"{self.identity}.{name}"
        )

    def size_bytes(self) -> int:
        """What the schema's tables and their indexes take."""
        query = sa.text(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c JOIN "
            "pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = :schema AND c.relkind = 'r'"
        )
        with self.read() as connection:
            return int(connection.execute(query, {"schema": self.target.schema}).scalar_one())


class _Tables:
    """Windows in the catalog's own database.

    Losing the last of them with a crashed server is no harm, so nobody waits for the disk.
    """

    def __init__(self, catalog: PostgresCatalog) -> None:
        self._catalog = catalog
        self.read = catalog.read

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with self._catalog.write() as connection:
            connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
            yield connection

    def close(self) -> None:
        """The catalog closes what it opened."""


def open_catalog(address: str, *, create: bool, connecting: Connecting) -> PostgresCatalog:
    """Open the catalog at an address, making or upgrading it first if need be."""
    target = target_of(address)
    engine = engine_for(target, connecting)
    try:
        with translated(target):
            with connected(engine) as connection:
                knows_types = driver(connection).adapters.types.get("sparsevec") is not None
                is_standby = connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar_one()
                revision = revision_of(connection, target)
                own = read_own(connection) if revision == schema.HEAD else {}
            if revision != schema.HEAD or not is_complete(own):
                if is_standby:
                    raise NotFoundError(
                        f"no catalog of this version at {target.place}, and a replica cannot be "
                        f"written; open the primary once"
                    )
                if not create and not revision:
                    raise NotFoundError(
                        f"no catalog at {target.place}; index something first, or correct "
                        f"UNSPOOL_DATABASE"
                    )
                own = (
                    _complete(engine)
                    if revision == schema.HEAD
                    else _migrate(engine, target, schema.HEAD)
                )
            # it was made before the extension was, perhaps by another process just now
            if not knows_types:
                engine.dispose()
    except UnspoolError:
        engine.dispose()
        raise
    return PostgresCatalog(engine, address=address, target=target, connecting=connecting, own=own)


def migrate(address: str, target: str, *, connecting: Connecting) -> str:
    """Bring the catalog at an address to a revision; returns the one before."""
    place = target_of(address)
    engine = engine_for(place, connecting)
    try:
        with translated(place):
            with connected(engine) as connection:
                before = revision_of(connection, place) or "base"
            if target == "base" and before == "base":
                raise NotFoundError(f"no catalog at {place.place}; there is nothing to remove")
            if before != target:
                _migrate(engine, place, target)
    finally:
        engine.dispose()
    return before


def remove(address: str, *, connecting: Connecting) -> None:
    """Remove a catalog with its schema and everything in it."""
    target = target_of(address)
    engine = engine_for(target, connecting)
    try:
        with translated(target), connected(engine) as connection, connection.begin():
            if revision_of(connection, target):  # refuses what is not ours
                connection.exec_driver_sql(f'DROP SCHEMA "{target.schema}" CASCADE')
    finally:
        engine.dispose()


def place_of(address: str) -> str:
    """The server, the database and the schema."""
    return target_of(address).place


def target_of(address: str) -> Target:
    """What a `postgresql://` address names. `schema` is our option; all others are libpq's."""
    try:
        url = make_url(address)
    except (sa.exc.ArgumentError, ValueError):
        raise AddressError(
            "the address of the catalog cannot be read; give "
            "postgresql://user:password@host:port/database"
        ) from None
    wanted = url.query.get("schema", DEFAULT_SCHEMA)
    if not isinstance(wanted, str) or not re.fullmatch(r"(?!pg_)[a-z_][a-z0-9_]{0,62}", wanted):
        raise AddressError(
            "schema in the address is not a plain name; give lower-case letters, digits and "
            "underscores, beginning with a letter"
        )
    return Target(
        url=url.set(drivername="postgresql+psycopg").difference_update_query(["schema"]),
        schema=wanted,
    )


def with_schema(address: str, schema_name: str) -> str:
    """The same database, another schema."""
    return (
        make_url(address)
        .update_query_dict({"schema": schema_name})
        .render_as_string(hide_password=False)
    )


def engine_for(target: Target, connecting: Connecting) -> Engine:
    """An engine with a pool.

    Every connection looks into the catalog's schema first and gives up on a statement that takes
    too long.
    """
    timeout_ms = connecting.statement_timeout_s * 1000
    with translated(target):
        engine = sa.create_engine(
            target.url,
            pool_size=connecting.pool_size,
            max_overflow=connecting.pool_overflow,
            pool_timeout=connecting.pool_timeout_s,
            pool_recycle=connecting.pool_recycle_s,
            pool_pre_ping=connecting.pre_ping,
            pool_reset_on_return=None,  # see `connected`
            connect_args={
                "connect_timeout": connecting.connect_timeout_s,
                "application_name": "unspool",
                "client_encoding": "utf8",
            },
        )

    @event.listens_for(engine, "connect")
    def _prepare(raw: Any, record: object) -> None:
        with raw.cursor() as cursor:
            # The extension may have been made in any schema; where it is, its types and operators
            # have to be seen.
            cursor.execute(
                "SELECT set_config('search_path', concat_ws(', ', quote_ident(%s), 'public', "
                "(SELECT quote_ident(nspname) FROM pg_extension "
                "JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'vector' AND "
                "nspname <> 'public')), false), "
                "set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, "
                "false), set_config('jit', 'off', false), "
                "set_config('idle_in_transaction_session_timeout', %s, false)",
                # Giving up on a lock first, the error can say what it was.
                (target.schema, str(timeout_ms), str(timeout_ms // 2), str(10 * timeout_ms)),
            )
            cursor.execute(
                "SELECT to_regtype('vector') IS NOT NULL AND to_regtype('sparsevec') IS NOT NULL"
            )
            has_types = cursor.fetchone()[0]
        if has_types:
            register_vector(raw)
        raw.commit()

    @event.listens_for(engine, "checkin")
    def _as_before(raw: Any, record: object) -> None:
        # After a read SQLAlchemy leaves it at "not read-only", which would overrule what the server
        # says.
        if raw is not None and not raw.closed and raw.read_only is not None:
            raw.read_only = None

    return engine


@contextmanager
def connected(engine: Engine) -> Iterator[Connection]:
    """A connection. A server that is just starting is waited for a little."""
    for pause in (*RETRIES_S[:-1], None):
        try:
            connection = engine.connect()
            break
        except (sa.exc.OperationalError, psycopg.OperationalError) as error:
            if pause is None or not _is_away(_cause(error)):
                raise
        time.sleep(pause)
    with connection:
        try:
            yield connection
        finally:
            _put_back(connection)


def _put_back(connection: Connection) -> None:
    """End what is left of a transaction.

    The pool would do so too, but complain aloud where the server is gone.
    """
    if not connection.invalidated:
        try:
            driver(connection).rollback()
        except psycopg.Error:
            connection.invalidate()


def revision_of(connection: Connection, target: Target) -> str:
    """The migration a catalog stands at, '' where there is none; refuses tables that are not
    ours, and a catalog newer than we are.
    """
    query = sa.text(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE "
        "n.nspname = :s AND c.relkind IN ('r', 'p')"
    )
    tables = set(connection.execute(query, {"s": target.schema}).scalars())
    if not tables:
        return ""
    if not {"alembic_version", "meta"} <= tables and tables != {"alembic_version"}:
        raise ConflictError(
            f"schema {target.schema} at {target.place} belongs to another program; add "
            f"?schema=another_name to the address, nothing was changed"
        )
    version = f'SELECT version_num FROM "{target.schema}".alembic_version'  # noqa: S608 - a plain name; so named, a user without rights is told
    revision = known_revision(connection.exec_driver_sql(version).scalar(), target.place)
    missing = {
        *schema.metadata.tables,
        *schema.short_lived.tables,
        *schema.WORD_TABLES,
    } - tables
    if revision == schema.HEAD and missing:
        raise ConflictError(
            f"the catalog at {target.place} lacks the tables {', '.join(sorted(missing))} that "
            f"its version has; restore it from a backup, "
            "or remove it with `unspool migrate base --yes` and index again"
        )
    return revision


def _migrate(engine: Engine, target: Target, wanted: str) -> dict[str, str]:
    """Two processes may try at once: the second waits and finds it done.

    All of it happens, or none of it.
    """
    check_server(engine, target)
    with connected(engine) as connection, connection.begin():
        without_hurry(connection)
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
        if not connection.exec_driver_sql(
            "SELECT count(*) FROM pg_namespace WHERE nspname = %(name)s", {"name": target.schema}
        ).scalar_one():
            # even IF NOT EXISTS, this needs a right that one may not have
            connection.exec_driver_sql(f'CREATE SCHEMA "{target.schema}"')
        current = revision_of(connection, target)
        run_migrations(connection, current=current, target=wanted, schema_name=target.schema)
        return {} if wanted == "base" else complete_own(connection)


def _complete(engine: Engine) -> dict[str, str]:
    """What a catalog says of itself, with what is missing made: a copy without its identity
    becomes a catalog of its own.
    """
    with connected(engine) as connection, connection.begin():
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
        return complete_own(connection)


def check_server(engine: Engine, target: Target) -> None:
    """Refuse a server that is too old, and make sure of the extension."""
    with connected(engine) as connection:
        number, encoding = connection.exec_driver_sql(
            "SELECT current_setting('server_version_num')::int, current_setting('server_encoding')"
        ).one()
        version = pgvector_version(connection)
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
        _make_extension(engine, target)
    elif version < MIN_PGVECTOR:
        raise ConfigError(
            f"pgvector at {target.place} is version {_dotted(version)}, and unspool needs "
            f"{_dotted(MIN_PGVECTOR)} or newer; install a newer "
            "pgvector on the server and run ALTER EXTENSION vector UPDATE"
        )


def pgvector_version(connection: Connection) -> tuple[int, ...] | None:
    """The version of the extension, None where it is not there."""
    found = connection.exec_driver_sql(
        "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    ).scalar()
    return None if found is None else tuple(int(part) for part in re.findall(r"\d+", str(found)))


def _make_extension(engine: Engine, target: Target) -> None:
    try:
        with connected(engine) as connection, connection.begin():
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
            # Not in the catalog's own schema, with which it would go.
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
                f"not make it; "
                "let an administrator run CREATE EXTENSION vector there once"
            ) from error
        if state in ("0A000", "58P01", "22023"):
            raise ConfigError(
                f"the server of {target.place} has no pgvector; install it: Debian has "
                f"postgresql-NN-pgvector, Docker pgvector/pgvector"
            ) from error
        raise
    engine.dispose()  # connections that were made before do not look where its types are


# Errors


@contextmanager
def translated(target: Target) -> Iterator[None]:
    """Turn what the driver and the pool say into our errors."""
    try:
        yield
    except sa.exc.TimeoutError as error:
        raise ServiceTimeoutError(
            f"every connection to {target.place} stayed in use; raise UNSPOOL_POOL_SIZE or "
            f"UNSPOOL_POOL_OVERFLOW, or ask less at once"
        ) from error
    except sa.exc.ArgumentError as error:
        raise _BAD_OPTION.at(target) from error
    except (sa.exc.DBAPIError, psycopg.Error) as error:
        raise translation(error, target) from error


def translation(error: sa.exc.DBAPIError | psycopg.Error, target: Target) -> UnspoolError:
    """The one of our errors that a driver's error stands for.

    Its own text is never quoted: it may hold what was stored.
    """
    cause = _cause(error)
    state, text = getattr(cause, "sqlstate", None) or "", str(cause).lower()
    found = _answer(state, text)
    if found is None and _is_away(cause):
        found = _SILENT
    if found is None and isinstance(cause, psycopg.DataError):
        found = _UNTAKEABLE
    if found is None:
        return ServiceError(
            f"the catalog at {target.place} failed ({type(cause).__name__} {state}); unspool "
            f"doctor checks it"
        )
    return found.at(target)


class _Answer(NamedTuple):
    """An error of ours, and what it says."""

    kind: type[UnspoolError]
    text: str

    def at(self, target: Target) -> UnspoolError:
        return self.kind(self.text.format(place=target.place))


def _answer(state: str, text: str) -> _Answer | None:
    """The first row that fits: by the beginning of the SQLSTATE, or without one, as libpq
    connects, by what is said.
    """
    rows = (
        ((sign, answer) for prefix, sign, answer in _BY_STATE if state.startswith(prefix))
        if state
        else iter(_BY_TEXT)
    )
    return next((answer for sign, answer in rows if sign in text), None)


_REJECTED = _Answer(
    RejectedError,
    "PostgreSQL at {place} refused the user or the password; correct UNSPOOL_DATABASE, or let "
    "the user in in pg_hba.conf",
)
_NO_DATABASE = _Answer(
    NotFoundError,
    "there is no database at {place}; make it with createdb, or correct UNSPOOL_DATABASE",
)
_DENIED = _Answer(
    RejectedError,
    "this user may not do that at {place}; GRANT CREATE ON DATABASE and the rights on the "
    "schema, or use the user that made the catalog",
)
_SILENT = _Answer(
    UnreachableError,
    "PostgreSQL at {place} does not answer; check that it runs and can be reached, then try again",
)
_AWAY = _Answer(
    UnreachableError,
    "PostgreSQL at {place} is starting, stopping or was stopped; try again in a moment, what was "
    "committed is kept",
)
_CROWDED = _Answer(
    UnreachableError,
    "PostgreSQL at {place} has no connection left; lower UNSPOOL_POOL_SIZE, or raise "
    "max_connections there",
)
_TIMED_OUT = _Answer(
    ServiceTimeoutError,
    "PostgreSQL at {place} took longer than UNSPOOL_STATEMENT_TIMEOUT_S allows; try again, or "
    "raise it",
)
_LOCKED = _Answer(
    ServiceTimeoutError,
    "another writer at {place} held what was needed for too long; try again when it has finished",
)
_BROKEN_OFF = _Answer(
    ServiceTimeoutError,
    "the replica at {place} broke off a search to take in changes; try again, or raise "
    "max_standby_streaming_delay",
)
_CONFLICT = _Answer(
    ConflictError,
    "another writer at {place} was faster, and what was to be written contradicts it; run again",
)
_FULL = _Answer(
    ServiceError,
    "the disk of PostgreSQL at {place} is full; free some space and run again, what was finished "
    "is kept",
)
_NO_MEMORY = _Answer(
    ServiceError, "PostgreSQL at {place} ran out of memory; give it more, or ask for less at once"
)
_READ_ONLY = _Answer(
    ServiceError,
    "the database at {place} is read-only; give the primary in UNSPOOL_DATABASE and the replica "
    "in UNSPOOL_DATABASE_READ",
)
_UNSUPPORTED = _Answer(
    ServiceError,
    "PostgreSQL at {place} cannot do what was asked of it; unspool doctor checks its version",
)
_CHANGED = _Answer(
    ConflictError,
    "the catalog at {place} is not what its version says: something is missing; unspool doctor "
    "says what, a backup has it",
)
_BAD_OPTION = _Answer(
    AddressError,
    "the address of {place} has an option that PostgreSQL does not know; besides schema, give "
    "libpq's, such as sslmode=require",
)
_NO_TLS = _Answer(
    ConfigError,
    "the address asks for TLS, and PostgreSQL at {place} has none; set it up there, or change "
    "sslmode",
)
_UNTAKEABLE = _Answer(
    InputError,
    "the catalog at {place} could not take a value; leave out what no database takes, such as "
    "NUL characters",
)

_BY_STATE = (  # the beginning of an SQLSTATE, and what has to be said besides
    ("28", "", _REJECTED),
    ("3D000", "", _NO_DATABASE),
    ("42501", "", _DENIED),
    ("53100", "", _FULL),
    ("53200", "", _NO_MEMORY),
    ("53300", "", _CROWDED),
    ("57014", "", _TIMED_OUT),
    ("57P", "", _AWAY),
    ("08", "", _AWAY),
    ("55P03", "", _LOCKED),
    ("25P03", "", _LOCKED),
    ("40", "recovery", _BROKEN_OFF),
    ("40", "", _CONFLICT),
    ("23", "", _CONFLICT),
    ("25006", "", _READ_ONLY),
    ("0A000", "recovery", _READ_ONLY),
    ("0A000", "", _UNSUPPORTED),
    ("42P01", "", _CHANGED),
    ("42703", "", _CHANGED),
    ("3F000", "", _CHANGED),
)
_BY_TEXT = (
    # for a role or for a database, so before what looks for those
    ("too many connections", _CROWDED),
    ("permission denied", _DENIED),
    ("password authentication failed", _REJECTED),
    ("no password supplied", _REJECTED),
    ("pg_hba.conf", _REJECTED),
    ("role ", _REJECTED),
    ('database "', _NO_DATABASE),
    ("too many clients", _CROWDED),
    ("remaining connection slots", _CROWDED),
    ("starting up", _AWAY),
    ("shutting down", _AWAY),
    ("does not support ssl", _NO_TLS),
    ("could not parse network address", _BAD_OPTION),
    ("invalid ", _BAD_OPTION),
)


def _cause(error: BaseException) -> BaseException:
    return error.orig if isinstance(error, sa.exc.DBAPIError) and error.orig is not None else error


def _is_away(cause: BaseException) -> bool:
    """Whether the server could not be reached, or went away."""
    if not isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    state = cause.sqlstate or ""
    if state:
        return state.startswith(("57P", "08", "53300"))
    found = _answer("", str(cause).lower())
    return found is None or found.kind is UnreachableError


def _may_repeat(error: UnspoolError, *, committing: bool) -> bool:
    """Whether a transaction that failed has certainly not happened, and may well succeed when it
    is tried again.
    """
    cause = _cause(error.__cause__) if error.__cause__ is not None else None
    if cause is None:
        return False
    if getattr(cause, "sqlstate", None) in ("40001", "40P01"):
        return True
    return _is_away(cause) and not committing


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
