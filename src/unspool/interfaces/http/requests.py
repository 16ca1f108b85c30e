"""Bodies of requests. Unknown names and values of other types are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictFloat

from unspool.domain.conversations import AuthorKind, Conversation, Message
from unspool.domain.documents import Document
from unspool.domain.history import MAX_BODY_LENGTH
from unspool.errors import ConflictError
from unspool.interfaces.http.fields import (
    FAR,
    SOME,
    WHOLE,
    Author,
    Coordinate,
    DocumentPath,
    Language,
    Limit,
    MessageId,
    Metadata,
    Moment,
    Number,
    ProjectName,
    Projects,
    Query,
    SomeText,
    Title,
    Url,
    Whole,
)
from unspool.interfaces.http.filtering import Where
from unspool.search.request import MAX_TOTAL_TOKENS

MAX_TOKENS = 10_000_000
# characters to embed or count at once; they fit into a body even if all are escaped
MAX_TEXT = 500_000
_PROJECTS = "projects to search; '*' is all that the key can see, null the only one that exists"
_WHERE = "filter that hits must match"
_METADATA = "values by name, for filters"
_EXPLAIN = "each hit states why it was found"
_FULL = "each hit has all that is stored of its chunk, for programs"


class Body(BaseModel):
    """Body of a request."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _example(**values: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [values]})


class SearchBody(Body):
    """Query with its options. Missing options are those of the settings."""

    model_config = _example(
        query="how are sessions opened", projects=["shop"], limit=5, where={"language": "python"}
    )
    query: Query = Field(description="text to search for, in words or code")
    projects: Projects | None = Field(default=None, description=_PROJECTS)
    limit: Limit | None = Field(default=None, description="maximum number of hits")
    max_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS), Whole] | None = Field(
        default=None, description="token budget of the page, 0 for none"
    )
    alpha: Annotated[StrictFloat, Field(ge=0, le=1, allow_inf_nan=False)] | None = Field(
        default=None, description="from 0, words only, to 1, meaning only"
    )
    where: Where | None = Field(default=None, description=_WHERE)
    min_score: Coordinate | None = Field(
        default=None, description="leave out hits below this score"
    )
    explain: bool = Field(default=False, description=_EXPLAIN)
    max_total_tokens: Annotated[int, Field(ge=0, le=MAX_TOTAL_TOKENS), Whole] | None = Field(
        default=None, description="token budget of all pages together"
    )
    full: bool = Field(default=False, description=_FULL)


class MoreBody(Body):
    """Continuation, with the budget of its page."""

    model_config = _example(continuation="Ah0CmZqkYr3mKtkKrnwBCgI")
    continuation: Annotated[str, Field(min_length=18, pattern=r"^[A-Za-z0-9_-]*$")] = Field(
        description="of the previous page"
    )
    limit: Limit | None = Field(default=None, description="maximum number of hits")
    max_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS), Whole] | None = Field(
        default=None, description="token budget of this page, 0 for none"
    )
    restart: bool = Field(
        default=False, description="return the first page again if the continuation has expired"
    )
    explain: bool = Field(default=False, description=_EXPLAIN)
    full: bool = Field(default=False, description=_FULL)


class RelatedBody(Body):
    """Line of a document, to find similar chunks."""

    model_config = _example(path="src/session.py", line=12, project="shop")
    path: DocumentPath = Field(description="path of the document")
    line: Number = Field(
        default=1, description="number of the line; in a conversation, of the message"
    )
    project: ProjectName | None = Field(
        default=None, description="project of the document; null is the only one that exists"
    )
    limit: Limit | None = Field(default=None, description="maximum number of hits")
    full: bool = Field(default=False, description=_FULL)


