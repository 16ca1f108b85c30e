"""Opening a catalog: connections, pragmas, whose file it is, which version made it."""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from unspool.catalog import schema
from unspool.errors import AddressError, ConflictError, InputError, NotFoundError, ServiceError, ServiceTimeoutError, UnspoolError

IDENTITY, SIGNING_KEY = "catalog", "signing key"  # rows of `meta`
BUSY_TIMEOUT_MS = 60_000  # a writer holds the lock for a batch, well under a second; a minute covers a disk that stalls


# The log is folded back into the file every 32 MB rather than every 4: each time waits for the disk, and a batch writes 4 to 8 MB.
_PRAGMAS = ("foreign_keys=ON", "synchronous=NORMAL", "temp_store=MEMORY", "cache_size=-32000", "wal_autocheckpoint=8000")


class Catalog:
    """An open catalog. `read()` gives a connection that never waits for a writer, `write()` the one transaction at a time."""

    def __init__(self, engine: Engine, *, path: Path, identity: str, signing_key: bytes) -> None:
        self._engine = engine
        self._write_lock = threading.Lock()
        self.path = path
        self.identity = identity
        self.signing_key = signing_key

    @classmethod
    def open(cls, address: str, *, create: bool = True) -> Catalog:
        """Open the catalog at an address, making or upgrading it first if need be."""
        path = sqlite_path(address)
        if not path.exists() and not create:
            raise NotFoundError(f"no catalog at {path}; index something first, or correct UNSPOOL_DATABASE")
        engine = sqlite_engine(path)
        try:
            with translated(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch(mode=0o600)  # it holds all that was indexed; SQLite gives its log the same permissions
                _upgrade(engine, path)
                own = _own(engine)
        except UnspoolError:
            engine.dispose()
            raise
        return cls(engine, path=path, identity=own[IDENTITY], signing_key=bytes.fromhex(own[SIGNING_KEY]))

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for reading; it sees one consistent state."""
        with translated(self.path, with_files=False), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction: all of it happens, or none of it."""
        # SQLite lets one writer in at a time; queueing our own threads here spares them its polling.
        with self._write_lock, translated(self.path, with_files=False), transaction(self._engine) as connection:
            yield connection

    def close(self) -> None:
        """Give the connections back; the catalog can be opened again at any time."""
        self._engine.dispose()


def sqlite_path(address: str) -> Path:
    """The file that a `sqlite:///` address names."""
    scheme, separator, rest = address.partition("://")
    if not separator or scheme != "sqlite" or not rest.startswith("/") or not rest.strip("/"):
        shown = scheme if separator else address[:40]
        raise AddressError(f"catalog address begins with {shown!r}; give sqlite:///relative.db or sqlite:////absolute.db in UNSPOOL_DATABASE")
    if "?" in rest:
        raise AddressError("a sqlite address takes no options; leave out everything from the '?'")
    return Path(unquote(rest[1:])).expanduser().absolute()


def sqlite_engine(path: Path) -> Engine:
    """An engine whose transactions are SQLite's own, opened by us rather than guessed by the driver."""
    engine = sa.create_engine("sqlite+pysqlite://", creator=lambda: _connect(path), poolclass=sa.pool.QueuePool, pool_size=8, max_overflow=64)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # IMMEDIATE, because a transaction that begins by reading and then writes fails at once when another wrote in between.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("unspool_write") else "BEGIN")

    return engine


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """A connection that has the file to itself for writing, until all is committed or none."""
    with engine.connect() as raw:
        connection = raw.execution_options(unspool_write=True)
        with connection.begin():
            yield connection


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False)
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


@contextmanager
def translated(path: Path, *, with_files: bool = True, what: str = "catalog") -> Iterator[None]:
    """Turn what SQLite and, if asked, the file system say into our errors; inside a transaction a file may be somebody else's."""
    try:
        yield
    except (sa.exc.DBAPIError, sqlite3.Error) as error:
        raise _translation(error, path, what) from error
    except OSError as error:
        if not with_files:
            raise
        raise ServiceError(f"the {what} at {path} cannot be used: {error.strerror or error}; check the disk and the permissions") from error


