"""Many rows into PostgreSQL: COPY in the binary format, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import psycopg
from sqlalchemy.engine import Connection


def copy(connection: Connection, table: str, types: Mapping[str, str], rows: Iterable[Sequence[object]]) -> None:
    """Append rows to a table. `types` names the columns that are given and what PostgreSQL calls their types."""
    columns = ", ".join(f'"{name}"' for name in types)
    raw = driver(connection)
    with raw.cursor() as cursor, cursor.copy(f"COPY {table} ({columns}) FROM STDIN (FORMAT BINARY)".encode()) as copying:
        copying.set_types(list(types.values()))
        for row in rows:
            copying.write_row(row)


def driver(connection: Connection) -> psycopg.Connection[Any]:
    """The driver's own connection under SQLAlchemy's."""
    return cast("psycopg.Connection[Any]", connection.connection.driver_connection)
