"""Statements that run often or over many rows, each in the fastest way of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from unspool.catalog import driver

POSTGRES = "postgresql"
IN_LIMIT = 900  # values in one IN list; SQL Server takes 2100 parameters, older SQLite 999
_LENGTHS = (1, 2, 4, 8, 10, 12, 16, 24, 32, 64, 96, 128, 160, 200, 256, 400, 640, IN_LIMIT)
_TYPE_NAMES: tuple[tuple[type[sa.types.TypeEngine[Any]], str], ...] = (
    (sa.BigInteger, "int8"),
    (sa.Integer, "int4"),
    (sa.LargeBinary, "bytea"),
    (sa.Double, "float8"),
    (sa.Boolean, "bool"),
    (sa.JSON, "json"),
    (sa.String, "text"),
)
_T = TypeVar("_T")
Rows = Sequence[tuple[object, ...]]
IdsByProject = Mapping[int, Sequence[int]]  # ids of chunks


def split_batches(items: Iterable[_T], size: int = IN_LIMIT) -> Iterator[list[_T]]:
    """Yield the items in lists of at most `size`."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def count_rows(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> int:
    """Count the rows that meet all conditions, in the table of the conditions' columns."""
    return int(connection.execute(sa.select(sa.func.count()).where(*conditions)).scalar_one())


def insert_many(
    connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: Rows
) -> None:
    """Insert many rows by the driver's bulk call.

    On SQLite that takes a quarter of the time of the same rows as dictionaries.
    """
    if not rows:
        return
    if connection.dialect.name == POSTGRES:
        types = {name: get_type_name(table.c[name]) for name in columns}
        driver.copy_rows(connection, table.name, types, rows)
        return
    _run_many(connection, sa.insert(table), columns, rows)


def insert_missing(
    connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: Rows
) -> int:
    """Insert the rows that do not exist yet, and return their number.

    Give rows in the same order everywhere: two writers of the same rows in different orders would
    deadlock.
    """
    if not rows:
        return 0
    if connection.dialect.name == POSTGRES:
        arrays = {f"c{number}": [row[number] for row in rows] for number in range(len(columns))}
        lists = ", ".join(
            f"%(c{number})b::{get_type_name(table.c[name])}[]"
            for number, name in enumerate(columns)
        )
        names = ", ".join(f'"{name}"' for name in columns)
        return driver.execute(
            connection,
            f"INSERT INTO {table.name} ({names}) SELECT * FROM unnest({lists}) ON CONFLICT DO "  # noqa: S608
            f"NOTHING",
            arrays,
        )
    return _run_many(connection, sqlite.insert(table).on_conflict_do_nothing(), columns, rows)


def insert_if_missing(
    connection: sa.Connection, table: sa.Table, values: Mapping[str, object]
) -> None:
    """Insert one row unless it exists. The values have the columns' Python types."""
    dialect = postgresql if connection.dialect.name == POSTGRES else sqlite
    connection.execute(dialect.insert(table).values(**values).on_conflict_do_nothing())


def insert_missing_rows(
    connection: sa.Connection,
    table: sa.Table,
    rows: Sequence[Mapping[str, object]],
    *,
    returning: Sequence[sa.ColumnElement[Any]],
) -> Sequence[sa.Row[Any]]:
    """Insert the rows that do not exist yet, and return columns of those that were inserted."""
    dialect = postgresql if connection.dialect.name == POSTGRES else sqlite
    statement = dialect.insert(table).on_conflict_do_nothing().returning(*returning)
    return connection.execute(statement, rows).all()


def lock_table(connection: sa.Connection, table: sa.Table, *, exclusive: bool) -> None:
    """Lock a table until the transaction ends: against deletions or, exclusively, any writer.

    SQLite has one writer at a time anyway.
    """
    if connection.dialect.name == POSTGRES:
        mode = "SHARE ROW EXCLUSIVE" if exclusive else "ROW EXCLUSIVE"
        driver.execute(connection, f"LOCK TABLE {table.name} IN {mode} MODE")


def disable_sort(connection: sa.Connection) -> None:
    """Let the statements of this transaction follow an index rather than sort.

    PostgreSQL takes a table that was filled a moment ago for a small one. It would sort a million
    rows to skip the first ones.
    """
    if connection.dialect.name == POSTGRES:
        driver.execute(connection, "SET LOCAL enable_sort = off")


