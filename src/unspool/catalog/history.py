"""Streams of records, in SQL: append, read by offset, count, prune, remove.

Each function is part of a caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unspool.catalog import projects
from unspool.catalog.projects import name_sha
from unspool.catalog.schema import projects as project_table
from unspool.catalog.schema import records, streams
from unspool.catalog.statements import insert_new, keep_order
from unspool.domain.history import Excerpt, Record, Retention, StreamStatus

# records that one append removes at most: nobody waits for a stream that is suddenly to be short
PRUNED_BY_APPEND = 100
FAR = 1_000  # an offset from which on it matters how the rows before it are left out


class StreamRow(NamedTuple):
    """A stream: how many records it has had, and how many are kept."""

    id: int
    last: int
    kept: int


def find(
    connection: Connection, project: str, stream: str, *, alone: bool = False
) -> StreamRow | None:
    """The stream of that name; `alone`, nobody else may write it until the transaction ends."""
    row = connection.execute(_FIND_ALONE if alone else _FIND, _names(project, stream)).first()
    return StreamRow(*row) if row else None


def append(
    connection: Connection, project: str, stream: str, *, at: datetime, body: str, sha: bytes
) -> tuple[Record, StreamRow]:
    """Add a record.

    The project and the stream are made if need be; until the transaction ends nobody else may write
    the stream.
    """
    row = connection.execute(_NEXT, _names(project, stream)).first()
    # more than once where another one made it at the same time and it was removed at once
    while row is None:
        owner = projects.ensure(connection, project)
        insert_new(
            connection,
            streams,
            {
                "project_id": owner.id,
                "name": stream,
                "name_sha": name_sha(stream),
                "last": 0,
                "kept": 0,
            },
        )
        row = connection.execute(_NEXT, _names(project, stream)).first()
    held = StreamRow(*row)
    values = {
        "stream_id": held.id,
        "number": held.last,
        "at": at,
        "sha": sha,
        "length": len(body),
        "body": body,
    }
    connection.execute(sa.insert(records), values)
    return Record(stream=stream, number=held.last, at=at, body=body), held


def read(
    connection: Connection,
    stream_id: int,
    stream: str,
    *,
    limit: int,
    offset: int,
    since: datetime | None,
) -> list[Record]:
    """Whole records, newest first; the database leaves out the first ones."""
    rows = _newest(connection, stream_id, [records.c.body], limit=limit, offset=offset, since=since)
    return [Record(stream=stream, number=number, at=at, body=body) for number, at, body in rows]


def excerpts(
    connection: Connection,
    stream_id: int,
    *,
    limit: int,
    offset: int,
    since: datetime | None,
    characters: int | None,
) -> list[Excerpt]:
    """The same with only the beginning of each body; None means all of it."""
    text: sa.ColumnElement[str] = (
        records.c.body if characters is None else sa.func.substring(records.c.body, 1, characters)
    )
    rows = _newest(
        connection,
        stream_id,
        [records.c.sha, records.c.length, text],
        limit=limit,
        offset=offset,
        since=since,
    )
    return [
        Excerpt(number=number, at=at, sha=bytes(sha), length=length, text=body)
        for number, at, sha, length, body in rows
    ]


def count(
    connection: Connection, row: StreamRow, *, retention: Retention, since: datetime | None
) -> int:
    """How many records a stream shows; those that are past their age but not yet removed are
    looked for, and they are few.
    """
    kept = row.kept
    if since is not None:
        old = (
            sa.select(sa.func.count())
            .select_from(records)
            .where(records.c.stream_id == row.id, records.c.at < since)
        )
        kept -= connection.execute(old).scalar_one()
    return kept - retention.excess(kept)


def prune(
    connection: Connection,
    row: StreamRow,
    *,
    retention: Retention,
    since: datetime | None,
    most: int,
) -> int:
    """Remove the oldest of those records that are not to be kept, so many at most; returns how
    many went. Have the stream alone.
    """
    gone = 0
    if since is not None:
        gone += _remove_oldest(connection, row.id, most, records.c.at < since)
    excess = min(retention.excess(row.kept - gone), most - gone)
    if excess:
        gone += _remove_oldest(connection, row.id, excess)
    if gone:
        connection.execute(
            sa.update(streams).where(streams.c.id == row.id).values(kept=streams.c.kept - gone)
        )
    return gone


def remove(connection: Connection, row: StreamRow) -> int:
    """Remove a stream with its records; returns how many went. Have it alone."""
    gone = connection.execute(sa.delete(records).where(records.c.stream_id == row.id)).rowcount
    connection.execute(sa.delete(streams).where(streams.c.id == row.id))
    return gone


def all_streams(connection: Connection, project: str | None = None) -> list[StreamStatus]:
    """Every stream, or those of one project, by project and name."""
    newest = (
        sa.select(sa.func.max(records.c.at))
        .where(records.c.stream_id == streams.c.id)
        .scalar_subquery()
    )
    query = sa.select(project_table.c.name, streams.c.name, streams.c.kept, newest).join_from(
        streams, project_table
    )
    if project is not None:
        query = query.where(project_table.c.name_sha == name_sha(project))
    rows = connection.execute(query.order_by(project_table.c.name, streams.c.name))
    return [
        StreamStatus(project=owner, stream=name, records=kept, newest=at)
        for owner, name, kept, at in rows
    ]


def _remove_oldest(
    connection: Connection, stream_id: int, most: int, *which: sa.ColumnElement[bool]
) -> int:
    oldest = (
        sa.select(records.c.number)
        .where(records.c.stream_id == stream_id, *which)
        .order_by(records.c.at, records.c.number)
        .limit(most)
    )
    return connection.execute(
        sa.delete(records).where(records.c.stream_id == stream_id, records.c.number.in_(oldest))
    ).rowcount


def _newest(
    connection: Connection,
    stream_id: int,
    columns: Sequence[sa.ColumnElement[Any]],
    *,
    limit: int,
    offset: int,
    since: datetime | None,
) -> list[tuple[Any, ...]]:
    """Records from an offset on, newest first.

    Those that are left out are counted in the index alone, without a look at their bodies.
    """
    if offset >= FAR:
        keep_order(connection)
    which = [records.c.stream_id == stream_id]
    if since is not None:
        which.append(records.c.at >= since)
    places = (
        sa.select(records.c.number)
        .where(*which)
        .order_by(records.c.at.desc(), records.c.number.desc())
        .limit(limit)
        .offset(offset)
        .subquery()
    )
    query = sa.select(records.c.number, records.c.at, *columns).join_from(
        places, records, records.c.number == places.c.number
    )
    rows = connection.execute(query.where(records.c.stream_id == stream_id))
    return sorted((tuple(row) for row in rows), key=lambda row: (row[1], row[0]), reverse=True)


def _names(project: str, stream: str) -> dict[str, bytes]:
    return {"b_project": name_sha(project), "b_name": name_sha(stream)}


def _named() -> sa.ColumnElement[bool]:
    owner = (
        sa.select(project_table.c.id)
        .where(project_table.c.name_sha == sa.bindparam("b_project"))
        .scalar_subquery()
    )
    return (streams.c.project_id == owner) & (streams.c.name_sha == sa.bindparam("b_name"))


_FIND = sa.select(streams.c.id, streams.c.last, streams.c.kept).where(_named())
_FIND_ALONE = _FIND.with_for_update()
_NEXT = (
    sa.update(streams)
    .where(_named())
    .values(last=streams.c.last + 1, kept=streams.c.kept + 1)
    .returning(streams.c.id, streams.c.last, streams.c.kept)
)
