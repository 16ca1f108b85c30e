"""Conversations: saved, continued, read, listed, deleted, on every engine."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import unspool
from hashing import Asked
from support import (
    Place,
    Places,
    beside,
    contents,
    doc,
    name,
    open_corpus,
    paths,
    settings_for,
    write,
)
from talks import NOON, PROJECT, answer, assert_whole, found, numbers, said, talk, texts
from unspool import diagnosis
from unspool.domain.conversations import AuthorKind, Conversation, Message
from unspool.errors import ConflictError, NotFoundError

A, B = "hashing:a", "hashing:b"
SECRET = "AKIA" + "Z7Q2WMX4PLK9VD3T"


# Reading back


def test_everything_comes_back_as_it_was_given(corpus: unspool.Corpus) -> None:
    given = Conversation(
        id="trips/2024 – été",
        project="travel",
        title="Trip to Ångström 東京",
        scenario_title="Planning",
        url="https://example.org/c/1?x=ü",
        created_at=NOON - timedelta(days=1),
        metadata={"model": "m", "turns": 4, "rating": 4.5, "done": True},
        messages=[
            Message(
                text="Where to?\n\n  Indented \t and 😀 ", author="Ann Ünal", id="m/1", at=NOON
            ),
            Message(
                text="Tokyo.",
                author="guide-4",
                kind=AuthorKind.ASSISTANT,
                id="m/2",
                at=NOON.astimezone(timezone(timedelta(hours=9))),
            ),
            Message(text="", kind=AuthorKind.TOOL),
            Message(text="Be brief.", kind=AuthorKind.SYSTEM, at=NOON + timedelta(microseconds=1)),
        ],
    )
    report = corpus.conversations.save(given)
    assert corpus.conversations.get(given.id, project="travel") == given
    assert (report.project, report.added, report.messages, report.chunks, report.embedded) == (
        "travel",
        1,
        4,
        3,
        3,
    )
    (record,) = corpus.conversations.list(project="travel")
    assert (record.id, record.title, record.scenario_title, record.url, record.project) == (
        given.id,
        given.title,
        given.scenario_title,
        given.url,
        "travel",
    )
    assert (record.created_at, record.updated_at, record.messages, record.metadata) == (
        given.created_at,
        given.messages[3].at,
        4,
        given.metadata,
    )


def test_only_the_last_messages_can_be_had(corpus: unspool.Corpus) -> None:
    corpus.remember(talk("c", *(f"walrus {number}" for number in range(5))))
    for last, expected in [
        (0, []),
        (1, ["walrus 4"]),
        (2, ["walrus 3", "walrus 4"]),
        (99, [f"walrus {number}" for number in range(5)]),
    ]:
        got = corpus.conversations.get("c", last=last)
        assert got is not None and [message.text for message in got.messages] == expected


def test_what_is_not_there_is_none_and_not_an_error(corpus: unspool.Corpus) -> None:
    for _ in range(2):
        assert corpus.conversations.get("c") is None
        assert corpus.conversations.exists("c") is corpus.conversations.delete("c") is False
        assert (
            corpus.conversations.count(),
            list(corpus.conversations.list()),
            list(corpus.conversations.chunks("c")),
        ) == (0, [], [])
        corpus.remember(talk("other", "walrus", project="another"))


def test_its_chunks_are_read_in_order_and_one_by_one(corpus: unspool.Corpus) -> None:
    corpus.remember(
        talk("c", said("walrus"), said(" "), said("penguin")), talk("d", said("tomato"))
    )
    found = corpus.conversations.chunks("c")
    assert [(chunk.text, chunk.lines.first, chunk.index) for chunk in found] == [
        ("walrus", 1, 0),
        ("penguin", 3, 1),
    ]
    assert [corpus.conversations.chunk(chunk.id) for chunk in found] == list(found)
    assert corpus.conversations.chunk(found[0].id, project="elsewhere") is None
    assert corpus.conversations.chunk(1) is None


def test_lists_are_newest_first_and_can_be_paged(corpus: unspool.Corpus) -> None:
    # two at the same time: the one that came later is first
    began = [NOON + timedelta(hours=hour) for hour in (3, 1, 4, 1, 5)]
    for number, at in enumerate(began):
        corpus.remember(talk(f"c{number}", said("walrus", at=at)))
    order = ["c4", "c2", "c0", "c3", "c1"]
    assert [one.id for one in corpus.conversations.list()] == order
    assert [
        one.id for skip in range(0, 6, 2) for one in corpus.conversations.list(skip=skip, limit=2)
    ] == order
    assert list(corpus.conversations.list(skip=5)) == []
    assert corpus.conversations.count() == 5


def test_a_conversation_began_with_its_first_message_else_when_it_was_first_saved(
    corpus: unspool.Corpus,
) -> None:
    before = datetime.now(UTC)
    corpus.remember(
        talk(
            "timed",
            "walrus",
            said("penguin", at=NOON),
            said("tomato", at=NOON + timedelta(hours=1)),
        ),
        talk("untimed", "walrus"),
    )
    timed, untimed = corpus.conversations.get("timed"), corpus.conversations.get("untimed")
    assert timed is not None and timed.created_at == NOON
    assert (
        untimed is not None
        and untimed.created_at is not None
        and before <= untimed.created_at <= datetime.now(UTC)
    )
    corpus.remember(talk("untimed", "walrus", "and more"))
    again = corpus.conversations.get("untimed")
    assert again is not None and again.created_at == untimed.created_at, (
        "a save that changes something is no new beginning"
    )


# Only what is new


@pytest.mark.usefixtures("hashing")
def test_saving_again_embeds_and_counts_only_what_is_new_or_changed(
    database: Place, hashing: Asked
) -> None:
    def saved(conversation: Conversation) -> tuple[int, ...]:
        asked = hashing.count("a")
        report = corpus.remember(conversation)
        assert hashing.count("a") - asked == report.embedded
        return (report.added, report.updated, report.unchanged, report.messages, report.embedded)

    with open_corpus(database, embedder=A) as corpus:
        first = [f"walrus {name(number)}" for number in range(6)]
        assert saved(talk("c", *first)) == (1, 0, 0, 6, 6)
        assert saved(talk("c", *first)) == (0, 0, 1, 0, 0)
        assert saved(talk("c", *first, "a new one")) == (0, 1, 0, 1, 1)
        edited = [*first[:2], "another walrus", *first[3:], "a new one"]
        assert saved(talk("c", *edited)) == (0, 1, 0, 1, 1), (
            "those behind it stand where they stood"
        )
        assert saved(talk("c", *edited, title="Titled")) == (0, 1, 0, 0, 0)
        assert saved(talk("c", *edited, title="Titled", url="u", metadata={"a": 1})) == (
            0,
            1,
            0,
            0,
            0,
        )
        assert saved(talk("c", *edited[:3], title="Titled")) == (0, 1, 0, 0, 0)
        assert saved(talk("c", *edited[1:3], title="Titled")) == (0, 1, 0, 2, 0), (
            "moved, but their texts are known"
        )
        assert texts(corpus, "c") == edited[1:3]
        assert saved(talk("d", *edited)) == (1, 0, 0, 7, 0), "the same texts elsewhere"
    assert_whole(database, embedder=A)


@pytest.mark.usefixtures("hashing")
def test_appending_embeds_one_text_and_reads_nothing_before_it(
    database: Place, hashing: Asked
) -> None:
    with open_corpus(database, embedder=A) as corpus:
        corpus.remember(talk("c", "walrus", "penguin", title="Animals", metadata={"a": 1}))
        with beside(database) as catalog:  # whoever read it would stumble
            catalog.run("UPDATE messages SET text = 'gone', kind = 'nobody'")
        report = corpus.conversations.append("c", said("tomato", at=NOON, id="m3"))
        assert (report.added, report.updated, report.messages, report.chunks, report.embedded) == (
            0,
            1,
            1,
            1,
            1,
        )
        assert hashing.passages["a"][-1:] == ["tomato"] and hashing.count("a") == 3
        got = corpus.conversations.get("c", last=1)
        assert got is not None and got.messages == (said("tomato", at=NOON, id="m3"),)
        assert (got.title, got.metadata) == ("Animals", {"a": 1})
        with beside(database) as catalog:
            catalog.run("UPDATE messages SET kind = 'user'")
        assert numbers(corpus, "tomato", alpha=0)[0] == 3


def test_another_title_is_what_messages_are_found_by_from_then_on(
    corpus: unspool.Corpus, database: Place
) -> None:
    corpus.remember(talk("c", "walrus", "penguin", title="Antarctica"))
    corpus.refresh()
    assert len(corpus.search("antarctica", alpha=0).hits) == 2
    corpus.remember(talk("c", "walrus", "penguin", title="Patagonia"))
    assert corpus.search("antarctica", alpha=0).hits == ()
    assert [hit.chunk.title for hit in corpus.search("patagonia", alpha=0).hits] == [
        "Patagonia"
    ] * 2
    corpus.conversations.append("c", said("tomato"))
    assert len(corpus.search("patagonia", alpha=0).hits) == 3
    assert_whole(database)


@pytest.mark.usefixtures("hashing")
def test_what_was_appended_is_not_new_when_the_whole_is_saved(
    database: Place, hashing: Asked
) -> None:
    with open_corpus(database, embedder=A) as corpus:
        corpus.conversations.append("c", said("walrus"))
        corpus.conversations.append("c", said("penguin"), answer("tomato"))
        report = corpus.remember(talk("c", "walrus", "penguin", answer("tomato")))
        assert (report.unchanged, report.updated) == (1, 0)
        report = corpus.remember(talk("c", "walrus", "penguin", answer("tomato"), "onion"))
        assert (report.updated, report.messages, report.embedded) == (1, 1, 1)
    assert_whole(database, embedder=A)


def test_appending_to_what_does_not_exist_begins_it(corpus: unspool.Corpus) -> None:
    report = corpus.conversations.append("c", said("walrus", at=NOON), project="zoo")
    assert (report.project, report.added, report.updated) == ("zoo", 1, 0)
    got = corpus.conversations.get("c", project="zoo")
    assert got is not None and (got.created_at, got.title) == (NOON, "")


def test_what_is_sent_twice_is_appended_once(corpus: unspool.Corpus, database: Place) -> None:
    corpus.remember(talk("c", said("walrus", id="m1")))
    report = corpus.conversations.append("c", said("walrus", id="m1"))
    assert (report.unchanged, report.messages, report.duplicates) == (1, 0, 1)
    report = corpus.conversations.append("c", said("walrus", id="m1"), said("penguin", id="m2"))
    assert (report.updated, report.messages, report.duplicates) == (1, 1, 1)
    assert texts(corpus, "c") == ["walrus", "penguin"]
    assert_whole(database)


def test_a_message_with_the_id_of_another_cannot_be_appended(
    corpus: unspool.Corpus, database: Place
) -> None:
    corpus.remember(talk("c", said("walrus", id="m1")))
    with pytest.raises(
        ConflictError, match="another message with the id 'm1'; give the new one another id"
    ):
        corpus.conversations.append("c", said("penguin"), said("tomato", id="m1"))
    assert texts(corpus, "c") == ["walrus"]
    corpus.conversations.append("d", said("another conversation", id="m1"))
    assert_whole(database)


# Going


def test_deleting_takes_everything_under_it_and_nothing_else(
    corpus: unspool.Corpus, database: Place
) -> None:
    corpus.remember(talk("c", "walrus", " ", title="T", metadata={"a": 1}), talk("d", "walrus"))
    corpus.put(doc("a.md", "walrus", PROJECT))
    assert corpus.conversations.delete("c") is True
    assert corpus.conversations.delete("c") is corpus.conversations.exists("c") is False
    assert sorted(paths(corpus.search("walrus"))) == ["a.md", "d"]
    assert [row[0] for row in _rows(database, "SELECT count(*) FROM messages")] == [1]
    assert corpus.conversations.delete("a.md") is False, "a document is no conversation"
    assert paths(corpus.search("walrus", where={"kind": "docs"})) == ["a.md"]
    assert_whole(database)


@pytest.mark.parametrize("what", ["conversations", "documents"])
def test_what_is_new_is_found_by_its_words_after_much_was_deleted(
    corpus: unspool.Corpus, what: str
) -> None:
    if what == "conversations":
        corpus.remember(
            talk("old", *(f"walrus {name(number)}" for number in range(9))), talk("kept", "walrus")
        )
        corpus.refresh()
        corpus.conversations.delete("old")
        corpus.refresh()
        corpus.remember(talk("new", "walrus again"))
    else:
        corpus.put(
            *(doc(f"old{number}", f"walrus {name(number)}") for number in range(9)),
            doc("kept", "walrus"),
        )
        corpus.refresh()
        for number in range(9):
            corpus.forget(project="notes", path=f"old{number}")
        corpus.refresh()
        corpus.put(doc("new", "walrus again"))
    assert sorted(paths(corpus.search("walrus", alpha=0))) == ["kept", "new"]


@pytest.mark.parametrize("path", ["c", None])
def test_forgetting_a_path_or_the_project_takes_conversations_wholly(
    corpus: unspool.Corpus, database: Place, path: str | None
) -> None:
    corpus.remember(talk("c", "walrus", metadata={"a": 1}))
    corpus.remember(talk("c", "walrus", project="other"))
    assert corpus.forget(project=PROJECT, path=path) == 1
    assert not corpus.conversations.exists("c")
    assert texts(corpus, "c", project="other") == ["walrus"]
    assert (
        _rows(database, "SELECT count(*) FROM messages")
        == _rows(database, "SELECT count(*) FROM conversations")
        == [(1,)]
    )
    assert _rows(database, "SELECT count(*) FROM document_fields") == [(0,)]
    corpus.remember(talk("c", "walrus again"))
    assert texts(corpus, "c") == ["walrus again"]
    assert_whole(database)


def test_projects_see_nothing_of_each_other(corpus: unspool.Corpus) -> None:
    corpus.remember(talk("c", "walrus one", project="one"))
    corpus.remember(talk("c", "walrus two", project="two"))
    corpus.conversations.append("c", said("walrus three"), project="two")
    assert (texts(corpus, "c", project="one"), texts(corpus, "c", project="two")) == (
        ["walrus one"],
        ["walrus two", "walrus three"],
    )
    assert corpus.conversations.get("c") is None
    assert {hit.chunk.text for hit in corpus.search("walrus", projects="one").hits} == {
        "walrus one"
    }
    assert corpus.conversations.delete("c", project="one") is True
    assert (
        corpus.conversations.count(project="one"),
        corpus.conversations.count(project="two"),
    ) == (0, 1)
    with pytest.raises(NotFoundError, match="three"):
        corpus.search("walrus", projects="three")


# Documents beside them


def test_a_document_and_a_conversation_cannot_have_the_same_name(
    corpus: unspool.Corpus, database: Place
) -> None:
    corpus.remember(talk("both", "walrus"))
    corpus.put(doc("doc", "penguin", PROJECT))
    before = contents(database)
    with pytest.raises(
        ConflictError, match=r"'both' is a conversation of this project.*another path"
    ):
        corpus.put(doc("new", "tomato", PROJECT), doc("both", "tomato", PROJECT))
    for call in (
        lambda: corpus.remember(talk("new", "tomato"), talk("doc", "tomato")),
        lambda: corpus.conversations.append("doc", said("tomato")),
    ):
        with pytest.raises(ConflictError, match=r"'doc' is a document of this project.*another id"):
            call()
    assert contents(database) == before
    corpus.put(doc("both", "in another project", "elsewhere"))
    assert_whole(database)


def test_indexing_a_folder_leaves_conversations_alone(
    corpus: unspool.Corpus, database: Place, tmp_path: Path
) -> None:
    folder = write(
        tmp_path / "tree",
        {"a.md": "# Walrus\n", "c": "penguin in a file that has the name of a conversation\n"},
    )
    corpus.remember(talk("c", "walrus", project="tree"), talk("d", "walrus", project="tree"))
    for _ in range(2):
        report = corpus.index(folder, project="tree")
        assert (report.removed, report.failed, report.skipped) == (0, 0, {"conversation": 1})
        assert (
            texts(corpus, "c", project="tree") == texts(corpus, "d", project="tree") == ["walrus"]
        )
    (folder / "c").unlink()
    (folder / "a.md").unlink()
    assert corpus.index(folder, project="tree").removed == 1
    assert sorted(paths(corpus.search("walrus"))) == ["c", "d"]
    assert_whole(database)


# Over time


@pytest.mark.usefixtures("hashing")
def test_going_over_to_another_embedder_takes_conversations_along(
    database: Place, hashing: Asked
) -> None:
    given = talk("c", *(f"walrus {name(number)}" for number in range(9)), " ", title="Animals")
    with open_corpus(database, embedder=A) as corpus:
        corpus.remember(given)
        report = unspool.reembed(
            settings=settings_for(database, embedder=B), embedder=B, drop_old=True
        )
        assert report is not None and (report.embedded, report.chunks) == (9, 9)
        assert set(hashing.passages["b"]) == {message.text for message in given.messages[:9]}
        corpus.conversations.append("c", said("penguin"))
        assert hashing.passages["b"][-1] == "penguin"
        assert numbers(corpus, name(4), alpha=0)[0] == 5
        assert len(corpus.search("walrus", alpha=1, limit=50).hits) == 10
        assert corpus.conversations.delete("c")
    assert_whole(database, embedder=B)


def test_diagnosis_and_rebuilding_know_conversations(places: Places) -> None:
    place = places.new()
    with open_corpus(place) as corpus:
        corpus.remember(talk("c", "walrus", " ", "penguin"), talk("empty"))
        before = found(corpus.search("walrus penguin"))
        corpus.refresh()
    assert [check for check in diagnosis.diagnose(settings_for(place)) if not check.ok] == []
    if isinstance(place, Path):
        shutil.rmtree(place.with_name(place.name + ".derived"))
    else:
        with beside(place) as catalog:
            catalog.run("DELETE FROM words", "DELETE FROM word_counts", "DELETE FROM word_formats")
    with open_corpus(place) as corpus:
        corpus.refresh()  # which is what `unspool repair` does
        assert found(corpus.search("walrus penguin")) == before
        assert texts(corpus, "c") == ["walrus", " ", "penguin"]
    assert_whole(place)


def _rows(place: Place, statement: str) -> list[tuple[Any, ...]]:
    with beside(place) as catalog:
        return catalog.rows(statement)
