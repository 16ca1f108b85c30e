"""The corpus for async programs, generated from `Corpus` by `python tools/generate_async.py`.

    async with unspool.aio.open() as corpus:
        page = await corpus.search("how are sessions opened?")

Every method runs in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import anyio

from unspool import opening
from unspool.access.scope import Scope
from unspool.corpus import Corpus
from unspool.domain.answers import Answer
from unspool.domain.conversations import Conversation, ConversationRecord, Message
from unspool.domain.documents import Chunk, Document, DocumentRecord, Passage, Status
from unspool.domain.events import Hook
from unspool.domain.history import PAGE, READ, HistoryPage, Record, Retention, StreamStatus
from unspool.domain.queries import Hit, Page
from unspool.domain.reports import (
    IndexReport,
    OnProgress,
    ProjectStatus,
    RememberReport,
    StoreStatus,
)
from unspool.memory.conversations import Conversations
from unspool.memory.history import History
from unspool.settings import Settings
from unspool.threads import ANSWERS_AT_ONCE, AsyncAnswerStream, manage, run

if TYPE_CHECKING:
    from unspool.client import AsyncRemoteCorpus, RemoteCorpus


_open: Callable[..., Corpus | RemoteCorpus] = opening.open


@overload
def open(  # noqa: A001
    address: str | None = None,
    *,
    vectors: str | None = None,
    embedder: object = None,
    settings: Settings | None = None,
    trust_folder: bool = False,
) -> AbstractAsyncContextManager[AsyncCorpus]: ...


@overload
def open(  # noqa: A001
    address: str | None = None,
    *,
    settings: Settings | None = None,
    key: str | None,
    trust_folder: bool = False,
) -> AbstractAsyncContextManager[AsyncRemoteCorpus]: ...


def open(  # noqa: A001
    address: str | None = None,
    *,
    vectors: str | None = None,
    embedder: object = None,
    settings: Settings | None = None,
    key: str | None = None,
    trust_folder: bool = False,
) -> AbstractAsyncContextManager[Any]:
    """Open the corpus at an address, or the one that the settings name. Create it if it does not
    exist.

    `embedder` is a name as in the settings, a LangChain `Embeddings` object, or your own embedder.
    An address such as http://host:8765 is that of a service, which gets `key` or the key of the
    settings. The result has the same methods. With `trust_folder` every setting in `unspool.toml`
    and `.env` of the current folder counts. Without it, a folder that the user does not trust can
    only set harmless ones.
    """
    return manage(
        partial(
            _open,
            address,
            vectors=vectors,
            embedder=embedder,
            settings=settings,
            key=key,
            trust_folder=trust_folder,
        ),
        _wrap,
    )


def _wrap(corpus: Corpus | RemoteCorpus) -> AsyncCorpus | AsyncRemoteCorpus:
    if isinstance(corpus, Corpus):
        return AsyncCorpus(corpus)
    from unspool.client import AsyncRemoteCorpus

    return AsyncRemoteCorpus(corpus)


class AsyncCorpus:
    """An open corpus whose methods are awaited.

    A call that is cancelled still runs to its end in its thread.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._limiter = anyio.CapacityLimiter(ANSWERS_AT_ONCE)

    @property
    def settings(self) -> Settings:
        """The settings it was opened with."""
        return self._corpus.settings

    def scoped(self, scope: Scope) -> AsyncCorpus:
        """Return this corpus for one caller, limited to its projects, role and sources.

        Keys, events, repairs and files of this machine stay with the corpus that was opened.
        """
        return AsyncCorpus(self._corpus.scoped(scope))

    async def close(self) -> None:
        """Close every file and connection."""
        return await run(self._corpus.close)

    @property
    def embedder(self) -> str:
        """Name of the active embedder. Another process may have switched it."""
        return self._corpus.embedder

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
        return await run(
            self._corpus.index, source, project=project, ref=ref, on_progress=on_progress
        )

    async def put(self, *documents: Document) -> IndexReport:
        """Store documents given as text, replacing those of the same path.

        They are findable when this returns.
        """
        return await run(self._corpus.put, *documents)

    async def forget(self, *, project: str, path: str | None = None) -> int:
        """Delete a document, or without a path the whole project; return the number deleted."""
        return await run(self._corpus.forget, project=project, path=path)

    @property
    def conversations(self) -> AsyncConversations:
        """Conversations: save, append, read, list, delete."""
        return AsyncConversations(self._corpus.conversations)

    async def remember(self, *conversations: Conversation) -> RememberReport:
        """Store conversations, all or none. Those of the same id are replaced.

        Only messages that are new or changed are embedded.
        """
        return await run(self._corpus.remember, *conversations)

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
        return await run(
            self._corpus.remember_files, paths, project=project, on_progress=on_progress
        )

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
        return replace(
            await run(
                self._corpus.search,
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
                on_progress=on_progress,
            ),
            follow=None,
        )

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
        return replace(
            await run(
                self._corpus.more,
                continuation,
                limit=limit,
                max_tokens=max_tokens,
                restart=restart,
                caller=caller,
            ),
            follow=None,
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
    ) -> AsyncAnswerStream:
        """Answer a question piece by piece: iterate over the text, then read `answer`.

        Closing it ends the request at once.
        """
        return AsyncAnswerStream(
            await run(
                self._corpus.answering,
                question,
                projects=projects,
                where=where,
                limit=limit,
                conversation=conversation,
                model=model,
            ),
            self._limiter,
        )

    async def warm(self, queries: Iterable[str], *, on_progress: OnProgress | None = None) -> int:
        """Embed queries ahead of time, for this and other processes; return how many were new."""
        return await run(self._corpus.warm, queries, on_progress=on_progress)

    def observe(self, hook: Hook) -> Callable[[], None]:
        """Call a function with every event, such as `PageServed`. Call the result to stop."""
        return self._corpus.observe(hook)

    async def related(
        self, path: str, line: int = 1, *, project: str | None = None, limit: int | None = None
    ) -> Page:
        """Return the chunks nearest to the one at a line of a document, without that chunk."""
        return replace(
            await run(self._corpus.related, path, line, project=project, limit=limit), follow=None
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
        return await run(self._corpus.nearest, vector, k=k, projects=projects, where=where)

    async def embed(self, text: str) -> list[float]:
        """Return the vector of a text in the space of this corpus, as `nearest` takes it.

        Python warns if the text is longer than the embedder reads.
        """
        return await run(self._corpus.embed, text)

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
        return await run(
            self._corpus.documents,
            project=project,
            status=status,
            path=path,
            after=after,
            limit=limit,
        )

    async def document(self, path: str, *, project: str) -> DocumentRecord:
        """Return the record of a document."""
        return await run(self._corpus.document, path, project=project)

    async def passage(
        self, path: str, *, project: str, first: int = 1, last: int | None = None
    ) -> tuple[DocumentRecord, Passage]:
        """Return the record of a document and some of its lines, in one snapshot.

        This reads the catalog that is written, so that a caller sees its own writes.
        """
        return await run(self._corpus.passage, path, project=project, first=first, last=last)

    async def read(
        self, path: str, *, project: str | None = None, first: int = 1, last: int | None = None
    ) -> Passage:
        """Return lines of a document as they were indexed, or messages of a conversation.

        `first` and `last` are included. The default is the whole document.
        """
        return await run(self._corpus.read, path, project=project, first=first, last=last)

    async def count(self, *, project: str | None = None) -> int:
        """Return the number of chunks, in one project or in all."""
        return await run(self._corpus.count, project=project)

    async def count_tokens(self, text: str) -> int:
        """Return the number of tokens that a text has for the embedder."""
        return await run(self._corpus.count_tokens, text)

    async def history(
        self, stream: str, *, project: str | None = None, retention: Retention | None = None
    ) -> AsyncHistory:
        """Return the responses of an endpoint, a job or a tool, newest first.

        The first append creates the stream. It belongs to `project`, by default that of the
        settings, else `default`. The default `retention` is that of the settings.
        """
        return AsyncHistory(
            await run(self._corpus.history, stream, project=project, retention=retention)
        )

    async def has_stream(self, stream: str, *, project: str) -> bool:
        """Return True if a stream exists, even if no record of it can be read any more."""
        return await run(self._corpus.has_stream, stream, project=project)

    async def streams(self, *, project: str | None = None) -> list[StreamStatus]:
        """Return every stream of responses, or those of one project, by project and name."""
        return await run(self._corpus.streams, project=project)

    async def projects(self) -> list[str]:
        """Return the names of all projects."""
        return await run(self._corpus.projects)

    async def stores(self) -> list[StoreStatus]:
        """Return all stores of vectors: capabilities, driver, and what is missing to use each."""
        return await run(self._corpus.stores)

    async def status(self, *, project: str | None = None) -> list[ProjectStatus]:
        """Return every project with its counts, or one."""
        return await run(self._corpus.status, project=project)

    async def size_bytes(self) -> int:
        """Return the size of the catalog on disk."""
        return await run(self._corpus.size_bytes)

    async def project_of(self, path: str | Path) -> str | None:
        """Return the project that was indexed from a path or from the nearest folder above it."""
        return await run(self._corpus.project_of, path)

    async def root_of(self, project: str) -> str:
        """Return the path that a project was indexed from; empty if its documents were given as
        text.
        """
        return await run(self._corpus.root_of, project)

    async def source_of(self, project: str) -> str:
        """Return the path or git URL that a project can be indexed from again."""
        return await run(self._corpus.source_of, project)

    async def refresh(self, *, on_progress: OnProgress | None = None) -> list[str]:
        """Bring the index up to date, and rebuild missing or damaged parts; return the repairs."""
        return await run(self._corpus.refresh, on_progress=on_progress)


class AsyncConversations:
    """Conversations whose methods are awaited."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    async def save(self, *conversations: Conversation) -> RememberReport:
        """Store conversations, all or none. Those of the same id are replaced.

        Only messages that are new or changed are embedded.
        """
        return await run(self._conversations.save, *conversations)

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
        return await run(self._conversations.load, files, project=project, on_progress=on_progress)

    async def append(
        self, id: str, *messages: Message, project: str | None = None
    ) -> RememberReport:
        """Append messages to a conversation, or create it. The messages before are not read.

        A message whose id exists already is counted as a duplicate and left out, so that a caller
        can safely repeat the call.
        """
        return await run(self._conversations.append, id, *messages, project=project)

    async def get(
        self, id: str, *, project: str | None = None, last: int | None = None
    ) -> Conversation | None:
        """Return a conversation with its messages, or with the last so many; None if missing."""
        return await run(self._conversations.get, id, project=project, last=last)

    async def exists(self, id: str, *, project: str | None = None) -> bool:
        """Return True if there is a conversation of that id."""
        return await run(self._conversations.exists, id, project=project)

    async def list(
        self, *, project: str | None = None, skip: int = 0, limit: int = 100
    ) -> Sequence[ConversationRecord]:
        """Return conversations without their messages, the latest first."""
        return await run(self._conversations.list, project=project, skip=skip, limit=limit)

    async def count(self, *, project: str | None = None) -> int:
        """Return the number of conversations."""
        return await run(self._conversations.count, project=project)

    async def chunks(self, id: str, *, project: str | None = None) -> Sequence[Chunk]:
        """Return the chunks of a conversation in order: one or more per message."""
        return await run(self._conversations.chunks, id, project=project)

    async def chunk(self, chunk_id: int, *, project: str | None = None) -> Chunk | None:
        """Return a chunk of a conversation by its id, as a hit names it; None if missing."""
        return await run(self._conversations.chunk, chunk_id, project=project)

    async def delete(self, id: str, *, project: str | None = None) -> bool:
        """Delete a conversation with its messages; return False if there was none."""
        return await run(self._conversations.delete, id, project=project)


class AsyncHistory:
    """A history whose methods are awaited."""

    def __init__(self, history: History) -> None:
        self._history = history

    @property
    def stream(self) -> str:
        """Name of the stream."""
        return self._history.stream

    async def append(self, body: str, at: datetime | None = None) -> Record:
        """Add a response with a time, by default now. Secrets are masked before it is stored.

        This removes some records that are past the retention. A record that is itself past the
        retention is not kept.
        """
        return await run(self._history.append, body, at)

    async def read(self, limit: int = READ, offset: int = 0) -> list[Record]:
        """Return complete records, newest first, without the first `offset`. For programs."""
        return await run(self._history.read, limit, offset)

    async def page(self, limit: int = PAGE, offset: int = 0, *, full: bool = False) -> HistoryPage:
        """Return a few records for an agent. Long bodies are truncated, repeated ones flagged.

        With `full`, every body is complete.
        """
        return await run(self._history.page, limit, offset, full=full)

    async def count(self) -> int:
        """Return the number of readable records."""
        return await run(self._history.count)

    async def prune(self) -> int:
        """Remove every record past the retention, and return how many."""
        return await run(self._history.prune)

    async def clear(self) -> int:
        """Remove every record, and return how many. The next record gets number 1."""
        return await run(self._history.clear)
