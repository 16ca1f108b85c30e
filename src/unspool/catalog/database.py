"""Catalogs on any engine. An engine's module is imported when an address names it."""

from __future__ import annotations

import importlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, cast

import sqlalchemy as sa

from unspool.catalog import schema
from unspool.catalog.options import DatabaseOptions
from unspool.errors import AddressError, ConflictError, InputError

IDENTITY, SIGNING_KEY = "catalog", "signing key"  # rows of `meta`
_ENGINES = {  # scheme of an address -> module that opens it
    "sqlite": "unspool.catalog.sqlite",
    "postgresql": "unspool.catalog.postgres",
    "postgres": "unspool.catalog.postgres",
    "postgresql+psycopg": "unspool.catalog.postgres",
}
_T = TypeVar("_T")


class Identity(NamedTuple):
    """Identity of a catalog: a unique id, and the key that signs its continuations."""

    id: str
    signing_key: bytes


class WindowDatabase(Protocol):
    """Database of search windows, read and written apart from the catalog's tables."""

    def read(self) -> AbstractContextManager[sa.Connection]: ...

    def write(self) -> AbstractContextManager[sa.Connection]: ...

    def close(self) -> None: ...


class Catalog(ABC):
    """An open catalog.

    `read()` opens a connection that never waits for a writer, `write()` a transaction.
    """

    engine_name: ClassVar[str]

    def __init__(
        self, engine: sa.Engine, *, address: str, options: DatabaseOptions, identity: Identity
    ) -> None:
        self._engine = engine
        self.options = options
        self.address = address  # opens the catalog again; may contain a password
        self.identity = identity.id
        self.signing_key = identity.signing_key
        self._is_closed = False

    @staticmethod
    def open(
        address: str, *, create: bool = True, options: DatabaseOptions | None = None
    ) -> Catalog:
        """Open the catalog at an address. A missing one is created, an older one upgraded."""
        engine = _import_engine(address)
        options = options or DatabaseOptions()
        return cast("Catalog", engine.open_catalog(address, create=create, options=options))

    @staticmethod
    def migrate(address: str, target: str, *, options: DatabaseOptions | None = None) -> str:
        """Migrate a catalog to a revision and return the revision before.

        "head" is the newest revision, "base" an empty database.
        """
        target = schema.HEAD if target == "head" else target
        if target != "base" and target not in schema.KNOWN_REVISIONS:
            raise InputError(
                f"catalog version {target!r} does not exist; give head, base or one of "
                f"{', '.join(schema.KNOWN_REVISIONS)}"
            )
        engine = _import_engine(address)
        return str(engine.migrate(address, target, options=options or DatabaseOptions()))

    @property
    @abstractmethod
    def place(self) -> str:
        """Path, or server and database, without a password."""

    @abstractmethod
    def read(self) -> AbstractContextManager[sa.Connection]:
        """Open a connection that reads one consistent state."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Let all reads of this thread inside it see the same state, where that saves time."""
        return nullcontext()

    def leave_snapshot(self) -> AbstractContextManager[None]:
        """Let the reads of this thread inside it see the current state."""
        return nullcontext()

    @abstractmethod
    def write(self) -> AbstractContextManager[sa.Connection]:
        """Open a transaction: all of it is committed, or nothing."""

    def transact(self, work: Callable[[sa.Connection], _T]) -> _T:
        """Run a function in a transaction.

        The function may run again if its first transaction certainly changed nothing.
        """
        with self.write() as connection:
            return work(connection)

    @abstractmethod
    def try_lock(self, task: str) -> AbstractContextManager[bool]:
        """Lock a task across processes; False if another process has locked it."""

    @abstractmethod
    def open_windows(self) -> WindowDatabase:
        """Open the database of search windows."""

    @abstractmethod
    def get_folder(self, name: str) -> Path:
        """Return the path of a local folder that belongs to the catalog."""

    @abstractmethod
    def measure_size(self) -> int:
        """Return the size on disk in bytes."""

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        self._engine.dispose()

    def _check_open(self) -> None:
        if self._is_closed:
            raise InputError("the corpus is closed; open it again")


def get_engine_name(address: str) -> str:
    """Return the name of the engine of an address."""
    return str(_import_engine(address).NAME)


def describe_place(address: str) -> str:
    """Return a readable form of an address, without user and password."""
    return str(_import_engine(address).describe_place(address))


def _import_engine(address: str) -> Any:
    scheme, separator, _ = address.partition("://")
    if separator and scheme in _ENGINES:
        return importlib.import_module(_ENGINES[scheme])
    if separator and scheme in ("http", "https"):
        raise AddressError(
            "the catalog's address is the address of a service; only unspool.open() in Python "
            "accepts one, commands need the catalog itself"
        )
    raise AddressError(
        f"catalog address begins with {scheme if separator else address[:40]!r}; give "
        "sqlite:///relative.db, sqlite:////absolute.db or postgresql://user@host/name "
        "in UNSPOOL_DATABASE or with --database"
    )


def run_migrations(
    connection: sa.Connection, *, current: str, target: str, schema_name: str | None = None
) -> Identity | None:
    """Run the scripts between two revisions and return the catalog's identity, None for "base"."""
    # Imported here because it takes half a second and is needed once in a catalog's life.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    config.attributes["schema"] = schema_name
    known = schema.KNOWN_REVISIONS
    is_downgrade = target == "base" or (
        current in known and known.index(target) < known.index(current)
    )
    (command.downgrade if is_downgrade else command.upgrade)(config, target)
    return None if target == "base" else _ensure_identity(connection)


def check_revision(revision: object, place: str) -> str:
    """Return a catalog's revision, '' for none; refuse one that is newer than this code."""
    if revision and revision not in schema.KNOWN_REVISIONS:
        raise ConflictError(
            f"{place} was made by a newer unspool (catalog version {revision}, this one knows "
            f"{schema.HEAD}); upgrade unspool: pip install -U unspool"
        )
    return str(revision or "")


def read_identity(connection: sa.Connection) -> Identity | None:
    """Return the catalog's identity; None if a part of it is missing."""
    rows = connection.execute(sa.select(schema.meta.c.key, schema.meta.c.value))
    values = {row.key: row.value for row in rows}
    if IDENTITY not in values or SIGNING_KEY not in values:
        return None
    return Identity(values[IDENTITY], bytes.fromhex(values[SIGNING_KEY]))


def _ensure_identity(connection: sa.Connection) -> Identity:
    """Return the catalog's identity and create its missing parts."""
    known = set(connection.execute(sa.select(schema.meta.c.key)).scalars())
    for key, value in ((IDENTITY, secrets.token_hex(16)), (SIGNING_KEY, secrets.token_hex(32))):
        if key not in known:
            connection.execute(sa.insert(schema.meta).values(key=key, value=value))
    identity = read_identity(connection)
    assert identity is not None
    return identity
