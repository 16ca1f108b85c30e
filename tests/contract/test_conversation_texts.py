"""What conversations may hold, and what is refused: blank, long, many, odd, secret, wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import unspool
from support import Place, beside, name
from talks import NOON, assert_whole, numbers, said, talk, texts
from unspool.domain.conversations import Conversation, Message
from unspool.errors import InputError

SECRET = "AKIA" + "Z7Q2WMX4PLK9VD3T"


@pytest.mark.parametrize("blank", ["", " ", "\n\t \u2003"])
def test_blank_messages_are_kept_but_not_searched(
    corpus: unspool.Corpus, database: Place, blank: str
) -> None:
    corpus.remember(talk("c", blank, "walrus", blank, "penguin", blank), talk("only", blank))
    assert texts(corpus, "c") == [blank, "walrus", blank, "penguin", blank]
    assert sorted(numbers(corpus, "walrus")) == [2, 4]
    corpus.conversations.append("only", said(blank), said("tomato"))
    assert numbers(corpus, "tomato", alpha=0) == [3]
    assert_whole(database)


def test_a_conversation_with_no_message_can_be_kept_and_continued(
    corpus: unspool.Corpus, database: Place
) -> None:
    report = corpus.remember(talk("c", title="Empty"))
    assert (report.added, report.messages, report.chunks) == (1, 0, 0)
    assert (corpus.conversations.exists("c"), texts(corpus, "c"), corpus.conversations.count()) == (
        True,
        [],
        1,
    )
    assert corpus.search("walrus").hits == ()
    corpus.conversations.append("c", said("walrus"))
    assert numbers(corpus, "walrus") == [1]
    corpus.remember(talk("c", title="Empty"))
    assert (texts(corpus, "c"), corpus.search("walrus").hits) == ([], ())
    assert_whole(database)


def test_a_very_long_message_is_cut_into_chunks_and_comes_back_whole(
    corpus: unspool.Corpus, database: Place
) -> None:
    long = "\n\n".join(
        f"Paragraph {name(number)}: " + "the walrus eats a fish near the island, " * 12
        for number in range(420)
    )
    assert len(long) > 200_000
    corpus.remember(talk("c", "before", said(long, "ann", at=NOON), "after"))
    assert texts(corpus, "c") == ["before", long, "after"]
    chunks = corpus.conversations.chunks("c")
    middle = [chunk for chunk in chunks if chunk.lines.first == 2]
    assert len(middle) > 50
    assert all(chunk.text == long[chunk.start : chunk.end] for chunk in middle)
    assert (chunks[0].lines.first, chunks[-1].lines.first) == (1, 3)
    best = corpus.search(name(300), alpha=0, limit=1).hits[0]
    assert best.chunk.lines.first == 2 and name(300) in best.chunk.text
    assert best.message is not None and best.message.is_cut
    corpus.conversations.append("c", said(long))
    assert_whole(database)


def test_five_thousand_messages_are_saved_continued_and_found(
    corpus: unspool.Corpus, database: Place
) -> None:
    many = [
        said(
            f"walrus {name(number)}",
            "ann" if number % 2 else "bob",
            at=NOON + timedelta(minutes=number),
        )
        for number in range(5000)
    ]
    report = corpus.remember(talk("c", *many))
    assert (report.messages, report.chunks) == (5000, 5000)
    assert corpus.conversations.append("c", said("the end")).messages == 1
    got = corpus.conversations.get("c")
    assert got is not None and got.messages == (*many, said("the end"))
    assert numbers(corpus, name(4321), alpha=0, limit=1) == [4322]
    assert corpus.remember(talk("c", *many)).messages == 0
    assert corpus.conversations.list()[0].messages == 5000
    assert_whole(database)


def test_what_no_database_takes_is_replaced_in_texts_and_refused_in_names(
    corpus: unspool.Corpus, database: Place
) -> None:
    corpus.remember(talk("c", "walrus \x00 and \ud800 penguin"))
    assert texts(corpus, "c") == ["walrus \ufffd and \ufffd penguin"]
    assert corpus.remember(talk("c", "walrus \x00 and \ud800 penguin")).unchanged == 1
    for bad in ("a\x00", "a\udfff"):
        for make in (
            lambda b: talk(b),
            lambda b: talk("c", title=b),
            lambda b: talk("c", metadata={"k": b}),
            lambda b: said("x", b),
            _with_id,
        ):
            with pytest.raises(InputError, match="NUL"):
                make(bad)
    assert_whole(database)


def _with_id(bad: str) -> Message:
    return said("x", id=bad)


def test_secrets_are_masked_wherever_they_stand(corpus: unspool.Corpus, database: Place) -> None:
    given = talk(
        "c",
        said(f"the key is {SECRET}, keep it", f"ann {SECRET}"),
        said("and the walrus"),
        title=f"About {SECRET}",
        scenario_title=f"On {SECRET}",
        url=f"https://example.org/{SECRET}",
        metadata={"note": f"see {SECRET}"},
    )
    report = corpus.remember(given)
    assert [one.path for one in report.masked] == ["c"]
    corpus.conversations.append("c", said(f"again {SECRET}"))
    assert corpus.remember(given).updated == 1, (
        "the masked text does not make the message look changed"
    )
    shown = [
        repr(corpus.conversations.get("c")),
        repr(corpus.conversations.list()),
        repr(corpus.search(f"key {SECRET}", explain=True).hits),
    ]
    for table in ("messages", "conversations", "documents", "chunks", "document_fields"):
        shown.append(repr(_rows(database, f"SELECT * FROM {table}")))
    assert not [text for text in shown if SECRET in text]
    assert "the key is ****" in shown[0] and "keep it" in shown[0]
    if isinstance(database, Path):
        corpus.close()
        files = [file for file in database.parent.rglob("*") if file.is_file()]
        assert files and not [file for file in files if SECRET.encode() in file.read_bytes()]


def _rows(place: Place, statement: str) -> list[tuple[Any, ...]]:
    with beside(place) as catalog:
        return catalog.rows(statement)


# What is refused


@pytest.mark.parametrize(
    ("make", "cure"),
    [
        (lambda: Message(text=5), "give text"),  # type: ignore[arg-type]
        (lambda: said("x", "two\nlines"), "give one line"),
        (lambda: said("x", "a" * 201), "at most 200"),
        (lambda: said("x", None), "give one line"),  # type: ignore[arg-type]
        (lambda: said("x", kind="human"), "user, assistant, system, tool"),
        (lambda: said("x", at=datetime(2024, 1, 1)), "give an aware datetime"),
        (lambda: said("x", at="2024-01-01"), "give an aware datetime"),
        (
            lambda: said("x", at=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2)))),
            "from 1678 to 2261",
        ),
        (
            lambda: said("x", at=datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2)))),
            "from 1678 to 2261",
        ),
        (lambda: talk("c", created_at=datetime(1200, 1, 1, tzinfo=UTC)), "from 1678 to 2261"),
        (lambda: talk(""), "conversation id '' cannot be used; give 1 to"),
        (lambda: talk(5), "conversation id 5 cannot be used; give 1 to"),  # type: ignore[arg-type]
        (lambda: talk("x" * 5000), "give 1 to 4096"),
        (lambda: talk("c", project="a*"), "project name"),
        (lambda: talk("c", project=None), "project name"),
        (lambda: talk("c", title=None), "leave it out"),
        (lambda: talk("c", metadata={"a": None}), "give a string, number or boolean"),
        (lambda: talk("c", metadata=["a"]), "give a mapping"),
        (lambda: Conversation(id="c", messages="hello"), "give a list of"),  # type: ignore[arg-type]
        (lambda: Conversation(id="c", messages=said("x")), "give a list of"),  # type: ignore[arg-type]
        (lambda: Conversation(id="c", messages=["hello"]), "give unspool.Message objects"),  # type: ignore[list-item]
        (lambda: talk("c", said("x", id="1"), said("y", id="1")), "give each its own"),
    ],
)
def test_what_cannot_be_a_conversation_is_refused_with_the_cure(make: Any, cure: str) -> None:
    with pytest.raises(InputError, match=cure.replace("(", r"\(")):
        make()


def test_calls_that_make_no_sense_are_refused_with_the_cure_and_change_nothing(
    corpus: unspool.Corpus,
) -> None:
    own: Any = corpus.conversations
    for call, cure in [
        (lambda: own.save(), "at least one"),
        (lambda: own.save("c"), "give unspool.Conversation objects"),
        (lambda: own.save([talk("c")]), "give unspool.Conversation objects"),
        (lambda: own.save(talk("c"), talk("c")), "give each id once"),
        (lambda: own.save(talk("c"), talk("d", project="other")), "one project at a time"),
        (lambda: own.append("c"), "at least one"),
        (lambda: own.append("c", "hello"), "give unspool.Message objects"),
        (lambda: own.append(7, said("x")), "conversation id 7"),
        (lambda: own.append("c", said("x"), project="a,b"), "project name"),
        (lambda: own.get(7), "conversation id 7"),
        (lambda: own.get("c", last=-1), "give how many"),
        (lambda: own.get("c", project=7), "project name 7"),
        (lambda: own.exists(None), "conversation id None"),
        (lambda: own.delete(""), "conversation id ''"),
        (lambda: own.chunks(b"c"), "conversation id b'c'"),
        (lambda: own.list(skip=-1), "0 for none"),
        (lambda: own.list(limit=0), "from 1 to 1000"),
        (lambda: own.list(limit=1001), "from 1 to 1000"),
    ]:
        with pytest.raises(InputError, match=cure):
            call()
    assert corpus.projects() == []
