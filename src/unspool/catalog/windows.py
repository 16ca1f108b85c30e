"""Where frozen rankings and the vectors of queries are kept: for hours, in tables of their own."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from filelock import FileLock
from sqlalchemy.engine import Connection, Engine

from unspool.catalog.database import Catalog, Prepared, sqlite_engine, transaction, translated, use_log
from unspool.catalog.schema import APPLICATION_ID, query_vectors, segments, short_lived, substitutes, windows
from unspool.errors import ConflictError, ServiceError
from unspool.windows import PackedSegment, Question, Segment

FORMAT = 1  # of the file; another one is thrown away
MAX_WINDOWS = 10_000  # about 80 MB; the oldest make room
MAX_VECTORS = 20_000
MAX_RECENT = 256  # windows in memory; about 2 MB
SWEEP_EVERY = 200  # windows kept between two sweeps


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptWindow:
    """What is known of a window, and those of its segments that were asked for: none where they were swept."""

    question: Question
    caller: str
    expires_at: int
    segments: tuple[Segment, ...]


class Windows:
    """Safe to use from several threads; several processes may share the file."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._recent: OrderedDict[bytes, KeptWindow] = OrderedDict()  # what is kept never changes, except that segments are added
        self._clock = clock
        self._engine: Engine | None = None
        self._opening = threading.Lock()
        self._writing = threading.Lock()
        self._until_sweep = 0

    @classmethod
    def beside(cls, catalog: Catalog) -> Windows:
        """Those of a catalog; the file is made when it is first written or read."""
        return cls(kept_at(catalog.path))

    def keep(self, name: bytes, *, question: Question, caller: str, first: Segment, lifetime_s: int, query: tuple[bytes, bytes] | None) -> None:
        """Freeze a window. `query` is the key and the vector of its query, which live as long as it does."""
        now = int(self._clock())
        row = {"name": name, "caller": caller, "question": question.as_json(), "created_at": now, "expires_at": now + lifetime_s}
        with self._write() as connection:
            connection.execute(_INSERT_WINDOW, row)
            connection.execute(_INSERT_SEGMENT, {"window": name, **first.pack()._asdict()})
            if query is not None:
                _keep_vector(connection, *query, expires_at=now + lifetime_s)
            self._until_sweep -= 1
            if self._until_sweep < 0:
                self._until_sweep = SWEEP_EVERY
                sweep(connection, now)
        self._remember(name, KeptWindow(question=question, caller=caller, expires_at=now + lifetime_s, segments=(first,)))

    def find(self, name: bytes, *, position: int) -> KeptWindow | None:
        """A window with its segments from the one that ends at a position on."""
        with self._opening:
            recent = self._recent.get(name)
        if recent is not None and recent.segments[0].start <= position < recent.segments[-1].stop:
            return recent
        with self._read() as connection:
            rows = _FIND.rows(connection, {"name": name, "position": position})
        if not rows:
            return None
        question, caller, expires_at = rows[0][:3]
        found = tuple(PackedSegment(*row[3:]).unpack() for row in rows if row[3] is not None)
        window = KeptWindow(question=Question.from_json(question), caller=caller, expires_at=expires_at, segments=found)
        if found:
            self._remember(name, window)
        return window

    def segments(self, name: bytes) -> list[Segment]:
        """Every segment of a window."""
        with self._read() as connection:
            return [PackedSegment(*row).unpack() for row in _SEGMENTS.rows(connection, {"name": name})]

    def append(self, name: bytes, segment: Segment) -> None:
        """Add a segment, unless another caller was faster: then that one stays."""
        with self._write() as connection:
            here = sa.select(segments.c.number).where(segments.c.window == name, segments.c.number == segment.number)
            alive = sa.select(windows.c.name).where(windows.c.name == name)
            if connection.execute(here).first() is None and connection.execute(alive).first() is not None:
                connection.execute(_INSERT_SEGMENT, {"window": name, **segment.pack()._asdict()})
        with self._opening:
            self._recent.pop(name, None)

    def substitutes(self, name: bytes) -> dict[int, int]:
        """What was shown in place of entries that were gone, by position."""
        query = sa.select(substitutes.c.position, substitutes.c.chunk_id).where(substitutes.c.window == name)
        with self._read() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def substitute(self, name: bytes, chosen: Mapping[int, int]) -> None:
        """Remember what is shown in place of entries that are gone."""
        rows = [{"window": name, "position": position, "chunk_id": id_} for position, id_ in chosen.items()]
        with self._write() as connection:
            connection.execute(sa.delete(substitutes).where(substitutes.c.window == name, substitutes.c.position.in_(list(chosen))))
            if connection.execute(sa.select(windows.c.name).where(windows.c.name == name)).first() is not None:
                connection.execute(sa.insert(substitutes), rows)

    def vector(self, key: bytes) -> bytes | None:
        """The vector of a query that was embedded before."""
        with self._read() as connection:
            rows = _VECTOR.rows(connection, {"key": key, "now": int(self._clock())})
        return bytes(rows[0][0]) if rows else None

    def keep_vectors(self, vectors: dict[bytes, bytes], *, lifetime_s: int) -> None:
        """Keep vectors of queries."""
        with self._write() as connection:
            for key, vector in vectors.items():
                _keep_vector(connection, key, vector, expires_at=int(self._clock()) + lifetime_s)

    def _remember(self, name: bytes, window: KeptWindow) -> None:
        with self._opening:
            self._recent[name] = window
            self._recent.move_to_end(name)
            while len(self._recent) > MAX_RECENT:
                self._recent.popitem(last=False)

    def is_expired(self, window: KeptWindow) -> bool:
        """Whether a window's time is over."""
        return self._clock() >= window.expires_at

    def close(self) -> None:
        """Let go of the file."""
        with self._opening:
            if self._engine is not None:
                self._engine.dispose()
                self._engine = None

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        with self._guarded(), self._ready().connect() as connection:
            yield connection

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        with self._writing, self._guarded(), transaction(self._ready()) as connection:
            yield connection

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Errors as ours. A file that turns out to be damaged inside is moved aside, so that the next call finds a new one."""
        try:
            with translated(self._path, what="file of continuations"):
                yield
        except (ServiceError, ConflictError) as error:
            if isinstance(error.__cause__, Exception) and _is_damage(error.__cause__):
                self.close()
                _set_aside(self._path)
                raise ServiceError(f"{self._path} was damaged and is begun anew; continuations that it held are gone, search again") from error
            raise

    def _ready(self) -> Engine:
        with self._opening:
            if self._engine is None:
                self._engine = _opened(self._path)
            return self._engine


def kept_at(catalog: Path) -> Path:
    """The file beside a catalog's."""
    return catalog.with_name(catalog.name + ".windows")


