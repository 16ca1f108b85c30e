"""Requests to a service over HTTP, each as a value. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from unspool.client import parsing
from unspool.client.call import Call, get, in_project, post, segment
from unspool.client.preferences import Preferences, first
from unspool.domain import continuations, filters
from unspool.domain.conversations import Conversation, ConversationRecord, Message
from unspool.domain.documents import (
    Chunk,
    Document,
    DocumentRecord,
    Passage,
    Status,
    check_path,
    check_project,
)
from unspool.domain.history import (
    MAX_OFFSET,
    MAX_PAGE,
    MAX_READ,
    HistoryPage,
    Record,
    Retention,
    StreamStatus,
    check_body,
    check_range,
    check_stream,
    checked_time,
)
from unspool.domain.jobs import Job
from unspool.domain.queries import Hit, Page
from unspool.domain.reports import IndexReport, ProjectStatus, RememberReport, StoreStatus
from unspool.errors import InputError, MalformedContinuationError, NotFoundError, UnsupportedError

# Search


def search(
    own: Preferences,
    query: str,
    *,
    projects: Sequence[str] | str | None,
    limit: int | None,
    max_tokens: int | None,
    alpha: float | None,
    where: Mapping[str, Any] | None,
    min_score: float | None,
    explain: bool,
    max_total_tokens: int | None,
    caller: str,
) -> Call[Page]:
    """A first page."""
    _check_caller(caller)
    body = {
        "query": _query(query),
        "projects": own.several(projects),
        "limit": first(limit, own.limit),
        "max_tokens": first(max_tokens, own.max_tokens),
        "alpha": first(alpha, own.alpha),
        "where": _filter(where),
        "min_score": min_score,
        "explain": bool(explain),
        "max_total_tokens": first(max_total_tokens, own.max_total_tokens),
        "full": True,
    }
    return post("/v1/search", parsing.page, body)


def more(
    continuation: str, *, limit: int | None, max_tokens: int | None, restart: bool, caller: str
) -> Call[Page]:
    """The page of a continuation."""
    _check_caller(caller)
    if not isinstance(continuation, str):
        raise MalformedContinuationError(
            f"a continuation is text, not a {type(continuation).__name__}; give page.continuation"
        )
    text = continuation.strip()
    continuations.raw(text)
    body = {
        "continuation": text,
        "limit": limit,
        "max_tokens": max_tokens,
        "restart": bool(restart),
        "explain": True,
        "full": True,
    }
    return post("/v1/more", parsing.page, body)


def find_similar(
    own: Preferences, path: str, line: int, *, project: str | None, limit: int | None
) -> Call[Page]:
    """Build the request for chunks similar to a line of a document."""
    _check_findable(path, project or own.project)
    body = {
        "path": path,
        "line": line,
        "project": project or own.project or None,
        "limit": first(limit, own.limit),
        "full": True,
    }
    return post("/v1/related", parsing.page, body)


def nearest(
    own: Preferences,
    vector: Sequence[float],
    *,
    k: int,
    projects: Sequence[str] | str | None,
    where: Mapping[str, Any] | None,
) -> Call[list[Hit]]:
    """Hits by a vector alone."""
    try:
        numbers = [float(value) for value in vector]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the vector is not made of numbers ({error}); give those that `embed` gives"
        ) from None
    body = {
        "vector": numbers,
        "k": k,
        "projects": own.several(projects),
        "where": _filter(where),
        "full": True,
    }
    return post("/v1/nearest", parsing.parse_list("hits", parsing.hit), body)


def embed(text: str) -> Call[list[float]]:
    """A text's vector."""
    return post("/v1/embed", parsing.get_value("vector"), {"text": _replace_surrogates(text)})


def count_tokens(text: str) -> Call[int]:
    """Build the request for the number of tokens of a text."""
    return post("/v1/count_tokens", parsing.get_value("tokens"), {"text": text})


def ask(
    own: Preferences,
    question: str,
    *,
    projects: Sequence[str] | str | None,
    where: Mapping[str, Any] | None,
    limit: int | None,
    conversation: Sequence[Message],
    model: object,
) -> Call[Any]:
    """The answer as it is written; what comes back is a stream of events."""
    if model is not None:
        raise UnsupportedError(
            "a service answers with its own model; leave `model` out, and set "
            "UNSPOOL_ANSWER_MODEL where the service runs"
        )
    for turn in conversation:
        if not isinstance(turn, Message):
            raise InputError(
                f"the conversation holds a {type(turn).__name__}; give unspool.Message objects, "
                f"oldest first"
            )
    body = {
        "question": _replace_surrogates(question),
        "projects": own.several(projects),
        "where": _filter(where),
        "limit": first(limit, own.limit),
        "conversation": [_message(turn) for turn in conversation],
        "stream": True,
        "full": True,
    }
    return post("/v1/ask", parsing.answer, body, repeats=False)


