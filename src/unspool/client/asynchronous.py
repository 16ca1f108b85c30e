"""The same corpus in a service for async programs: the same calls, awaited."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from unspool.client import calls, flows
from unspool.client.corpus import missing, sendable, service_of
from unspool.client.preferences import Preferences
from unspool.client.sending import AsyncSender
from unspool.client.streams import AsyncRemoteAnswerStream
from unspool.domain.answers import Answer
from unspool.domain.conversations import DEFAULT_PROJECT as DEFAULT_CONVERSATIONS
from unspool.domain.conversations import Conversation, ConversationRecord, Message
from unspool.domain.documents import (
    DEFAULT_PROJECT,
    Chunk,
    Document,
    DocumentRecord,
    Passage,
    Status,
)
from unspool.domain.history import PAGE, READ, HistoryPage, Record, Retention, StreamStatus
from unspool.domain.queries import Hit, Page
from unspool.domain.reports import (
    IndexReport,
    OnProgress,
    ProjectStatus,
    RememberReport,
    StoreStatus,
)
from unspool.settings import Settings


class AsyncRemoteCorpus:
    """A corpus in a service, whose methods are awaited.

    A call that is cancelled ends its request.
    """

    def __init__(
        self, address: str, *, key: str | None = None, settings: Settings | None = None
    ) -> None:
        self._settings = Settings.load() if settings is None else settings
        self._own = Preferences.of(self._settings)
        self._sender = AsyncSender(service_of(address, key, self._settings))
        self._most = sendable(self._settings)

    def __repr__(self) -> str:
        return f"AsyncRemoteCorpus({self._sender.service.place!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    if not TYPE_CHECKING:  # a type checker shall complain of what is not there

        def __getattr__(self, name: str) -> Any:
            raise missing("a corpus in a service", name)

    @property
    def settings(self) -> Settings:
        """The settings it was opened with."""
        return self._settings

    async def close(self) -> None:
        """Close every file and connection."""
        await self._sender.close()

    async def index(
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
        flow = flows.index(
            str(source),
            project=project,
            ref=ref,
            on_progress=on_progress,
            made=self._sender.service.made,
        )
        return await self._sender.run(flow)

    async def put(self, *documents: Document) -> IndexReport:
        """Store documents given as text, replacing those of the same path.

        They are findable when this returns.
        """
        return await self._sender.run(flows.put(documents, most=self._most), in_thread=True)

    @property
    def conversations(self) -> AsyncRemoteConversations:
        """Conversations: save, append, read, list, delete."""
        return AsyncRemoteConversations(self._sender, self._own.project, most=self._most)

    async def remember(self, *conversations: Conversation) -> RememberReport:
        """Store conversations, all or none. Those of the same id are replaced.

        Only messages that are new or changed are embedded.
        """
        return await self.conversations.save(*conversations)

    async def remember_files(
        self,
        paths: Sequence[str | Path] | str | Path,
        *,
        project: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> RememberReport:
        """Import exports of conversations: ChatGPT, Claude, Slack, JSON, JSONL, agent transcripts.

        Invalid records are reported.
        """
        return await self.conversations.load(paths, project=project, on_progress=on_progress)

    async def forget(self, *, project: str, path: str | None = None) -> int:
        """Delete a document, or without a path the whole project; return the number deleted."""
        return await self._sender.send(calls.forget(project, path))

    async def search(
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
        return await self._sender.send(call)

    async def more(
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
        return await self._sender.send(
            calls.more(
                continuation, limit=limit, max_tokens=max_tokens, restart=restart, caller=caller
            )
        )

    async def ask(
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
        async with await self.answering(
            question,
            projects=projects,
            where=where,
            limit=limit,
            conversation=conversation,
            model=model,
        ) as stream:
            async for piece in stream:
                if on_text is not None:
                    on_text(piece)
            return stream.answer

    async def answering(
        self,
        question: str,
        *,
        projects: Sequence[str] | str | None = None,
        where: Mapping[str, Any] | None = None,
        limit: int | None = None,
        conversation: Sequence[Message] = (),
        model: object = None,
    ) -> AsyncRemoteAnswerStream:
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
        return await self._sender.repeated(
            call, lambda: AsyncRemoteAnswerStream(self._sender).begin(call)
        )

    async def related(
        self, path: str, line: int = 1, *, project: str | None = None, limit: int | None = None
    ) -> Page:
        """Return the chunks nearest to the one at a line of a document, without that chunk."""
        return await self._sender.send(
            calls.related(self._own, path, line, project=project, limit=limit)
        )

    async def nearest(
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
        return await self._sender.send(
            calls.nearest(self._own, vector, k=k, projects=projects, where=where)
        )

    async def embed(self, text: str) -> list[float]:
        """Return the vector of a text in the space of this corpus, as `nearest` takes it.

        Python warns if the text is longer than the embedder reads.
        """
        return await self._sender.send(calls.embed(text))

    async def documents(
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
        return await self._sender.run(
            flows.documents(project=project, status=status, path=path, after=after, limit=limit)
        )

    async def read(
        self, path: str, *, project: str | None = None, first: int = 1, last: int | None = None
    ) -> Passage:
        """Return lines of a document as they were indexed, or messages of a conversation.

        `first` and `last` are included. The default is the whole document.
        """
        return await self._sender.run(
            flows.read(path, project=project or self._own.project, first=first, last=last)
        )

    async def count(self, *, project: str | None = None) -> int:
        """Return the number of chunks, in one project or in all."""
        return await self._sender.run(flows.count(project))

    async def count_tokens(self, text: str) -> int:
        """Return the number of tokens that a text has for the embedder."""
        return await self._sender.send(calls.count_tokens(text))

    async def history(
        self, stream: str, *, project: str | None = None, retention: Retention | None = None
    ) -> AsyncRemoteHistory:
        """Return the responses of an endpoint, a job or a tool, newest first.

        The first append creates the stream. It belongs to `project`, by default that of the
        settings, else `default`. The default `retention` is that of the settings.
        """
        return AsyncRemoteHistory(
            self._sender,
            calls.stream(project or self._own.project or DEFAULT_PROJECT, stream, retention),
        )

    async def streams(self, *, project: str | None = None) -> list[StreamStatus]:
        """Return every stream of responses, or those of one project, by project and name."""
        return await self._sender.run(flows.streams(project))

    async def projects(self) -> list[str]:
        """Return the names of all projects."""
        return await self._sender.run(flows.names())

    async def stores(self) -> list[StoreStatus]:
        """Return the stores of vectors and their capabilities."""
        return await self._sender.send(calls.stores())

    async def status(self, *, project: str | None = None) -> list[ProjectStatus]:
        """Return every project with its counts, or one."""
        return await self._sender.run(flows.status(project))


class AsyncRemoteConversations:
    """Conversations in a service, whose methods are awaited."""

    def __init__(self, sender: AsyncSender, project: str, *, most: int) -> None:
        self._sender = sender
        self._project = project or DEFAULT_CONVERSATIONS
        self._most = most

    async def save(self, *conversations: Conversation) -> RememberReport:
        """Store conversations, all or none. Those of the same id are replaced.

        Only messages that are new or changed are embedded.
        """
        return await self._sender.run(flows.save(conversations))

    async def load(
        self,
        files: Sequence[str | Path] | str | Path,
        *,
        project: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> RememberReport:
        """Import exports of conversations, each conversation whole or not at all.

        Invalid records are reported.
        """
        flow = flows.load(
            files, project=project or self._project, on_progress=on_progress, most=self._most
        )
        return await self._sender.run(flow, in_thread=True)

    async def append(
        self, id: str, *messages: Message, project: str | None = None
    ) -> RememberReport:
        """Append messages to a conversation, or create it. The messages before are not read.

        A message whose id exists already is counted as a duplicate and left out, so that a caller
        can safely repeat the call.
        """
        return await self._sender.send(
            calls.append_messages(project or self._project, id, messages)
        )

    async def get(
        self, id: str, *, project: str | None = None, last: int | None = None
    ) -> Conversation | None:
        """Return a conversation with its messages, or with the last so many; None if missing."""
        return await self._sender.run(
            flows.absent(calls.conversation(project or self._project, id, last=last), None)
        )

    async def exists(self, id: str, *, project: str | None = None) -> bool:
        """Return True if there is a conversation of that id."""
        return await self._sender.run(flows.exists(project or self._project, id))

    async def list(
        self, *, project: str | None = None, skip: int = 0, limit: int = 100
    ) -> Sequence[ConversationRecord]:
        """Return conversations without their messages, the latest first."""
        return await self._sender.run(
            flows.absent(calls.conversations(project or self._project, skip=skip, limit=limit), [])
        )

    async def count(self, *, project: str | None = None) -> int:
        """Return the number of conversations."""
        return await self._sender.run(
            flows.absent(calls.conversation_count(project or self._project), 0)
        )

    async def chunks(self, id: str, *, project: str | None = None) -> Sequence[Chunk]:
        """Return the chunks of a conversation in order: one or more per message."""
        return await self._sender.run(
            flows.absent(calls.conversation_chunks(project or self._project, id), [])
        )

    async def chunk(self, chunk_id: int, *, project: str | None = None) -> Chunk | None:
        """Return a chunk of a conversation by its id, as a hit names it; None if missing."""
        return await self._sender.run(
            flows.absent(calls.conversation_chunk(project or self._project, chunk_id), None)
        )

    async def delete(self, id: str, *, project: str | None = None) -> bool:
        """Delete a conversation with its messages; return False if there was none."""
        return await self._sender.run(
            flows.absent(calls.delete_conversation(project or self._project, id), False)
        )


class AsyncRemoteHistory:
    """A history in a service, whose methods are awaited."""

    def __init__(self, sender: AsyncSender, place: calls.Stream) -> None:
        self._sender = sender
        self._place = place

    @property
    def stream(self) -> str:
        """Name of the stream."""
        return self._place.stream

    async def append(self, body: str, at: datetime | None = None) -> Record:
        """Add a response with a time, by default now. Secrets are masked before it is stored.

        This removes some records that are past the retention. A record that is itself past the
        retention is not kept.
        """
        return await self._sender.send(calls.append_record(self._place, body, at))

    async def read(self, limit: int = READ, offset: int = 0) -> list[Record]:
        """Return complete records, newest first, without the first `offset`. For programs."""
        return await self._sender.run(flows.records(self._place, limit=limit, offset=offset))

    async def page(self, limit: int = PAGE, offset: int = 0, *, full: bool = False) -> HistoryPage:
        """Return a few records for an agent. Long bodies are truncated, repeated ones flagged.

        With `full`, every body is complete.
        """
        return await self._sender.run(
            flows.history_page(self._place, limit=limit, offset=offset, full=full)
        )

    async def count(self) -> int:
        """Return the number of readable records."""
        return await self._sender.run(flows.absent(calls.record_count(self._place), 0))

    async def prune(self) -> int:
        """Remove every record past the retention, and return how many."""
        return await self._sender.run(flows.absent(calls.prune_history(self._place), 0))

    async def clear(self) -> int:
        """Remove every record, and return how many. The next record gets number 1."""
        return await self._sender.run(flows.absent(calls.clear_history(self._place), 0))
