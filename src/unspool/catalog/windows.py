"""Storage of result windows and query vectors: for hours, in tables apart from the catalog's."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unspool.catalog.database import WindowDatabase
from unspool.catalog.schema import query_vectors, segments, substitutes, windows
from unspool.catalog.statements import PreparedQuery, insert_missing
from unspool.errors import ConflictError, ServiceError

MAX_WINDOWS = 10_000  # about 80 MB; the oldest are deleted
MAX_VECTORS = 20_000
MAX_RECENT = 256  # windows in memory; about 2 MB
SWEEP_EVERY = 200  # windows stored between two sweeps


class SegmentRow(NamedTuple):
    """A segment of a window as bytes and text."""

    number: int
    start: int
    stop: int
    entries: bytes
    ids: bytes
    state: str


class WindowRow(NamedTuple):
    """A window with the segments that were loaded; none after a sweep. `request` is JSON."""

    request: str
    caller: str
    expires_at: int
    segments: tuple[SegmentRow, ...]


class WindowStore:
    """Stored windows. Safe to use from several threads; several processes may share the tables."""

    def __init__(self, home: WindowDatabase, *, clock: Callable[[], float] = time.time) -> None:
        self._home = home
        self._clock = clock
        self._guard = threading.Lock()
        self._until_sweep = 0
        # A stored window never changes, except that segments are appended.
        self._recent: OrderedDict[bytes, WindowRow] = OrderedDict()

    def insert(
        self, name: bytes, row: WindowRow, *, query_vector: tuple[bytes, bytes] | None
    ) -> None:
        """Store a new window, and the key and vector of its query for as long."""
        now = int(self._clock())
        with self._home.write() as connection:
            values = (name, row.caller, row.request, now, row.expires_at)
            insert_missing(connection, windows, _COLUMNS, [values])
            _insert_segments(connection, name, *row.segments)
            if query_vector is not None:
                _insert_vector(connection, *query_vector, expires_at=row.expires_at)
        self._cache(name, row)
        self._until_sweep -= 1
        if self._until_sweep < 0:
            self._until_sweep = SWEEP_EVERY
            # If the database is busy, a later insert sweeps.
            with suppress(ServiceError, ConflictError), self._home.write() as connection:
                sweep(connection, now)

    def find(self, name: bytes, *, position: int) -> WindowRow | None:
        """Return a window with its segments from the one that contains a position on."""
        with self._guard:
            recent = self._recent.get(name)
        if recent is not None and recent.segments[0].start <= position < recent.segments[-1].stop:
            return recent
        with self._home.read() as connection:
            rows = _FIND.fetch(connection, {"name": name, "position": position})
        if not rows:
            return None
        found = tuple(SegmentRow(*row[3:]) for row in rows if row[3] is not None)
        window = WindowRow(rows[0][0], rows[0][1], rows[0][2], found)
        if found:
            self._cache(name, window)
        return window

    def list_segments(self, name: bytes) -> list[SegmentRow]:
        """Return every segment of a window."""
        with self._home.read() as connection:
            return [SegmentRow(*row) for row in _SEGMENTS.fetch(connection, {"name": name})]

    def append(self, name: bytes, segment: SegmentRow) -> None:
        """Append a segment. If another caller has appended one, that one stays."""
        with self._home.write() as connection:
            if _exists(connection, name):
                _insert_segments(connection, name, segment)
        with self._guard:
            self._recent.pop(name, None)

    def list_substitutes(self, name: bytes) -> dict[int, int]:
        """Return the chunks that were shown in place of deleted ones, by position."""
        query = sa.select(substitutes.c.position, substitutes.c.chunk_id).where(
            substitutes.c.window == name
        )
        with self._home.read() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def add_substitutes(self, name: bytes, chosen: Mapping[int, int]) -> None:
        """Store which chunks are shown in place of deleted ones."""
        rows = [(name, position, id_) for position, id_ in sorted(chosen.items())]
        with self._home.write() as connection:
            connection.execute(
                sa.delete(substitutes).where(
                    substitutes.c.window == name, substitutes.c.position.in_(list(chosen))
                )
            )
            if _exists(connection, name):
                insert_missing(connection, substitutes, ("window", "position", "chunk_id"), rows)

    def find_vector(self, key: bytes) -> bytes | None:
        """Return the vector of a query that was embedded before."""
        with self._home.read() as connection:
            rows = _VECTOR.fetch(connection, {"key": key, "now": int(self._clock())})
        return bytes(rows[0][0]) if rows else None

    def insert_vectors(self, vectors: Mapping[bytes, bytes], *, lifetime_s: int) -> None:
        """Store vectors of queries."""
        with self._home.write() as connection:
            for key, vector in sorted(vectors.items()):
                _insert_vector(connection, key, vector, expires_at=int(self._clock()) + lifetime_s)

    def close(self) -> None:
        """Close the database."""
        self._home.close()

    def _cache(self, name: bytes, window: WindowRow) -> None:
        with self._guard:
            self._recent[name] = window
            self._recent.move_to_end(name)
            while len(self._recent) > MAX_RECENT:
                self._recent.popitem(last=False)


def _exists(connection: Connection, name: bytes) -> bool:
    query = sa.select(windows.c.name).where(windows.c.name == name)
    return connection.execute(query).first() is not None


def _insert_segments(connection: Connection, name: bytes, *rows: SegmentRow) -> None:
    columns = ("window", *SegmentRow._fields)
    insert_missing(connection, segments, columns, [(name, *row) for row in rows])


def sweep(connection: Connection, now: int) -> None:
    """Delete expired windows and vectors, and the oldest beyond the maximum.

    An expired window loses its segments at once. Its request stays for a day, so that the search
    can be restarted.
    """
    dead = sa.select(windows.c.name).where(windows.c.expires_at <= now)
    connection.execute(sa.delete(segments).where(segments.c.window.in_(dead)))
    connection.execute(sa.delete(substitutes).where(substitutes.c.window.in_(dead)))
    connection.execute(sa.delete(windows).where(windows.c.expires_at <= now - _RESTARTABLE_S))
    connection.execute(sa.delete(query_vectors).where(query_vectors.c.expires_at <= now))
    oldest = connection.execute(
        sa.select(windows.c.created_at)
        .order_by(windows.c.created_at.desc())
        .offset(MAX_WINDOWS)
        .limit(1)
    ).scalar()
    if oldest is not None:
        old = sa.select(windows.c.name).where(windows.c.created_at <= oldest)
        connection.execute(sa.delete(segments).where(segments.c.window.in_(old)))
    newest = query_vectors.c.expires_at
    first = connection.execute(
        sa.select(newest).order_by(newest.desc()).offset(MAX_VECTORS).limit(1)
    ).scalar()
    if first is not None:
        connection.execute(sa.delete(query_vectors).where(newest <= first))


_RESTARTABLE_S = 86_400


def _insert_vector(connection: Connection, key: bytes, vector: bytes, *, expires_at: int) -> None:
    known = connection.execute(_EXTEND_VECTOR, {"b_key": key, "b_expires_at": expires_at}).rowcount
    if not known:
        insert_missing(
            connection, query_vectors, ("key", "vector", "expires_at"), [(key, vector, expires_at)]
        )


_COLUMNS = ("name", "caller", "request", "created_at", "expires_at")
_EXTEND_VECTOR = (
    sa.update(query_vectors)
    .where(query_vectors.c.key == sa.bindparam("b_key"))
    .values(
        expires_at=sa.case(
            (query_vectors.c.expires_at > sa.bindparam("b_expires_at"), query_vectors.c.expires_at),
            else_=sa.bindparam("b_expires_at"),
        )
    )
)
_VECTOR = PreparedQuery(
    sa.select(query_vectors.c.vector).where(
        query_vectors.c.key == sa.bindparam("key"), query_vectors.c.expires_at > sa.bindparam("now")
    )
)
_PACKED = (
    segments.c.number,
    segments.c.start,
    segments.c.stop,
    segments.c.entries,
    segments.c.ids,
    segments.c.state,
)
_FIND = PreparedQuery(
    sa.select(windows.c.request, windows.c.caller, windows.c.expires_at, *_PACKED)
    .join(
        segments,
        sa.and_(segments.c.window == windows.c.name, segments.c.stop >= sa.bindparam("position")),
        isouter=True,
    )
    .where(windows.c.name == sa.bindparam("name"))
    .order_by(segments.c.number)
)
_SEGMENTS = PreparedQuery(
    sa.select(*_PACKED).where(segments.c.window == sa.bindparam("name")).order_by(segments.c.number)
)