def _replace_surrogates(text: str) -> str:
    """A question without halves of characters, for which a corpus looks as for question marks."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else text


def _query(text: str) -> str:

    from unspool.search.plan import check_query  # the same complaints as without a service

    return check_query(text)


def _check_caller(caller: str) -> None:
    if caller:
        raise UnsupportedError(
            "a service knows its callers by their keys, and ties each continuation to the key; "
            "leave `caller` out"
        )


def _filter(where: Mapping[str, Any] | None) -> Any:
    filters.parse(where)  # the same complaints as without a service, and without asking it
    return _plain(where) if where else None


def _plain(value: Any) -> Any:
    """A filter as JSON has it: a day and a moment mean the same as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    return value.isoformat() if isinstance(value, date | datetime) else value


# Projects and documents


def status() -> Call[list[ProjectStatus]]:
    """Every project."""
    return get("/v1/projects", parsing.parse_list("projects", parsing.project_status))


def project_status(project: str) -> Call[ProjectStatus]:
    """Build the request for one project."""
    return get(in_project(project), parsing.project_status)


def stores() -> Call[list[StoreStatus]]:
    """Build the request for the stores of vectors."""
    return get("/v1/stores", parsing.parse_list("stores", parsing.store_status))


def documents(
    project: str, *, status: Status | None, after: str | None, limit: int
) -> Call[tuple[list[DocumentRecord], str | None]]:
    """Some documents, and behind which path the next ones are."""

    def parse(data: Any) -> tuple[list[DocumentRecord], str | None]:
        return [parsing.document(one) for one in data["documents"]], data["next"]

    return get(in_project(project, "documents"), parse, status=status, after=after, limit=limit)


def document(project: str, path: str) -> Call[DocumentRecord]:
    """Build the request for the record of one document."""
    return get(_document(project, path), lambda data: parsing.document(data["document"]), last=1)


def read(project: str, path: str, *, first: int, last: int | None) -> Call[Passage]:
    """Lines of a document."""
    return get(
        _document(project, path),
        lambda data: parsing.passage(data["passage"]),
        first=first,
        last=last,
    )


def put(documents: Sequence[Document]) -> Call[IndexReport]:
    """Documents of one project."""
    body = {"documents": [document_of(one) for one in documents]}
    # what was replaced has another version the second time
    repeats = all(one.version is None for one in documents)
    return Call(
        method="PUT",
        path=in_project(documents[0].project, "documents"),
        parse=parsing.index_report,
        body=body,
        repeats=repeats,
    )


def document_of(document: Document) -> dict[str, Any]:
    """A document as it is sent; the project is in the address."""
    values = {
        "path": document.path,
        "text": document.text,
        "title": document.title,
        "language": document.language,
        "modified": _moment(document.modified),
        "metadata": dict(document.metadata),
        "version": document.version,
    }
    return {name: value for name, value in values.items() if value is not None}


def forget(project: str, path: str | None) -> Call[int]:
    """A document goes, or a whole project."""
    place = in_project(project) if path is None else _document(project, path)
    return Call(method="DELETE", path=place, parse=parsing.get_value("forgotten"), repeats=False)


def _document(project: str, path: str) -> str:
    _check_findable(path, project)
    return in_project(project, "documents", segment(path))


def _check_findable(path: str, project: str) -> None:
    """Raise `NotFoundError` for a path that no document can have. No URL could contain it."""
    try:
        check_path(path)
    except InputError as error:
        place = f" in project {project!r}" if project else ""
        raise NotFoundError(
            f"no document {path!r}{place}; `unspool documents` lists them"
        ) from error


# Jobs


def start_index(project: str, *, source: str, ref: str) -> Call[Job]:
    """A new job."""
    return post(
        in_project(project, "index"),
        parsing.job,
        {"source": source, "ref": ref or None},
        repeats=False,
    )


def job(id_: str) -> Call[Job]:
    """Build the request for the state of a job."""
    return get(f"/v1/jobs/{segment(id_)}", parsing.job)


def cancel(id_: str) -> Call[Job]:
    """A job is to end."""
    return Call(method="DELETE", path=f"/v1/jobs/{segment(id_)}", parse=parsing.job, repeats=False)


# Conversations


def save(conversations: Sequence[Conversation]) -> Call[RememberReport]:
    """Conversations of one project."""
    body = {"conversations": [conversation_of(one) for one in conversations]}
    return post(
        in_project(conversations[0].project, "conversations"), parsing.remember_report, body
    )


def conversation_of(conversation: Conversation) -> dict[str, Any]:
    """A conversation as it is sent; the project is in the address."""
    values = {
        "id": conversation.id,
        "title": conversation.title,
        "scenario_title": conversation.scenario_title,
        "url": conversation.url,
        "created_at": _moment(conversation.created_at),
        "metadata": dict(conversation.metadata),
        "messages": [_message(one) for one in conversation.messages],
    }
    return {name: value for name, value in values.items() if value is not None}


