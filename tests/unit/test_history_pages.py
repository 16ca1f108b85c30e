"""The pure part of histories: what is refused, what is cut, what is flagged, and when there is
more.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspool.domain import history
from unspool.domain.history import CUT, MAX_PAGE, SHOWN, Excerpt, Retention
from unspool.errors import InputError

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def excerpts(*bodies: str) -> list[Excerpt]:
    """Newest first; the newest has the highest number."""
    count = len(bodies)
    return [
        Excerpt(
            number=count - n,
            at=NOON - timedelta(minutes=n),
            sha=history.fingerprint(body),
            length=len(body),
            text=body,
        )
        for n, body in enumerate(bodies)
    ]


def page(bodies: list[str], limit: int, offset: int, *, full: bool = False) -> history.HistoryPage:
    """The page over all bodies of a stream."""
    most, begin = history.span(limit, offset)
    return history.build_history_page(
        "jobs", excerpts(*bodies)[begin : begin + most], limit=limit, offset=offset, full=full
    )


@pytest.mark.parametrize(
    ("length", "shown", "is_truncated"),
    [
        (0, 0, False),
        (1, 1, False),
        (999, 999, False),
        (1000, 1000, False),
        (1001, 1000 + len(CUT), True),
    ],
)
def test_bodies_are_cut_at_a_thousand_characters_and_say_so_only_then(
    length: int, shown: int, is_truncated: bool
) -> None:
    (entry,) = page(["é" * length], 2, 0).records
    assert entry.body is not None
    assert len(entry.body) == shown
    assert entry.body.endswith("...[truncated]") == entry.is_truncated == is_truncated
    assert entry.body.startswith("é" * min(length, 1000))
    assert entry.length == length


def test_a_body_that_ends_like_a_cut_one_but_is_whole_is_not_flagged() -> None:
    (entry,) = page(["short ...[truncated]"], 2, 0).records
    assert not entry.is_truncated


def test_a_body_like_the_newer_one_is_flagged_and_not_repeated() -> None:
    entries = page(["a", "a", "a", "b", "a"], 10, 0).records
    assert [entry.body for entry in entries] == ["a", None, None, "b", "a"]
    assert [entry.same_as_newer for entry in entries] == [False, True, True, False, False]
    assert [entry.length for entry in entries] == [1] * 5


def test_the_first_of_a_page_shows_its_body_even_if_the_page_before_ended_with_the_same() -> None:
    entries = page(["a", "a", "a", "a"], 2, 1).records
    assert [entry.same_as_newer for entry in entries] == [True, True]
    assert [entry.body for entry in entries] == ["a", None]


def test_bodies_that_differ_only_behind_the_cut_are_not_the_same() -> None:
    start = "x" * SHOWN
    entries = page([start + "1", start + "2"], 2, 0).records
    assert [entry.same_as_newer for entry in entries] == [False, False]
    assert entries[0].body == entries[1].body == start + CUT


def test_full_pages_have_everything() -> None:
    long = "x" * 5000
    entries = page([long, long], 2, 0, full=True).records
    assert [entry.body for entry in entries] == [long, long]
    assert [entry.is_truncated for entry in entries] == [False, False]
    assert [entry.same_as_newer for entry in entries] == [False, True]


def test_a_page_as_text_has_the_bodies_as_they_are_and_the_way_on_only_if_there_is_one() -> None:
    bodies = ['{"ok": true}', '{"ok": true}', "x" * 1001]
    assert page(bodies, 2, 0).text.split("\n") == [
        "[3] 2024-05-01 12:00:00Z",
        '{"ok": true}',
        "[2] 2024-05-01 11:59:00Z, same as the newer one",
        "older records: limit=2, offset=2",
    ]
    assert page(bodies, 2, 2).text.split("\n") == [
        "[1] 2024-05-01 11:58:00Z, 1001 characters",
        "x" * 1000 + CUT,
    ]
    assert page(bodies, 2, 3).text == "no older records"
    assert page([], 2, 0).text == "no records"


@given(count=st.integers(0, 25), limit=st.integers(1, MAX_PAGE), offset=st.integers(0, 30))
def test_there_is_more_exactly_if_there_is(count: int, limit: int, offset: int) -> None:
    bodies = [f"body {n % 3}" for n in range(count)]
    found = page(bodies, limit, offset)
    wanted = list(range(count, 0, -1))[offset : offset + limit]
    assert [entry.number for entry in found.records] == wanted
    assert found.has_more == (offset + limit < count)
    assert (found.next is None) == (found.next_offset is None) == (not found.has_more)
    if found.has_more:
        assert found.next == f"older records: limit={limit}, offset={offset + limit}"
        assert found.next_offset == offset + limit
    twins = [
        position > 0 and bodies[position] == bodies[position - 1]
        for position in range(offset, offset + len(wanted))
    ]
    assert [entry.same_as_newer for entry in found.records] == twins


@pytest.mark.parametrize("limit", [0, -1, 11, 50, 10**30, 2.0, "2", True, None])
def test_an_agents_limit_out_of_range_is_refused(limit: Any) -> None:
    with pytest.raises(InputError, match=r"limit is .*from 1 to 10"):
        history.span(limit, 0)


@pytest.mark.parametrize("offset", [-1, 10**12 + 1, 2**63, 1.0, "0", False, None])
def test_an_offset_out_of_range_is_refused(offset: Any) -> None:
    with pytest.raises(InputError, match="offset is"):
        history.span(2, offset)


@pytest.mark.parametrize(
    "name", ["", " ", "a ", "\ta", "a\nb", "a\x00b", "a\x7fb", "\ud800", "x" * 1001]
)
def test_stream_names_that_no_terminal_or_database_carries_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="stream name"):
        history.check_stream(name)


@pytest.mark.parametrize("name", [None, 3, b"jobs", ["jobs"]])
def test_a_stream_name_is_text(name: Any) -> None:
    with pytest.raises(InputError, match="give text"):
        history.check_stream(name)


@pytest.mark.parametrize(
    "name", ["a", "GET /v1/orders?state=open&page=2", "日本語", "*", "a,b", "-x", "x" * 1000]
)
def test_usual_stream_names_are_taken(name: str) -> None:
    history.check_stream(name)


@pytest.mark.parametrize("body", [None, b"ok", 1, {"ok": True}, ["ok"]])
def test_a_body_is_text(body: Any) -> None:
    with pytest.raises(InputError, match=type(body).__name__):
        history.check_body(body)


def test_a_body_that_nobody_would_read_again_is_refused() -> None:
    history.check_body("x" * history.MAX_BODY_LENGTH)
    with pytest.raises(InputError, match="characters"):
        history.check_body("x" * (history.MAX_BODY_LENGTH + 1))


def test_times_are_kept_in_utc_and_need_a_time_zone() -> None:
    there = timezone(timedelta(hours=5, minutes=30))
    assert history.normalize_time(datetime(2024, 5, 1, 17, 30, tzinfo=there)) == NOON
    assert history.normalize_time(NOON).tzinfo is UTC
    assert abs(history.normalize_time(None) - datetime.now(UTC)) < timedelta(hours=1)
    for bad in (
        datetime(2024, 5, 1),
        datetime.max.replace(tzinfo=there),
        datetime.min.replace(tzinfo=there),
        "2024-05-01",
    ):
        with pytest.raises(InputError, match="the time of a record"):
            history.normalize_time(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1, 1.5, "3", True, None, 10**13])
@pytest.mark.parametrize("name", ["max_records", "max_age_s"])
def test_a_retention_out_of_range_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name):
        Retention(**{name: value})


def test_a_retention_without_bounds_keeps_everything() -> None:
    keep = Retention()
    assert keep.since(NOON) is None
    assert keep.within(7, 10**9) == 7
    assert keep.excess(10**9) == 0


def test_a_retention_counts_from_the_newest() -> None:
    keep = Retention(max_records=5, max_age_s=60)
    assert keep.since(NOON) == NOON - timedelta(minutes=1)
    assert [keep.within(3, offset) for offset in (0, 2, 3, 4, 5, 6)] == [3, 3, 2, 1, 0, 0]
    assert [keep.excess(kept) for kept in (0, 5, 6, 10)] == [0, 0, 1, 5]
