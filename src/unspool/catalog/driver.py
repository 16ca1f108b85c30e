"""Direct use of the PostgreSQL driver inside the caller's transaction.

It serves bulk inserts and the statements of a search: SQLAlchemy adds a tenth of a millisecond to
each statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import sqlalchemy as sa

if TYPE_CHECKING:
    import psycopg


def copy_rows(
    connection: sa.Connection,
    table: str,
    types: Mapping[str, str],
    rows: Iterable[Sequence[object]],
) -> None:
    """Append rows to a table. `types` maps the given columns to PostgreSQL's names of types."""
    columns = ", ".join(f'"{name}"' for name in types)
    with (
        get_driver(connection).cursor() as cursor,
        cursor.copy(f"COPY {table} ({columns}) FROM STDIN (FORMAT BINARY)".encode()) as copy,
    ):
        copy.set_types(list(types.values()))
        for row in rows:
            copy.write_row(row)


def fetch_rows(
    connection: sa.Connection, statement: str, values: Mapping[str, object]
) -> list[tuple[Any, ...]]:
    """Run a query and return all of its rows."""
    with get_driver(connection).cursor() as cursor:
        return cursor.execute(statement.encode(), values).fetchall()


def execute(
    connection: sa.Connection, statement: str, values: Mapping[str, object] | None = None
) -> int:
    """Run a statement without a result and return the number of affected rows."""
    with get_driver(connection).cursor() as cursor:
        return cursor.execute(statement.encode(), values).rowcount


def disable_timeouts(connection: sa.Connection) -> None:
    """Remove the time limits of this transaction, which suit searches but not a million rows."""
    execute(connection, "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")


def get_driver(connection: sa.Connection) -> psycopg.Connection[Any]:
    """Return the driver's own connection under SQLAlchemy's."""
    return cast("psycopg.Connection[Any]", connection.connection.driver_connection)
