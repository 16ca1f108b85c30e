"""Server-sent events out of bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspool.answering.events import MAX_EVENT_BYTES, TooLongError, parse_events


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data:a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
        (b"data: a\r\rdata: b\r\r", ["a", "b"]),
        (b": a comment\nevent: ping\nid: 7\ndata: a\ndata: b\n\n", ["a\nb"]),
        (b"data: the last", ["the last"]),
        (b"event: ping\n\n\n\n", []),
        ("data: \u2028 and \x85 and \x0b stay".encode(), ["\u2028 and \x85 and \x0b stay"]),
        (b"data: \xff\n\n", ["\ufffd"]),
        (b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", ["a"]),
        (b"\xef\xbb", []),
        (b"", []),
    ],
)
def test_the_data_of_each_event(data: bytes, wanted: list[str]) -> None:
    assert list(parse_events([data])) == wanted


@given(
    texts=st.lists(
        st.text(min_size=1).filter(
            lambda text: not set(text) & set("\r\n") and not text.startswith(" ")
        ),
        max_size=5,
    ),
    data=st.data(),
)
def test_however_the_bytes_are_cut_the_events_are_the_same(
    texts: list[str], data: st.DataObject
) -> None:
    end = data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    whole = b"".join(b"data: " + text.encode("utf-8", "replace") + end + end for text in texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    places = [0, *cuts, len(whole)]
    assert list(parse_events(whole[a:b] for a, b in pairwise(places))) == list(
        parse_events([whole])
    )


def test_a_mark_before_the_first_event_may_be_cut_too() -> None:
    assert list(parse_events([b"\xef", b"\xbb", b"\xbf", b"da", b"ta: a\n\n"])) == ["a"]


def test_an_event_without_an_end_is_not_kept() -> None:
    with pytest.raises(TooLongError):
        list(parse_events([b"data: ", *[b"x" * 100_000] * (MAX_EVENT_BYTES // 100_000 + 1)]))
    with pytest.raises(TooLongError):
        list(parse_events([b"data: x\n" * (MAX_EVENT_BYTES // 7 + 2)]))
