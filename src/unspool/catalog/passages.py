"""Lines of a document, assembled from its chunks, and messages of a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from unspool.catalog.projects import ProjectRow, hash_name
from unspool.catalog.schema import chunks, conversations, documents, messages
from unspool.domain.documents import Kind, Lines, Passage, check_lines
from unspool.errors import NotFoundError


def read_passage(
    connection: sa.Connection, project: ProjectRow, path: str, *, first: int, last: int | None
) -> Passage | None:
    """Return lines of a document, or its messages, up to `last` or its end.

    None means that the document does not exist.
    """
    check_lines(first, last)
    query = sa.select(
        documents.c.id, documents.c.path, documents.c.title, documents.c.language, documents.c.kind
    )
    head = connection.execute(
        query.where(documents.c.project_id == project.id, documents.c.path_sha == hash_name(path))
    ).first()
    if head is None:
        return None
    is_chat = head.kind == Kind.CHAT
    count = _LAST_MESSAGE if is_chat else _LAST_LINE
    end = connection.execute(count, {"b_id": head.id}).scalar() or 0
    if first > max(end, 1):
        raise NotFoundError(
            f"{path} has {end} {'messages' if is_chat else 'lines'}, {first} is behind its end; "
            f"give a first one up to {end}"
        )
    stop = end if last is None else min(last, end)
    values = {"b_id": head.id, "b_first": first, "b_last": stop}
    rows = connection.execute(_MESSAGES if is_chat else _CHUNKS, values).all()
    return Passage(
        project=project.name,
        path=head.path,
        title=head.title,
        language=head.language,
        kind=Kind(head.kind),
        lines=Lines(first if end else 0, stop),
        last_line=end,
        text=_format_messages(rows) if is_chat else cut_lines(*join_chunks(rows), first, stop),
    )


def join_chunks(rows: Sequence[Any]) -> tuple[str, int]:
    """Return the original text of adjacent chunks, and the number of its first line.

    The document's first chunk brings the blank lines before it.
    """
    if not rows:
        return "", 1
    at, offset = (1, 0) if rows[0].position == 0 else (rows[0].first_line, rows[0].start_offset)
    line, before = at, ""
    pieces: list[str] = []
    for row in rows:
        has_returns = "\r\n" in before or "\r\n" in row.text
        pieces += [
            fill_gap(row.start_offset - offset, row.first_line - line, has_returns=has_returns),
            row.text,
        ]
        line, offset, before = row.first_line + row.text.count("\n"), row.end_offset, row.text
    return "".join(pieces), at


def fill_gap(length: int, breaks: int, *, has_returns: bool) -> str:
    """Return the white space between two chunks, from its length and number of line breaks.

    A chunk begins with the indentation of its first line, unless that was too long to keep. So
    other white space was at the end of a line, or on a blank one. Lines end with a carriage return
    if those around do.
    """
    spare = max(length - breaks, 0)
    if has_returns and spare >= breaks:
        return " " * (spare - breaks) + "\r\n" * breaks
    return " " * spare + "\n" * breaks


def cut_lines(text: str, at: int, first: int, last: int) -> str:
    """Return lines of a text whose first line has the number `at`."""
    return "\n".join(text.split("\n")[first - at : last - at + 1])


def _format_messages(rows: Iterable[Any]) -> str:
    return "\n".join(f"{row.author or row.kind}: {row.text}" for row in rows)


_LAST_LINE = sa.select(sa.func.max(chunks.c.last_line)).where(
    chunks.c.document_id == sa.bindparam("b_id")
)
_LAST_MESSAGE = sa.select(conversations.c.message_count).where(
    conversations.c.document_id == sa.bindparam("b_id")
)
# With the chunk before the lines and the one behind: blank lines between two chunks need both.
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
