"""PostgreSQL's driver by itself, inside the caller's transaction: for many rows in, and for what a
search asks, where the tenth of a millisecond that SQLAlchemy takes around each statement adds
up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy.engine import Connection

if TYPE_CHECKING:
    import psycopg


def copy(
    connection: Connection, table: str, types: Mapping[str, str], rows: Iterable[Sequence[object]]
) -> None:
    """Append rows to a table.

    `types` names the columns that are given and what PostgreSQL calls their types.
    """
    columns = ", ".join(f'"{name}"' for name in types)
    raw = driver(connection)
    with (
        raw.cursor() as cursor,
        cursor.copy(f"COPY {table} ({columns}) FROM STDIN (FORMAT BINARY)".encode()) as copying,
    ):
        copying.set_types(list(types.values()))
        for row in rows:
            copying.write_row(row)


def rows(
    connection: Connection, statement: str, values: Mapping[str, object]
) -> list[tuple[Any, ...]]:
    """Everything that a statement gives."""
    with driver(connection).cursor() as cursor:
        return cursor.execute(statement.encode(), values).fetchall()


def run(connection: Connection, statement: str, values: Mapping[str, object] | None = None) -> int:
    """Run a statement that gives nothing; returns how many rows it touched."""
    with driver(connection).cursor() as cursor:
        return cursor.execute(statement.encode(), values).rowcount


def without_hurry(connection: Connection) -> None:
    """Let the statements of this transaction take as long as they need: over a million rows that
    is more than a search may.
    """
    run(connection, "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")


def driver(connection: Connection) -> psycopg.Connection[Any]:
    """The driver's own connection under SQLAlchemy's."""
    return cast("psycopg.Connection[Any]", connection.connection.driver_connection)
