"""Copy of a catalog in another database.

Only differences are written. So an interrupted copy is resumed, a later one catches up with what
was written meanwhile, and one that changes nothing proves that both are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from unspool.catalog import schema
from unspool.catalog.database import Catalog
from unspool.catalog.statements import POSTGRES, split_batches
from unspool.domain.reports import OnProgress, Progress
from unspool.errors import ConflictError

COPIED_FROM = "copied_from"  # key in `meta` of the identity that a catalog was copied from
# Identities differ, and the indexes of a copy follow it from their own positions.
_OWN_TABLES = (schema.meta, schema.index_positions)
# The feed of a copy is pruned when its own indexes have read it, so it does not count as different.
_FEED = (schema.sequences, schema.removals)
_PAGE = 300  # rows that are compared at a time
_TABLES = [table for table in schema.metadata.sorted_tables if table not in _OWN_TABLES]

Row = sa.Row[Any]


def claim_target(source: Catalog, target: Catalog) -> None:
    """Mark a catalog as the copy of another; reject one with content of its own."""
    if source.identity == target.identity:
        raise ConflictError("source and target are the same catalog; give another database")

    def claim(connection: sa.Connection) -> None:
        meta, projects = schema.meta, schema.projects
        query = sa.select(meta.c.value).where(meta.c.key == COPIED_FROM)
        origin = connection.execute(query).scalar()
        if origin == source.identity:
            return
        if origin or connection.execute(sa.select(projects.c.id).limit(1)).first():
            raise ConflictError(
                f"{target.place} contains another catalog; give an empty database, nothing was "
                f"changed"
            )
        connection.execute(sa.insert(meta).values(key=COPIED_FROM, value=source.identity))

    target.transact(claim)


def copy_rows(source: Catalog, target: Catalog, on_progress: OnProgress | None = None) -> int:
    """Make all tables of the target equal to one state of the source.

    Returns the number of rows that were inserted, changed or deleted.
    """
    changed = done = 0
    with source.read() as reader:
        counts = [sa.select(sa.func.count()).select_from(table) for table in _TABLES]
        total = sum(reader.execute(query).scalar_one() for query in counts)
        # Rows are deleted before the rows that they refer to, and inserted after them.
        for table in reversed(_TABLES):
            deleted = _delete_missing(reader, target, table)
            changed += 0 if table in _FEED else deleted
        target.transact(partial(_insert_projects, list(_read_pages(reader, schema.projects))))
        # Their sequence numbers come last. Until then an index of the target cannot pass a chunk
        # that is still missing.
        for table in (*(one for one in _TABLES if one is not schema.projects), schema.projects):
            for page in _read_pages(reader, table):
                copied = target.transact(partial(_copy_page, table, page))
                changed += 0 if table in _FEED else copied
                done += len(page)
                if on_progress is not None:
                    on_progress(Progress(task="copying", done=done, total=total))
    target.transact(_advance_sequences)
    return changed


def _insert_projects(pages: Sequence[Sequence[Row]], connection: sa.Connection) -> None:
    """Insert the new projects before their content, at the beginning of their feeds."""
    for page in pages:
        known = _select(connection, schema.projects, [(row.id,) for row in page])
        new = [row._asdict() | {"seq": 0, "floor": 0} for row in page if (row.id,) not in known]
        if new:
            connection.execute(sa.insert(schema.projects), new)


def _delete_missing(reader: sa.Connection, target: Catalog, table: sa.Table) -> int:
    """Delete the rows of a table that the source does not contain."""
    deleted = 0
    with target.read() as connection:
        pages = [list(map(tuple, page)) for page in _read_pages(connection, table, keys_only=True)]
    for keys in pages:
        missing = set(keys) - _select(reader, table, keys, keys_only=True).keys()
        if missing:
            target.transact(partial(_delete, sa.delete(table).where(_match(table, list(missing)))))
            deleted += len(missing)
    return deleted


def _delete(statement: sa.Delete, connection: sa.Connection) -> None:
    connection.execute(statement)


def _copy_page(table: sa.Table, page: Sequence[Row], connection: sa.Connection) -> int:
    """Insert and change the rows of a page that differ; return their number."""
    rows = {_get_key(table, row): row for row in page}
    known = _select(connection, table, list(rows))
    new = [row._asdict() for key, row in rows.items() if key not in known]
    if new:
        connection.execute(sa.insert(table), new)
    changed = len(new)
    for key in rows.keys() & known.keys():
        values, before = rows[key]._asdict(), known[key]._asdict()
        if values != before:
            connection.execute(sa.update(table).where(_match(table, [key])).values(**values))
            # the beginning of a feed moves when it is pruned
            changed += values | {"floor": None} != before | {"floor": None}
    return changed


def _read_pages(
    connection: sa.Connection, table: sa.Table, *, keys_only: bool = False
) -> Iterator[Sequence[Row]]:
    """Yield all rows of a table in pages, in the order of the database's own keys."""
    key = list(table.primary_key.columns)
    query = sa.select(*(key if keys_only else table.columns)).order_by(*key).limit(_PAGE)
    page = connection.execute(query).all()
    while page:
        yield page
        last = _get_key(table, page[-1])
        page = connection.execute(query.where(sa.tuple_(*key) > sa.tuple_(*last))).all()


def _select(
    connection: sa.Connection,
    table: sa.Table,
    keys: Sequence[tuple[Any, ...]],
    *,
    keys_only: bool = False,
) -> dict[tuple[Any, ...], Row]:
    """Return the rows with these keys."""
    columns = list(table.primary_key.columns) if keys_only else list(table.columns)
    found: dict[tuple[Any, ...], Row] = {}
    for some in split_batches(keys):
        rows = connection.execute(sa.select(*columns).where(_match(table, some)))
        found.update((_get_key(table, row), row) for row in rows)
    return found


def _match(table: sa.Table, keys: Sequence[tuple[Any, ...]]) -> sa.ColumnElement[bool]:
    """Return the condition that a row has one of the keys."""
    columns = list(table.primary_key.columns)
    if len(columns) == 1:
        return columns[0].in_([key for (key,) in keys])
    return sa.tuple_(*columns).in_(keys)


def _get_key(table: sa.Table, row: Row) -> tuple[Any, ...]:
    return tuple(row._mapping[column.name] for column in table.primary_key.columns)


def _advance_sequences(connection: sa.Connection) -> None:
    """Let PostgreSQL continue behind the ids that were copied."""
    if connection.dialect.name != POSTGRES:
        return
    for table in _TABLES:
        column = table.autoincrement_column
        if column is not None:
            highest = sa.select(sa.func.max(column)).scalar_subquery()
            sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
            connection.execute(sa.select(sa.func.setval(sequence, highest)).where(highest > 0))