def _translation(error: sa.exc.DBAPIError | sqlite3.Error, path: Path, what: str) -> UnspoolError:
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    text = str(cause).lower()
    if "not a database" in text:
        cure = "point UNSPOOL_DATABASE at another path" if what == "catalog" else "move it away"
        return ConflictError(f"{path} is not an SQLite file; {cure}, nothing was changed")
    if "malformed" in text or "disk image" in text:
        return ServiceError(f"the {what} at {path} is damaged; restore it from a backup, or delete it and index again")
    if "locked" in text or "busy" in text:
        return ServiceTimeoutError(
            f"the {what} at {path} stayed locked for {BUSY_TIMEOUT_MS // 1000} s by another process; try again when that has finished"
        )
    if "full" in text:
        return ServiceError(f"the disk that holds {path} is full; free some space and run again, what was finished is kept")
    if "readonly" in text or "read-only" in text:
        return ServiceError(f"the {what} at {path} is read-only; give write permission or another UNSPOOL_DATABASE")
    if "unable to open" in text:
        return ServiceError(f"the {what} at {path} cannot be opened; check that the folder exists and can be written")
    if isinstance(cause, sqlite3.IntegrityError):
        return ConflictError(f"the {what} at {path} refused a write that contradicts what it holds ({cause}); run again")
    if isinstance(cause, sqlite3.OperationalError | sqlite3.DatabaseError):
        return ServiceError(f"the {what} at {path} failed: {cause}; unspool doctor checks it")
    return InputError(f"the {what} at {path} could not take a value ({cause})")


def revision_of(connection: Connection, path: Path) -> str:
    """The migration a catalog stands at, '' for a new file; refuses a file that is not ours or newer than we are."""
    application = connection.exec_driver_sql("PRAGMA application_id").scalar_one()
    tables = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()
    if application != schema.APPLICATION_ID:
        if tables or application:
            raise ConflictError(f"{path} belongs to another program; point UNSPOOL_DATABASE at another path, nothing was changed")
        return ""
    if not connection.exec_driver_sql("SELECT count(*) FROM sqlite_master WHERE name='alembic_version'").scalar_one():
        return ""
    revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if revision and revision not in schema.KNOWN_REVISIONS:
        raise ConflictError(
            f"{path} was made by a newer unspool (catalog version {revision}, this one knows {schema.HEAD}); upgrade unspool: pip install -U unspool"
        )
    return str(revision or "")


def _upgrade(engine: Engine, path: Path) -> None:
    with engine.connect() as connection:
        revision = revision_of(connection, path)
    if revision != schema.HEAD:
        migrate(engine, path, schema.HEAD)


def migrate(engine: Engine, path: Path, target: str) -> None:
    """Bring a catalog to a revision, up or down: "head" is the newest, "base" removes every table.

    Two processes may try at once: the second waits and finds it done.
    """
    target = schema.HEAD if target == "head" else target
    if target != "base" and target not in schema.KNOWN_REVISIONS:
        raise InputError(f"no catalog version {target!r}; give head, base or one of {', '.join(schema.KNOWN_REVISIONS)}")
    from alembic import command  # only here: it takes half a second to import and is needed once in a catalog's life
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    use_log(path)
    with transaction(engine) as connection:
        current = revision_of(connection, path)
        connection.exec_driver_sql(f"PRAGMA application_id={schema.APPLICATION_ID}")
        config.attributes["connection"] = connection
        downward = target == "base" or (
            current in schema.KNOWN_REVISIONS and schema.KNOWN_REVISIONS.index(target) < schema.KNOWN_REVISIONS.index(current)
        )
        (command.downgrade if downward else command.upgrade)(config, target)
        if target != "base":
            _make_own(connection)


