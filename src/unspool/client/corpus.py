"""A corpus in a service: the methods of `Corpus`, each sent over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from unspool import (
    Answer,
    Conversation,
    Corpus,
    Document,
    DocumentRecord,
    Hit,
    IndexReport,
    Message,
    Page,
    Passage,
    ProjectStatus,
    RememberReport,
    Retention,
    Settings,
    Status,
    StoreStatus,
    StreamStatus,
)
from unspool.client import indexing
from unspool.client.call import check_findable, delete, get, in_project, post
from unspool.client.memory import RemoteConversations, RemoteHistory
from unspool.client.service import Service
from unspool.client.streams import RemoteAnswerStream
from unspool.domain import continuations, filters
from unspool.domain.conversations import check_turns
from unspool.domain.documents import DEFAULT_PROJECT, check_lines, check_listing, parse_status
from unspool.domain.reports import OnProgress
from unspool.errors import AmbiguousError, Hint, NotFoundError, UnsupportedError

LISTED = 1_000  # documents in one response
SHOWN = 20  # names in a message
ENVELOPE_BYTES = 500  # of a body, for what surrounds the documents
# settings of the caller that go with a request; the service decides those that nobody has set
PREFERENCES = ("project", "limit", "max_tokens", "max_total_tokens", "alpha")


def describe_missing(name: str) -> AttributeError:
    """Return the error for a method that only a corpus of this process has."""
    where = "; use it where the service runs, on the command line or with a corpus opened there"
    advice = where if hasattr(Corpus, name) else ""
    return AttributeError(f"a corpus in a service has no {name!r}{advice}")


def read_preferences(settings: Settings) -> dict[str, Any]:
    """Return the preferences that the caller has set, by name."""
    defaults = Settings()
    return {
        name: settings.get(name)
        for name in PREFERENCES
        if settings.origins.get(name, "default") != "default"
        or settings.get(name) != defaults.get(name)
    }


def _check_caller(caller: str) -> None:
    if caller:
        raise UnsupportedError(
            "a service knows its callers by their keys, and ties each continuation to the key; "
            "leave `caller` out"
        )


@dataclass(frozen=True)
class _DocumentList:
    """Part of the list of documents, and the path after which the next part begins."""

    documents: list[DocumentRecord]
    next: str | None


class RemoteCorpus:
    """A corpus in a service, with the results and errors of a `Corpus`.

    Safe to use from several threads.
    """

    def __init__(
        self, address: str, *, key: str | None = None, settings: Settings | None = None
    ) -> None:
        self.settings = Settings.load() if settings is None else settings
        self._preferences = read_preferences(self.settings)
        self._service = Service(
            address,
            key=self.settings.client.key if key is None else key,
            request_s=self.settings.serve.timeout_s,
            answer_s=self.settings.answer.timeout_s,
        )
        self._send = self._service.send
        # bytes of documents in one request
        self._most = self.settings.serve.max_body_bytes - ENVELOPE_BYTES

    def __repr__(self) -> str:
        return f"RemoteCorpus({self._service.place!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    if not TYPE_CHECKING:  # a type checker shall report missing methods

        def __getattr__(self, name: str) -> Any:
            raise describe_missing(name)

    def close(self) -> None:
        """Close every file and connection."""
        self._service.close()

    # In

    def index(
        self,
        source: str | Path,
        *,
        project: str | None = None,
        ref: str = "",
        on_progress: OnProgress | None = None,
    ) -> IndexReport:
        """Bring a project up to date with a folder, a file or a git URL.

        The default name of the project is that of the source.
        """
        return indexing.index_source(
            self._service, str(source), project=project, ref=ref, on_progress=on_progress
        )

    def put(self, *documents: Document) -> IndexReport:
        """Store documents given as text, replacing those of the same path.

        They are findable when this returns.
        """
        return indexing.put_documents(self._service, documents, most=self._most)

    def forget(self, *, project: str, path: str | None = None) -> int:
        """Delete a document, or without a path the whole project; return the number deleted."""
        target = in_project(project) if path is None else _build_document_path(project, path)
        return self._send(delete(target, int, "forgotten"))

    # Conversations

    @property
    def conversations(self) -> RemoteConversations:
        """Conversations: save, append, read, list, delete."""
        return RemoteConversations(self._service, self._project, most=self._most)

    def remember(self, *conversations: Conversation) -> RememberReport:
        """Store conversations, all or none. Those of the same id are replaced.

        Only messages that are new or changed are embedded.
        """
        return self.conversations.save(*conversations)

    def remember_files(
        self,
        paths: Sequence[str | Path] | str | Path,
        *,
        project: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> RememberReport:
        """Import exports of conversations: ChatGPT, Claude, Slack, JSON, JSONL, agent transcripts.

        Invalid records are reported.
        """
        return self.conversations.load(paths, project=project, on_progress=on_progress)

    # Out

    def search(
        self,
        query: str,
        *,
        projects: Sequence[str] | str | None = None,
        limit: int | None = None,
        max_tokens: int | None = None,
        alpha: float | None = None,
        where: Mapping[str, Any] | None = None,
        min_score: float | None = None,
        explain: bool = False,
        max_total_tokens: int | None = None,
        caller: str = "",
        on_progress: OnProgress | None = None,
    ) -> Page:
        """Return the best chunks for a query, best first.

        The default project is the only one that exists; several are searched only if they are
        named. `max_total_tokens` limits this page and all later ones together. `caller` binds the
        continuation: no other caller can use it.
        """
        from unspool.search.plan import check_query

        _check_caller(caller)
        body = {
            "query": check_query(query),
            "min_score": min_score,
            "explain": bool(explain),
            **self._select(projects, where),
            **self._prefer(
                limit=limit, max_tokens=max_tokens, alpha=alpha, max_total_tokens=max_total_tokens
            ),
        }
        return self._tie(self._send(post("/v1/search", Page, body=body)))

    def more(
        self,
        continuation: str,
        *,
        limit: int | None = None,
        max_tokens: int | None = None,
        restart: bool = False,
        caller: str = "",
    ) -> Page:
        """Return the page for a continuation, the same one every time.

        `limit` and `max_tokens` change this page alone. With `restart`, a continuation that has
        expired returns the first page again, with a warning. A malformed or foreign one is always
        an error.
        """
        _check_caller(caller)
        body = {
            "continuation": continuations.normalize(continuation),
            "limit": limit,
            "max_tokens": max_tokens,
            "restart": bool(restart),
            "explain": True,
            "full": True,
        }
        return self._tie(self._send(post("/v1/more", Page, body=body)))

    def ask(
        self,
        question: str,
        *,
        projects: Sequence[str] | str | None = None,
        where: Mapping[str, Any] | None = None,
        limit: int | None = None,
        conversation: Sequence[Message] = (),
        model: object = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Answer:
        """Answer a question from the best chunks, with verified citations.

        If nothing is found, no model is called. `model` is a name as in the settings, or your own
        model. Without one, the answer contains the prompt. `conversation` contains the earlier
        messages, oldest first. `on_text` is called with each piece of text.
        """
        with self.answering(
            question,
            projects=projects,
            where=where,
            limit=limit,
            conversation=conversation,
            model=model,
        ) as stream:
            for piece in stream:
                if on_text is not None:
                    on_text(piece)
            return stream.answer

    def answering(
        self,
        question: str,
        *,
        projects: Sequence[str] | str | None = None,
        where: Mapping[str, Any] | None = None,
        limit: int | None = None,
        conversation: Sequence[Message] = (),
        model: object = None,
    ) -> RemoteAnswerStream:
        """Answer a question piece by piece: iterate over the text, then read `answer`.

        Closing it ends the request at once.
        """
        if model is not None:
            raise UnsupportedError(
                "a service answers with its own model; leave `model` out, and set "
                "UNSPOOL_ANSWER_MODEL where the service runs"
            )
        check_turns(conversation)
        body = {
            "question": _replace_surrogates(question),
            "conversation": conversation,
            "stream": True,
            **self._select(projects, where),
            **self._prefer(limit=limit),
        }
        call = post("/v1/ask", Answer, body=body, repeats=False)
        return self._service.retry(call, lambda: RemoteAnswerStream(self._service, call))

    def related(
        self, path: str, line: int = 1, *, project: str | None = None, limit: int | None = None
    ) -> Page:
        """Return the chunks nearest to the one at a line of a document, without that chunk."""
        name = project or self._project
        check_findable(path, name)
        body = {
            "path": path,
            "line": line,
            "project": name or None,
            "full": True,
            **self._prefer(limit=limit),
        }
        return self._send(post("/v1/related", Page, body=body))

    def nearest(
        self,
        vector: Sequence[float],
        *,
        k: int = 10,
        projects: Sequence[str] | str | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> list[Hit]:
        """Return the k chunks with the closest vectors, without words and ranking.

        The metric is the cosine unless `vector_metric` says otherwise.
        """
        body = {"vector": vector, "k": k, **self._select(projects, where)}
        return self._send(post("/v1/nearest", list[Hit], "hits", body=body))

    def embed(self, text: str) -> list[float]:
        """Return the vector of a text in the space of this corpus, as `nearest` takes it.

        Python warns if the text is longer than the embedder reads.
        """
        body = {"text": _replace_surrogates(text)}
        return self._send(post("/v1/embed", list[float], "vector", body=body))

    def documents(
        self,
        *,
        project: str | None = None,
        status: Status | str | None = None,
        path: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[DocumentRecord]:
        """Return the records of documents, by project and path.

        `limit` and `after`, the last path of the part before, read the list of one project in
        parts.
        """
        check_listing(project, after, limit)
        wanted = parse_status(status)
        found: list[DocumentRecord] = []
        for name in self.projects() if project is None else [project]:
            try:
                found += (
                    self._list_documents(name, wanted, after, limit)
                    if path is None
                    else self._find_document(name, path, wanted, after)
                )
            except NotFoundError:
                if project is not None:
                    raise
                continue  # another caller has just deleted the project
        return found[:limit]

    def read(
        self, path: str, *, project: str | None = None, first: int = 1, last: int | None = None
    ) -> Passage:
        """Return lines of a document as they were indexed, or messages of a conversation.

        `first` and `last` are included. The default is the whole document.
        """
        check_lines(first, last)
        name = project or self._project or self._find_only_project("read")
        return self._send(
            get(
                _build_document_path(name, path),
                Passage,
                "passage",
                first=first,
                last=last,
            )
        )

    def count(self, *, project: str | None = None) -> int:
        """Return the number of chunks, in one project or in all."""
        return sum(one.chunks for one in self.status(project=project))

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens that a text has for the embedder."""
        return self._send(post("/v1/count_tokens", int, "tokens", body={"text": text}))

    def history(
        self, stream: str, *, project: str | None = None, retention: Retention | None = None
    ) -> RemoteHistory:
        """Return the responses of an endpoint, a job or a tool, newest first.

        The first append creates the stream. It belongs to `project`, by default that of the
        settings, else `default`. The default `retention` is that of the settings.
        """
        if retention is not None:
            raise UnsupportedError(
                "a service keeps as much of a stream as its own settings say; leave `retention` "
                "out, and set UNSPOOL_HISTORY_* there"
            )
        name = project or self._project or DEFAULT_PROJECT
        return RemoteHistory(self._service, stream, project=name)

    def streams(self, *, project: str | None = None) -> list[StreamStatus]:
        """Return every stream of responses, or those of one project, by project and name."""
        found: list[StreamStatus] = []
        for name in [project] if project is not None else self.projects():
            call = get(in_project(name, "streams"), list[StreamStatus], "streams")
            found += self._service.find(call, [])
        return found

    def projects(self) -> list[str]:
        """Return the names of all projects."""
        return [one.name for one in self.status()]

    def stores(self) -> list[StoreStatus]:
        """Return all stores of vectors: capabilities, driver, and what is missing to use each."""
        return self._send(get("/v1/stores", list[StoreStatus], "stores"))

    def status(self, *, project: str | None = None) -> list[ProjectStatus]:
        """Return every project with its counts, or one."""
        if project is not None:
            return [self._send(get(in_project(project), ProjectStatus))]
        return self._send(indexing.list_projects())

    # Inside

    @property
    def _project(self) -> str:
        return str(self._preferences.get("project", ""))

    def _prefer(self, **arguments: object) -> dict[str, object]:
        """Return arguments of a request, with preferences for those that are None."""
        return {
            name: self._preferences.get(name) if value is None else value
            for name, value in arguments.items()
        }

    def _select(
        self, projects: Sequence[str] | str | None, where: Mapping[str, Any] | None
    ) -> dict[str, object]:
        """Return the part of a request that selects complete chunks to search."""
        filters.parse(where)
        names = self._project or None if projects is None else projects
        projects = [names] if isinstance(names, str) else names
        return {"projects": projects, "where": where or None, "full": True}

    def _tie(self, page: Page) -> Page:
        """Return the page with its way to the next one."""
        return replace(page, follow=self.more)

    def _list_documents(
        self, project: str, status: Status | None, after: str | None, limit: int | None
    ) -> list[DocumentRecord]:
        path, size = in_project(project, "documents"), min(LISTED, limit or LISTED)
        found: list[DocumentRecord] = []
        while True:
            part = self._send(get(path, _DocumentList, status=status, after=after, limit=size))
            found += part.documents
            after = part.next
            if after is None or (limit is not None and len(found) >= limit):
                return found

    def _find_document(
        self, project: str, path: str, status: Status | None, after: str | None
    ) -> list[DocumentRecord]:
        try:
            target = _build_document_path(project, path)
            found = self._send(get(target, DocumentRecord, "document", last=1))
        except NotFoundError:
            self.status(project=project)  # raises if the project does not exist
            return []
        is_listed = status in (None, found.status) and (after is None or found.path > after)
        return [found] if is_listed else []

    def _find_only_project(self, task: str) -> str:
        known = self.status()
        names = [one.name for one in known if one.chunks] or [one.name for one in known]
        if len(names) > 1:
            raise AmbiguousError(
                f"there are {len(names)} projects and none was named; name one or more of: "
                f"{', '.join(names[:SHOWN])}; or '*' for all",
                hint=Hint.NAME_PROJECT,
            )
        if not names:
            raise NotFoundError(f"{task} needs one project; nothing is indexed yet")
        return names[0]


def _build_document_path(project: str, path: str) -> str:
    check_findable(path, project)
    return in_project(project, "documents", path)


def _replace_surrogates(text: str) -> str:
    """Return a text with question marks for lone surrogates, as a corpus searches for it."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else text