class NearestBody(Body):
    """Vector such as `/v1/embed` returns, to find the closest chunks."""

    model_config = _example(vector=[0.1, -0.2, 0.3], k=5, projects=["shop"])
    vector: Annotated[list[Coordinate], Field(fail_fast=True, min_length=1, max_length=16_000)] = (
        Field(description="vector of the embedder in use")
    )
    k: Annotated[int, Field(ge=1, le=10_000), Whole] = Field(
        default=10, description="maximum number of chunks"
    )
    projects: Projects | None = Field(default=None, description=_PROJECTS)
    where: Where | None = Field(default=None, description=_WHERE)
    full: bool = Field(default=False, description=_FULL)


class EmbedBody(Body):
    """Text to embed."""

    model_config = _example(text="how are sessions opened")
    text: Annotated[SomeText, Field(max_length=MAX_TEXT)] = Field(
        description="text, embedded as a query"
    )


class CountTokensBody(Body):
    """Text whose tokens are counted."""

    model_config = _example(text="how are sessions opened")
    text: Annotated[str, Field(max_length=MAX_TEXT)] = Field(description="text to count")


class GivenMessage(Body):
    """Message of a conversation. A message with an id is stored once, even if it is sent again."""

    text: str = Field(description="text of the message")
    author: Author = Field(default="", description="name of the author, in one line")
    kind: Literal["user", "assistant", "system", "tool"] = Field(
        default="user", description="kind of author"
    )
    at: Moment | None = Field(default=None, description="time of the message")
    id: MessageId = Field(default="", description="unique within the conversation")

    def create(self) -> Message:
        """Return the message as a value of the domain."""
        return Message(**{**dict(self), "kind": AuthorKind(self.kind)})


class AskBody(Body):
    """Question. With `stream` the answer is sent as events while it is written."""

    model_config = _example(question="How are sessions opened?", projects=["shop"], stream=False)
    question: Query = Field(description="question in words")
    projects: Projects | None = Field(default=None, description=_PROJECTS)
    where: Where | None = Field(default=None, description=_WHERE)
    limit: Limit | None = Field(default=None, description="maximum number of hits to read")
    conversation: Annotated[list[GivenMessage], Field(fail_fast=True, max_length=1_000)] = Field(
        default=[], description="previous messages, oldest first"
    )
    stream: bool = Field(
        default=False, description="respond with events, while the answer is written"
    )
    full: bool = Field(default=False, description="each citation has its hit, for programs")


class GivenDocument(Body):
    """Document as text. Its path is in the address."""

    model_config = _example(
        text="# Sessions\n\nA session is opened by `open()`.\n",
        title="Sessions",
        metadata={"author": "ann"},
    )
    text: str = Field(description="text of the whole document")
    title: Title = Field(default="", description="title; if empty, the first heading")
    language: Language = Field(
        default="", description="such as python; if empty, derived from the path"
    )
    modified: Moment | None = Field(default=None, description="time of the last change")
    metadata: Metadata = Field(default={}, description=_METADATA)
    version: Annotated[int, Field(ge=0, le=FAR), Whole] | None = Field(
        default=None, description="version to replace; 0 for a new document"
    )

    def create(self, project: str, path: str) -> Document:
        """Return the document as a value of the domain."""
        return Document(**{**dict(self), "project": project, "path": path})


class NamedDocument(GivenDocument):
    """Document as text, with its path."""

    model_config = _example(
        path="docs/sessions.md", text="# Sessions\n\nA session is opened by `open()`.\n"
    )
    path: DocumentPath = Field(description="path of the document in its project")


class DocumentsBody(Body):
    """Documents of one project, stored all or none."""

    model_config = _example(
        documents=[
            {"path": "docs/sessions.md", "text": "# Sessions\n\nA session is opened by `open()`.\n"}
        ]
    )
    documents: Annotated[
        list[NamedDocument], Field(fail_fast=True, min_length=1, max_length=1_000)
    ] = Field(description="1 to 1000 items")

    def create(self, project: str) -> list[Document]:
        """Return the documents as values of the domain."""
        _check_unique((one.path for one in self.documents), "documents have the path")
        return [one.create(project, one.path) for one in self.documents]


