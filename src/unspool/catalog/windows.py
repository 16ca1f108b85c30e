"""Where frozen rankings and the vectors of queries are kept: for hours, in tables of their own."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unspool.catalog.database import WindowDatabase
from unspool.catalog.schema import query_vectors, segments, substitutes, windows
from unspool.catalog.statements import PreparedQuery, insert_missing
from unspool.errors import ConflictError, ServiceError
from unspool.windows import PackedSegment, Question, Segment

MAX_WINDOWS = 10_000  # about 80 MB; the oldest make room
MAX_VECTORS = 20_000
MAX_RECENT = 256  # windows in memory; about 2 MB
SWEEP_EVERY = 200  # windows kept between two sweeps


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptWindow:
    """What is known of a window, and those of its segments that were asked for: none where they
    were swept.
    """

    question: Question
    caller: str
    expires_at: int
    segments: tuple[Segment, ...]


class Windows:
    """Safe to use from several threads; several processes may share what is kept."""

    def __init__(self, home: WindowDatabase, *, clock: Callable[[], float] = time.time) -> None:
        self._home = home
        # what is kept never changes, except that segments are added
        self._recent: OrderedDict[bytes, KeptWindow] = OrderedDict()
        self._clock = clock
        self._guard = threading.Lock()
        self._until_sweep = 0

    def keep(
        self,
        name: bytes,
        *,
        question: Question,
        caller: str,
        first: Segment,
        lifetime_s: int,
        query: tuple[bytes, bytes] | None,
    ) -> None:
        """Freeze a window.

        `query` is the key and the vector of its query, which live as long as it does.
        """
        now = int(self._clock())
        with self._home.write() as connection:
            insert_missing(
                connection,
                windows,
                _COLUMNS,
                [(name, caller, question.as_json(), now, now + lifetime_s)],
            )
            insert_missing(
                connection, segments, ("window", *PackedSegment._fields), [(name, *first.pack())]
            )
            if query is not None:
                _keep_vector(connection, *query, expires_at=now + lifetime_s)
        self._remember(
            name,
            KeptWindow(
                question=question, caller=caller, expires_at=now + lifetime_s, segments=(first,)
            ),
        )
        self._until_sweep -= 1
        if self._until_sweep < 0:
            self._until_sweep = SWEEP_EVERY
            # the next one will do it
            with suppress(ServiceError, ConflictError), self._home.write() as connection:
                sweep(connection, now)

    def find(self, name: bytes, *, position: int) -> KeptWindow | None:
        """A window with its segments from the one that ends at a position on."""
        with self._guard:
            recent = self._recent.get(name)
        if recent is not None and recent.segments[0].start <= position < recent.segments[-1].stop:
            return recent
        with self._home.read() as connection:
            rows = _FIND.fetch(connection, {"name": name, "position": position})
        if not rows:
            return None
        question, caller, expires_at = rows[0][:3]
        found = tuple(PackedSegment(*row[3:]).unpack() for row in rows if row[3] is not None)
        window = KeptWindow(
            question=Question.from_json(question),
            caller=caller,
            expires_at=expires_at,
            segments=found,
        )
        if found:
            self._remember(name, window)
        return window

    def segments(self, name: bytes) -> list[Segment]:
        """Every segment of a window."""
        with self._home.read() as connection:
            return [
                PackedSegment(*row).unpack() for row in _SEGMENTS.fetch(connection, {"name": name})
            ]

    def append(self, name: bytes, segment: Segment) -> None:
        """Add a segment, unless another caller was faster: then that one stays."""
        with self._home.write() as connection:
            alive = sa.select(windows.c.name).where(windows.c.name == name)
            if connection.execute(alive).first() is not None:
                insert_missing(
                    connection,
                    segments,
                    ("window", *PackedSegment._fields),
                    [(name, *segment.pack())],
                )
        with self._guard:
            self._recent.pop(name, None)

    def substitutes(self, name: bytes) -> dict[int, int]:
        """What was shown in place of entries that were gone, by position."""
        query = sa.select(substitutes.c.position, substitutes.c.chunk_id).where(
            substitutes.c.window == name
        )
        with self._home.read() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def substitute(self, name: bytes, chosen: Mapping[int, int]) -> None:
        """Remember what is shown in place of entries that are gone."""
        rows = [(name, position, id_) for position, id_ in sorted(chosen.items())]
        with self._home.write() as connection:
            connection.execute(
                sa.delete(substitutes).where(
                    substitutes.c.window == name, substitutes.c.position.in_(list(chosen))
                )
            )
            if (
                connection.execute(sa.select(windows.c.name).where(windows.c.name == name)).first()
                is not None
            ):
                insert_missing(connection, substitutes, ("window", "position", "chunk_id"), rows)

    def vector(self, key: bytes) -> bytes | None:
        """The vector of a query that was embedded before."""
        with self._home.read() as connection:
            rows = _VECTOR.fetch(connection, {"key": key, "now": int(self._clock())})
        return bytes(rows[0][0]) if rows else None

    def keep_vectors(self, vectors: dict[bytes, bytes], *, lifetime_s: int) -> None:
        """Keep vectors of queries."""
        with self._home.write() as connection:
            for key, vector in sorted(vectors.items()):
                _keep_vector(connection, key, vector, expires_at=int(self._clock()) + lifetime_s)

    def _remember(self, name: bytes, window: KeptWindow) -> None:
        with self._guard:
            self._recent[name] = window
            self._recent.move_to_end(name)
            while len(self._recent) > MAX_RECENT:
                self._recent.popitem(last=False)

    def is_expired(self, window: KeptWindow) -> bool:
        """Whether a window's time is over."""
        return self._clock() >= window.expires_at

    def close(self) -> None:
        """Let go of where they are kept."""
        self._home.close()


def sweep(connection: Connection, now: int) -> None:
    """Make room.

    An expired window loses its segments at once and is forgotten a day later: until then its first
    page can be had again.
    """
    dead = sa.select(windows.c.name).where(windows.c.expires_at <= now)
    connection.execute(sa.delete(segments).where(segments.c.window.in_(dead)))
    connection.execute(sa.delete(substitutes).where(substitutes.c.window.in_(dead)))
    connection.execute(sa.delete(windows).where(windows.c.expires_at <= now - _REMEMBERED_S))
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


_REMEMBERED_S = 86_400


def _keep_vector(connection: Connection, key: bytes, vector: bytes, *, expires_at: int) -> None:
    known = connection.execute(_EXTEND_VECTOR, {"b_key": key, "b_expires_at": expires_at}).rowcount
    if not known:
        insert_missing(
            connection, query_vectors, ("key", "vector", "expires_at"), [(key, vector, expires_at)]
        )


_COLUMNS = ("name", "caller", "question", "created_at", "expires_at")
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
    sa.select(windows.c.question, windows.c.caller, windows.c.expires_at, *_PACKED)
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
