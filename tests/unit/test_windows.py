"""Frozen rankings as bytes, and the tables that keep them for a while, in a file or on a server."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import ENGINES, Place, beside
from unspool.catalog import Catalog, windows
from unspool.catalog.database import WindowDatabase
from unspool.catalog.projects import ProjectVersion
from unspool.catalog.window_file import WindowFile, get_window_path
from unspool.catalog.windows import SegmentRow, WindowRow, WindowStore
from unspool.domain import continuations, filters
from unspool.domain.queries import Served
from unspool.errors import ServiceError
from unspool.search.plan import make_plan
from unspool.search.request import SearchRequest
from unspool.search.windows import (
    ENTRY,
    Unranked,
    WindowSegment,
    WindowTail,
    pack_segment,
    unpack_segment,
)

DAY = 86_400
ids = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20).map(
    lambda values: np.array(values, dtype=np.int64)
)
unranked = st.builds(Unranked, project=st.integers(1, 2**40), by_vector=ids, by_words=ids)
numbers = st.floats(allow_nan=False, allow_infinity=False)
tails = st.builds(
    WindowTail,
    depth=st.integers(1, 100_000),
    is_exhausted=st.booleans(),
    scale=st.just(()) | st.tuples(*[numbers] * 6),
    majority=st.text(max_size=8),
    unranked=st.lists(unranked, max_size=4).map(tuple),
    waiting=st.integers(0, 1000),
    hints=st.dictionaries(st.integers(1, 2**40), st.text(max_size=30), max_size=3),
    is_hinted=st.booleans(),
    versions=st.dictionaries(st.integers(1, 2**40), st.integers(0, 2**40), max_size=3),
)
rows = st.tuples(
    st.integers(1, 2**40),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**40),
    st.integers(0, 2**30),
    st.floats(width=32),
    st.booleans(),
)
segments = st.builds(
    WindowSegment,
    number=st.integers(0, 100),
    start=st.integers(0, 10_000),
    served=st.sampled_from(Served),
    entries=st.lists(rows, max_size=20).map(lambda values: np.array(values, dtype=ENTRY)),
    tail=tails,
    best=numbers,
    low=st.none() | numbers,
    dropped=st.lists(st.integers(0, 2**62), max_size=5).map(
        lambda values: np.array(values, dtype=np.int64)
    ),
    repeats=st.integers(0, 50),
    reasons=st.lists(st.text(max_size=20), max_size=5).map(tuple),
)


def list_unranked(segment: WindowSegment) -> list[tuple[int, list[int], list[int]]]:
    return [
        (one.project, one.by_vector.tolist(), one.by_words.tolist())
        for one in segment.tail.unranked
    ]


def make_request(query: str = "walrus", **values: Any) -> SearchRequest:
    given = {"projects": (ProjectVersion(1, "notes", 3, 5),), "limit": 2, "depth": 200, **values}
    plan = make_plan(query, alpha=0.25, limit=given["limit"], depth=given["depth"])
    return SearchRequest(plan=plan, filter=filters.parse(given.get("where")), **given)


@given(segments)
def test_a_segment_comes_out_of_its_bytes_as_it_went_in(segment: WindowSegment) -> None:
    again = unpack_segment(pack_segment(segment))
    assert again.entries.tobytes() == segment.entries.tobytes()
    assert list_unranked(again) == list_unranked(segment)
    assert again.dropped.tolist() == segment.dropped.tolist()
    bare = {"entries": None, "tail": None, "dropped": None}
    assert replace(again, **bare) == replace(segment, **bare)  # type: ignore[arg-type]
    assert replace(again.tail, unranked=()) == replace(segment.tail, unranked=())
    assert (again.stop, again.tail.is_end) == (segment.stop, segment.tail.is_end)


def test_a_request_comes_out_of_its_text_as_it_went_in() -> None:
    request = make_request(
        "Wo ist der 'Walroß'?\n",
        projects=(ProjectVersion(1, "a", 3, 5), ProjectVersion(2, "b", 4, 5)),
        limit=7,
        max_tokens=100,
        max_total_tokens=1000,
        where={"path": "src/*", "language": ["python", "go"]},
        min_score=0.5,
        explain=True,
        space_id=9,
    )
    assert SearchRequest.decode(request.encode()) == request


def test_a_request_with_a_date_in_its_filter_can_be_repeated() -> None:
    request = make_request(where={"modified": {"ge": date(2026, 1, 2)}})
    again = SearchRequest.decode(request.encode())
    assert again.where == {"modified": {"ge": "2026-01-02"}}
    assert again.filter == request.filter


# Where they are kept


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


REQUEST = make_request().encode()


def stretch(number: int, start: int, size: int = 3) -> SegmentRow:
    entries = np.zeros(size, dtype=ENTRY)
    entries["id"] = np.arange(start, start + size)
    tail = WindowTail(depth=100, is_exhausted=True, scale=(0.0,) * 6)
    return pack_segment(
        WindowSegment(number=number, start=start, served=Served.WINDOW, entries=entries, tail=tail)
    )


def ids_of(row: SegmentRow) -> list[int]:
    return unpack_segment(row).entries["id"].tolist()  # type: ignore[no-any-return]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Homes = Callable[[], WindowDatabase]


@pytest.fixture
def homes(database: Place) -> Iterator[Homes]:
    """Where windows are kept, each time as another process gets there."""
    with ExitStack() as opened:

        def home() -> WindowDatabase:
            if isinstance(database, Path):
                return WindowFile(get_window_path(database))
            return opened.enter_context(closing(Catalog.open(database))).open_windows()

        yield home


@pytest.fixture
def kept(homes: Homes, clock: Clock) -> Iterator[WindowStore]:
    with closing(afresh(homes, clock)) as opened:
        yield opened


def keep(
    kept: WindowStore,
    clock: Clock,
    *,
    lifetime_s: int = 100,
    query: tuple[bytes, bytes] | None = None,
) -> bytes:
    name = continuations.new_name()
    row = WindowRow(REQUEST, "ann", int(clock.now) + lifetime_s, (stretch(0, 0),))
    kept.insert(name, row, query_vector=query)
    return name


def afresh(homes: Homes, clock: Clock) -> WindowStore:
    """As another process sees it."""
    return WindowStore(homes(), clock=clock)


def swept(homes: Homes, now: float) -> None:
    with closing(homes()) as home, home.write() as connection:
        windows.sweep(connection, int(now))


def rows_of(place: Place, table: str) -> int:
    with beside(place, windows=True) as opened:
        return int(opened.rows(f"SELECT count(*) FROM {table}")[0][0])


def test_a_window_is_found_by_its_name_alone(kept: WindowStore, homes: Homes, clock: Clock) -> None:
    name, other = keep(kept, clock), keep(kept, clock)
    assert name != other
    fresh = afresh(homes, clock)
    for one in (kept, fresh):
        found = one.find(name, position=0)
        assert found is not None
        assert (found.request, found.caller) == (REQUEST, "ann")
        assert [ids_of(segment) for segment in found.segments] == [[0, 1, 2]]
        assert one.find(bytes(10), position=0) is None
    fresh.close()


def test_the_first_to_append_a_segment_wins(kept: WindowStore, clock: Clock) -> None:
    name = keep(kept, clock)
    kept.append(name, stretch(1, 3))
    kept.append(name, stretch(1, 3, size=1))
    assert [len(ids_of(segment)) for segment in kept.list_segments(name)] == [3, 3]


def test_nothing_is_appended_to_a_window_that_is_gone(kept: WindowStore, clock: Clock) -> None:
    keep(kept, clock)
    kept.append(bytes(10), stretch(1, 3))
    kept.add_substitutes(bytes(10), {1: 2})
    assert (kept.list_segments(bytes(10)), kept.list_substitutes(bytes(10))) == ([], {})


@pytest.mark.parametrize("later", [4, 7, 10])
def test_an_early_place_is_found_after_a_later_one(
    kept: WindowStore, homes: Homes, clock: Clock, later: int
) -> None:
    """A process that begins in the middle of a walk may be asked for an earlier page."""
    name = keep(kept, clock)
    kept.append(name, stretch(1, 3))
    kept.append(name, stretch(2, 6))
    kept.append(name, stretch(3, 9))
    fresh = afresh(homes, clock)
    assert fresh.find(name, position=later) is not None
    for position in range(12):
        found = fresh.find(name, position=position)
        assert found is not None
        assert [one.number for one in found.segments if one.start <= position < one.stop] == [
            position // 3
        ]
    fresh.close()


def test_what_stood_in_for_what_is_remembered(
    kept: WindowStore, homes: Homes, clock: Clock
) -> None:
    name, other = keep(kept, clock), keep(kept, clock)
    kept.add_substitutes(name, {0: 70, 2: 72})
    kept.add_substitutes(name, {2: 82})
    fresh = afresh(homes, clock)
    assert fresh.list_substitutes(name) == {0: 70, 2: 82}
    assert fresh.list_substitutes(other) == {}
    fresh.close()


def test_sweeping_drops_expired_segments_at_once_and_the_window_a_day_later(
    kept: WindowStore, homes: Homes, database: Place, clock: Clock
) -> None:
    name, younger = keep(kept, clock, lifetime_s=100), keep(kept, clock, lifetime_s=10 * DAY)
    kept.add_substitutes(name, {0: 70})
    swept(homes, clock.now + 99)
    assert rows_of(database, "segments") == 2
    swept(homes, clock.now + 100)
    fresh = afresh(homes, clock)
    found = fresh.find(name, position=0)
    assert found is not None
    assert (found.request, found.segments) == (REQUEST, ())
    other = fresh.find(younger, position=0)
    assert other is not None
    assert len(other.segments) == 1
    swept(homes, clock.now + 100 + DAY - 1)
    assert rows_of(database, "windows") == 2
    swept(homes, clock.now + 100 + DAY)
    assert (
        rows_of(database, "windows"),
        rows_of(database, "segments"),
        rows_of(database, "substitutes"),
    ) == (1, 1, 0)
    assert fresh.find(name, position=0) is None
    fresh.close()


def test_sweeping_happens_by_itself_while_windows_are_kept(
    kept: WindowStore, database: Place, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "SWEEP_EVERY", 5)
    for _ in range(30):
        keep(kept, clock, lifetime_s=10)
        clock.now += 20
    assert rows_of(database, "segments") <= 7


def test_too_many_windows_cost_the_oldest_their_segments(
    kept: WindowStore, homes: Homes, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "MAX_WINDOWS", 4)
    names = []
    for _ in range(10):
        names.append(keep(kept, clock, lifetime_s=DAY))
        clock.now += 1
    swept(homes, clock.now)
    fresh = afresh(homes, clock)
    found = [fresh.find(name, position=0) for name in names]
    assert [one is not None and len(one.segments) for one in found] == [0] * 6 + [1] * 4
    fresh.close()


def test_vectors_of_queries_are_kept_for_their_time_and_no_longer(
    kept: WindowStore, homes: Homes, database: Place, clock: Clock
) -> None:
    keep(kept, clock, lifetime_s=100, query=(b"k" * 32, b"vector"))
    kept.insert_vectors({b"l" * 32: b"other"}, lifetime_s=50)
    fresh = afresh(homes, clock)
    assert (
        fresh.find_vector(b"k" * 32),
        fresh.find_vector(b"l" * 32),
        fresh.find_vector(b"m" * 32),
    ) == (
        b"vector",
        b"other",
        None,
    )
    clock.now += 50
    assert (fresh.find_vector(b"k" * 32), fresh.find_vector(b"l" * 32)) == (b"vector", None)
    keep(kept, clock, lifetime_s=100, query=(b"k" * 32, b"vector"))
    clock.now += 99
    assert fresh.find_vector(b"k" * 32) == b"vector"
    swept(homes, clock.now + 1)
    assert rows_of(database, "query_vectors") == 0
    fresh.close()


def test_too_many_vectors_cost_those_that_end_first(
    kept: WindowStore, homes: Homes, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "MAX_VECTORS", 3)
    for number in range(8):
        kept.insert_vectors({bytes([number]) * 32: b"v"}, lifetime_s=100 + number)
    swept(homes, clock.now)
    assert [number for number in range(8) if kept.find_vector(bytes([number]) * 32)] == [5, 6, 7]


# The file of SQLite


@pytest.fixture
def path(catalog_file: Path) -> Path:
    return get_window_path(catalog_file)


@pytest.fixture
def in_file(path: Path, clock: Clock) -> Iterator[WindowStore]:
    with closing(WindowStore(WindowFile(path), clock=clock)) as opened:
        yield opened


def test_only_its_owner_may_read_the_file(clock: Clock, in_file: WindowStore, path: Path) -> None:
    keep(in_file, clock)
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "content", [b"not a database at all " * 400, b"SQLite format 3\x00" + b"\xff" * 5000]
)
def test_a_damaged_file_is_replaced(
    clock: Clock, in_file: WindowStore, catalog_file: Path, path: Path, content: bytes
) -> None:
    path.write_bytes(content)
    name = keep(in_file, clock)
    assert in_file.find(name, position=0) is not None
    assert rows_of(catalog_file, "windows") == 1


def test_a_file_of_another_format_is_begun_anew(
    in_file: WindowStore, catalog_file: Path, path: Path, clock: Clock
) -> None:
    keep(in_file, clock)
    in_file.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=999")
    fresh = WindowStore(WindowFile(path), clock=clock)
    name = keep(fresh, clock)
    assert fresh.find(name, position=0) is not None
    assert rows_of(catalog_file, "windows") == 1
    fresh.close()


@pytest.mark.parametrize("application_id", [77, 0])
def test_a_file_of_another_program_is_refused_and_left_as_it_is(
    clock: Clock, in_file: WindowStore, path: Path, application_id: int
) -> None:
    """Most programs leave the application id at 0."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE windows (panes INTEGER)")
        connection.execute("INSERT INTO windows VALUES (6)")
        connection.execute(f"PRAGMA application_id={application_id}")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(ServiceError):
        keep(in_file, clock)
    with pytest.raises(ServiceError):
        in_file.find(bytes(10), position=0)
    assert path.read_bytes() == before