def get_type_name(column: sa.Column[Any]) -> str:
    """Return PostgreSQL's name of a column's type."""
    for kind, name in _TYPE_NAMES:
        if isinstance(column.type, kind):
            return name
    raise TypeError(f"the type of column {column} has no name; add it to _TYPE_NAMES")


def _run_many(
    connection: sa.Connection, statement: sa.Insert, columns: Sequence[str], rows: Rows
) -> int:
    compiled = statement.compile(dialect=connection.dialect, column_keys=list(columns))
    assert compiled.positiontup is not None
    order = [columns.index(name) for name in compiled.positiontup]
    if order != list(range(len(columns))):
        rows = [tuple(row[index] for index in order) for row in rows]
    return connection.exec_driver_sql(str(compiled), list(rows)).rowcount


class PreparedQuery:
    """A query that runs often, compiled once per engine.

    It bypasses SQLAlchemy's execution, which takes longer than SQLite does.
    """

    def __init__(self, query: sa.Select[Any]) -> None:
        self._query = query
        self._compiled: dict[str, tuple[str, Sequence[str], bool]] = {}

    def fetch(
        self, connection: sa.Connection, values: Mapping[str, object]
    ) -> list[tuple[Any, ...]]:
        """Return all rows. The values have the driver's own types."""
        dialect = connection.dialect
        if dialect.name not in self._compiled:
            self._compiled[dialect.name] = _compile(self._query, dialect)
        text, names, is_positional = self._compiled[dialect.name]
        if dialect.name == POSTGRES:
            return driver.fetch_rows(connection, text, values)
        ordered: Any = tuple(values[name] for name in names) if is_positional else values
        return [tuple(row) for row in connection.exec_driver_sql(text, ordered).fetchall()]


class QueryByIds:
    """A query over a list of ids, compiled once.

    SQLite cannot take a list as one value: there it is compiled for each of a few lengths.
    """

    def __init__(self, query: sa.Select[Any], column: sa.ColumnElement[int]) -> None:
        self._query = query
        self._column = column
        self._by_length: dict[int, PreparedQuery] = {}
        self._by_array = PreparedQuery(
            query.where(column == sa.any_(sa.bindparam("ids", type_=sa.ARRAY(sa.BigInteger))))
        )

    def fetch(
        self, connection: sa.Connection, ids: Sequence[int], **values: object
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the ids that exist, in any order. `values` are of other parameters."""
        if connection.dialect.name == POSTGRES:
            if ids:
                yield from self._by_array.fetch(connection, {"ids": list(ids), **values})
            return
        for batch in split_batches(ids):
            length = next(size for size in _LENGTHS if size >= len(batch))
            if length not in self._by_length:
                names = [
                    sa.bindparam(f"id{number}", type_=sa.BigInteger) for number in range(length)
                ]
                self._by_length[length] = PreparedQuery(self._query.where(self._column.in_(names)))
            padded = (*batch, *[batch[-1]] * (length - len(batch)))
            yield from self._by_length[length].fetch(
                connection, {**values, **{f"id{number}": id_ for number, id_ in enumerate(padded)}}
            )


def group_by_project(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """Return the ids of (project, id) pairs by project."""
    grouped: dict[int, list[int]] = {}
    for project, id_ in pairs:
        grouped.setdefault(project, []).append(id_)
    return grouped


class ChunkQuery:
    """A query of chunks by project and id, compiled once."""

    def __init__(self, query: sa.Select[Any], table: sa.FromClause) -> None:
        is_own = table.c.project_id == sa.bindparam("project", type_=sa.BigInteger)
        self._query = QueryByIds(query.where(is_own), table.c.id)

    def fetch(
        self, connection: sa.Connection, ids: IdsByProject, **values: object
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the chunks that exist, in any order. `values` are other parameters."""
        for project, own in ids.items():
            yield from self._query.fetch(connection, own, project=project, **values)


def _compile(query: sa.Select[Any], dialect: sa.Dialect) -> tuple[str, Sequence[str], bool]:
    compiled: Any = query.compile(dialect=dialect)
    return str(compiled), list(compiled.positiontup or compiled.params), bool(compiled.positional)
