"""Conversations of a corpus: save, append, read, list, delete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from unspool.domain import filters
from unspool.domain.conversations import (
    DEFAULT_PROJECT,
    Conversation,
    ConversationRecord,
    Message,
    check_conversations,
    check_files,
)
from unspool.domain.documents import MAX_NUMBER, Chunk, Kind, check_path
from unspool.domain.filters import Filter
from unspool.domain.keys import Role
from unspool.domain.reports import OnProgress, RememberReport
from unspool.errors import InputError

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from unspool.access.projects import ProjectAccess
    from unspool.catalog import Catalog
    from unspool.catalog.projects import ProjectRow
    from unspool.session import Resources

MAX_LIMIT = 1000
_T = TypeVar("_T")


class Conversations:
    """Conversations of a corpus, as `corpus.conversations`.

    The default project is that of the settings, else 'conversations'.
    """

    def __init__(self, resources: Resources, access: ProjectAccess) -> None:
        self._resources = resources
        self._access = access

    def save(self, *conversations: Conversation) -> RememberReport:
        """Store conversations, all or none. Those of the same id are replaced.

        Only messages that are new or changed are embedded.
        """
        from unspool.memory import saving

        check_conversations(conversations)
        return self._access.write(
            "remember",
            {one.project for one in conversations},
            lambda indexer: saving.remember(indexer, conversations),
            purpose="storing conversations",
        )

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
        from unspool.memory import saving

        self._access.scope.require_owner("importing files")
        paths, name = check_files(files), self._name(project)
        return self._access.write(
            "remember",
            [name],
            lambda indexer: saving.load(indexer, paths, project=name, on_progress=on_progress),
            purpose="storing conversations",
        )

    def append(self, id: str, *messages: Message, project: str | None = None) -> RememberReport:
        """Append messages to a conversation, or create it. The messages before are not read.

        A message whose id exists already is counted as a duplicate and left out, so that a caller
        can safely repeat the call.
        """
        from unspool.memory import saving

        if not messages:
            raise InputError("no message was given; append takes at least one")
        name = self._name(project)
        return self._access.write(
            "remember",
            [name],
            lambda indexer: saving.append(indexer, name, id, messages),
            purpose="storing messages",
        )

    def get(
        self, id: str, *, project: str | None = None, last: int | None = None
    ) -> Conversation | None:
        """Return a conversation with its messages, or with the last so many; None if missing."""
        from unspool.catalog import conversations

        if last is not None and (not isinstance(last, int) or last < 0):
            raise InputError(
                f"last is {last!r}; give how many messages are wanted, or None for all"
            )
        check_path(id, "conversation id")
        return self._read(
            project,
            lambda connection, row: conversations.load_conversation(connection, row, id, last=last),
            None,
        )

    def exists(self, id: str, *, project: str | None = None) -> bool:
        """Return True if there is a conversation of that id."""
        return self.get(id, project=project, last=0) is not None

    def list(
        self, *, project: str | None = None, skip: int = 0, limit: int = 100
    ) -> Sequence[ConversationRecord]:
        """Return conversations without their messages, the latest first."""
        from unspool.catalog import conversations

        if not (isinstance(skip, int) and skip >= 0):
            raise InputError(
                f"skip is {skip!r}; give how many conversations to leave out, 0 for none"
            )
        if not (isinstance(limit, int) and 1 <= limit <= MAX_LIMIT):
            raise InputError(f"limit is {limit!r}; give a whole number from 1 to {MAX_LIMIT}")
        return self._read(
            project,
            lambda connection, row: conversations.list_conversations(
                connection, [row.id], skip=skip, limit=limit
            ),
            [],
        )

    def count(self, *, project: str | None = None) -> int:
        """Return the number of conversations."""
        from unspool.catalog import conversations

        return self._read(
            project,
            lambda connection, row: conversations.count_conversations(connection, [row.id]),
            0,
        )

    def chunks(self, id: str, *, project: str | None = None) -> Sequence[Chunk]:
        """Return the chunks of a conversation in order: one or more per message."""
        from unspool.catalog import chunks as chunk_rows

        check_path(id, "conversation id")
        found: Sequence[Chunk] = self._read(
            project, lambda connection, row: chunk_rows.list_chunks(connection, row.id, id), []
        )
        return [chunk for chunk in found if chunk.kind is Kind.CHAT]

    def chunk(self, chunk_id: int, *, project: str | None = None) -> Chunk | None:
        """Return a chunk of a conversation by its id, as a hit names it; None if missing."""
        from unspool.catalog import chunks as chunk_rows

        if not 0 <= chunk_id < MAX_NUMBER:
            return None  # no database could look for it
        stored = self._read(
            project,
            lambda connection, row: chunk_rows.load_chunks(connection, {row.id: [chunk_id]}).get(
                chunk_id
            ),
            None,
        )
        if stored is None or stored.chunk.kind is not Kind.CHAT:
            return None
        return stored.chunk

    def delete(self, id: str, *, project: str | None = None) -> bool:
        """Delete a conversation with its messages; return False if there was none."""
        from unspool.catalog import conversations
        from unspool.indexing import forgetting

        def find(connection: Connection, row: ProjectRow) -> tuple[int, int] | None:
            known = conversations.find_document_id(connection, row.id, id)
            return None if known is None else (row.id, known)

        check_path(id, "conversation id")
        self._access.scope.require(Role.WRITE, "removing conversations")
        known = self._read(project, find, None)
        if known is None:
            return False
        return (
            self._resources.write(
                lambda indexer: forgetting.forget_documents(
                    indexer.catalog, indexer.indexes, known[0], [known[1]]
                )
            )
            > 0
        )

    def _name(self, project: str | None) -> str:
        return self._access.name(project or None, default=DEFAULT_PROJECT, task="a conversation")

    def _read(
        self, project: str | None, read: Callable[[Connection, ProjectRow], _T], otherwise: _T
    ) -> _T:
        name = self._name(project)
        with self._resources.catalog.read() as connection:
            row = self._access.find(connection, name)
            return otherwise if row is None else read(connection, row)


def describe_unknown_names(
    catalog: Catalog, condition: Filter, project_ids: Sequence[int]
) -> Iterator[str]:
    """Yield a note for each conversation or speaker of a filter that does not exist."""
    from unspool.catalog import conversations

    names = [filters.list_values(condition, field) for field in ("conversation", "speaker")]
    if any(names):
        with catalog.read() as connection:
            missing, silent = conversations.find_unknown(connection, project_ids, *names)
        yield from (f"there is no conversation {name!r} here" for name in missing)
        yield from (f"nobody called {name!r} says anything here" for name in silent)