def sweep(connection: Connection, now: int) -> None:
    """Make room. An expired window loses its segments at once and is forgotten a day later: until then its first page can be had again."""
    dead = sa.select(windows.c.name).where(windows.c.expires_at <= now)
    connection.execute(sa.delete(segments).where(segments.c.window.in_(dead)))
    connection.execute(sa.delete(substitutes).where(substitutes.c.window.in_(dead)))
    connection.execute(sa.delete(windows).where(windows.c.expires_at <= now - _REMEMBERED_S))
    connection.execute(sa.delete(query_vectors).where(query_vectors.c.expires_at <= now))
    oldest = connection.execute(sa.select(windows.c.created_at).order_by(windows.c.created_at.desc()).offset(MAX_WINDOWS).limit(1)).scalar()
    if oldest is not None:
        old = sa.select(windows.c.name).where(windows.c.created_at <= oldest)
        connection.execute(sa.delete(segments).where(segments.c.window.in_(old)))
    newest = query_vectors.c.expires_at
    first = connection.execute(sa.select(newest).order_by(newest.desc()).offset(MAX_VECTORS).limit(1)).scalar()
    if first is not None:
        connection.execute(sa.delete(query_vectors).where(newest <= first))


_REMEMBERED_S = 86_400


def _keep_vector(connection: Connection, key: bytes, vector: bytes, *, expires_at: int) -> None:
    known = connection.execute(_EXTEND_VECTOR, {"b_key": key, "b_expires_at": expires_at}).rowcount
    if not known:
        connection.execute(_INSERT_VECTOR, {"key": key, "vector": vector, "expires_at": expires_at})


