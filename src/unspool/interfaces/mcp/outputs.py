"""What the tools give back, as JSON Schema.

Descriptions are there for what a name does not say; they are sent with every conversation, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]


def _object(required: tuple[str, ...], **properties: Mapping[str, Any]) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _of(kind: str, about: str = "") -> Schema:
    return {"type": kind, "description": about} if about else {"type": kind}


def _list(of: Schema, about: str = "") -> Schema:
    return (
        {"type": "array", "items": of, "description": about}
        if about
        else {"type": "array", "items": of}
    )


_STRING, _INTEGER, _BOOLEAN = _of("string"), _of("integer"), _of("boolean")
_NOTES = _list(_STRING, "what to know about this answer")

PAGE = _object(
    ("hits",),
    hits=_list(
        _object(
            ("at",),
            at=_of("string", "path:first-last; pass it to read or related"),
            project=_STRING,
            within=_of("string", "the code, headings or conversation it stands in"),
            shown=_of("string", "which lines text shows, if not all"),
            text=_STRING,
            also=_list(_STRING, "where the same text stands"),
            changed=_of("boolean", "rewritten since the first page"),
            stale=_of("boolean", "its file has changed since it was indexed"),
        ),
        "best first",
    ),
    page=_INTEGER,
    remaining=_of("integer", "further hits already found"),
    continuation=_of("string", "pass it to more for the next page; absent at the end"),
    advice=_of("string", "whether to go on"),
    notes=_NOTES,
)

PASSAGE = _object(
    ("at", "text"),
    at=_of("string", "path:first-last of text"),
    project=_STRING,
    title=_STRING,
    of=_of("integer", "lines there are"),
    text=_STRING,
    next=_of("string", "pass it as path for what follows; absent at the end of what was asked for"),
    notes=_NOTES,
)

PROJECTS = _object(
    ("projects",),
    projects=_list(
        _object(
            ("name",),
            name=_STRING,
            documents=_INTEGER,
            pending=_of("integer", "not indexed yet"),
            failed=_INTEGER,
            chunks=_INTEGER,
            root=_STRING,
        )
    ),
    after=_of("string", "pass it as after for the next ones; absent at the end"),
    notes=_NOTES,
)

HISTORY = _object(
    ("has_more",),
    stream=_STRING,
    records=_list(
        _object(
            ("number", "at"),
            number=_INTEGER,
            at=_STRING,
            body=_of(
                "string",
                "ends in ...[truncated] where it was cut; absent where it is the same as the "
                "newer one",
            ),
            length=_of("integer", "of the whole body, where it was cut"),
            same_as_newer=_BOOLEAN,
        ),
        "newest first",
    ),
    has_more=_BOOLEAN,
    next=_of("string", "how to ask for what follows"),
    streams=_list(_object(("stream",), stream=_STRING, project=_STRING, records=_INTEGER)),
    notes=_NOTES,
)

REMEMBERED = _object(
    ("conversation", "new"),
    project=_STRING,
    conversation=_STRING,
    new=_of("integer", "messages stored"),
    notes=_NOTES,
)

INDEXED = _object(
    ("project",),
    project=_STRING,
    added=_INTEGER,
    updated=_INTEGER,
    unchanged=_INTEGER,
    removed=_INTEGER,
    failed=_INTEGER,
    chunks=_INTEGER,
    seconds=_of("number"),
    failures=_list(_STRING),
    notes=_NOTES,
)
