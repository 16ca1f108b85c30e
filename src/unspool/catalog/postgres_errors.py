"""Translation of PostgreSQL's errors into ours.

The driver's text is never quoted: it may contain stored text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

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
except ImportError as error:
    raise MissingDependencyError(
        "a catalog on PostgreSQL needs psycopg and pgvector; pip install 'unspool[postgres]'"
    ) from error

_MESSAGES: dict[str, tuple[type[UnspoolError], str]] = {
    "rejected": (
        RejectedError,
        (
            "PostgreSQL at {place} refused the user or the password; correct UNSPOOL_DATABASE, "
            "or admit the user in pg_hba.conf"
        ),
    ),
    "no database": (
        NotFoundError,
        "there is no database at {place}; make it with createdb, or correct UNSPOOL_DATABASE",
    ),
    "denied": (
        RejectedError,
        (
            "this user may not do that at {place}; GRANT CREATE ON DATABASE and the rights on "
            "the schema, or use the user that made the catalog"
        ),
    ),
    "silent": (
        UnreachableError,
        (
            "PostgreSQL at {place} does not answer; check that it runs and can be reached, "
            "then try again"
        ),
    ),
    "away": (
        UnreachableError,
        (
            "PostgreSQL at {place} is starting, stopping or was stopped; try again in a "
            "moment, committed changes are kept"
        ),
    ),
    "crowded": (
        UnreachableError,
        (
            "PostgreSQL at {place} has no connection left; lower UNSPOOL_POOL_SIZE, or raise "
            "max_connections there"
        ),
    ),
    "timed out": (
        ServiceTimeoutError,
        (
            "PostgreSQL at {place} took longer than UNSPOOL_STATEMENT_TIMEOUT_S allows; try "
            "again, or raise it"
        ),
    ),
    "locked": (
        ServiceTimeoutError,
        (
            "another writer at {place} locked the needed rows for too long; try again when it "
            "has finished"
        ),
    ),
    "interrupted": (
        ServiceTimeoutError,
        (
            "the replica at {place} cancelled a search to apply changes; try again, or raise "
            "max_standby_streaming_delay"
        ),
    ),
    "conflict": (
        ConflictError,
        "another writer at {place} was faster, and this write contradicts it; run again",
    ),
    "full": (
        ServiceError,
        (
            "the disk of PostgreSQL at {place} is full; free some space and run again, "
            "finished work is kept"
        ),
    ),
    "no memory": (
        ServiceError,
        "PostgreSQL at {place} ran out of memory; give it more, or ask for less at once",
    ),
    "read-only": (
        ServiceError,
        (
            "the database at {place} is read-only; give the primary in UNSPOOL_DATABASE and "
            "the replica in UNSPOOL_DATABASE_READ"
        ),
    ),
    "unsupported": (
        ServiceError,
        "PostgreSQL at {place} does not support this statement; unspool doctor checks its version",
    ),
    "changed": (
        ConflictError,
        (
            "the catalog at {place} lacks a part of its version; unspool doctor says which, "
            "restore it from a backup"
        ),
    ),
    "bad option": (
        AddressError,
        (
            "the address of {place} has an option that PostgreSQL does not know; besides "
            "schema, give libpq's, such as sslmode=require"
        ),
    ),
    "no TLS": (
        ConfigError,
        (
            "the address asks for TLS, and PostgreSQL at {place} has none; set it up there, or "
            "change sslmode"
        ),
    ),
    "invalid value": (
        InputError,
        (
            "the catalog at {place} could not store a value; remove characters that no "
            "database stores, such as NUL"
        ),
    ),
}
# beginning of the SQLSTATE, part of the text, key of the message
_BY_STATE = (
    ("28", "", "rejected"),
    ("3D000", "", "no database"),
    ("42501", "", "denied"),
    ("53100", "", "full"),
    ("53200", "", "no memory"),
    ("53300", "", "crowded"),
    ("57014", "", "timed out"),
    ("57P", "", "away"),
    ("08", "", "away"),
    ("55P03", "", "locked"),
    ("25P03", "", "locked"),
    ("40", "recovery", "interrupted"),
    ("40", "", "conflict"),
    ("23", "", "conflict"),
    ("25006", "", "read-only"),
    ("0A000", "recovery", "read-only"),
    ("0A000", "", "unsupported"),
    ("42P01", "", "changed"),
    ("42703", "", "changed"),
    ("3F000", "", "changed"),
)
# part of the text, key of the message: libpq gives no SQLSTATE while it connects
_BY_TEXT = (
    # This text also names a role or a database, so it precedes those.
    ("too many connections", "crowded"),
    ("permission denied", "denied"),
    ("password authentication failed", "rejected"),
    ("no password supplied", "rejected"),
    ("pg_hba.conf", "rejected"),
    ("role ", "rejected"),
    ('database "', "no database"),
    ("too many clients", "crowded"),
    ("remaining connection slots", "crowded"),
    ("starting up", "away"),
    ("shutting down", "away"),
    ("does not support ssl", "no TLS"),
    ("could not parse network address", "bad option"),
    ("invalid ", "bad option"),
)


@contextmanager
def translate_errors(place: str) -> Iterator[None]:
    """Raise errors of the driver and the pool as ours."""
    try:
        yield
    except sa.exc.TimeoutError as error:
        raise ServiceTimeoutError(
            f"every connection to {place} stayed in use; raise UNSPOOL_POOL_SIZE or "
            f"UNSPOOL_POOL_OVERFLOW, or ask less at once"
        ) from error
    except sa.exc.ArgumentError as error:
        raise _create_error("bad option", place) from error
    except (sa.exc.DBAPIError, psycopg.Error) as error:
        raise translate_error(error, place) from error


def translate_error(error: sa.exc.DBAPIError | psycopg.Error, place: str) -> UnspoolError:
    """Return our error for one of the driver."""
    cause = get_cause(error)
    state = getattr(cause, "sqlstate", None) or ""
    key = _find_message(state, str(cause).lower())
    if key is None and is_disconnect(cause):
        key = "silent"
    if key is None and isinstance(cause, psycopg.DataError):
        key = "invalid value"
    if key is None:
        return ServiceError(
            f"the catalog at {place} failed ({type(cause).__name__} {state}); unspool "
            f"doctor checks it"
        )
    return _create_error(key, place)


def get_cause(error: BaseException) -> BaseException:
    """Return the driver's error inside SQLAlchemy's."""
    return error.orig if isinstance(error, sa.exc.DBAPIError) and error.orig is not None else error


def is_disconnect(cause: BaseException) -> bool:
    """Return true if the server could not be reached, or the connection broke."""
    if not isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    if cause.sqlstate:
        return cause.sqlstate.startswith(("57P", "08", "53300"))
    return _find_message("", str(cause).lower()) in (None, "away", "crowded")


def may_repeat(error: UnspoolError, *, committing: bool) -> bool:
    """Return true if a failed transaction certainly changed nothing and may succeed next time."""
    if error.__cause__ is None:
        return False
    cause = get_cause(error.__cause__)
    if getattr(cause, "sqlstate", None) in ("40001", "40P01"):
        return True
    return is_disconnect(cause) and not committing


def _create_error(key: str, place: str) -> UnspoolError:
    kind, text = _MESSAGES[key]
    return kind(text.format(place=place))


def _find_message(state: str, text: str) -> str | None:
    """Return the key of the first row that matches the SQLSTATE, or the text without one."""
    if not state:
        return next((key for part, key in _BY_TEXT if part in text), None)
    rows = (row for row in _BY_STATE if state.startswith(row[0]))
    return next((key for _, part, key in rows if part in text), None)
