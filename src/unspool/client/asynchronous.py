"""The same corpus in a service for async programs: the same calls, awaited."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from unspool.client import calls, flows
from unspool.client.corpus import RemoteCorpus, missing, sendable
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

    def __init__(self, corpus: RemoteCorpus) -> None:
        self._corpus = corpus
        self._settings = corpus.settings
        self._own = Preferences.of(self._settings)
        self._sender = AsyncSender(corpus._sender.service)
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
        """Let go of every file and connection."""
        await self._sender.close()
        self._corpus.close()

    async def index(
        self,
        source: str | Path,
        *,
        project: str | None = None,
        ref: str = "",
        on_progress: OnProgress | None = None,
    ) -> IndexReport:
        """Bring a project up to date with a folder, a file or a git URL. The project is called
        after it unless named.
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
        """What was said: saved, continued, read, listed, deleted."""
        return AsyncRemoteConversations(self._sender, self._own.project, most=self._most)

    async def remember(self, *conversations: Conversation) -> RememberReport:
        """Store conversations, all or none: those of the same id are replaced, and only messages
        that are new or changed are embedded.
        """
        return await self.conversations.save(*conversations)

    async def remember_files(
        self,
        paths: Sequence[str | Path] | str | Path,
        *,
        project: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> RememberReport:
        """Take in exports of conversations: ChatGPT, Claude, Slack, JSON, JSONL, transcripts of
        agents. What cannot be read is reported.
        """
        return await self.conversations.load(paths, project=project, on_progress=on_progress)

    async def forget(self, *, project: str, path: str | None = None) -> int:
        """Remove a document, or with no path the whole project; returns how many documents went."""
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
        """The best chunks for a query, best first. With no project named, the only one there is;
        never several by accident.

        `max_total_tokens` caps this page and all that follow it together. `caller` binds the
        continuation: nobody else can use it.
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
        """The page that a continuation leads to: the same one every time. `limit` and `max_tokens`
        change this page alone.

        With `restart`, a continuation that cannot be followed any more gives the first page again,
        with a warning; one that never was any, or was somebody else's, is an error all the same.
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
        """What a model answers from the best chunks for a question, each citation checked. Where
        nothing is found, no model is called.

        `model` is a name as in the settings or a model of one's own; with none, the answer holds
        what one would be shown. `conversation` is what was said before, oldest first. `on_text` is
        called with each piece as it comes.
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
        """The same as `ask`, piece by piece: iterate over the text, then look at `answer`.

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
        """The chunks most like the one at a line of a document, itself left out."""
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
        """The k chunks whose vectors are closest, by cosine unless `vector_metric` says
        otherwise: raw vector search, no words and no ranking.
        """
        return await self._sender.send(
            calls.nearest(self._own, vector, k=k, projects=projects, where=where)
        )

    async def embed(self, text: str) -> list[float]:
        """A text's vector in this corpus's space, as `nearest` takes it."""
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
        """What is known of each document, by project and path. A project's can be had in parts:
        `limit` of them, `after` the last path of the ones before."""
        return await self._sender.run(
            flows.documents(project=project, status=status, path=path, after=after, limit=limit)
        )

    async def read(
        self, path: str, *, project: str | None = None, first: int = 1, last: int | None = None
    ) -> Passage:
        """The lines of a document from one to another, both included, or to its end, as they
        were indexed; of a conversation the messages.
        """
        return await self._sender.run(
            flows.read(path, project=project or self._own.project, first=first, last=last)
        )

    async def count(self, *, project: str | None = None) -> int:
        """How many chunks there are, in one project or in all."""
        return await self._sender.run(flows.count(project))

    async def count_tokens(self, text: str) -> int:
        """How many tokens a text has for the embedder."""
        return await self._sender.send(calls.count_tokens(text))

    async def history(
        self, stream: str, *, project: str | None = None, retention: Retention | None = None
    ) -> AsyncRemoteHistory:
        """The responses of an endpoint, a job or a tool, newest first. Nothing is made before the
        first one is appended.

        A stream belongs to a project: the one named, else the setting's, else `default`.
        `retention` is the settings' unless given.
        """
        return AsyncRemoteHistory(
            self._sender,
            calls.stream(project or self._own.project or DEFAULT_PROJECT, stream, retention),
        )

    async def streams(self, *, project: str | None = None) -> list[StreamStatus]:
        """Every stream of responses, or those of one project, by project and name."""
        return await self._sender.run(flows.streams(project))

    async def projects(self) -> list[str]:
        """The names of all projects."""
        return await self._sender.run(flows.names())

    async def stores(self) -> list[StoreStatus]:
        """Where vectors are kept, and what can be done there."""
        return await self._sender.send(calls.stores())

    async def status(self, *, project: str | None = None) -> list[ProjectStatus]:
        """Every project with its counts, or one."""
        return await self._sender.run(flows.status(project))


class AsyncRemoteConversations:
    """Conversations in a service, whose methods are awaited."""

    def __init__(self, sender: AsyncSender, project: str, *, most: int) -> None:
        self._sender = sender
        self._project = project or DEFAULT_CONVERSATIONS
        self._most = most

    async def save(self, *conversations: Conversation) -> RememberReport:
        """Store conversations, all or none: those of the same id are replaced, and only messages
        that are new or changed are embedded.
        """
        return await self._sender.run(flows.save(conversations))

    async def load(
        self,
        files: Sequence[str | Path] | str | Path,
        *,
        project: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> RememberReport:
        """Take in exports of conversations, each conversation whole or not at all; what cannot
        be read is reported.
        """
        flow = flows.load(
            files, project=project or self._project, on_progress=on_progress, most=self._most
        )
        return await self._sender.run(flow, in_thread=True)

    async def append(
        self, id: str, *messages: Message, project: str | None = None
    ) -> RememberReport:
        """Store messages behind a conversation's last, without reading those before; a conversation
        that does not exist begins with them.

        A message that is there already, by its id, is left out and counted as a duplicate: whoever
        is not sure that it arrived sends it again.
        """
        return await self._sender.send(
            calls.append_messages(project or self._project, id, messages)
        )

    async def get(
        self, id: str, *, project: str | None = None, last: int | None = None
    ) -> Conversation | None:
        """A conversation with its messages in order, or only the last so many of them; None
        where there is none.
        """
        return await self._sender.run(
            flows.absent(calls.conversation(project or self._project, id, last=last), None)
        )

    async def exists(self, id: str, *, project: str | None = None) -> bool:
        """Whether there is a conversation of that id."""
        return await self._sender.run(flows.exists(project or self._project, id))

    async def list(
        self, *, project: str | None = None, skip: int = 0, limit: int = 100
    ) -> Sequence[ConversationRecord]:
        """Conversations without their messages, those that began last first."""
        return await self._sender.run(
            flows.absent(calls.conversations(project or self._project, skip=skip, limit=limit), [])
        )

    async def count(self, *, project: str | None = None) -> int:
        """How many conversations there are."""
        return await self._sender.run(
            flows.absent(calls.conversation_count(project or self._project), 0)
        )

    async def chunks(self, id: str, *, project: str | None = None) -> Sequence[Chunk]:
        """What is searched of a conversation, in order: a chunk for each message, several for a
        long one.
        """
        return await self._sender.run(
            flows.absent(calls.conversation_chunks(project or self._project, id), [])
        )

    async def chunk(self, chunk_id: int, *, project: str | None = None) -> Chunk | None:
        """Return one of these chunks by its id, as a hit names it; None if the project has no
        such chunk.
        """
        return await self._sender.run(
            flows.absent(calls.conversation_chunk(project or self._project, chunk_id), None)
        )

    async def delete(self, id: str, *, project: str | None = None) -> bool:
        """Remove a conversation with everything under it; False where there was none."""
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
        """Its name."""
        return self._place.stream

    async def append(self, body: str, at: datetime | None = None) -> Record:
        """Add a response, given now unless a time is named. Secrets in it are masked before it is
        stored.

        A few records that are past the retention go. One that is older than what is kept is not
        kept either.
        """
        return await self._sender.send(calls.append_record(self._place, body, at))

    async def read(self, limit: int = READ, offset: int = 0) -> list[Record]:
        """Whole records, newest first, without the first `offset`; for programs."""
        return await self._sender.run(flows.records(self._place, limit=limit, offset=offset))

    async def page(self, limit: int = PAGE, offset: int = 0, *, full: bool = False) -> HistoryPage:
        """A few records for an agent: long bodies are cut, repeated ones only flagged.

        `full`, they are all there and whole.
        """
        return await self._sender.run(
            flows.history_page(self._place, limit=limit, offset=offset, full=full)
        )

    async def count(self) -> int:
        """How many records there are to read."""
        return await self._sender.run(flows.absent(calls.record_count(self._place), 0))

    async def prune(self) -> int:
        """Remove everything that is past the retention; returns how many records went."""
        return await self._sender.run(flows.absent(calls.prune_history(self._place), 0))

    async def clear(self) -> int:
        """Remove every record; returns how many went. The next one is number 1."""
        return await self._sender.run(flows.absent(calls.clear_history(self._place), 0))
