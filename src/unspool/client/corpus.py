"""A corpus in a service: the methods of `Corpus`, each sent over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from unspool.client import calls, indexing
from unspool.client.conversations import RemoteConversations
from unspool.client.histories import RemoteHistory
from unspool.client.preferences import Preferences
from unspool.client.sending import Sender
from unspool.client.service import Service
from unspool.client.streams import RemoteAnswerStream
from unspool.domain.answers import Answer
from unspool.domain.conversations import Conversation, Message
from unspool.domain.documents import (
    DEFAULT_PROJECT,
    Document,
    DocumentRecord,
    Passage,
    Status,
    check_listed,
    checked_status,
)
from unspool.domain.history import Retention, StreamStatus
from unspool.domain.queries import Hit, Page
from unspool.domain.reports import (
    IndexReport,
    OnProgress,
    ProjectStatus,
    RememberReport,
    StoreStatus,
)
from unspool.errors import AmbiguousError, InputError, NotFoundError
from unspool.settings import Settings

LISTED = 1_000  # documents in one answer
SHOWN = 20  # names in a message
ROOM_BYTES = 500  # of a body for what is around documents
ELSEWHERE = "keys observe project_of refresh root_of size_bytes warm".split()


def describe_missing(name: str) -> AttributeError:
    """Return the error for a method that only a corpus of this process has."""
    why = (
        "; that is done where the service runs, with the command line or a corpus opened there"
        if name in ELSEWHERE
        else ""
    )
    return AttributeError(f"a corpus in a service has no {name!r}{why}")


class RemoteCorpus:
    """A corpus in a service.

    Safe to use from several threads. Its results are those of a `Corpus`, its errors, too.
    """

    def __init__(
        self, address: str, *, key: str | None = None, settings: Settings | None = None
    ) -> None:
        self.settings = Settings.load() if settings is None else settings
        self._own = Preferences.of(self.settings)
        self._sender = Sender(
            Service(
                address,
                key=self.settings.client.key if key is None else key,
                request_s=self.settings.serve.timeout_s,
                answer_s=self.settings.answer.timeout_s,
            )
        )
        # bytes of documents in one request
        self._most = self.settings.serve.max_body_bytes - ROOM_BYTES

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
            raise describe_missing(name)

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
        return indexing.index_source(
            self._sender, str(source), project=project, ref=ref, on_progress=on_progress
        )

    def put(self, *documents: Document) -> IndexReport:
        """Store documents given as text, replacing those of the same path.

        They are findable when this returns.
        """
        return indexing.put_documents(self._sender, documents, most=self._most)

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
        return self._tie(self._sender.send(call))

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
        return self._tie(self._sender.send(call))

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
        return self._sender.retry(call, lambda: RemoteAnswerStream(self._sender, call))

    def related(
        self, path: str, line: int = 1, *, project: str | None = None, limit: int | None = None
    ) -> Page:
        """Return the chunks nearest to the one at a line of a document, without that chunk."""
        return self._sender.send(
            calls.find_similar(self._own, path, line, project=project, limit=limit)
        )

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
        check_listed(project, after, limit)
        wanted = checked_status(status)
        found: list[DocumentRecord] = []
        for name in [project] if project is not None else self.projects():
            left = None if limit is None else limit - len(found)
            if left == 0:
                break
            try:
                if path is None:
                    found += self._list_documents(name, wanted, after, left)
                else:
                    found += self._find_document(name, path, wanted, after)
            except NotFoundError:
                if project is not None:
                    raise
                continue  # another caller has just deleted the project
        return found

    def read(
        self, path: str, *, project: str | None = None, first: int = 1, last: int | None = None
    ) -> Passage:
        """Return lines of a document as they were indexed, or messages of a conversation.

        `first` and `last` are included. The default is the whole document.
        """
        if not (isinstance(first, int) and first >= 1 and (last is None or isinstance(last, int))):
            raise InputError(
                f"lines {first!r} to {last!r} cannot be read; lines are whole numbers counted "
                f"from 1"
            )
        if last is not None and last < first:
            raise InputError(
                f"line {last} is before line {first}; give the first line and then the last"
            )
        name = project or self._own.project or self._find_only_project("read")
        return self._sender.send(calls.read(name, path, first=first, last=last))

    def count(self, *, project: str | None = None) -> int:
        """Return the number of chunks, in one project or in all."""
        return sum(one.chunks for one in self.status(project=project))

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
        found: list[StreamStatus] = []
        for name in [project] if project is not None else self.projects():
            found += self._sender.find(calls.streams(name), [])
        return found

    def projects(self) -> list[str]:
        """Return the names of all projects."""
        return [one.name for one in self.status()]

    def stores(self) -> list[StoreStatus]:
        """Return the stores of vectors and their capabilities."""
        return self._sender.send(calls.stores())

    def status(self, *, project: str | None = None) -> list[ProjectStatus]:
        """Return every project with its counts, or one."""
        if project is None:
            return self._sender.send(calls.status())
        return [self._sender.send(calls.project_status(project))]

    # Inside

    def _tie(self, page: Page) -> Page:
        """Return the page with its way to the next one."""
        return replace(page, follow=self.more)

    def _list_documents(
        self, project: str, status: Status | None, after: str | None, limit: int | None
    ) -> list[DocumentRecord]:
        found: list[DocumentRecord] = []
        while True:
            left = LISTED if limit is None else min(LISTED, limit - len(found))
            some, after = self._sender.send(
                calls.documents(project, status=status, after=after, limit=left)
            )
            found += some
            if after is None or len(found) == limit:
                return found

    def _find_document(
        self, project: str, path: str, status: Status | None, after: str | None
    ) -> list[DocumentRecord]:
        try:
            found = self._sender.send(calls.document(project, path))
        except NotFoundError:
            # raises if it is the project that does not exist
            self._sender.send(calls.project_status(project))
            return []
        is_listed = status in (None, found.status) and (after is None or found.path > after)
        return [found] if is_listed else []

    def _find_only_project(self, task: str) -> str:
        known = self.status()
        filled = [one.name for one in known if one.chunks] or [one.name for one in known]
        if len(filled) > 1:
            shown = ", ".join(filled[:SHOWN])
            raise AmbiguousError(
                f"there are {len(filled)} projects and none was named; name one or more of: "
                f"{shown}; or '*' for all (--project on the command line)"
            )
        if not filled:
            raise NotFoundError(f"{task} needs one project; nothing is indexed yet")
        return filled[0]
