"""The text of a continuation: short, safe in a shell, and told from anything that is none."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from unspool.catalog.projects import ProjectVersion
from unspool.domain import continuations, filters
from unspool.domain.continuations import Cursor
from unspool.domain.queries import Served
from unspool.errors import (
    ContinuationError,
    DeniedContinuationError,
    ExpiredContinuationError,
    ForeignContinuationError,
    MalformedContinuationError,
    OutdatedContinuationError,
)
from unspool.search.plan import make_plan
from unspool.search.request import SearchRequest
from unspool.search.signed import SignedWindow
from unspool.search.windows import ENTRY, Signer, WindowSegment, WindowTail

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
NAME = bytes(range(10))
bookmarks = st.builds(
    Cursor,
    position=st.integers(0, 2**14 - 1),
    number=st.integers(1, 2**14 - 1),
    shown=st.integers(0, 2**14 - 1),
    spent=st.integers(0, 2_000_000),
)
legal = st.tuples(st.integers(0, 100_000), st.integers(0, 2_000_000)).map(
    lambda both: Cursor(position=both[0], number=both[0] // 10 + 1, shown=both[0], spent=both[1])
)
names = st.binary(min_size=10, max_size=10).map(lambda name: bytes([name[0] & 0b11111]) + name[1:])


@given(names, bookmarks)
def test_what_is_written_is_read_again(name: bytes, at: Cursor) -> None:
    text = continuations.write(name, at, catalog="mine", key=b"k")
    assert continuations.read(text, catalog="mine", key=b"k") == (name, at)
    assert re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_-]*", text)
    assert len(text) <= 32
    assert continuations.kind_of(text) == continuations.STORED


@given(names, legal)
def test_every_place_that_the_settings_allow_can_be_written_and_read(
    name: bytes, at: Cursor
) -> None:
    """An index gives up to 100 000 chunks (`max_k`), and `max_total_tokens` may be 2 000 000."""
    text = continuations.write(name, at, catalog="mine", key=b"k")
    assert text is not None
    assert continuations.read(text, catalog="mine", key=b"k") == (name, at)


def test_a_place_that_does_not_fit_is_not_written() -> None:
    assert (
        continuations.write(
            NAME,
            Cursor(position=2**30, number=2**30, shown=2**30, spent=2**30),
            catalog="mine",
            key=b"k",
        )
        is None
    )


def test_names_differ_and_begin_with_the_kind() -> None:
    made = {continuations.new_name() for _ in range(500)}
    assert len(made) == 500
    assert all(
        len(name) == continuations.NAME_BYTES and name[0] >> 5 == continuations.STORED
        for name in made
    )


@pytest.mark.parametrize(
    "at",
    [
        Cursor(position=5, number=2, shown=5),
        Cursor(position=170, number=18, shown=170, spent=5000),
    ],
)
def test_a_change_of_any_one_character_is_seen(at: Cursor) -> None:
    text = continuations.write(NAME, at, catalog="mine", key=b"k")
    for place, was in enumerate(text):
        for other in ALPHABET.replace(was, "") + " +/=é\x00":
            with pytest.raises(ContinuationError):
                continuations.read(
                    text[:place] + other + text[place + 1 :], catalog="mine", key=b"k"
                )


def test_a_cut_or_lengthened_one_is_malformed() -> None:
    text = continuations.write(
        NAME, Cursor(position=5, number=2, shown=5), catalog="mine", key=b"k"
    )
    for size in range(len(text)):
        with pytest.raises(MalformedContinuationError):
            continuations.read(text[:size], catalog="mine", key=b"k")
    for more in (*ALPHABET, "AA", "=", "==", " ", text):
        with pytest.raises(MalformedContinuationError):
            continuations.read(text + more, catalog="mine", key=b"k")


@given(
    st.text()
    | st.text(alphabet=ALPHABET, max_size=40)
    | st.binary().map(lambda data: data.decode("utf-8", "surrogateescape"))
)
def test_arbitrary_text_is_no_continuation(text: str) -> None:
    with pytest.raises(ContinuationError):
        continuations.read(text, catalog="mine", key=b"k")


@given(st.text(max_size=20), st.text(max_size=20), names, bookmarks)
def test_one_of_another_catalog_is_foreign_or_the_same(
    mine: str, theirs: str, name: bytes, at: Cursor
) -> None:
    text = continuations.write(name, at, catalog=theirs, key=b"k")
    # one fingerprint in 256 is shared
    if continuations.write(name, at, catalog=mine, key=b"k") == text:
        assert continuations.read(text, catalog=mine, key=b"k") == (name, at)
    else:
        with pytest.raises(ForeignContinuationError):
            continuations.read(text, catalog=mine, key=b"k")


# Signed continuations carry their window

SIGNER = Signer(key=b"secret", catalog="mine", caller="ann", lifetime_s=100, now=1000)
WHERE = {"path": "a*"}
REQUEST = SearchRequest(
    plan=make_plan("walrus", alpha=0.4, limit=10, depth=200),
    projects=(ProjectVersion(1, "notes", 3, 5),),
    limit=10,
    depth=200,
    where=WHERE,
    filter=filters.parse(WHERE),
    space_id=7,
)


def segment(size: int, *, exhausted: bool = False) -> WindowSegment:
    entries = np.zeros(size, dtype=ENTRY)
    entries["id"] = np.arange(size) + 10
    entries["text_key"] = np.arange(size) + 5_000_000
    entries["score"] = np.linspace(1, 0, size)
    return WindowSegment(
        number=0,
        start=0,
        served=Served.WINDOW,
        entries=entries,
        tail=WindowTail(depth=200, is_exhausted=exhausted, scale=(0.0,) * 6),
    )


def signed(size: int, at: Cursor, signer: Signer = SIGNER) -> str:
    text = SignedWindow(signer, REQUEST, segment(size)).make_continuation(at)
    assert text is not None
    return text


@given(st.integers(1, 400), st.data())
@settings(deadline=None)
def test_a_signed_one_carries_the_walk(size: int, data: st.DataObject) -> None:
    at = Cursor(position=data.draw(st.integers(0, size)), number=2, shown=3, spent=4)
    walk, place = SignedWindow.resume(SIGNER, signed(size, at), space_id=7)
    assert (walk.request, place) == (REQUEST, at)
    whole = segment(size).entries
    assert walk.seen_ids().tolist() == whole["id"][: at.position + len(walk.last.entries)].tolist()
    assert walk.last.entries.tolist() == whole[at.position : at.position + 60].tolist()
    assert (
        walk.seen_entries()["text_key"].tolist() == whole["text_key"][: at.position + 60].tolist()
    )


def test_a_signed_one_begins_with_no_dash_and_names_its_kind() -> None:
    text = signed(30, Cursor(position=10, number=2, shown=10))
    assert re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_-]*", text)
    assert continuations.kind_of(text) == continuations.SIGNED


def test_a_signed_one_of_a_long_walk_can_be_followed_or_is_not_given_out() -> None:
    for size in range(500, 7000, 500):
        at = Cursor(position=size, number=7, shown=size)
        text = SignedWindow(SIGNER, REQUEST, segment(size + 100)).make_continuation(at)
        assert text is not None or size > 1500
        assert text is None or SignedWindow.resume(SIGNER, text, space_id=7)[1] == at


def test_a_change_anywhere_in_a_signed_one_is_seen() -> None:
    text = signed(12, Cursor(position=4, number=2, shown=4))
    for place, was in enumerate(text):
        for other in {"A", "Q", "z", "-", "="} - {was}:
            with pytest.raises(ContinuationError):
                SignedWindow.resume(SIGNER, text[:place] + other + text[place + 1 :], space_id=7)
        with pytest.raises(ContinuationError):
            SignedWindow.resume(SIGNER, text[:place], space_id=7)


@given(
    st.text()
    | st.text(alphabet=ALPHABET)
    | st.binary(max_size=200).map(lambda data: continuations.to_text(b"\x20" + data))
)
def test_arbitrary_text_is_no_signed_continuation(text: str) -> None:
    with pytest.raises(ContinuationError):
        SignedWindow.resume(SIGNER, text, space_id=7)


@pytest.mark.parametrize(
    ("signer", "space_id", "error"),
    [
        (replace(SIGNER, key=b"other"), 7, ForeignContinuationError),
        (replace(SIGNER, caller="bob"), 7, DeniedContinuationError),
        (replace(SIGNER, caller=""), 7, DeniedContinuationError),
        (replace(SIGNER, now=1100), 7, ExpiredContinuationError),
        (SIGNER, 8, OutdatedContinuationError),
    ],
)
def test_a_signed_one_is_refused_with_its_reason(
    signer: Signer, space_id: int, error: type[ContinuationError]
) -> None:
    text = signed(30, Cursor(position=10, number=2, shown=10))
    with pytest.raises(error) as caught:
        SignedWindow.resume(signer, text, space_id=space_id)
    assert (caught.value.request == REQUEST) == (
        error in (ExpiredContinuationError, OutdatedContinuationError)
    )
    SignedWindow.resume(replace(SIGNER, now=1099), text, space_id=7)


@given(st.integers(1, 300), st.lists(st.integers(0, 299), max_size=60))
def test_a_signed_one_never_cuts_a_text_from_its_copies(size: int, copies: list[int]) -> None:
    whole = segment(size)
    whole.entries["is_copy"][[at for at in copies if 0 < at < size]] = True
    leads = [at for at in range(size) if not whole.entries["is_copy"][at]]
    assume(leads)
    walk = SignedWindow(SIGNER, REQUEST, whole)
    at = Cursor(position=leads[len(leads) // 2], number=2)
    carried = SignedWindow.resume(SIGNER, walk.make_continuation(at) or "", space_id=7)[
        0
    ].last.entries
    behind = at.position + len(carried)
    assert behind == size or not whole.entries["is_copy"][behind]
