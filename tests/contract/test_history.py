"""What every history does: in memory, on SQLite and on PostgreSQL."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import unspool
from support import ENGINES, Places, open_corpus
from unspool import History, MemoryHistory, Record, Retention
from unspool.catalog import history as history_sql
from unspool.errors import InputError

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SECRET = "AKIA" + "Z7Q2WMX4PLK9VD3T"
Open = Callable[..., History]
_slow = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module", params=("memory", *ENGINES))
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def shared(engine: str, request: pytest.FixtureRequest) -> Iterator[unspool.Corpus | None]:
    """A corpus for the tests of this module, each of which has streams of its own; None where
    histories are in memory.
    """
    if engine == "memory":
        yield None
        return
    places: Places = request.getfixturevalue("module_places")
    with open_corpus(places.new()) as corpus:
        yield corpus


@pytest.fixture
def fresh(shared: unspool.Corpus | None) -> Open:
    """A history that nobody has written to, however often it is asked for."""
    return lambda retention=None: _open(shared, f"stream {next(_numbers)}", retention)


_numbers = itertools.count()


def _open(corpus: unspool.Corpus | None, stream: str, retention: Retention | None) -> History:
    if corpus is None:
        return MemoryHistory(stream, retention=retention)
    return corpus.history(stream, retention=retention)


@pytest.fixture
def log(fresh: Open) -> History:
    return fresh()


def bodies(records: list[Record]) -> list[str]:
    return [record.body for record in records]


def filled(log: History, count: int) -> History:
    for number in range(1, count + 1):
        log.append(f"body {number}", at=NOON + timedelta(minutes=number))
    return log


# Reading


def test_a_new_history_is_empty(log: History) -> None:
    assert log.read() == []
    assert log.count() == log.prune() == log.clear() == 0
    page = log.page()
    assert (page.stream, page.records, page.limit, page.offset, page.has_more, page.next) == (
        log.stream,
        (),
        2,
        0,
        False,
        None,
    )
    assert log.page(10, 1000).records == ()


def test_what_was_appended_is_read_newest_first(log: History) -> None:
    before = datetime.now(UTC)
    given = [log.append(f"response {number}") for number in range(4)]
    assert [record.number for record in given] == [1, 2, 3, 4]
    assert log.read() == given[::-1]
    assert all(
        record.stream == log.stream and before <= record.at <= datetime.now(UTC) for record in given
    )
    assert log.count() == 4


def test_the_usual_calls_of_an_agent_give_each_row_once(log: History) -> None:
    filled(log, 7)
    seen = [
        [entry.number for entry in log.page(limit, offset).records]
        for limit, offset in ((2, 0), (3, 2), (2, 5))
    ]
    assert seen == [[7, 6], [5, 4, 3], [2, 1]]
    assert [entry.number for entry in log.page().records] == [7, 6]


def test_the_usual_calls_of_an_agent_stay_within_1500_tokens(
    log: History, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for number in range(12):
        orders = [
            {"id": 48_210 + number * 7 + n, "state": "shipped", "total": 19.9 + n} for n in range(4)
        ]
        answer = {
            "status": 200,
            "endpoint": "/v1/orders",
            "took_ms": 31 + number,
            "next_page": None,
            "orders": orders,
        }
        log.append(json.dumps(answer), at=NOON + timedelta(minutes=number))
    with open_corpus(tmp_path_factory.mktemp("tokens") / "tokens.db") as corpus:
        pages = [log.page(limit, offset) for limit, offset in ((2, 0), (3, 2), (2, 5))]
        tokens = sum(corpus.count_tokens(page.text) for page in pages)
    assert sum(len(page.records) for page in pages) == 7
    assert 700 < tokens < 1500  # and not because there was little to read


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 9, 10, 11, 12])
@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_has_more_is_right_at_every_boundary(fresh: Open, count: int, limit: int) -> None:
    log = filled(fresh(), count)
    for offset in range(count + 3):
        page = log.page(limit, offset)
        assert [entry.number for entry in page.records] == list(range(count, 0, -1))[
            offset : offset + limit
        ]
        assert page.has_more == (offset + limit < count)
        assert page.next == (
            f"older records: limit={limit}, offset={offset + limit}"
            if offset + limit < count
            else None
        )


def test_programs_read_whole_bodies_with_a_limit_and_an_offset(log: History) -> None:
    long = "x" * 50_000
    log.append(long, at=NOON)
    log.append(long, at=NOON)
    assert bodies(log.read()) == [long, long]
    assert bodies(log.read(limit=1, offset=1)) == [long]
    assert log.read(limit=1000, offset=2) == []
    assert log.read(offset=10**12) == []


@pytest.mark.parametrize(
    ("limit", "offset"),
    [(0, 0), (-1, 0), (1001, 0), (2.0, 0), (True, 0), (2, -1), (2, 2**70), (2, "0")],
)
def test_a_read_out_of_range_is_refused(log: History, limit: Any, offset: Any) -> None:
    log.append("one")
    with pytest.raises(InputError):
        log.read(limit, offset)
    with pytest.raises(InputError):
        log.page(limit, offset)


def test_an_agent_never_gets_more_than_ten(log: History) -> None:
    filled(log, 12)
    assert len(log.page(10).records) == 10
    with pytest.raises(InputError, match="limit is 11; give a whole number from 1 to 10"):
        log.page(11)
    assert len(log.read(11)) == 11


def test_long_bodies_are_cut_for_agents_by_characters(log: History) -> None:
    log.append("é🙂" * 500, at=NOON)
    log.append("é🙂" * 500 + "!", at=NOON + timedelta(seconds=1))
    newer, older = log.page().records
    assert newer.body == "é🙂" * 500 + "...[truncated]"
    assert (newer.length, newer.is_truncated) == (1001, True)
    assert older.body == "é🙂" * 500
    assert (older.length, older.is_truncated) == (1000, False)


def test_repeated_bodies_are_flagged_across_pages(log: History) -> None:
    for number, body in enumerate(["b", "a", "a", "a", "a"]):
        log.append(body, at=NOON + timedelta(minutes=number))
    first, second = log.page(2, 0).records, log.page(10, 2).records
    assert [(entry.body, entry.same_as_newer) for entry in first] == [("a", False), (None, True)]
    assert [(entry.body, entry.same_as_newer) for entry in second] == [
        ("a", True),
        (None, True),
        ("b", False),
    ]
    assert [entry.body for entry in log.page(10, full=True).records] == ["a", "a", "a", "a", "b"]


def test_times_decide_then_arrival(log: History) -> None:
    for minutes in (3, 1, 2, 1, 3):
        log.append(f"at {minutes}", at=NOON + timedelta(minutes=minutes))
    assert [(record.number, record.body) for record in log.read()] == [
        (5, "at 3"),
        (1, "at 3"),
        (3, "at 2"),
        (4, "at 1"),
        (2, "at 1"),
    ]


def test_times_are_told_apart_to_the_microsecond_in_any_century(log: History) -> None:
    moments = [
        datetime(2, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        NOON,
        NOON + timedelta(microseconds=1),
    ]
    moments.append(datetime(9998, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
    for moment in (moments[3], moments[0], moments[4], moments[2], moments[1]):
        log.append("x", at=moment)
    assert [record.at for record in log.read()] == moments[::-1]


def test_a_page_far_from_the_newest_is_as_right_as_the_first(log: History) -> None:
    filled(log, history_sql.FAR + 5)
    page = log.page(3, history_sql.FAR)
    assert [entry.number for entry in page.records] == [5, 4, 3]
    assert page.has_more
    assert not log.page(5, history_sql.FAR).has_more
    assert [record.number for record in log.read(10, history_sql.FAR + 1)] == [4, 3, 2, 1]


# Any sequence


_moments = st.integers(-5, 5).map(lambda minutes: NOON + timedelta(minutes=minutes))
_appends = st.lists(
    st.tuples(st.sampled_from(["", "a", "b", "x" * 1001, "\U0001f642"]), _moments), max_size=14
)


@_slow
@given(appends=_appends, limits=st.lists(st.integers(1, 10), min_size=1, max_size=5))
def test_pages_of_any_sizes_give_every_record_once(
    fresh: Open, appends: list[tuple[str, datetime]], limits: list[int]
) -> None:
    log = fresh()
    given = [log.append(body, at=at) for body, at in appends]
    wanted = sorted(given, key=lambda record: (record.at, record.number), reverse=True)
    seen: list[int] = []
    for limit in itertools.cycle(limits):
        page = log.page(limit, len(seen))
        assert log.read(limit, len(seen)) == wanted[len(seen) : len(seen) + limit]
        seen += [entry.number for entry in page.records]
        assert page.has_more == (len(seen) < len(wanted))
        if not page.has_more:
            break
        assert page.next_offset == len(seen)
    assert seen == [record.number for record in wanted]
    assert log.count() == len(wanted)


@_slow
@given(appends=_appends, keep=st.integers(1, 6))
def test_any_sequence_leaves_the_newest_so_many(
    fresh: Open, appends: list[tuple[str, datetime]], keep: int
) -> None:
    log = fresh(Retention(max_records=keep))
    kept: list[Record] = []
    for body, at in appends:
        kept = sorted(
            [*kept, log.append(body, at=at)],
            key=lambda record: (record.at, record.number),
            reverse=True,
        )[:keep]
        assert log.count() == len(kept)
    assert log.read() == kept


@_slow
@given(body=st.text(st.characters(exclude_categories=()), max_size=60))
def test_any_text_can_be_a_body(fresh: Open, body: str) -> None:
    log = fresh()
    stored = log.append(body).body
    assert len(stored) == len(body)
    assert "\x00" not in stored
    assert bodies(log.read()) == [stored]
    (entry,) = log.page().records
    assert (entry.body, entry.length) == (stored, len(body))


# Bodies


@pytest.mark.parametrize(
    "body",
    [
        "",
        "\n",
        " ",
        "\r\nlines\r\n",
        "'; DROP TABLE records; --",
        "%s %(x)s :y ?",
        "\u202e\x1b[31m",
        "ß" * 300,
    ],
)
def test_odd_bodies_are_kept_as_they_are(log: History, body: str) -> None:
    log.append(body)
    assert bodies(log.read()) == [body]
    assert log.page().records[0].body == body


def test_what_no_database_takes_is_replaced(log: History) -> None:
    assert log.append("a\x00b\ud800c").body == "a\ufffdb\ufffdc"
    assert bodies(log.read()) == ["a\ufffdb\ufffdc"]


def test_a_huge_body_is_kept_whole(log: History) -> None:
    huge = "0123456789" * 200_000
    log.append(huge)
    assert bodies(log.read()) == [huge]
    (entry,) = log.page().records
    assert (entry.length, entry.body) == (2_000_000, huge[:1000] + "...[truncated]")


@pytest.mark.parametrize("body", [b"ok", None, 3, {"ok": True}])
def test_a_body_that_is_no_text_is_refused_and_nothing_is_stored(log: History, body: Any) -> None:
    with pytest.raises(InputError, match="give text"):
        log.append(body)
    with pytest.raises(InputError, match="time zone"):
        log.append("ok", at=datetime(2024, 5, 1))
    assert log.count() == 0


def test_secrets_are_masked_before_they_are_stored(log: History) -> None:
    stored = log.append(f'{{"key": "{SECRET}"}}')
    assert SECRET not in stored.body
    assert stored.body == f'{{"key": "{"*" * len(SECRET)}"}}'
    assert log.read() == [stored]


# Retention


def test_the_newest_so_many_are_kept(fresh: Open) -> None:
    log = filled(fresh(Retention(max_records=3)), 5)
    assert [record.number for record in log.read()] == [5, 4, 3]
    assert [log.page(2, offset).has_more for offset in range(5)] == [
        True,
        False,
        False,
        False,
        False,
    ]
    log.append("too late", at=NOON)
    assert [record.number for record in log.read()] == [5, 4, 3]
    assert log.count() == 3


def test_what_is_too_old_is_neither_shown_nor_kept(fresh: Open) -> None:
    log = fresh(Retention(max_age_s=3600))
    now = datetime.now(UTC)
    for minutes in (180, 61, 10, 5, 120):
        log.append(f"{minutes} minutes ago", at=now - timedelta(minutes=minutes))
    assert bodies(log.read()) == ["5 minutes ago", "10 minutes ago"]
    assert log.count() == 2
    assert not log.page(2).has_more
    assert log.prune() == 0


def test_both_bounds_hold_together(fresh: Open) -> None:
    log = fresh(Retention(max_records=2, max_age_s=3600))
    now = datetime.now(UTC)
    for minutes in (50, 40, 30, 90):
        log.append(str(minutes), at=now - timedelta(minutes=minutes))
    assert bodies(log.read()) == ["30", "40"]
    assert log.count() == 2


def test_clearing_begins_anew(log: History) -> None:
    filled(log, 5)
    assert log.clear() == 5
    assert log.read() == []
    assert log.count() == 0
    assert log.append("again").number == 1
    assert log.count() == 1


# Several at once


def test_threads_that_append_at_once_lose_nothing(log: History) -> None:
    with ThreadPoolExecutor(8) as pool:
        given = list(pool.map(lambda number: log.append(f"body {number}"), range(80)))
    assert sorted(record.number for record in given) == list(range(1, 81))
    assert sorted(bodies(log.read())) == sorted(f"body {number}" for number in range(80))
    assert log.count() == 80


def test_threads_that_append_and_prune_at_once_agree_on_what_is_kept(fresh: Open) -> None:
    log = fresh(Retention(max_records=10))
    with ThreadPoolExecutor(8) as pool:
        pruned = [pool.submit(log.prune) for _ in range(4)]
        list(
            pool.map(
                lambda number: log.append(f"body {number}", at=NOON + timedelta(seconds=number)),
                range(60),
            )
        )
        assert all(one.result() is not None for one in pruned)
    assert bodies(log.read()) == [f"body {number}" for number in range(59, 49, -1)]
    assert log.count() == 10
