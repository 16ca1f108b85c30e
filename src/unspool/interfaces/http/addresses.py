"""What stands in the address of a request: names in its path, and what follows the question
mark.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from unspool.domain.history import MAX_OFFSET, MAX_PAGE, MAX_READ, PAGE, READ
from unspool.interfaces.http.fields import (
    FAR,
    Count,
    Decoded,
    Digits,
    DocumentPath,
    Limit,
    Number,
    ProjectName,
    StreamName,
    Truth,
)

Project = Annotated[ProjectName, Decoded, Path(description="a project's name", examples=["shop"])]
Document = Annotated[
    DocumentPath, Decoded, Path(description="a document's path", examples=["docs/sessions.md"])
]
ConversationId = Annotated[
    DocumentPath,
    Decoded,
    Path(description="a conversation's id; a slash in it is sent as %2F", examples=["support-17"]),
]
Stream = Annotated[
    StreamName,
    Decoded,
    Path(description="a stream's name; a slash in it is sent as %2F", examples=["nightly-build"]),
]
JobId = Annotated[
    str, Path(pattern=r"^[0-9a-f]{16}$", description="a job's id", examples=["3f9c2a1b4d5e6f70"])
]
ChunkId = Annotated[
    str, Path(pattern=r"^[0-9]{1,19}$", description="a chunk's id", examples=["461168601842738790"])
]


class Asked(BaseModel):
    """What may follow a question mark; anything else is refused."""

    model_config = ConfigDict(extra="forbid")


class DocumentsAsked(Asked):
    """Which documents are listed."""

    status: Literal["pending", "indexing", "indexed", "failed", "stale"] | None = Field(
        default=None, description="only those that stand so"
    )
    after: DocumentPath | None = Field(
        default=None, description="only those behind this path: the `next` of the page before"
    )
    limit: Annotated[Limit, Digits] = Field(default=100, description="how many")


class LinesAsked(Asked):
    """Which lines of a document are given."""

    first: Annotated[Number, Digits] = Field(
        default=1, description="the first line; of a conversation, the first message"
    )
    last: Annotated[Number, Digits] | None = Field(
        default=None, description="the last one, itself included; unset, that of the document"
    )


class ConversationsAsked(Asked):
    """Which conversations are listed."""

    skip: Annotated[Count, Digits] = Field(
        default=0, description="how many to leave out, of those that began last"
    )
    limit: Annotated[Limit, Digits] = Field(default=100, description="how many")


class MessagesAsked(Asked):
    """Which messages of a conversation are given."""

    last: Annotated[int, Field(strict=True, ge=0, le=FAR), Digits] | None = Field(
        default=None, description="only the last so many; unset, all"
    )


class RecordsAsked(Asked):
    """Which records of a stream an agent is given."""

    limit: Annotated[int, Field(strict=True, ge=1, le=MAX_PAGE), Digits] = Field(
        default=PAGE, description="how many"
    )
    offset: Annotated[int, Field(strict=True, ge=0, le=MAX_OFFSET), Digits] = Field(
        default=0, description="how many newer ones to leave out"
    )
    full: Annotated[bool, Field(strict=True), Truth] = Field(
        default=False, description="bodies are whole, also those that repeat"
    )


class WholeRecordsAsked(Asked):
    """Which records of a stream a program is given."""

    limit: Annotated[int, Field(strict=True, ge=1, le=MAX_READ), Digits] = Field(
        default=READ, description="how many"
    )
    offset: Annotated[int, Field(strict=True, ge=0, le=MAX_OFFSET), Digits] = Field(
        default=0, description="how many newer ones to leave out"
    )


class JobsAsked(Asked):
    """Which jobs are listed."""

    limit: Annotated[Limit, Digits] = Field(default=100, description="how many, newest first")
