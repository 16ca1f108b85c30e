"""`corpus.conversations` of a corpus in a service."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unspool.client import calls
from unspool.client.indexing import split_batches
from unspool.client.sending import Sender
from unspool.domain.conversations import (
    DEFAULT_PROJECT,
    Conversation,
    ConversationRecord,
    Message,
    check_files,
    check_saved,
)
from unspool.domain.documents import Chunk, check_project
from unspool.domain.reports import BadRecord, OnProgress, RememberReport
from unspool.errors import ConflictError, InputError, SwitchedError

if TYPE_CHECKING:
    from unspool.sources.conversations.loading import ImportCounts


class RemoteConversations:
    """Conversations in a service.

    Where no project is named, the settings' one is meant, and without that 'conversations'.
    """

    def __init__(self, sender: Sender, project: str, *, most: int) -> None:
        self._sender = sender
        self._project = project or DEFAULT_PROJECT
        self._most = most

    def save(self, *conversations: Conversation) -> RememberReport:
        """Store conversations, all or none. Those of the same id are replaced.

        Only messages that are new or changed are embedded.
        """
        check_saved(conversations)
        return self._sender.send(calls.save(conversations))

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
        check_project(name)
        started = time.monotonic()
        counts = loading.ImportCounts()
        for read in loading.read_batches(
            paths, project=name, counts=counts, on_progress=on_progress
        ):
            for batch in split_batches(read, calls.conversation_of, most=self._most):
                self._load_batch(batch, counts)
        return counts.report(name, time.monotonic() - started)

    def _load_batch(self, some: Sequence[Conversation], counts: ImportCounts) -> None:
        """Store a batch. If it is refused, store halves of it, and report the refused one."""
        try:
            counts.add(self._sender.send(calls.save(some)))
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
        return self._sender.send(calls.append_messages(project or self._project, id, messages))

    def get(
        self, id: str, *, project: str | None = None, last: int | None = None
    ) -> Conversation | None:
        """Return a conversation with its messages, or with the last so many; None if missing."""
        return self._sender.find(calls.conversation(project or self._project, id, last=last), None)

    def exists(self, id: str, *, project: str | None = None) -> bool:
        """Return True if there is a conversation of that id."""
        return self.get(id, project=project, last=0) is not None

    def list(
        self, *, project: str | None = None, skip: int = 0, limit: int = 100
    ) -> Sequence[ConversationRecord]:
        """Return conversations without their messages, the latest first."""
        return self._sender.find(
            calls.conversations(project or self._project, skip=skip, limit=limit), []
        )

    def count(self, *, project: str | None = None) -> int:
        """Return the number of conversations."""
        return self._sender.find(calls.conversation_count(project or self._project), 0)

    def chunks(self, id: str, *, project: str | None = None) -> Sequence[Chunk]:
        """Return the chunks of a conversation in order: one or more per message."""
        return self._sender.find(calls.conversation_chunks(project or self._project, id), [])

    def chunk(self, chunk_id: int, *, project: str | None = None) -> Chunk | None:
        """Return a chunk of a conversation by its id, as a hit names it; None if missing."""
        return self._sender.find(calls.conversation_chunk(project or self._project, chunk_id), None)

    def delete(self, id: str, *, project: str | None = None) -> bool:
        """Delete a conversation with its messages; return False if there was none."""
        return self._sender.find(calls.delete_conversation(project or self._project, id), False)
