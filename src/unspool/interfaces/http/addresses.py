"""Parameters in the address of a request: names in its path, and its query string."""

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


class QueryString(BaseModel):
    """Query string. Unknown parameters are refused."""

    model_config = ConfigDict(extra="forbid")


class DocumentsQuery(QueryString):
    """Query string of a list of documents."""

    status: Literal["pending", "indexing", "indexed", "failed", "stale"] | None = Field(
        default=None, description="only documents with this status"
    )
    after: DocumentPath | None = Field(
        default=None, description="only documents after this path: the `next` of the previous page"
    )
    limit: Annotated[Limit, Digits] = Field(default=100, description="maximum number")


class LinesQuery(QueryString):
    """Query string of the text of a document."""

    first: Annotated[Number, Digits] = Field(
        default=1, description="the first line; of a conversation, the first message"
    )
    last: Annotated[Number, Digits] | None = Field(
        default=None,
        description="the last line, inclusive; by default the last one of the document",
    )


class ConversationsQuery(QueryString):
    """Query string of a list of conversations."""

    skip: Annotated[Count, Digits] = Field(
        default=0, description="number of newest conversations to leave out"
    )
    limit: Annotated[Limit, Digits] = Field(default=100, description="maximum number")


class MessagesQuery(QueryString):
    """Query string of a conversation."""

    last: Annotated[int, Field(strict=True, ge=0, le=FAR), Digits] | None = Field(
        default=None, description="number of last messages; by default all"
    )


class RecordsQuery(QueryString):
    """Query string of records for agents."""

    limit: Annotated[int, Field(strict=True, ge=1, le=MAX_PAGE), Digits] = Field(
        default=PAGE, description="maximum number"
    )
    offset: Annotated[int, Field(strict=True, ge=0, le=MAX_OFFSET), Digits] = Field(
        default=0, description="number of newest records to leave out"
    )
    full: Annotated[bool, Field(strict=True), Truth] = Field(
        default=False, description="return whole bodies, even repeated ones"
    )


class WholeRecordsQuery(QueryString):
    """Query string of records for programs."""

    limit: Annotated[int, Field(strict=True, ge=1, le=MAX_READ), Digits] = Field(
        default=READ, description="maximum number"
    )
    offset: Annotated[int, Field(strict=True, ge=0, le=MAX_OFFSET), Digits] = Field(
        default=0, description="number of newest records to leave out"
    )


class JobsQuery(QueryString):
    """Query string of a list of jobs."""

    limit: Annotated[Limit, Digits] = Field(default=100, description="maximum number, newest first")