def _message(message: Message) -> dict[str, Any]:
    values = {
        "text": message.text,
        "author": message.author,
        "kind": message.kind.value,
        "id": message.id,
    }
    return values if message.at is None else {**values, "at": _moment(message.at)}


def append_messages(project: str, id_: str, messages: Sequence[Message]) -> Call[RememberReport]:
    """Messages behind a conversation's last."""
    if not messages:
        raise InputError("no message was given; append takes at least one")
    body = {"messages": [_message(one) for one in messages]}
    # those that have a name are known when they come again
    repeats = all(one.id for one in messages)
    return post(
        _conversation(project, id_, "messages"), parsing.remember_report, body, repeats=repeats
    )


def conversation(project: str, id_: str, *, last: int | None) -> Call[Conversation]:
    """A conversation with its messages."""
    return get(_conversation(project, id_), parsing.conversation, last=last)


def conversations(project: str, *, skip: int, limit: int) -> Call[list[ConversationRecord]]:
    """Conversations without them."""
    return get(
        in_project(project, "conversations"),
        parsing.parse_list("conversations", parsing.conversation_record),
        skip=skip,
        limit=limit,
    )


def conversation_count(project: str) -> Call[int]:
    """Build the request for the number of conversations."""
    return get(in_project(project, "conversations"), parsing.get_value("count"), limit=1)


def conversation_chunks(project: str, id_: str) -> Call[list[Chunk]]:
    """Build the request for the chunks of a conversation."""
    return get(_conversation(project, id_, "chunks"), parsing.parse_list("chunks", parsing.chunk))


def conversation_chunk(project: str, chunk_id: int) -> Call[Chunk]:
    """Build the request for one chunk of a conversation."""
    return get(in_project(project, "chunks", segment(str(chunk_id))), parsing.chunk)


def delete_conversation(project: str, id_: str) -> Call[bool]:
    """A conversation goes."""
    return Call(
        method="DELETE", path=_conversation(project, id_), parse=lambda data: True, repeats=False
    )


def _conversation(project: str, id_: str, *further: str) -> str:
    check_path(id_, "conversation id")
    return in_project(project, "conversations", segment(id_), *further)


# Responses


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of responses by its names."""

    project: str
    stream: str

    def __post_init__(self) -> None:
        check_project(self.project)
        check_stream(self.stream)

    def path(self, *further: str) -> str:
        """Return the URL path of the stream."""
        return in_project(self.project, "streams", segment(self.stream), *further)


def stream(project: str, name: str, retention: Retention | None) -> Stream:
    """A stream by its names; how much of it is kept, a service decides."""
    if retention is not None:
        raise UnsupportedError(
            "a service keeps as much of a stream as its own settings say; leave `retention` out, "
            "and set UNSPOOL_HISTORY_* there"
        )
    return Stream(project, name)


def streams(project: str) -> Call[list[StreamStatus]]:
    """The streams of a project."""
    return get(in_project(project, "streams"), parsing.parse_list("streams", parsing.stream_status))


def append_record(stream: Stream, body: str, at: datetime | None) -> Call[Record]:
    """Secrets are masked here already: what comes back does not repeat the body, and none need
    leave this process.
    """
    from unspool.sources.reading import mask_value

    check_body(body)
    given = {"body": mask_value(body), "at": None if at is None else _moment(checked_time(at))}
    return post(
        stream.path("records"),
        lambda data: parsing.record({**data["appended"], "body": given["body"]}),
        given,
        repeats=False,
    )


def records(stream: Stream, *, limit: int, offset: int) -> Call[tuple[list[Record], int | None]]:
    """Some whole responses, and how many to leave out for the next ones."""

    def parse(data: Any) -> tuple[list[Record], int | None]:
        return [parsing.record(one) for one in data["records"]], data["next"]

    check_range(limit, offset, most=MAX_READ)
    return get(stream.path(), parse, limit=limit, offset=offset)


def record_count(stream: Stream) -> Call[int]:
    """Build the request for the number of records."""
    # none of the records, which may be large
    return get(stream.path(), parsing.get_value("count"), limit=1, offset=MAX_OFFSET)


def history_page(stream: Stream, *, limit: int, offset: int, full: bool) -> Call[HistoryPage]:
    """Responses as an agent gets them."""
    check_range(limit, offset, most=MAX_PAGE)
    return get(
        stream.path("records"), parsing.history_page, limit=limit, offset=offset, full=_truth(full)
    )


def prune_history(stream: Stream) -> Call[int]:
    """Old responses go."""
    return Call(method="POST", path=stream.path("prune"), parse=parsing.get_value("cleared"))


def clear_history(stream: Stream) -> Call[int]:
    """A stream goes."""
    return Call(
        method="DELETE", path=stream.path(), parse=parsing.get_value("cleared"), repeats=False
    )


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.astimezone(UTC).isoformat()
