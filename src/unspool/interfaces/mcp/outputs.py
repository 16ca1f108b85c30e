"""JSON schemas of the structured content that the tools return.

Every description is sent with every conversation, so only keys whose names do not explain them
have one. Keys with `?` are left out if they are empty.
"""

from __future__ import annotations

from typing import Annotated

from unspool.wire import schema

_NOTES = Annotated[list[str], "what to know about this answer"]

PAGE = schema(
    {
        "hits": [
            {
                "at": Annotated[str, "path:first-last; pass it to read or related"],
                "project?": str,
                "within?": Annotated[str, "the enclosing code, headings or conversation"],
                "shown?": Annotated[str, "lines of text, if not all"],
                "text?": str,
                "also?": Annotated[list[str], "other places with the same text"],
                "changed?": Annotated[bool, "rewritten since the first page"],
                "stale?": Annotated[bool, "its file has changed since it was indexed"],
            }
        ],
        "page?": int,
        "remaining?": Annotated[int, "further hits already found"],
        "continuation?": Annotated[str, "pass it to more for the next page; absent at the end"],
        "advice?": Annotated[str, "whether to continue"],
        "notes?": _NOTES,
    }
)

PASSAGE = schema(
    {
        "at": Annotated[str, "path:first-last of text"],
        "project?": str,
        "title?": str,
        "of?": Annotated[int, "number of all lines"],
        "text": str,
        "next?": Annotated[
            str, "pass it as path for what follows; absent at the end of what was asked for"
        ],
        "notes?": _NOTES,
    }
)

PROJECTS = schema(
    {
        "projects": [
            {
                "name": str,
                "documents?": int,
                "pending?": Annotated[int, "not indexed yet"],
                "failed?": int,
                "chunks?": int,
                "root?": str,
            }
        ],
        "after?": Annotated[str, "pass it as after for the next ones; absent at the end"],
        "notes?": _NOTES,
    }
)

HISTORY = schema(
    {
        "stream?": str,
        "records?": [
            {
                "number": int,
                "at": str,
                "body?": Annotated[
                    str,
                    "ends in ...[truncated] if it was cut; absent if it is the same as the "
                    "newer one",
                ],
                "length?": Annotated[int, "of the whole body, if it was cut"],
                "same_as_newer?": bool,
            }
        ],
        "has_more": bool,
        "next?": Annotated[str, "how to ask for what follows"],
        "streams?": [{"stream": str, "project?": str, "records?": int}],
        "notes?": _NOTES,
    }
)

REMEMBERED = schema(
    {
        "project?": str,
        "conversation": str,
        "new": Annotated[int, "messages stored"],
        "notes?": _NOTES,
    }
)

_COUNTS = ("added", "updated", "unchanged", "removed", "failed", "chunks")
INDEXED = schema(
    {
        "project": str,
        **{f"{name}?": int for name in _COUNTS},
        "seconds?": float,
        "failures?": list[str],
        "notes?": _NOTES,
    }
)
