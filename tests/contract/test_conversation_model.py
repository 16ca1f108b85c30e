"""Whatever is saved, continued, changed and deleted, in whichever order: what is stored is what
plain Python says it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import unspool
from support import Place, Places, name, open_corpus
from talks import NOON, assert_whole, found
from unspool.domain.conversations import AuthorKind, Conversation, Message

EMBEDDER = "hashing:a"
IDS = ("one", "two/zwei", "three")
SIZES = (("one", 7), ("two/zwei", 4))  # what there is at the beginning

message = st.tuples(
    st.booleans(),
    st.sampled_from(["", "ann", "Björn"]),
    st.sampled_from(list(AuthorKind)),
    st.booleans(),
)
some = st.lists(message, max_size=4)
where = st.integers(0, 8)
step = st.one_of(
    st.tuples(st.just("save"), some),
    st.tuples(st.just("append"), st.lists(message, min_size=1, max_size=2)),
    st.tuples(st.just("edit"), where, message),
    st.tuples(st.just("edit"), where, message),
    st.tuples(st.just("insert"), where, some),
    st.tuples(st.just("cut"), where),
    st.tuples(st.just("remove"), where),
    st.tuples(st.just("title"), st.sampled_from(["", "Animals", "Plants"])),
    st.tuples(st.just("metadata"), st.integers(0, 2)),
    st.tuples(st.just("again")),
    st.tuples(st.just("delete")),
)


@dataclass
class Model:
    """What there should be."""

    # messages, title, metadata
    held: dict[str, tuple[list[Message], str, dict[str, int]]] = field(default_factory=dict)
    made: int = 0
    embedded: set[str] = field(default_factory=set)  # texts that were embedded once
    words: set[str] = field(default_factory=set)

    def new(self, drawn: tuple[bool, str, AuthorKind, bool]) -> Message:
        """A message with a word of its own, or a blank one."""
        blank, author, kind, timed = drawn
        self.made += 1
        word = name(self.made)
        if not blank:
            self.words.add(word)
        at = NOON + timedelta(minutes=self.made) if timed else None
        return Message(
            text=" " if blank else f"walrus {word}",
            author=author,
            kind=kind,
            at=at,
            id=f"m{self.made}" if timed else "",
        )

    def alive(self) -> dict[tuple[str, int], str]:
        """What can be found, by conversation and number."""
        return {
            (id_, number): said.text
            for id_, (messages, _, _) in self.held.items()
            for number, said in enumerate(messages, 1)
            if said.text.strip()
        }

    def embed(self, messages: list[Message]) -> int:
        new = {one.text for one in messages if one.text.strip()} - self.embedded
        self.embedded |= new
        return len(new)


def changed(
    messages: list[Message],
    title: str,
    metadata: dict[str, int],
    how: tuple[Any, ...],
    model: Model,
) -> Conversation | None:
    """What is saved next; None for what is no save."""
    what, *rest = how
    if what == "save":
        messages = [model.new(one) for one in rest[0]]
    elif what == "edit" and messages:
        messages[rest[0] % len(messages)] = model.new(rest[1])
    elif what == "insert":
        messages[rest[0] : rest[0]] = [model.new(one) for one in rest[1]]
    elif what == "cut":
        messages = messages[: rest[0]]
    elif what == "remove":
        messages = messages[: rest[0]] + messages[rest[0] + 1 :]
    elif what == "title":
        title = rest[0]
    elif what == "metadata":
        metadata = {"a": rest[0]}
    elif what in ("append", "delete"):
        return None
    return Conversation(id="x", messages=messages, title=title, metadata=metadata)


def do(corpus: unspool.Corpus, model: Model, id_: str, how: tuple[Any, ...]) -> None:
    """One step, and what it says of itself."""
    known = model.held.get(id_)
    messages, title, metadata = known or ([], "", {})
    if how[0] == "delete":
        assert corpus.conversations.delete(id_) is (known is not None)
        model.held.pop(id_, None)
        return
    if how[0] == "append":
        more = [model.new(one) for one in how[1]]
        report = corpus.conversations.append(id_, *more)
        model.held[id_] = ([*messages, *more], title, metadata)
        assert report.messages == len(more)
        assert report.embedded == model.embed(more)
    else:
        wanted = changed(list(messages), title, dict(metadata), how, model)
        assert wanted is not None
        report = corpus.remember(
            Conversation(
                id=id_, messages=wanted.messages, title=wanted.title, metadata=wanted.metadata
            )
        )
        model.held[id_] = (list(wanted.messages), wanted.title, dict(wanted.metadata))
        if known == model.held[id_]:
            assert (
                report.unchanged,
                report.added,
                report.updated,
                report.messages,
                report.chunks,
                report.embedded,
            ) == (1, 0, 0, 0, 0, 0)
            return
        assert report.messages == sum(
            at >= len(messages) or messages[at] != one for at, one in enumerate(wanted.messages)
        )
        assert report.embedded == model.embed(list(wanted.messages))
    assert (report.added, report.updated, report.unchanged) == (
        int(known is None),
        int(known is not None),
        0,
    )


def check(corpus: unspool.Corpus, model: Model) -> None:
    """What is read, listed, counted and found is what the model holds."""
    for id_ in IDS:
        got = corpus.conversations.get(id_)
        assert corpus.conversations.exists(id_) is (got is not None) is (id_ in model.held)
        if got is not None:
            assert (list(got.messages), got.title, got.metadata) == model.held[id_]
    records = corpus.conversations.list()
    assert corpus.conversations.count() == len(records) == len(model.held)
    assert {one.id: (one.title, one.messages) for one in records} == {
        id_: (title, len(said)) for id_, (said, title, _) in model.held.items()
    }
    if not corpus.projects():
        return
    alive = model.alive()
    for alpha in (0, 1):
        page = corpus.search("walrus", alpha=alpha, limit=200)
        assert len(found(page)) == len(page.hits)
        assert {
            (hit.chunk.path, hit.chunk.lines.first): hit.chunk.text for hit in page.hits
        } == alive
    gone = model.words - {word for text in alive.values() for word in text.split()}
    if gone:
        assert corpus.search(" ".join(sorted(gone)), alpha=0, limit=200).hits == ()


BEGIN = [
    (
        id_,
        (
            "save",
            [
                (at == 2, "ann", kind, at % 2 == 0)
                for at, kind in enumerate([*AuthorKind, *AuthorKind][:count])
            ],
        ),
    )
    for id_, count in SIZES
]


@pytest.mark.usefixtures("hashing")
@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.generate],
)
@given(steps=st.lists(st.tuples(st.sampled_from(IDS), step), min_size=10, max_size=12))
def test_any_series_of_changes_leaves_what_plain_python_says(
    places: Places, steps: list[tuple[str, tuple[Any, ...]]]
) -> None:
    place: Place = places.new()
    model = Model()
    with open_corpus(place, embedder=EMBEDDER) as corpus:
        for number, (id_, how) in enumerate((*BEGIN, *steps)):
            do(corpus, model, id_, how)
            if number % 3 == 1:
                corpus.refresh()  # so that what follows has to be taken out of an index that has it
            check(corpus, model)
    assert_whole(place, embedder=EMBEDDER)
    with open_corpus(place, embedder=EMBEDDER) as corpus:
        check(corpus, model)
    places.drop(place)
