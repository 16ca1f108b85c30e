"""Statements that are run often or over many rows, each in the way that is fastest on the engine
at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

POSTGRES = "postgresql"
IN_LIMIT = 900  # values in one IN list; SQL Server takes 2100 parameters, older SQLite 999
_LENGTHS = (1, 2, 4, 8, 10, 12, 16, 24, 32, 64, 96, 128, 160, 200, 256, 400, 640, IN_LIMIT)
_T = TypeVar("_T")
Rows = Sequence[tuple[object, ...]]


def batches(items: Iterable[_T], size: int = IN_LIMIT) -> Iterator[list[_T]]:
    """The items, so many at a time."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def insert_many(
    connection: Connection, table: sa.Table, columns: Sequence[str], rows: Rows
) -> None:
    """Insert many rows by the driver's own bulk call: on SQLite a quarter of the time of the
    same rows as dictionaries.
    """
    if not rows:
        return
    if connection.dialect.name == POSTGRES:
        from unspool.catalog.driving import copy

        copy(connection, table.name, {name: type_name(table.c[name]) for name in columns}, rows)
        return
    _run_many(
        connection,
        sa.insert(table).values({column: sa.bindparam(column) for column in columns}),
        columns,
        rows,
    )


def insert_missing(
    connection: Connection, table: sa.Table, columns: Sequence[str], rows: Rows
) -> int:
    """Insert the rows that are not there yet, and say how many; those that another writer was
    faster with are left as they are.

    Give them in one order everywhere: two writers of the same rows in different orders would wait
    for each other.
    """
    if not rows:
        return 0
    if connection.dialect.name == POSTGRES:
        from unspool.catalog import driving

        arrays = {f"c{number}": [row[number] for row in rows] for number in range(len(columns))}
        lists = ", ".join(
            f"%(c{number})b::{type_name(table.c[name])}[]" for number, name in enumerate(columns)
        )
        names = ", ".join(f'"{name}"' for name in columns)
        return driving.run(
            connection,
            f"INSERT INTO {table.name} ({names}) SELECT * FROM unnest({lists}) ON CONFLICT DO "  # noqa: S608
            f"NOTHING",
            arrays,
        )
    statement = (
        sqlite.insert(table)
        .values({column: sa.bindparam(column) for column in columns})
        .on_conflict_do_nothing()
    )
    return _run_many(connection, statement, columns, rows)


def insert_new(connection: Connection, table: sa.Table, values: Mapping[str, object]) -> None:
    """The same for one row, with values as the columns' types take them."""
    dialect = postgresql if connection.dialect.name == POSTGRES else sqlite
    connection.execute(dialect.insert(table).values(**values).on_conflict_do_nothing())


def hold(connection: Connection, table: sa.Table, *, alone: bool) -> None:
    """Keep others from removing rows of a table until this transaction ends or, alone, from relying
    on any.

    SQLite has one writer at a time anyway.
    """
    if connection.dialect.name == POSTGRES:
        from unspool.catalog import driving

        driving.run(
            connection,
            f"LOCK TABLE {table.name} IN {'SHARE ROW EXCLUSIVE' if alone else 'ROW EXCLUSIVE'} "
            f"MODE",
        )


def keep_order(connection: Connection) -> None:
    """Let the statements of this transaction follow an index rather than sort.

    PostgreSQL takes a table that was filled a moment ago for a small one, and would sort a million
    rows to leave out the first ones.
    """
    if connection.dialect.name == POSTGRES:
        from unspool.catalog import driving

        driving.run(connection, "SET LOCAL enable_sort = off")


def type_name(column: sa.Column[Any]) -> str:
    """What PostgreSQL calls a column's type."""
    for kind, name in _TYPES:
        if isinstance(column.type, kind):
            return name
    raise TypeError(f"no name for the type of {column}")


_TYPES: tuple[tuple[type[sa.types.TypeEngine[Any]], str], ...] = (
    (sa.BigInteger, "int8"),
    (sa.Integer, "int4"),
    (sa.LargeBinary, "bytea"),
    (sa.Double, "float8"),
    (sa.Boolean, "bool"),
    (sa.JSON, "json"),
    (sa.String, "text"),
)


def _run_many(
    connection: Connection, statement: sa.Insert, columns: Sequence[str], rows: Rows
) -> int:
    compiled = statement.compile(dialect=connection.dialect, column_keys=list(columns))
    assert compiled.positiontup is not None
    order = [columns.index(name) for name in compiled.positiontup]
    ordered = (
        rows
        if order == list(range(len(columns)))
        else [tuple(row[index] for index in order) for row in rows]
    )
    return connection.exec_driver_sql(str(compiled), list(ordered)).rowcount


class Prepared:
    """A query that is run often: compiled once, and run without what SQLAlchemy does around it,
    which takes longer than SQLite does.
    """

    def __init__(self, query: sa.Select[Any]) -> None:
        self._query = query
        self._compiled: dict[str, tuple[str, Sequence[str], bool]] = {}

    def rows(self, connection: Connection, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """All rows; values are the driver's own."""
        dialect = connection.dialect
        if dialect.name not in self._compiled:
            self._compiled[dialect.name] = _compiled(self._query, dialect)
        text, names, is_positional = self._compiled[dialect.name]
        if dialect.name == POSTGRES:
            from unspool.catalog import driving

            return driving.rows(connection, text, values)
        ordered: Any = tuple(values[name] for name in names) if is_positional else values
        return [tuple(row) for row in connection.exec_driver_sql(text, ordered).fetchall()]


class ByIds:
    """A query over a list of ids, prepared once; where a list cannot be handed over as one
    value, for each of a few lengths.
    """

    def __init__(self, query: sa.Select[Any], column: sa.ColumnElement[int]) -> None:
        self._query = query
        self._column = column
        self._prepared: dict[int, Prepared] = {}
        self._of_array = Prepared(
            query.where(column == sa.any_(sa.bindparam("ids", type_=sa.ARRAY(sa.BigInteger))))
        )

    def rows(self, connection: Connection, ids: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """The rows of those that exist, in any order."""
        if connection.dialect.name == POSTGRES:
            if ids:
                yield from self._of_array.rows(connection, {"ids": list(ids)})
            return
        for some in batches(ids):
            length = next(size for size in _LENGTHS if size >= len(some))
            if length not in self._prepared:
                values = [
                    sa.bindparam(f"id{number}", type_=sa.BigInteger) for number in range(length)
                ]
                self._prepared[length] = Prepared(self._query.where(self._column.in_(values)))
            padded = (*some, *[some[-1]] * (length - len(some)))
            yield from self._prepared[length].rows(
                connection, {f"id{number}": id_ for number, id_ in enumerate(padded)}
            )


def _compiled(query: sa.Select[Any], dialect: sa.Dialect) -> tuple[str, Sequence[str], bool]:
    compiled: Any = query.compile(dialect=dialect)
    return str(compiled), list(compiled.positiontup or compiled.params), bool(compiled.positional)
