"""Conversations and histories in a service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from unspool import (
    BadRecord,
    Chunk,
    Conversation,
    ConversationRecord,
    HistoryPage,
    Message,
    Record,
    RememberReport,
    wire,
)
from unspool.client.call import Call, delete, get, in_project, post
from unspool.client.indexing import split_batches
from unspool.client.service import Service
from unspool.domain.conversations import DEFAULT_PROJECT, check_conversations, check_files
from unspool.domain.documents import check_path
from unspool.domain.history import (
    MAX_OFFSET,
    MAX_PAGE,
    MAX_READ,
    PAGE,
    READ,
    check_body,
    check_range,
    check_stream,
    normalize_time,
)
from unspool.domain.reports import OnProgress
from unspool.errors import ConflictError, InputError, SwitchedError

if TYPE_CHECKING:
    from unspool.sources.conversations.loading import ImportCounts


class RemoteConversations:
    """Conversations in a service.

    The default project is that of the settings, else 'conversations'.
    """

    def __init__(self, service: Service, project: str, *, most: int) -> None:
        self._send, self._find = service.send, service.find
        self._project = project or DEFAULT_PROJECT
        self._most = most

    def save(self, *conversations: Conversation) -> RememberReport:
        """Store conversations, all or none. Those of the same id are replaced.

        Only messages that are new or changed are embedded.
        """
        check_conversations(conversations)
        return self._send(_build_save(conversations))

    def load(
        self,
        files: Sequence[str | Path] | str | Path,
        *,
        project: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> RememberReport:
        """Import exports of conversations, each conversation whole or not at all.

        Invalid records are reported.
        """
        from unspool.sources.conversations import loading

        paths = check_files(files)
        name = project or self._project
        counts = loading.ImportCounts()
        for read in loading.read_batches(
            paths, project=name, counts=counts, on_progress=on_progress
        ):
            for batch in split_batches(read, most=self._most):
                self._load_batch(batch, counts)
        return counts.report(name)

    def _load_batch(self, some: Sequence[Conversation], counts: ImportCounts) -> None:
        """Store a batch. If it is refused, store halves of it, and report the refused one."""
        try:
            counts.add(self._send(_build_save(some)))
            return
        except (InputError, ConflictError) as error:
            if isinstance(error, SwitchedError):
                raise
            if len(some) == 1:
                position = "the whole conversation"
                counts.add_bad_record(
                    BadRecord(source=some[0].id, position=position, reason=str(error))
                )
                return
        half = len(some) // 2
        self._load_batch(some[:half], counts)
        self._load_batch(some[half:], counts)

    def append(self, id: str, *messages: Message, project: str | None = None) -> RememberReport:
        """Append messages to a conversation, or create it. The messages before are not read.

        A message whose id exists already is counted as a duplicate and left out, so that a caller
        can safely repeat the call.
        """
        if not messages:
            raise InputError("no message was given; append takes at least one")
        return self._send(
            post(
                self._build_path(project, id, "messages"),
                RememberReport,
                body={"messages": messages},
                # the service recognizes messages with an id when they come again
                repeats=all(one.id for one in messages),
            )
        )

    def get(
        self, id: str, *, project: str | None = None, last: int | None = None
    ) -> Conversation | None:
        """Return a conversation with its messages, or with the last so many; None if missing."""
        return self._find(get(self._build_path(project, id), Conversation, last=last), None)

    def exists(self, id: str, *, project: str | None = None) -> bool:
        """Return True if there is a conversation of that id."""
        return self.get(id, project=project, last=0) is not None

    def list(
        self, *, project: str | None = None, skip: int = 0, limit: int = 100
    ) -> Sequence[ConversationRecord]:
        """Return conversations without their messages, the latest first."""
        path, kind = self._in_project(project, "conversations"), list[ConversationRecord]
        return self._find(get(path, kind, "conversations", skip=skip, limit=limit), [])

    def count(self, *, project: str | None = None) -> int:
        """Return the number of conversations."""
        path = self._in_project(project, "conversations")
        return self._find(get(path, int, "count", limit=1), 0)

    def chunks(self, id: str, *, project: str | None = None) -> Sequence[Chunk]:
        """Return the chunks of a conversation in order: one or more per message."""
        path = self._build_path(project, id, "chunks")
        return self._find(get(path, list[Chunk], "chunks"), [])

    def chunk(self, chunk_id: int, *, project: str | None = None) -> Chunk | None:
        """Return a chunk of a conversation by its id, as a hit names it; None if missing."""
        return self._find(get(self._in_project(project, "chunks", str(chunk_id)), Chunk), None)

    def delete(self, id: str, *, project: str | None = None) -> bool:
        """Delete a conversation with its messages; return False if there was none."""
        return self._find(delete(self._build_path(project, id), object), None) is not None

    def _in_project(self, project: str | None, *names: str) -> str:
        return in_project(project or self._project, *names)

    def _build_path(self, project: str | None, id: str, *names: str) -> str:
        check_path(id, "conversation id")
        return self._in_project(project, "conversations", id, *names)


@dataclass(frozen=True)
class _RecordList:
    """Part of a history, and the offset of the next part."""

    records: list[Record]
    next: int | None


class RemoteHistory:
    """A history in a service, whose settings limit its length."""

    def __init__(self, service: Service, stream: str, *, project: str) -> None:
        check_stream(stream)
        self._send, self._find = service.send, service.find
        self._stream = stream
        self._path = in_project(project, "streams", stream)

    @property
    def stream(self) -> str:
        """Name of the stream."""
        return self._stream

    def append(self, body: str, at: datetime | None = None) -> Record:
        """Add a response with a time, by default now. Secrets are masked before it is stored.

        This removes some records that are past the retention. A record that is itself past the
        retention is not kept.
        """
        from unspool.sources.reading import mask_value

        check_body(body)
        # masked here already: the service does not send the body back
        masked = mask_value(body)
        sent = {"body": masked, "at": None if at is None else normalize_time(at)}
        call = post(f"{self._path}/records", Record, body=sent, repeats=False)
        return self._send(
            replace(
                call, parse=lambda data: wire.decode(Record, {**data["appended"], "body": masked})
            )
        )

    def read(self, limit: int = READ, offset: int = 0) -> list[Record]:
        """Return complete records, newest first, without the first `offset`. For programs."""
        check_range(limit, offset, most=MAX_READ)
        found: list[Record] = []
        start: int | None = offset
        # a response contains only as many records as are not too large together
        while start is not None and len(found) < limit:
            call = get(self._path, _RecordList, limit=limit - len(found), offset=start)
            some = self._find(call, _RecordList([], None))
            found += some.records
            start = some.next
        return found

    def page(self, limit: int = PAGE, offset: int = 0, *, full: bool = False) -> HistoryPage:
        """Return a few records for an agent. Long bodies are truncated, repeated ones flagged.

        With `full`, every body is complete.
        """
        check_range(limit, offset, most=MAX_PAGE)
        empty = HistoryPage(
            stream=self.stream, records=(), limit=limit, offset=offset, has_more=False
        )
        call = get(
            f"{self._path}/records",
            HistoryPage,
            limit=limit,
            offset=offset,
            full="true" if full else None,
        )
        return self._find(call, empty)

    def count(self) -> int:
        """Return the number of readable records."""
        # the offset leaves out the records, which may be large
        call = get(self._path, int, "count", limit=1, offset=MAX_OFFSET)
        return self._find(call, 0)

    def prune(self) -> int:
        """Remove every record past the retention, and return how many."""
        parse = wire.make_decoder(int, "cleared")
        return self._find(Call(method="POST", target=f"{self._path}/prune", parse=parse), 0)

    def clear(self) -> int:
        """Remove every record, and return how many. The next record gets number 1."""
        return self._find(delete(self._path, int, "cleared"), 0)


def _build_save(conversations: Sequence[Conversation]) -> Call[RememberReport]:
    path = in_project(conversations[0].project, "conversations")
    return post(path, RememberReport, body={"conversations": conversations})
