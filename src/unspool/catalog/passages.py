"""Lines of a document, put together again from its chunks; of a conversation, what was said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unspool.catalog.projects import ProjectRow, name_sha
from unspool.catalog.schema import chunks, conversations, documents, messages
from unspool.domain.documents import Kind, Lines, Passage
from unspool.errors import InputError, NotFoundError


def read(
    connection: Connection, project: ProjectRow, path: str, *, first: int, last: int | None
) -> Passage | None:
    """The lines of a document from one to another, or to its end; None where there is no such
    document.
    """
    if not (isinstance(first, int) and first >= 1 and (last is None or isinstance(last, int))):
        raise InputError(
            f"lines {first!r} to {last!r} cannot be read; lines are whole numbers counted from 1"
        )
    if last is not None and last < first:
        raise InputError(
            f"line {last} is before line {first}; give the first line and then the last"
        )
    query = sa.select(
        documents.c.id, documents.c.path, documents.c.title, documents.c.language, documents.c.kind
    )
    head = connection.execute(
        query.where(documents.c.project_id == project.id, documents.c.path_sha == name_sha(path))
    ).first()
    if head is None:
        return None
    is_chat = head.kind == Kind.CHAT
    end = (
        connection.execute((_LAST_MESSAGE if is_chat else _LAST_LINE), {"b_id": head.id}).scalar()
        or 0
    )
    if first > max(end, 1):
        raise NotFoundError(
            f"{path} has {end} {'messages' if is_chat else 'lines'}, {first} is behind its end; "
            f"give a first one up to {end}"
        )
    stop = end if last is None else min(last, end)
    wanted = {"b_id": head.id, "b_first": first, "b_last": stop}
    rows = connection.execute(_MESSAGES if is_chat else _CHUNKS, wanted).all()
    text = _said(rows) if is_chat else cut(*joined(rows), first, stop)
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


def joined(rows: Sequence[Any]) -> tuple[str, int]:
    """The text that neighbouring chunks were cut from, and the number of its first line: the
    document's first if they begin with its first chunk.
    """
    if not rows:
        return "", 1
    at, offset = (1, 0) if rows[0].position == 0 else (rows[0].first_line, rows[0].start_offset)
    line, before = at, ""
    pieces: list[str] = []
    for row in rows:
        has_returns = "\r\n" in before or "\r\n" in row.text
        pieces += [
            blanks(row.start_offset - offset, row.first_line - line, has_returns=has_returns),
            row.text,
        ]
        line, offset, before = row.first_line + row.text.count("\n"), row.end_offset, row.text
    return "".join(pieces), at


def blanks(length: int, breaks: int, *, has_returns: bool) -> str:
    """What lies between two chunks: white space, of which only the length and the number of line
    breaks are kept.

    A chunk begins where its first line does, with the indentation, unless that was too long to
    keep; so what is not a line break stood at the end of a line, or on a blank one. Where lines
    around it end with a carriage return, its own do, too.
    """
    spare = max(length - breaks, 0)
    if has_returns and spare >= breaks:
        return " " * (spare - breaks) + "\r\n" * breaks
    return " " * spare + "\n" * breaks


def cut(text: str, at: int, first: int, last: int) -> str:
    """Lines of a text whose first line has a number."""
    return "\n".join(text.split("\n")[first - at : last - at + 1])


def _said(rows: Iterable[Any]) -> str:
    return "\n".join(f"{row.author or row.kind}: {row.text}" for row in rows)


_LAST_LINE = sa.select(sa.func.max(chunks.c.last_line)).where(
    chunks.c.document_id == sa.bindparam("b_id")
)
_LAST_MESSAGE = sa.select(conversations.c.message_count).where(
    conversations.c.document_id == sa.bindparam("b_id")
)
# Also the chunk before the lines and the one behind them: blank lines between two chunks are known
# by both.
_other = chunks.alias("other")
_before = sa.select(sa.func.max(_other.c.position)).where(
    _other.c.document_id == sa.bindparam("b_id"), _other.c.last_line < sa.bindparam("b_first")
)
_behind = sa.select(sa.func.min(_other.c.position)).where(
    _other.c.document_id == sa.bindparam("b_id"), _other.c.first_line > sa.bindparam("b_last")
)
_CHUNKS = (
    sa.select(
        chunks.c.position,
        chunks.c.start_offset,
        chunks.c.end_offset,
        chunks.c.first_line,
        chunks.c.text,
    )
    .where(
        chunks.c.document_id == sa.bindparam("b_id"),
        chunks.c.position >= sa.func.coalesce(_before.scalar_subquery(), 0),
        chunks.c.position <= sa.func.coalesce(_behind.scalar_subquery(), chunks.c.position),
    )
    .order_by(chunks.c.position)
)
_MESSAGES = (
    sa.select(messages.c.author, messages.c.kind, messages.c.text)
    .where(
        messages.c.document_id == sa.bindparam("b_id"),
        messages.c.number.between(sa.bindparam("b_first"), sa.bindparam("b_last")),
    )
    .order_by(messages.c.number)
)