class GivenConversation(Body):
    """Conversation. Its id is in the address."""

    model_config = _example(
        title="Sessions",
        messages=[
            {"text": "How are sessions opened?", "author": "ann", "at": "2026-01-31T12:00:00Z"}
        ],
    )
    messages: Annotated[list[GivenMessage], Field(fail_fast=True, max_length=100_000)] = Field(
        default=[], description="oldest first"
    )
    title: Title = Field(default="", description="title of the conversation")
    scenario_title: Title = Field(
        default="", description="title of the scenario that it belongs to"
    )
    url: Url = Field(default="", description="address of the original")
    created_at: Moment | None = Field(
        default=None, description="by default the time of the first message that has one"
    )
    metadata: Metadata = Field(default={}, description=_METADATA)

    def create(self, project: str, id_: str) -> Conversation:
        """Return the conversation as a value of the domain."""
        messages = create_messages(self.messages)
        return Conversation(**{**dict(self), "project": project, "id": id_, "messages": messages})


class NamedConversation(GivenConversation):
    """Conversation with its id."""

    model_config = _example(
        id="support/17", messages=[{"text": "How are sessions opened?", "author": "ann"}]
    )
    id: DocumentPath = Field(description="id of the conversation in its project")


class ConversationsBody(Body):
    """Conversations of one project, stored all or none. The same ids are replaced."""

    model_config = _example(
        conversations=[
            {
                "id": "support/17",
                "messages": [{"text": "How are sessions opened?", "author": "ann"}],
            }
        ]
    )
    conversations: Annotated[
        list[NamedConversation], Field(fail_fast=True, min_length=1, max_length=1_000)
    ] = Field(description="1 to 1000 items")

    def create(self, project: str) -> list[Conversation]:
        """Return the conversations as values of the domain."""
        _check_unique((one.id for one in self.conversations), "conversations have the id")
        return [one.create(project, one.id) for one in self.conversations]


class MessagesBody(Body):
    """Messages to append to a conversation."""

    model_config = _example(messages=[{"text": "With open().", "kind": "assistant", "id": "m2"}])
    messages: Annotated[
        list[GivenMessage], Field(fail_fast=True, min_length=1, max_length=10_000)
    ] = Field(description="oldest first")


class RecordBody(Body):
    """Response to store in a stream."""

    model_config = _example(body='{"status": "ok"}')
    body: Annotated[str, Field(max_length=MAX_BODY_LENGTH)] = Field(
        description="response as text of any kind"
    )
    at: Moment | None = Field(default=None, description="time of the response; null is now")


class IndexBody(Body):
    """Source of a project: a folder under the service's roots, or a git address; null is the
    source of the last time.
    """

    model_config = _example(source="https://github.com/pallets/click", ref="main")
    source: (
        Annotated[
            str,
            Field(min_length=1, max_length=4096, pattern=rf"^[^\x00]*{SOME[:-1]}\x00][^\x00]*$"),
        ]
        | None
    ) = Field(
        default=None, description="an absolute path on the service's machine, or a git address"
    )
    ref: Annotated[str, Field(max_length=250, pattern=WHOLE)] = Field(
        default="", description="a branch, tag or commit of a git address"
    )


def create_messages(messages: Iterable[GivenMessage]) -> tuple[Message, ...]:
    """Return messages as values of the domain. Raise `ConflictError` if ids repeat."""
    given = tuple(messages)
    _check_unique((one.id for one in given if one.id), "messages have the id")
    return tuple(one.create() for one in given)


def _check_unique(names: Iterable[str], subject: str) -> None:
    """Raise `ConflictError` if a name repeats."""
    name, count = next(iter(Counter(names).most_common(1)), ("", 0))
    if count > 1:
        raise ConflictError(f"{count} {subject} {name[:80]!r}; give each once")
