"""The bodies that routes take.

What is not named in one is refused, and so is a value of another type.
"""

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
    Flag,
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
    Text,
    Title,
    Url,
    Whole,
)
from unspool.interfaces.http.filtering import Where
from unspool.search.request import MAX_TOTAL_TOKENS

MAX_TOKENS = 10_000_000
# characters that are embedded or counted at once: they fit into a body however they are written
MAX_TEXT = 500_000
_PROJECTS = "where to look; '*' is all that the key can see, null the only one there is"
_WHERE = "what a hit must be"
_METADATA = "values of your own by name; filters can ask for them"
_EXPLAIN = "each hit says why it was found"
_FULL = "each hit carries what is stored of its chunk, for programs"


class Body(BaseModel):
    """A body of a request."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _example(**values: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [values]})


class SearchRequest(Body):
    """A query and how it is to be answered; what is not given is as in the settings."""

    model_config = _example(
        query="how are sessions opened", projects=["shop"], limit=5, where={"language": "python"}
    )
    query: Query = Field(description="what to look for, in words or code")
    projects: Projects | None = Field(default=None, description=_PROJECTS)
    limit: Limit | None = Field(default=None, description="how many hits the page holds")
    max_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS), Whole] | None = Field(
        default=None, description="token budget of the page, 0 for none"
    )
    alpha: Annotated[StrictFloat, Field(ge=0, le=1, allow_inf_nan=False)] | None = Field(
        default=None, description="0 words only, 1 meaning only"
    )
    where: Where | None = Field(default=None, description=_WHERE)
    min_score: Coordinate | None = Field(
        default=None, description="leave out hits below this score"
    )
    explain: Flag = Field(default=False, description=_EXPLAIN)
    max_total_tokens: Annotated[int, Field(ge=0, le=MAX_TOTAL_TOKENS), Whole] | None = Field(
        default=None, description="token budget of all pages together"
    )
    full: Flag = Field(default=False, description=_FULL)


class MoreRequest(Body):
    """A continuation, and what the next page may take."""

    model_config = _example(continuation="Ah0CmZqkYr3mKtkKrnwBCgI")
    continuation: Annotated[str, Field(min_length=18, pattern=r"^[A-Za-z0-9_-]*$")] = Field(
        description="from the page before"
    )
    limit: Limit | None = Field(default=None, description="how many hits this page holds")
    max_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS), Whole] | None = Field(
        default=None, description="token budget of this page, 0 for none"
    )
    restart: Flag = Field(
        default=False, description="where it cannot be followed any more, give the first page again"
    )
    explain: Flag = Field(default=False, description=_EXPLAIN)
    full: Flag = Field(default=False, description=_FULL)


class RelatedRequest(Body):
    """A place in a document, of which similar ones are wanted."""

    model_config = _example(path="src/session.py", line=12, project="shop")
    path: DocumentPath = Field(description="of the document")
    line: Number = Field(
        default=1, description="the line that the place is at; of a conversation, the message"
    )
    project: ProjectName | None = Field(
        default=None, description="where the document is; null the only one there is"
    )
    limit: Limit | None = Field(default=None, description="how many hits are given")
    full: Flag = Field(default=False, description=_FULL)


class NearestRequest(Body):
    """A vector, as `/v1/embed` gives it, of which the closest chunks are wanted."""

    model_config = _example(vector=[0.1, -0.2, 0.3], k=5, projects=["shop"])
    vector: Annotated[list[Coordinate], Field(fail_fast=True, min_length=1, max_length=16_000)] = (
        Field(description="of the embedder in use")
    )
    k: Annotated[int, Field(ge=1, le=10_000), Whole] = Field(
        default=10, description="how many chunks are given"
    )
    projects: Projects | None = Field(default=None, description=_PROJECTS)
    where: Where | None = Field(default=None, description=_WHERE)
    full: Flag = Field(default=False, description=_FULL)


class EmbedRequest(Body):
    """A text whose vector is wanted."""

    model_config = _example(text="how are sessions opened")
    text: Annotated[SomeText, Field(max_length=MAX_TEXT)] = Field(
        description="what is embedded as a query"
    )


class CountTokensRequest(Body):
    """A text whose tokens are counted."""

    model_config = _example(text="how are sessions opened")
    text: Annotated[Text, Field(max_length=MAX_TEXT)] = Field(description="what is counted")


class GivenMessage(Body):
    """One turn of a conversation. One that has an id is stored once, however often it is sent."""

    text: Text = Field(description="what was said")
    author: Author = Field(default="", description="who said it; one line")
    kind: Literal["user", "assistant", "system", "tool"] = Field(
        default="user", description="what the author is"
    )
    at: Moment | None = Field(default=None, description="when it was said")
    id: MessageId = Field(
        default="", description="what tells it from the conversation's other messages"
    )

    def value(self) -> Message:
        return Message(
            text=self.text, author=self.author, kind=AuthorKind(self.kind), at=self.at, id=self.id
        )


class AskRequest(Body):
    """A question. With `stream` the answer comes as server-sent events while it is written."""

    model_config = _example(question="How are sessions opened?", projects=["shop"], stream=False)
    question: Query = Field(description="what is wanted to be known")
    projects: Projects | None = Field(default=None, description=_PROJECTS)
    where: Where | None = Field(default=None, description=_WHERE)
    limit: Limit | None = Field(default=None, description="how many hits are looked for")
    conversation: Annotated[list[GivenMessage], Field(fail_fast=True, max_length=1_000)] = Field(
        default=[], description="what was said before, oldest first"
    )
    stream: Flag = Field(
        default=False, description="answer with events, while the answer is written"
    )
    full: Flag = Field(default=False, description="each citation carries its hit, for programs")


class GivenDocument(Body):
    """A document as text; its name is in the address."""

    model_config = _example(
        text="# Sessions\n\nA session is opened by `open()`.\n",
        title="Sessions",
        metadata={"author": "ann"},
    )
    text: Text = Field(description="the whole document")
    title: Title = Field(default="", description="empty, the document's first heading")
    language: Language = Field(
        default="", description="such as python; empty, the path's ending says it"
    )
    modified: Moment | None = Field(default=None, description="when it was written")
    metadata: Metadata = Field(default={}, description=_METADATA)
    version: Annotated[int, Field(ge=0, le=FAR), Whole] | None = Field(
        default=None, description="the one that this replaces, 0 if it must be new"
    )

    def value(self, project: str, path: str) -> Document:
        return Document(
            project=project,
            path=path,
            text=self.text,
            title=self.title,
            language=self.language,
            modified=self.modified,
            metadata=self.metadata,
            version=self.version,
        )


class NamedDocument(GivenDocument):
    """A document as text, with its path."""

    model_config = _example(
        path="docs/sessions.md", text="# Sessions\n\nA session is opened by `open()`.\n"
    )
    path: DocumentPath = Field(description="what the document is called in its project")


class DocumentsRequest(Body):
    """Documents of one project, stored all or none."""

    model_config = _example(
        documents=[
            {"path": "docs/sessions.md", "text": "# Sessions\n\nA session is opened by `open()`.\n"}
        ]
    )
    documents: Annotated[
        list[NamedDocument], Field(fail_fast=True, min_length=1, max_length=1_000)
    ] = Field(description="up to 1000 of them")

    def values(self, project: str) -> list[Document]:
        _check_once((one.path for one in self.documents), "documents have the path")
        return [one.value(project, one.path) for one in self.documents]


class GivenConversation(Body):
    """A conversation; its id is in the address."""

    model_config = _example(
        title="Sessions",
        messages=[
            {"text": "How are sessions opened?", "author": "ann", "at": "2026-01-31T12:00:00Z"}
        ],
    )
    messages: Annotated[list[GivenMessage], Field(fail_fast=True, max_length=100_000)] = Field(
        default=[], description="oldest first"
    )
    title: Title = Field(default="", description="what it is called")
    scenario_title: Title = Field(default="", description="what it belongs to")
    url: Url = Field(default="", description="where it can be read")
    created_at: Moment | None = Field(
        default=None, description="unset, the time of the first message that has one"
    )
    metadata: Metadata = Field(default={}, description=_METADATA)

    def value(self, project: str, id_: str) -> Conversation:
        return Conversation(
            project=project,
            id=id_,
            messages=values_of(self.messages),
            title=self.title,
            scenario_title=self.scenario_title,
            url=self.url,
            created_at=self.created_at,
            metadata=self.metadata,
        )


class NamedConversation(GivenConversation):
    """A conversation with its id."""

    model_config = _example(
        id="support/17", messages=[{"text": "How are sessions opened?", "author": "ann"}]
    )
    id: DocumentPath = Field(description="what the conversation is called in its project")


class ConversationsRequest(Body):
    """Conversations of one project, stored all or none; those of the same id are replaced."""

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
    ] = Field(description="up to 1000 of them")

    def values(self, project: str) -> list[Conversation]:
        _check_once((one.id for one in self.conversations), "conversations have the id")
        return [one.value(project, one.id) for one in self.conversations]


class MessagesRequest(Body):
    """Messages that go behind a conversation's last."""

    model_config = _example(messages=[{"text": "With open().", "kind": "assistant", "id": "m2"}])
    messages: Annotated[
        list[GivenMessage], Field(fail_fast=True, min_length=1, max_length=10_000)
    ] = Field(description="oldest first")


class RecordRequest(Body):
    """A response that is kept."""

    model_config = _example(body='{"status": "ok"}')
    body: Annotated[str, Field(max_length=MAX_BODY_LENGTH)] = Field(
        description="the response as text, of any kind"
    )
    at: Moment | None = Field(default=None, description="when it was given; null is now")


class IndexRequest(Body):
    """What a project is to be brought up to date with: a folder under the service's roots, or a
    git address; null, where it was indexed from.
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


def values_of(messages: Iterable[GivenMessage]) -> tuple[Message, ...]:
    """Messages as the product has them."""
    given = tuple(messages)
    _check_once((one.id for one in given if one.id), "messages have the id")
    return tuple(one.value() for one in given)


def _check_once(names: Iterable[str], what: str) -> None:
    """Refuse what contradicts itself."""
    name, count = next(iter(Counter(names).most_common(1)), ("", 0))
    if count > 1:
        raise ConflictError(f"{count} {what} {name[:80]!r}; give each once")