def _own(engine: Engine) -> dict[str, str]:
    """What a catalog says of itself; made if it is missing."""
    query = sa.select(schema.meta.c.key, schema.meta.c.value)
    with engine.connect() as connection:
        own = {row[0]: row[1] for row in connection.execute(query)}
    if IDENTITY in own and SIGNING_KEY in own:
        return own
    with transaction(engine) as connection:
        _make_own(connection)
        return {row[0]: row[1] for row in connection.execute(query)}


def _make_own(connection: Connection) -> None:
    """Give a catalog what tells it from every other: its identity, and the key that signs continuations."""
    known = set(connection.execute(sa.select(schema.meta.c.key)).scalars())
    for key, value in ((IDENTITY, uuid.uuid4().hex), (SIGNING_KEY, secrets.token_hex(32))):
        if key not in known:
            connection.execute(sa.insert(schema.meta).values(key=key, value=value))


def use_log(path: Path) -> None:
    """Switch a file to write-ahead logging, which stays in its header. SQLite does not wait here by itself while another process does the same."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    with closing(_connect(path)) as plain:
        while True:
            try:
                plain.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def insert_many(connection: Connection, table: sa.Table, columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> None:
    """Insert many rows by the driver's own bulk call: a quarter of the time of the same rows as dictionaries."""
    if rows:
        statement = sa.insert(table).values({column: sa.bindparam(column) for column in columns})
        compiled = statement.compile(dialect=connection.dialect, column_keys=list(columns))
        assert compiled.positiontup is not None
        order = [columns.index(name) for name in compiled.positiontup]
        ordered = rows if order == list(range(len(columns))) else [tuple(row[index] for index in order) for row in rows]
        connection.exec_driver_sql(str(compiled), list(ordered))


class Prepared:
    """A query that is run often: compiled once, and run without what SQLAlchemy does around it, which takes longer than SQLite does."""

    def __init__(self, query: sa.Select[Any]) -> None:
        self._query = query
        self._compiled: dict[str, tuple[str, Sequence[str], bool]] = {}

    def rows(self, connection: Connection, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """All rows; values are the driver's own."""
        dialect = connection.dialect
        if dialect.name not in self._compiled:
            self._compiled[dialect.name] = _compiled(self._query, dialect)
        text, names, is_positional = self._compiled[dialect.name]
        ordered: Any = tuple(values[name] for name in names) if is_positional else values
        return [tuple(row) for row in connection.exec_driver_sql(text, ordered).fetchall()]


class ByIds:
    """A query over a list of ids, prepared once for each of a few lengths."""

    def __init__(self, query: sa.Select[Any], column: sa.ColumnElement[int]) -> None:
        self._query = query
        self._column = column
        self._prepared: dict[int, Prepared] = {}

    def rows(self, connection: Connection, ids: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """The rows of those that exist, in any order."""
        for start in range(0, len(ids), IN_LIMIT):
            some = ids[start : start + IN_LIMIT]
            length = next(size for size in _LENGTHS if size >= len(some))
            if length not in self._prepared:
                values = [sa.bindparam(f"id{number}", type_=sa.BigInteger) for number in range(length)]
                self._prepared[length] = Prepared(self._query.where(self._column.in_(values)))
            padded = (*some, *[some[-1]] * (length - len(some)))
            yield from self._prepared[length].rows(connection, {f"id{number}": id_ for number, id_ in enumerate(padded)})


def _compiled(query: sa.Select[Any], dialect: sa.Dialect) -> tuple[str, Sequence[str], bool]:
    compiled: Any = query.compile(dialect=dialect)
    return str(compiled), list(compiled.positiontup or compiled.params), bool(compiled.positional)


IN_LIMIT = 900  # values in one IN list; SQL Server takes 2100 parameters, older SQLite 999
_LENGTHS = (1, 2, 4, 8, 10, 12, 16, 24, 32, 64, 96, 128, 160, 200, 256, 400, 640, IN_LIMIT)


def size_bytes(path: Path) -> int:
    """What the catalog's file and its log take on disk."""
    return sum(file.stat().st_size for file in (path, path.with_name(path.name + "-wal")) if file.exists())
