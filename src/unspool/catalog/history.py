"""Streams of records. Each function is part of the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from unspool.catalog import projects
from unspool.catalog.projects import hash_name
from unspool.catalog.schema import projects as project_table
from unspool.catalog.schema import records, streams
from unspool.catalog.statements import count_rows, disable_sort, insert_if_missing, split_batches
from unspool.domain.history import Excerpt, Record, Retention, StreamStatus

# Records that one append deletes at most, so that it stays fast after the retention was lowered.
PRUNED_BY_APPEND = 100
FAR = 1_000  # from this offset on, the way in which rows are skipped matters


class StreamRow(NamedTuple):
    """Row of a stream: the number of its newest record, and the count of its records."""

    id: int
    last: int
    kept: int


def find_stream(
    connection: sa.Connection, project: str, stream: str, *, lock: bool = False
) -> StreamRow | None:
    """Return a stream; `lock` excludes other writers until the transaction ends."""
    row = connection.execute(
        _FIND_AND_LOCK if lock else _FIND, _build_names(project, stream)
    ).first()
    return StreamRow(*row) if row else None


def append_record(
    connection: sa.Connection, project: str, stream: str, *, at: datetime, body: str, sha: bytes
) -> tuple[Record, StreamRow]:
    """Append a record and lock the stream. Project and stream are created if they are missing."""
    row = connection.execute(_NEXT, _build_names(project, stream)).first()
    # It repeats if another writer created the stream and deleted it at once.
    while row is None:
        owner = projects.ensure_project(connection, project)
        insert_if_missing(
            connection,
            streams,
            {
                "project_id": owner.id,
                "name": stream,
                "name_sha": hash_name(stream),
                "last": 0,
                "kept": 0,
            },
        )
        row = connection.execute(_NEXT, _build_names(project, stream)).first()
    head = StreamRow(*row)
    values = {
        "stream_id": head.id,
        "number": head.last,
        "at": at,
        "sha": sha,
        "length": len(body),
        "body": body,
    }
    connection.execute(sa.insert(records), values)
    return Record(stream=stream, number=head.last, at=at, body=body), head


def read_records(
    connection: sa.Connection,
    stream_id: int,
    stream: str,
    *,
    limit: int,
    offset: int,
    since: datetime | None,
) -> list[Record]:
    """Return whole records, newest first."""
    rows = _select_newest(
        connection, stream_id, [records.c.body], limit=limit, offset=offset, since=since
    )
    return [Record(stream=stream, number=number, at=at, body=body) for number, at, body in rows]


def read_excerpts(
    connection: sa.Connection,
    stream_id: int,
    *,
    limit: int,
    offset: int,
    since: datetime | None,
    characters: int | None,
) -> list[Excerpt]:
    """Return records with the first characters of their bodies; None means whole bodies."""
    text: sa.ColumnElement[str] = (
        records.c.body if characters is None else sa.func.substring(records.c.body, 1, characters)
    )
    rows = _select_newest(
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


def count_records(
    connection: sa.Connection, row: StreamRow, *, retention: Retention, since: datetime | None
) -> int:
    """Count the records that a stream shows. Only expired ones, which are few, are looked up."""
    kept = row.kept
    if since is not None:
        kept -= count_rows(connection, records.c.stream_id == row.id, records.c.at < since)
    return kept - retention.excess(kept)


def prune_stream(
    connection: sa.Connection,
    row: StreamRow,
    *,
    retention: Retention,
    since: datetime | None,
    most: int,
) -> int:
    """Delete at most `most` records beyond the retention, oldest first, and return their number.

    Lock the stream before.
    """
    deleted = 0
    if since is not None:
        deleted += _delete_oldest(connection, row.id, most, records.c.at < since)
    excess = min(retention.excess(row.kept - deleted), most - deleted)
    if excess:
        deleted += _delete_oldest(connection, row.id, excess)
    if deleted:
        connection.execute(
            sa.update(streams).where(streams.c.id == row.id).values(kept=streams.c.kept - deleted)
        )
    return deleted


def delete_stream(connection: sa.Connection, row: StreamRow) -> int:
    """Delete a stream with its records and return their number. Lock the stream before."""
    deleted = connection.execute(sa.delete(records).where(records.c.stream_id == row.id)).rowcount
    connection.execute(sa.delete(streams).where(streams.c.id == row.id))
    return deleted


def list_streams(connection: sa.Connection, project_ids: Sequence[int]) -> list[StreamStatus]:
    """Return the streams of projects, by project and name."""
    newest = (
        sa.select(sa.func.max(records.c.at))
        .where(records.c.stream_id == streams.c.id)
        .scalar_subquery()
    )
    query = (
        sa.select(project_table.c.name, streams.c.name, streams.c.kept, newest)
        .join_from(streams, project_table)
        .order_by(project_table.c.name, streams.c.name)
    )
    return [
        StreamStatus(project=owner, stream=name, records=kept, newest=at)
        for batch in split_batches(project_ids)
        for owner, name, kept, at in connection.execute(
            query.where(streams.c.project_id.in_(batch))
        )
    ]


def _delete_oldest(
    connection: sa.Connection, stream_id: int, most: int, *which: sa.ColumnElement[bool]
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


def _select_newest(
    connection: sa.Connection,
    stream_id: int,
    columns: Sequence[sa.ColumnElement[Any]],
    *,
    limit: int,
    offset: int,
    since: datetime | None,
) -> list[tuple[Any, ...]]:
    """Return records from an offset on, newest first.

    Skipped records are counted in the index alone, without reading their bodies.
    """
    if offset >= FAR:
        disable_sort(connection)
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


def _build_names(project: str, stream: str) -> dict[str, bytes]:
    return {"b_project": hash_name(project), "b_name": hash_name(stream)}


def _match_names() -> sa.ColumnElement[bool]:
    owner = (
        sa.select(project_table.c.id)
        .where(project_table.c.name_sha == sa.bindparam("b_project"))
        .scalar_subquery()
    )
    return (streams.c.project_id == owner) & (streams.c.name_sha == sa.bindparam("b_name"))


_FIND = sa.select(streams.c.id, streams.c.last, streams.c.kept).where(_match_names())
_FIND_AND_LOCK = _FIND.with_for_update()
_NEXT = (
    sa.update(streams)
    .where(_match_names())
    .values(last=streams.c.last + 1, kept=streams.c.kept + 1)
    .returning(streams.c.id, streams.c.last, streams.c.kept)
)
