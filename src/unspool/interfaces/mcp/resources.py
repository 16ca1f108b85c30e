"""Documents and conversations as resources: listed page by page, read within a bound."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass

from unspool.domain.documents import DocumentRecord, Kind, storable
from unspool.errors import InputError, NotFoundError
from unspool.interfaces.mcp.addresses import CONVERSATIONS, DOCUMENTS, SCHEME, Address, parse
from unspool.interfaces.mcp.catalogue import MOST_TOKENS
from unspool.interfaces.mcp.showing import clipped
from unspool.views import View

PAGE = 100
MAX_LINES = 5_000  # of a document, or messages of a conversation, that are looked at
TEMPLATES = (
    ("document", f"{SCHEME}://{{project}}/{DOCUMENTS}/{{+path}}", "An indexed document"),
    (
        "conversation",
        f"{SCHEME}://{{project}}/{CONVERSATIONS}/{{+id}}",
        "What was said in a conversation",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A resource in a list."""

    address: str
    name: str
    title: str
    mime_type: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Some resources, and where the next ones begin; None at the end."""

    entries: list[Entry]
    cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a resource holds."""

    text: str
    mime_type: str


def listed(view: View, cursor: str | None, *, limit: int = PAGE) -> Listing:
    """Resources by project and path, those behind a cursor."""
    project, path = _read_cursor(cursor) if cursor else ("", "")
    found: list[DocumentRecord] = []
    for name in sorted(one for one in view.projects() if one >= project):
        after = path if name == project and path else None
        while some := view.documents(project=name, after=after, limit=limit + 1):
            # the others have no text yet
            found += [record for record in some if record.chunk_count]
            if len(found) > limit:
                return Listing(entries=_entries(found[:limit]), cursor=_cursor(found[limit - 1]))
            after = some[-1].path
    return Listing(entries=_entries(found), cursor=None)


def read(view: View, uri: str) -> Content:
    """The text of a resource; of a long one the beginning, and of a long conversation the end."""
    address = parse(uri)
    if address is None:
        raise NotFoundError(
            f"no resource {uri[:200]!r}; resources are called "
            f"{SCHEME}://PROJECT/{DOCUMENTS}/PATH or {SCHEME}://PROJECT/{CONVERSATIONS}/ID"
        )
    record = view.document(address.path, project=address.project)
    if address.is_conversation != (record.kind is Kind.CHAT):
        raise NotFoundError(f"no resource {uri[:200]!r}; it is called {_address(record)}")
    if record.kind is Kind.CHAT:
        return Content(text=_said(view, record), mime_type=_mime_type(record))
    record, passage = view.passage(record.path, project=record.project, last=MAX_LINES)
    text = clipped(passage.text, view.count_tokens, MOST_TOKENS - 60)
    if text != passage.text or not passage.is_whole:
        shown = text.count("\n") + 1
        text += (
            f"\n[truncated: lines 1-{shown} of {passage.last_line} are shown; the tool `read` "
            f"gives the others]"
        )
    return Content(text=text, mime_type=_mime_type(record))


def _said(view: View, record: DocumentRecord) -> str:
    found = view.conversations.get(record.path, project=record.project, last=MAX_LINES)
    messages = [] if found is None else list(found.messages)
    lines: list[str] = []
    left = MOST_TOKENS - 60
    for message in reversed(messages):
        line = f"{message.speaker}{'' if message.at is None else f' ({message.at:%Y-%m-%d %H:%M} UTC)'}: {message.text}"  # noqa: E501
        cost = view.count_tokens(line) + 1
        if cost > left:
            line = clipped(line, view.count_tokens, left) if not lines else ""
            lines += [line] if line else []
            lines.append(
                "[truncated: the messages before are not shown; the tool `read` gives them]"
            )
            break
        left -= cost
        lines.append(line)
    return "\n".join(reversed(lines))


def _entries(records: Sequence[DocumentRecord]) -> list[Entry]:
    return [
        Entry(
            address=_address(record),
            name=record.path,
            title=record.title if record.title != record.path else "",
            mime_type=_mime_type(record),
            size_bytes=record.size_bytes,
        )
        for record in records
    ]


def _address(record: DocumentRecord) -> str:
    return str(
        Address(project=record.project, path=record.path, is_conversation=record.kind is Kind.CHAT)
    )


def _mime_type(record: DocumentRecord) -> str:
    return "text/markdown" if record.language == "markdown" else "text/plain"


def _cursor(last: DocumentRecord) -> str:
    return (
        base64.urlsafe_b64encode(json.dumps([last.project, last.path]).encode())
        .decode()
        .rstrip("=")
    )


def _read_cursor(cursor: str) -> tuple[str, str]:
    try:
        project, path = json.loads(
            base64.b64decode(
                cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True
            )
        )
    except (UnicodeEncodeError, binascii.Error, ValueError, TypeError, RecursionError):
        raise InputError("this cursor was not given out here; list again without one") from None
    if not all(isinstance(part, str) and storable(part) for part in (project, path)):
        raise InputError("this cursor was not given out here; list again without one")
    return project, path
