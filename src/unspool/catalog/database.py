"""A catalog, whichever database holds it.

The engines are in modules of their own and loaded when an address names them.
"""

from __future__ import annotations

import importlib
import secrets
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from unspool.catalog import schema
from unspool.catalog.options import DatabaseOptions
from unspool.errors import AddressError, ConflictError, InputError

IDENTITY, SIGNING_KEY = "catalog", "signing key"  # rows of `meta`
_ENGINES = {  # the schemes of addresses, and the modules that open them
    "sqlite": "unspool.catalog.sqlite",
    "postgresql": "unspool.catalog.postgres",
    "postgres": "unspool.catalog.postgres",
    "postgresql+psycopg": "unspool.catalog.postgres",
}
_T = TypeVar("_T")


class Home(Protocol):
    """Where windows are kept: tables that can be read and written apart from the catalog's own."""

    def read(self) -> AbstractContextManager[Connection]: ...

    def write(self) -> AbstractContextManager[Connection]: ...

    def close(self) -> None: ...


class Catalog(ABC):
    """An open catalog.

    `read()` gives a connection that never waits for a writer, `write()` one transaction.
    """

    engine_name: ClassVar[str]

    def __init__(
        self, engine: Engine, *, address: str, options: DatabaseOptions, own: dict[str, str]
    ) -> None:
        self._engine = engine
        self.options = options
        self.address = address  # where it can be opened again; may hold a password
        self.identity = own[IDENTITY]
        self.signing_key = bytes.fromhex(own[SIGNING_KEY])
        self._is_closed = False

    @staticmethod
    def open(
        address: str, *, create: bool = True, options: DatabaseOptions | None = None
    ) -> Catalog:
        """Open the catalog at an address, making or upgrading it first if need be."""
        opened: Catalog = _module(address).open_catalog(
            address, create=create, options=options or DatabaseOptions()
        )
        return opened

    @staticmethod
    def migrate(address: str, target: str, *, options: DatabaseOptions | None = None) -> str:
        """Bring a catalog to a revision, up or down: "head" is the newest, "base" removes every
        table. Returns the one before, or "base".
        """
        target = schema.HEAD if target == "head" else target
        if target != "base" and target not in schema.KNOWN_REVISIONS:
            raise InputError(
                f"no catalog version {target!r}; give head, base or one of "
                f"{', '.join(schema.KNOWN_REVISIONS)}"
            )
        before: str = _module(address).migrate(
            address, target, options=options or DatabaseOptions()
        )
        return before

    @property
    @abstractmethod
    def place(self) -> str:
        """What people call it: a path, or a server and a database, without a password."""

    @abstractmethod
    def read(self) -> AbstractContextManager[Connection]:
        """A connection for reading; it sees one consistent state."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Let everything that this thread reads inside it see the same state, where that spares
        it something.
        """
        return nullcontext()

    @abstractmethod
    def write(self) -> AbstractContextManager[Connection]:
        """One transaction: all of it happens, or none of it."""

    def transact(self, work: Callable[[Connection], _T]) -> _T:
        """What a function does, in one transaction.

        Where it is known that nothing of it has happened, it may be called again.
        """
        with self.write() as connection:
            return work(connection)

    @abstractmethod
    def occupy(self, task: str) -> AbstractContextManager[bool]:
        """Be the only one, in whichever process, who is at a task while this lasts; False where
        somebody else is.
        """

    @abstractmethod
    def home(self) -> Home:
        """Where its windows are kept."""

    @abstractmethod
    def folder(self, name: str) -> Path:
        """Where files that belong to it may lie on this machine."""

    @abstractmethod
    def size_bytes(self) -> int:
        """What it takes on disk."""

    def close(self) -> None:
        """Give the connections back; the catalog can be opened again at any time."""
        self._is_closed = True
        self._engine.dispose()

    def _check_open(self) -> None:
        if self._is_closed:
            raise InputError("the corpus is closed; open it again")


def engine_name(address: str) -> str:
    """Which engine an address names."""
    return str(_module(address).NAME)


def place_of(address: str) -> str:
    """What people call the place at an address, without a password."""
    return str(_module(address).place_of(address))


def _module(address: str) -> Any:
    scheme, separator, _ = address.partition("://")
    if not separator or scheme not in _ENGINES:
        shown = scheme if separator else address[:40]
        if scheme in ("http", "https"):
            raise AddressError(
                "the catalog's address is that of a service; only unspool.open() in Python takes "
                "one, commands want the catalog itself"
            )
        raise AddressError(
            f"catalog address begins with {shown!r}; give sqlite:///relative.db, "
            f"sqlite:////absolute.db or postgresql://user@host/name "
            "in UNSPOOL_DATABASE or with --database"
        )
    return importlib.import_module(_ENGINES[scheme])


def run_migrations(
    connection: Connection, *, current: str, target: str, schema_name: str | None = None
) -> None:
    """Run the scripts between two revisions, and give a new catalog what tells it from every
    other.
    """
    # only here: it takes half a second to import and is needed once in a catalog's life
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    config.attributes["schema"] = schema_name
    known = schema.KNOWN_REVISIONS
    downward = target == "base" or (current in known and known.index(target) < known.index(current))
    (command.downgrade if downward else command.upgrade)(config, target)
    if target != "base":
        _make_own(connection)


def known_revision(revision: object, place: str) -> str:
    """A revision that was read from a catalog; one that is newer than this code is a conflict."""
    if revision and revision not in schema.KNOWN_REVISIONS:
        raise ConflictError(
            f"{place} was made by a newer unspool (catalog version {revision}, this one knows "
            f"{schema.HEAD}); upgrade unspool: pip install -U unspool"
        )
    return str(revision or "")


def read_own(connection: Connection) -> dict[str, str]:
    """What a catalog says of itself, as far as it does."""
    return {
        row[0]: row[1]
        for row in connection.execute(sa.select(schema.meta.c.key, schema.meta.c.value))
    }


def complete_own(connection: Connection) -> dict[str, str]:
    """The same, with what is missing made; inside a writing transaction."""
    _make_own(connection)
    return read_own(connection)


def is_complete(own: dict[str, str]) -> bool:
    return IDENTITY in own and SIGNING_KEY in own


def _make_own(connection: Connection) -> None:
    """Give a catalog what tells it from every other: its identity, and the key that signs
    continuations.
    """
    known = set(connection.execute(sa.select(schema.meta.c.key)).scalars())
    for key, value in ((IDENTITY, uuid.uuid4().hex), (SIGNING_KEY, secrets.token_hex(32))):
        if key not in known:
            connection.execute(sa.insert(schema.meta).values(key=key, value=value))
