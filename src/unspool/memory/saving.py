"""Conversations on their way in: only what is new or changed is prepared and embedded, and each
is stored whole or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from sqlalchemy.engine import Connection

from unspool.catalog import conversations as stored
from unspool.catalog import projects
from unspool.catalog.conversation_content import StoredConversations, store_conversations
from unspool.domain.conversations import Conversation, Message, fingerprint
from unspool.domain.prepared import PreparedConversation
from unspool.domain.reports import BadRecord, Progress, RememberReport
from unspool.errors import ConflictError, InputError, SwitchedError
from unspool.indexing import preparing
from unspool.indexing.pipeline import LOOKED_UP, Indexer, maker_of
from unspool.memory import messages
from unspool.sources.conversations import loading
from unspool.sources.conversations.loading import Intake
from unspool.sources.secrets.addresses import describe_exposed, limit_warnings, redact_address

ABSORB_CHUNKS = 8_000  # of an import between commits to the index, as a run over a folder has it
_TRIES = 20


class MovedError(Exception):
    """The stored conversation is another than the one that was prepared for; prepare again."""


def remember(indexer: Indexer, given: Sequence[Conversation]) -> RememberReport:
    """Store conversations of one project, all in one transaction; findable when this returns."""
    started = time.monotonic()
    tally = Intake()
    project_id = save(indexer, given, tally)
    if tally.chunks and project_id is not None:
        indexer.store.settle(project_id, put=tally.chunks)
    return tally.report(given[0].project, time.monotonic() - started)


def append(indexer: Indexer, project: str, id_: str, said: Sequence[Message]) -> RememberReport:
    """Store messages behind a conversation's last; one that does not exist yet begins with them.
    What was said before is not looked at.

    A message that is there already, by its id, is left out, so that whoever does not know whether
    it came through may send it again.
    """
    started = time.monotonic()
    tally = Intake()
    new = Conversation(project=project, id=id_, messages=said)
    prepared = messages.prepare(
        new, start=0, counter=indexer.embedder, chunk_tokens=indexer.chunk_tokens
    )
    vectors = _vectors(indexer, [prepared], tally)
    project_id, existed, written = indexer.catalog.transact(
        partial(_append, indexer, project, prepared, vectors)
    )
    tally.duplicates = len(said) - written.messages
    if not written.messages:
        tally.unchanged = 1
        return tally.report(project, time.monotonic() - started)
    indexer.store.settle(project_id, put=written.chunks)
    _count(tally, [prepared], written, old=existed)
    return tally.report(project, time.monotonic() - started)


def _append(
    indexer: Indexer,
    project: str,
    prepared: PreparedConversation,
    vectors: Mapping[bytes, bytes],
    connection: Connection,
) -> tuple[int, int, StoredConversations]:
    """Write those of the messages that are not there yet."""
    row = projects.ensure_project(connection, project)
    heads = stored.load_heads(connection, row.id, [prepared.path])
    head = heads.get(prepared.path)
    new = (
        prepared.messages
        if head is None
        else stored.select_new_messages(connection, head, prepared)
    )
    if not new:
        return row.id, 1, StoredConversations()
    size = sum(len(said.message.text.encode()) for said in new)
    return _write(
        connection,
        indexer,
        row,
        [replace(prepared, messages=new, size_bytes=size)],
        heads,
        vectors,
        appends=True,
    )


def save(indexer: Indexer, given: Sequence[Conversation], tally: Intake) -> int | None:
    """Store conversations of one project in one transaction; returns the project's id, None
    where there was nothing to do.
    """
    vectors: dict[bytes, bytes] = {}
    for _ in range(_TRIES):
        prepared, unchanged = _prepared(indexer, given)
        if not prepared:
            tally.unchanged += unchanged
            return None
        vectors.update(_vectors(indexer, prepared, tally, known=vectors))
        try:
            project_id, existed, written = indexer.catalog.transact(
                partial(_replace, indexer, given[0].project, prepared, vectors)
            )
        except MovedError:  # somebody else wrote one of them meanwhile
            continue
        tally.unchanged += unchanged
        _count(tally, prepared, written, old=existed)
        return project_id
    raise ConflictError(
        f"others kept writing the same conversations for {_TRIES} attempts; save them again"
    )


def _prepared(
    indexer: Indexer, given: Sequence[Conversation]
) -> tuple[list[PreparedConversation], int]:
    """What has to be written, and how many are stored as they are."""
    recipe = preparing.recipe(indexer.embedder, indexer.chunk_tokens)
    out: list[PreparedConversation] = []
    with indexer.catalog.read() as connection:
        row = projects.find_project(connection, given[0].project)
        heads = (
            {} if row is None else stored.load_heads(connection, row.id, [one.id for one in given])
        )
        for one in given:
            head, start = heads.get(one.id), 0
            if head is not None:
                if head.sha256 == messages.whole_fingerprint(one, recipe):
                    continue
                if (head.title, head.recipe) == (messages.title_of(one), recipe):
                    start = stored.count_common_prefix(
                        stored.load_fingerprints(connection, head.document_id),
                        [fingerprint(message) for message in one.messages],
                    )
            prepared = messages.prepare(
                one, start=start, counter=indexer.embedder, chunk_tokens=indexer.chunk_tokens
            )
            out.append(prepared if head is None else replace(prepared, follows=head.sha256))
    return out, len(given) - len(out)


def _vectors(
    indexer: Indexer,
    prepared: Sequence[PreparedConversation],
    tally: Intake,
    *,
    known: Mapping[bytes, bytes] | None = None,
) -> dict[bytes, bytes]:
    """The vectors of texts that have none yet."""
    wanted = {
        sha: text
        for sha, text in messages.passages(prepared).items()
        if not known or sha not in known
    }
    maker = maker_of(indexer, indexer.keep)
    if indexer.embedder.is_cheap and len(wanted) <= LOOKED_UP:
        maker.known = lambda shas: set()
    found = maker.vectors(wanted)
    tally.warnings += filter(None, [maker.warning()])
    if maker.keep is not None:
        tally.embedded += maker.made  # they were stored as they were made
    return found


def _replace(
    indexer: Indexer,
    project: str,
    prepared: Sequence[PreparedConversation],
    vectors: Mapping[bytes, bytes],
    connection: Connection,
) -> tuple[int, int, StoredConversations]:
    """Write conversations in place of those of the same ids."""
    row = projects.ensure_project(connection, project)
    heads = stored.load_heads(connection, row.id, [one.path for one in prepared])
    for one in prepared:
        head = heads.get(one.path)
        if one.start and (head is None or head.sha256 != one.follows):
            raise MovedError
    return _write(connection, indexer, row, prepared, heads, vectors)


def _write(
    connection: Connection,
    indexer: Indexer,
    row: projects.ProjectRow,
    prepared: Sequence[PreparedConversation],
    heads: Mapping[str, stored.Head],
    vectors: Mapping[bytes, bytes],
    *,
    appends: bool = False,
) -> tuple[int, int, StoredConversations]:
    """The project, how many of the conversations there were already, and what was written."""
    feeds = indexer.store.catches_up
    written = store_conversations(
        connection,
        row,
        prepared,
        heads,
        vectors,
        space_id=indexer.store.space_id,
        log_changes=feeds,
        append=appends,
    )
    indexer.store.follow(connection, row.id, written.changes)
    if feeds:
        projects.prune_removals(connection, row.id, upto=indexer.store.position(row.id))
    return row.id, len(heads), written


def _count(
    tally: Intake,
    prepared: Sequence[PreparedConversation],
    written: StoredConversations,
    *,
    old: int,
) -> None:
    tally.updated += old
    tally.added += len(prepared) - old
    tally.messages += written.messages
    tally.chunks += written.chunks
    tally.embedded += written.embedded
    for one in prepared:
        exposed = describe_exposed("conversation id", [one.path])
        tally.masked += (
            replace(masked, path=redact_address(masked.path)) if exposed else masked
            for masked in one.masked
        )
        ids = (said.message.id for said in one.messages if said.message.id)
        tally.warnings += limit_warnings(
            [
                *exposed,
                *describe_exposed("message id", ids),
                *describe_exposed("metadata key", one.metadata),
            ]
        )


class _Import:
    """Exports on their way in, batch by batch."""

    def __init__(self, indexer: Indexer, project: str, tally: Intake) -> None:
        self.indexer = indexer
        self.project = project
        self.tally = tally
        self._project_id: int | None = None
        self._absorbed = 0

    def store(self, some: Sequence[Conversation]) -> None:
        """Store a batch of them."""
        self._save(some)
        if self.tally.chunks - self._absorbed >= ABSORB_CHUNKS and self._project_id is not None:
            self.indexer.store.keep_up(self._project_id)
            self._absorbed = self.tally.chunks

    def finish(self) -> None:
        """Make all of it findable."""
        if self._project_id is not None:
            self.tally.warnings += filter(None, [self.indexer.store.settle(self._project_id)])

    def _save(self, some: Sequence[Conversation]) -> None:
        try:
            self._project_id = save(self.indexer, some, self.tally) or self._project_id
        except (InputError, ConflictError) as error:
            if isinstance(error, SwitchedError):
                raise
            if len(some) > 1:  # find out which it is, and let the others in
                for one in some:
                    self._save([one])
                return
            self.tally.refuse(
                BadRecord(source=some[0].id, position="the whole conversation", reason=str(error))
            )


def load(
    indexer: Indexer,
    files: Sequence[Path],
    *,
    project: str,
    on_progress: Callable[[Progress], None] | None = None,
) -> RememberReport:
    """Take in exports of conversations.

    Each conversation is stored whole or not at all; what cannot be read is reported, the rest goes
    on.
    """
    started = time.monotonic()
    tally = Intake()
    imported = _Import(indexer, project, tally)
    for batch in loading.batches(files, project=project, intake=tally, on_progress=on_progress):
        imported.store(batch)
    imported.finish()
    return tally.report(project, time.monotonic() - started)
