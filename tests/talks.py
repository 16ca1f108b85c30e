"""Conversations for tests: short ways to make them, and a look at what is stored of them."""

from __future__ import annotations

from datetime import UTC, datetime

import unspool
from support import Contents, Place, assert_no_orphans, beside
from unspool.domain.conversations import DEFAULT_PROJECT, AuthorKind, Conversation, Message

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
PROJECT = DEFAULT_PROJECT


def said(text: str, author: str = "", **more: object) -> Message:
    return Message(text=text, author=author, **more)  # type: ignore[arg-type]


def answer(text: str, **more: object) -> Message:
    return said(text, kind=AuthorKind.ASSISTANT, **more)


def talk(id_: str, *texts: str | Message, **more: object) -> Conversation:
    return Conversation(
        id=id_,
        messages=[one if isinstance(one, Message) else Message(text=one) for one in texts],
        **more,
    )  # type: ignore[arg-type]


def texts(corpus: unspool.Corpus, id_: str, **more: str) -> list[str] | None:
    """What was said in a conversation; None where there is none."""
    found = corpus.conversations.get(id_, **more)  # type: ignore[arg-type]
    return None if found is None else [message.text for message in found.messages]


def found(page: unspool.Page) -> list[tuple[str, int]]:
    """The messages that are hits, by conversation and number, best first."""
    return [(hit.chunk.path, hit.chunk.lines.first) for hit in page.hits]


def numbers(corpus: unspool.Corpus, query: str, **more: object) -> list[int]:
    """The numbers of the messages that a search finds, best first."""
    return [number for _, number in found(corpus.search(query, **more))]  # type: ignore[arg-type]


def assert_whole(place: Place, **arguments: object) -> Contents:
    """No orphans, messages and chunks numbered without gaps, and everything that is counted
    right.
    """
    contents = assert_no_orphans(place, **arguments)
    with beside(place) as catalog:
        heads = catalog.rows(
            "SELECT c.document_id, c.message_count, d.chunk_count, d.kind, c.project_id, "
            "d.project_id"
            " FROM conversations c LEFT JOIN documents d ON d.id = c.document_id"
        )
        chats = catalog.rows("SELECT id FROM documents WHERE kind = 'chat'")
        messages = catalog.rows(
            "SELECT document_id, number FROM messages ORDER BY document_id, number"
        )
        chunks = catalog.rows(
            "SELECT document_id, position, first_line, last_line FROM chunks ORDER BY "
            "document_id, position"
        )
        removed = catalog.rows(
            "SELECT r.chunk_id FROM removals r JOIN sequences s ON s.stamp = r.stamp JOIN chunks c ON "
            "c.id = r.chunk_id AND c.project_id = r.project_id JOIN sequences t ON t.stamp = "
            "c.stamp WHERE t.seq < s.seq"
        )
        fields = catalog.rows(
            "SELECT f.document_id FROM document_fields f LEFT JOIN documents d ON d.id = "
            "f.document_id WHERE d.id IS NULL"
        )
    assert {id_ for (id_,) in chats} == {row[0] for row in heads}
    assert {id_ for id_, _ in messages} <= {row[0] for row in heads}
    assert (removed, fields) == ([], [])
    for id_, count, chunk_count, kind, project, own in heads:
        assert (kind, project) == ("chat", own)
        assert [number for owner, number in messages if owner == id_] == list(range(1, count + 1))
        mine = [row[1:] for row in chunks if row[0] == id_]
        assert [position for position, _, _ in mine] == list(range(chunk_count))
        lines = [first for _, first, _ in mine]
        assert lines == sorted(lines) and set(lines) <= set(range(1, count + 1))
        assert all(first == last for _, first, last in mine)
    return contents
