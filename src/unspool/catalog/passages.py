"""Lines of a document, put together again from its chunks; of a conversation, what was said."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unspool.catalog.projects import ProjectRow, name_sha
from unspool.catalog.schema import chunks, conversations, documents, messages
from unspool.domain.documents import Kind, Lines, Passage
from unspool.errors import NotFoundError


def read(connection: Connection, project: ProjectRow, path: str, *, first: int, last: int | None) -> Passage | None:
    """The lines of a document from one to another, or to its end; None where there is no such document."""
    query = sa.select(documents.c.id, documents.c.path, documents.c.title, documents.c.language, documents.c.kind)
    head = connection.execute(query.where(documents.c.project_id == project.id, documents.c.path_sha == name_sha(path))).first()
    if head is None:
        return None
    is_chat = head.kind == Kind.CHAT
    end = connection.execute((_LAST_MESSAGE if is_chat else _LAST_LINE), {"b_id": head.id}).scalar() or 0
    if first > max(end, 1):
        raise NotFoundError(f"{path} has {end} {'messages' if is_chat else 'lines'}, {first} is behind its end; give a first one up to {end}")
    stop = end if last is None else min(last, end)
    wanted = {"b_id": head.id, "b_first": first, "b_last": stop}
    rows = connection.execute(_MESSAGES if is_chat else _CHUNKS, wanted).all()
    text = _said(rows) if is_chat else cut(joined(rows), rows[0].first_line if rows else first, first, stop)
    return Passage(
        project=project.name,
        path=head.path,
        title=head.title,
        language=head.language,
        kind=Kind(head.kind),
        lines=Lines(first if end else 0, stop),
        last_line=end,
        text=text,
    )


def joined(rows: Iterable[Any]) -> str:
    """The text that chunks were cut from, from the first of them on. What lies between two of them is blank: it becomes lines and spaces again."""
    pieces: list[str] = []
    line, position = 0, 0
    for row in rows:
        if pieces:
            breaks = max(row.first_line - line, 0)
            pieces += ["\n" * breaks, " " * max(row.start_offset - position - breaks, 0)]
        pieces.append(row.text)
        line, position = row.first_line + row.text.count("\n"), row.end_offset
    return "".join(pieces)


def cut(text: str, at: int, first: int, last: int) -> str:
    """Lines of a text whose first line has a number."""
    lines = text.split("\n")
    missing = [""] * max(at - first, 0)  # blank lines before what was cut into chunks
    return "\n".join([*missing, *lines[max(first - at, 0) :]][: max(last - first + 1, 0)])


def _said(rows: Iterable[Any]) -> str:
    return "\n".join(f"{row.author or row.kind}: {row.text}" for row in rows)


_LAST_LINE = sa.select(sa.func.max(chunks.c.last_line)).where(chunks.c.document_id == sa.bindparam("b_id"))
_LAST_MESSAGE = sa.select(conversations.c.message_count).where(conversations.c.document_id == sa.bindparam("b_id"))
_CHUNKS = (
    sa.select(chunks.c.start_offset, chunks.c.end_offset, chunks.c.first_line, chunks.c.text)
    .where(chunks.c.document_id == sa.bindparam("b_id"), chunks.c.last_line >= sa.bindparam("b_first"), chunks.c.first_line <= sa.bindparam("b_last"))
    .order_by(chunks.c.position)
)
_MESSAGES = (
    sa.select(messages.c.author, messages.c.kind, messages.c.text)
    .where(messages.c.document_id == sa.bindparam("b_id"), messages.c.number.between(sa.bindparam("b_first"), sa.bindparam("b_last")))
    .order_by(messages.c.number)
)
