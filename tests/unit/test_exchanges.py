"""What is shown around messages, how they lend each other their scores, and by what they are
known again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspool.catalog.chunks import REACH, Candidate
from unspool.domain.conversations import (
    AuthorKind,
    Conversation,
    Message,
    chain_fingerprints,
    fingerprint,
)
from unspool.domain.documents import Chunk, Kind, Lines
from unspool.domain.queries import Form, Said
from unspool.memory import messages
from unspool.search import budget
from unspool.search.exchanges import MOST, NONE, Exchange, build_exchanges
from unspool.search.ranking import NEIGHBOUR_PARTS, group_copies, rank_candidates, share_scores

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def said(number: int, text: str = "") -> Said:
    return Said(
        number=number,
        speaker="ann",
        kind=AuthorKind.USER,
        text=text or f"message {number}",
        at=NOON,
    )


def chunk(
    id_: int,
    number: int,
    *,
    path: str = "c",
    project: str = "p",
    text: str = "",
    kind: Kind = Kind.CHAT,
) -> Chunk:
    text = text or f"message {number}"
    return Chunk(
        id=id_,
        project=project,
        path=path,
        index=number - 1,
        text=text,
        start=0,
        end=len(text),
        lines=Lines(number, number),
        token_count=len(text.split()),
        kind=kind,
    )


def around(*chunks: Chunk, last: int = 9, blank: tuple[int, ...] = ()) -> dict[int, list[Said]]:
    """What the catalog says of messages in a conversation of so many."""
    return {
        one.id: [
            said(n, "  \n" if n in blank else "")
            for n in range(one.lines.first - 1, one.lines.first + 2)
            if 1 <= n <= last
        ]
        for one in chunks
    }


def shown(found: list[Exchange]) -> list[tuple[list[int], list[int]]]:
    return [
        ([one.number for one in exchange.before], [one.number for one in exchange.after])
        for exchange in found
    ]


# Exchanges


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([5], [([4], [6])]),
        ([1], [([], [2])]),
        ([9], [([8], [])]),
        ([5, 6], [([4], []), ([], [7])]),
        ([5, 7], [([4], [6]), ([], [8])]),
        ([7, 5], [([6], [8]), ([4], [])]),
        ([6, 4, 5], [([], [7]), ([3], []), ([], [])]),
    ],
)
def test_each_message_stands_once_on_a_page_beside_the_first_hit_that_needs_it(
    numbers: list[int], expected: list[tuple[list[int], list[int]]]
) -> None:
    chunks = [chunk(100 + number, number) for number in numbers]
    found = build_exchanges(chunks, around(*chunks))
    assert shown(found) == expected
    assert [one.message.number if one.message else None for one in found] == numbers


def test_conversations_of_the_same_name_in_other_projects_are_others() -> None:
    chunks = [chunk(1, 5), chunk(2, 5, project="q"), chunk(3, 5, path="d")]
    assert shown(build_exchanges(chunks, around(*chunks))) == [([4], [6])] * 3


def test_what_is_no_message_or_is_gone_by_now_has_no_exchange() -> None:
    chunks = [chunk(1, 5, kind=Kind.DOCS), chunk(2, 5)]
    assert build_exchanges(chunks, {}) == [NONE, NONE]
    assert build_exchanges(chunks, around(chunks[1]))[0] == NONE
    assert build_exchanges([chunks[1]], {2: [said(4)]})[0].message is None


def test_a_hit_that_was_replaced_since_it_was_read_is_not_shown_beside_another() -> None:
    chunks = [chunk(1, 5), chunk(2, 6)]
    found = build_exchanges(chunks, around(chunks[1]))
    assert found[0] == NONE
    assert shown(found)[1] == ([], [7])


def test_blank_messages_are_not_shown() -> None:
    assert shown(build_exchanges([chunk(1, 5)], around(chunk(1, 5), blank=(4,)))) == [([], [6])]


def test_a_hit_says_whether_it_is_all_of_its_message() -> None:
    whole, part = chunk(1, 5, text="message 5"), chunk(2, 5, text="sage")
    first, second = (build_exchanges([one], around(one))[0].message for one in (whole, part))
    assert first == said(5)
    assert second == replace(said(5), text="sage", is_cut=True)


def test_what_stands_beside_is_one_line_and_cut_where_it_is_long() -> None:
    one = chunk(1, 2)
    found = build_exchanges([one], {1: [said(1, "a  b\n\tc"), said(2), said(3, "word " * 200)]})[0]
    assert (found.before[0].text, found.before[0].is_cut) == ("a b c", False)
    assert (
        found.after[0].is_cut
        and found.after[0].text.endswith("word…")
        and len(found.after[0].text) <= MOST + 1
    )
    assert found.context == f"ann: a b c\nann: {found.after[0].text}"


@given(
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["c", "d"])), unique=True, max_size=12)
)
def test_whatever_the_hits_are_no_message_is_there_twice(places: list[tuple[int, str]]) -> None:
    chunks = [chunk(id_, number, path=path) for id_, (number, path) in enumerate(places)]
    found = build_exchanges(chunks, around(*chunks))
    every = [
        (one.path, message.number)
        for one, exchange in zip(chunks, found, strict=True)
        for message in (*exchange.before, *exchange.after)
    ] + [(path, number) for number, path in places]
    assert len(every) == len(set(every))
    expected = {
        (path, near)
        for number, path in places
        for near in (number - 1, number, number + 1)
        if 1 <= near <= 9
    }
    assert set(every) == expected


# What they cost


def count(text: str) -> int:
    return len(text.split())


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 20)), min_size=1, max_size=8),
    st.integers(1, 200),
)
def test_what_stands_beside_hits_takes_only_what_they_leave(
    sizes: list[tuple[int, int]], max_tokens: int
) -> None:
    chunks = [chunk(id_, id_ + 1, text="word " * own) for id_, (own, _) in enumerate(sizes)]
    contexts = ["beside " * beside for _, beside in sizes]

    def cut(one: Chunk) -> object:
        return type("Short", (), {"text": one.text[:10]})

    without = budget.fit_hits(chunks, cut, max_tokens=max_tokens, count=count)  # type: ignore[arg-type]
    fitted = budget.fit_hits(chunks, cut, max_tokens=max_tokens, count=count, contexts=contexts)  # type: ignore[arg-type]
    assert [one.form for one in fitted] == [one.form for one in without]
    assert sum(one.tokens for one in fitted) <= max_tokens
    for one, bare, context in zip(fitted, without, contexts, strict=False):
        assert one.tokens == bare.tokens + (count(context) if one.with_context else 0)
        assert not one.with_context or one.form is Form.WHOLE


# Scores in context


def candidate(id_: int, position: int, *, document: int = 1) -> Candidate:
    return Candidate(id_, document, position, "c", "", "", "chat", "", position + 1, 1, 7)


def test_a_message_gains_a_part_of_those_around_it_and_less_of_those_farther_away() -> None:
    every = [candidate(position, position) for position in range(12)]
    found = share_scores(every, {position: 1.0 if position == 5 else 0.0 for position in range(12)})
    assert found[5] == 1.0
    for step, part in enumerate(NEIGHBOUR_PARTS, 1):
        assert found[5 - step] == found[5 + step] == pytest.approx(part)
    assert found[0] == found[10] == 0.0
    assert (
        len(NEIGHBOUR_PARTS) == REACH
        and list(NEIGHBOUR_PARTS) == sorted(NEIGHBOUR_PARTS, reverse=True)
        and NEIGHBOUR_PARTS[0] < 1
    )


def test_messages_of_other_conversations_lend_nothing() -> None:
    found = share_scores([candidate(1, 0), candidate(2, 1, document=2)], {1: 1.0, 2: 0.25})
    assert found == {1: 1.0, 2: 0.25}


def test_a_gap_lends_nothing_and_order_does_not_matter() -> None:
    some = [candidate(1, 0), candidate(3, 2), candidate(9, 8)]
    fused = {1: 0.5, 3: 1.0, 9: 0.1}
    assert (
        share_scores(some, fused)
        == share_scores(some[::-1], fused)
        == {1: 0.5 + NEIGHBOUR_PARTS[1], 3: 1.0 + 0.5 * NEIGHBOUR_PARTS[1], 9: 0.1}
    )
    assert share_scores([], {}) == {}


def test_messages_stand_for_themselves_in_the_order_and_are_nobodys_copies() -> None:
    some = [candidate(1, 0), candidate(2, 1), candidate(3, 2)]
    ranked = rank_candidates(some, {1: 0.2, 2: 0.9, 3: 0.9}, terms=("c",), identifiers=frozenset())
    assert [(one.candidate.id, one.score) for one in ranked] == [(2, 0.9), (3, 0.9), (1, 0.2)], (
        "no boost for a name, no decay for further ones"
    )
    grouped, repeats = group_copies(ranked, frozenset())
    assert ([is_copy for _, is_copy in grouped], repeats) == ([False] * 3, [])


# Fingerprints


message = st.builds(
    Message,
    text=st.text(max_size=8),
    author=st.sampled_from(["", "ann", "annb"]),
    kind=st.sampled_from(list(AuthorKind)),
    at=st.sampled_from([None, NOON, NOON + timedelta(microseconds=1)]),
    id=st.sampled_from(["", "a", "an"]),
)


@given(message, message)
def test_messages_have_the_same_fingerprint_exactly_if_they_are_the_same(
    one: Message, other: Message
) -> None:
    assert (fingerprint(one) == fingerprint(other)) == (one == other)


def test_parts_of_a_message_do_not_run_into_each_other() -> None:
    ways = [
        Message(text="bc", author="a"),
        Message(text="c", author="ab"),
        Message(text="abc"),
        Message(text="c", author="b", id="a"),
    ]
    assert len({fingerprint(one) for one in ways}) == len(ways)
    east = Message(text="x", at=NOON.astimezone(timezone(timedelta(hours=5))))
    assert fingerprint(east) == fingerprint(Message(text="x", at=NOON))


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=6), st.integers(0, 6))
def test_a_chain_can_be_continued_wherever_it_was_left(links: list[bytes], at: int) -> None:
    start = "00" * 32
    assert chain_fingerprints(
        chain_fingerprints(start, links[:at]), links[at:]
    ) == chain_fingerprints(start, links)
    if links:
        assert chain_fingerprints(start, links) != chain_fingerprints(start, links[:-1])
    if links != links[::-1]:
        assert chain_fingerprints(start, links) != chain_fingerprints(start, links[::-1])


def test_the_whole_has_another_fingerprint_when_anything_of_it_is_another() -> None:
    own = Conversation(
        id="c", messages=[Message(text="a"), Message(text="b")], title="t", metadata={"k": 1}
    )
    others = [
        replace(own, title="u"),
        replace(own, scenario_title="s"),
        replace(own, url="u"),
        replace(own, created_at=NOON),
        replace(own, metadata={"k": True}),
        replace(own, metadata={"k": "1"}),
        replace(own, messages=own.messages[:1]),
        replace(own, messages=own.messages[::-1]),
    ]
    prints = {messages.fingerprint_conversation(one, "recipe") for one in (own, *others)} | {
        messages.fingerprint_conversation(own, "another recipe")
    }
    assert len(prints) == len(others) + 2
    assert messages.fingerprint_conversation(
        replace(own, metadata={"a": 1, "b": 2}), ""
    ) == messages.fingerprint_conversation(replace(own, metadata={"b": 2, "a": 1}), "")


@given(st.dates(date(1678, 1, 1), date(2261, 12, 31)))
def test_a_day_is_written_as_people_ask_for_it(day: date) -> None:
    text = messages.format_day(datetime(day.year, day.month, day.day, 23, tzinfo=UTC))
    assert text == f"{day:%A}, {day.day} {day:%B} {day.year}"
