"""A corpus in a service: the methods of `Corpus`, each sent over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from unspool.client import calls, flows
from unspool.client.conversations import RemoteConversations
from unspool.client.histories import RemoteHistory
from unspool.client.preferences import Preferences
from unspool.client.sending import Sender
from unspool.client.service import Service
from unspool.client.streams import RemoteAnswerStream
from unspool.domain.answers import Answer
from unspool.domain.conversations import Conversation, Message
from unspool.domain.documents import DEFAULT_PROJECT, Document, DocumentRecord, Passage, Status
from unspool.domain.history import Retention, StreamStatus
from unspool.domain.queries import Hit, Page
from unspool.domain.reports import (
    IndexReport,
    OnProgress,
    ProjectStatus,
    RememberReport,
    StoreStatus,
)
from unspool.settings import Settings

ROOM_BYTES = 500  # of a body for what is around documents
ELSEWHERE = "keys observe project_of refresh root_of size_bytes warm".split()


def service_of(address: str, key: str | None, settings: Settings) -> Service:
    """Where a corpus is asked for, and with which key."""
    given = settings.client.key if key is None else key
    return Service(
        address, key=given, request_s=settings.serve.timeout_s, answer_s=settings.answer.timeout_s
    )


def sendable(settings: Settings) -> int:
    """How many bytes of documents go into one request."""
    return settings.serve.max_body_bytes - ROOM_BYTES


def missing(kind: str, name: str) -> AttributeError:
    """What is said of a method that only a corpus of this process has."""
    why = (
        "; that is done where the service runs, with the command line or a corpus opened there"
        if name in ELSEWHERE
        else ""
    )
    return AttributeError(f"{kind} has no {name!r}{why}")


class RemoteCorpus:
    """A corpus in a service.

    Safe to use from several threads. Its results are those of a `Corpus`, its errors, too.
    """

    def __init__(
        self, address: str, *, key: str | None = None, settings: Settings | None = None
    ) -> None:
        self.settings = Settings.load() if settings is None else settings
        self._own = Preferences.of(self.settings)
        self._sender = Sender(service_of(address, key, self.settings))
        self._most = sendable(self.settings)

    def __repr__(self) -> str:
        return f"RemoteCorpus({self._sender.service.place!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    if not TYPE_CHECKING:  # a type checker shall complain of what is not there

        def __getattr__(self, name: str) -> Any:
            raise missing("a corpus in a service", name)

    def close(self) -> None:
        """Close every file and connection."""
        self._sender.close()

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
        return self._sender.run(
            flows.index(
                str(source),
                project=project,
                ref=ref,
                on_progress=on_progress,
                made=self._sender.service.made,
            )
        )

    def put(self, *documents: Document) -> IndexReport:
        """Store documents given as text, replacing those of the same path.

        They are findable when this returns.
        """
        return self._sender.run(flows.put(documents, most=self._most))

    def forget(self, *, project: str, path: str | None = None) -> int:
        """Delete a document, or without a path the whole project; return the number deleted."""
        return self._sender.send(calls.forget(project, path))

    # Conversations

    @property
    def conversations(self) -> RemoteConversations:
        """Conversations: save, append, read, list, delete."""
        return RemoteConversations(self._sender, self._own.project, most=self._most)

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
        call = calls.search(
            self._own,
            query,
            projects=projects,
            limit=limit,
            max_tokens=max_tokens,
            alpha=alpha,
            where=where,
            min_score=min_score,
            explain=explain,
            max_total_tokens=max_total_tokens,
            caller=caller,
        )
        return self._tied(self._sender.send(call))

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
        call = calls.more(
            continuation, limit=limit, max_tokens=max_tokens, restart=restart, caller=caller
        )
        return self._tied(self._sender.send(call))

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
        call = calls.ask(
            self._own,
            question,
            projects=projects,
            where=where,
            limit=limit,
            conversation=conversation,
            model=model,
        )
        return self._sender.repeated(call, lambda: RemoteAnswerStream(self._sender, call))

    def related(
        self, path: str, line: int = 1, *, project: str | None = None, limit: int | None = None
    ) -> Page:
        """Return the chunks nearest to the one at a line of a document, without that chunk."""
        return self._sender.send(calls.related(self._own, path, line, project=project, limit=limit))

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
        return self._sender.send(
            calls.nearest(self._own, vector, k=k, projects=projects, where=where)
        )

    def embed(self, text: str) -> list[float]:
        """Return the vector of a text in the space of this corpus, as `nearest` takes it.

        Python warns if the text is longer than the embedder reads.
        """
        return self._sender.send(calls.embed(text))

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
        return self._sender.run(
            flows.documents(project=project, status=status, path=path, after=after, limit=limit)
        )

    def read(
        self, path: str, *, project: str | None = None, first: int = 1, last: int | None = None
    ) -> Passage:
        """Return lines of a document as they were indexed, or messages of a conversation.

        `first` and `last` are included. The default is the whole document.
        """
        return self._sender.run(
            flows.read(path, project=project or self._own.project, first=first, last=last)
        )

    def count(self, *, project: str | None = None) -> int:
        """Return the number of chunks, in one project or in all."""
        return self._sender.run(flows.count(project))

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens that a text has for the embedder."""
        return self._sender.send(calls.count_tokens(text))

    def history(
        self, stream: str, *, project: str | None = None, retention: Retention | None = None
    ) -> RemoteHistory:
        """Return the responses of an endpoint, a job or a tool, newest first.

        The first append creates the stream. It belongs to `project`, by default that of the
        settings, else `default`. The default `retention` is that of the settings.
        """
        return RemoteHistory(
            self._sender,
            calls.stream(project or self._own.project or DEFAULT_PROJECT, stream, retention),
        )

    def streams(self, *, project: str | None = None) -> list[StreamStatus]:
        """Return every stream of responses, or those of one project, by project and name."""
        return self._sender.run(flows.streams(project))

    def projects(self) -> list[str]:
        """Return the names of all projects."""
        return self._sender.run(flows.names())

    def stores(self) -> list[StoreStatus]:
        """Return the stores of vectors and their capabilities."""
        return self._sender.send(calls.stores())

    def status(self, *, project: str | None = None) -> list[ProjectStatus]:
        """Return every project with its counts, or one."""
        return self._sender.run(flows.status(project))

    # Inside

    def _tied(self, page: Page) -> Page:
        """The page, with its way to the next."""
        return replace(page, follow=self.more)