_INSERT_WINDOW, _INSERT_SEGMENT, _INSERT_VECTOR = sa.insert(windows), sa.insert(segments), sa.insert(query_vectors)
_EXTEND_VECTOR = (
    sa.update(query_vectors)
    .where(query_vectors.c.key == sa.bindparam("b_key"))
    .values(
        expires_at=sa.case(
            (query_vectors.c.expires_at > sa.bindparam("b_expires_at"), query_vectors.c.expires_at), else_=sa.bindparam("b_expires_at")
        )
    )
)
_VECTOR = Prepared(
    sa.select(query_vectors.c.vector).where(query_vectors.c.key == sa.bindparam("key"), query_vectors.c.expires_at > sa.bindparam("now"))
)
_PACKED = (segments.c.number, segments.c.start, segments.c.stop, segments.c.entries, segments.c.ids, segments.c.state)
_FIND = Prepared(
    sa.select(windows.c.question, windows.c.caller, windows.c.expires_at, *_PACKED)
    .join(segments, sa.and_(segments.c.window == windows.c.name, segments.c.stop >= sa.bindparam("position")), isouter=True)
    .where(windows.c.name == sa.bindparam("name"))
    .order_by(segments.c.number)
)
_SEGMENTS = Prepared(sa.select(*_PACKED).where(segments.c.window == sa.bindparam("name")).order_by(segments.c.number))


def _opened(path: Path) -> Engine:
    """The file, made if need be. One that is damaged is moved aside and begun anew: what it held was short-lived."""
    engine = sqlite_engine(path)
    try:
        return _prepared(engine, path)
    except (sa.exc.DatabaseError, sqlite3.DatabaseError) as error:
        engine.dispose()
        if not _is_damage(error):
            raise
        _set_aside(path)
        return _prepared(sqlite_engine(path), path)


def _is_damage(error: Exception) -> bool:
    text = str(getattr(error, "orig", error)).lower()
    return "not a database" in text or "malformed" in text or "disk image" in text


def _set_aside(path: Path) -> None:
    """Move a damaged file out of the way, unless another process has done so already."""
    with FileLock(path.with_name(path.name + ".lock"), timeout=10):
        engine = sqlite_engine(path)
        try:
            with engine.connect() as connection:
                sound = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one() == "ok"
        except sa.exc.DatabaseError:
            sound = False
        finally:
            engine.dispose()
        if not sound:
            for suffix in ("-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            path.replace(path.with_name(path.name + ".damaged"))


def _prepared(engine: Engine, path: Path) -> Engine:
    path.touch(mode=0o600)  # it holds what was asked
    with engine.connect() as connection:
        application, version = (connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("application_id", "user_version"))
        foreign = application != APPLICATION_ID and (application or connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one())
        if (application, version) == (APPLICATION_ID, FORMAT):
            return engine
    if foreign:
        raise ServiceError(f"{path} belongs to another program; move it away, unspool keeps continuations there")
    use_log(path)
    with transaction(engine) as connection:
        if connection.exec_driver_sql("PRAGMA user_version").scalar_one() != FORMAT:
            short_lived.drop_all(connection)
            short_lived.create_all(connection)
            connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
            connection.exec_driver_sql(f"PRAGMA user_version={FORMAT}")
    return engine
