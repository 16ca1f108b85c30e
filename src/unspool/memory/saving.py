"""Storage of conversations. Only new and changed messages are prepared and embedded.

Each conversation is stored completely or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.engine import Connection

from unspool.catalog import conversations as stored
from unspool.catalog import documents, projects
from unspool.catalog.conversation_content import StoredConversations, store_conversations
from unspool.catalog.feed import Changes
from unspool.domain.conversations import Conversation, Message, fingerprint
from unspool.domain.prepared import PreparedConversation
from unspool.domain.reports import BadRecord, OnProgress, RememberReport
from unspool.errors import ConflictError, InputError, SwitchedError
from unspool.indexing.indexer import Indexer, report_secrets
from unspool.memory import messages
from unspool.sources.conversations import loading
from unspool.sources.conversations.loading import ImportCounts
from unspool.sources.secrets.masking import limit_warnings, warn_about_secrets

_TRIES = 20


class ConversationChangedError(Exception):
    """Another process changed a conversation after it was prepared. Prepare it again."""


class SaveResult(NamedTuple):
    """Result of one transaction."""

    project_id: int
    existing: int  # conversations that existed before
    written: StoredConversations


def remember(indexer: Indexer, given: Sequence[Conversation]) -> RememberReport:
    """Store conversations of one project in one transaction. They are findable afterwards."""
    counts = ImportCounts()
    project_id = save(indexer, given, counts)
    if counts.totals["chunks"] and project_id is not None:
        warning = indexer.indexes.finish_run(project_id, put=counts.totals["chunks"])
        counts.warnings += filter(None, [warning])
    return counts.report(given[0].project)


def append(indexer: Indexer, project: str, id_: str, given: Sequence[Message]) -> RememberReport:
    """Append messages to a conversation, which is created if it does not exist.

    Earlier messages are not read. A message whose id is stored already is left out, so a caller
    can safely send it again.
    """
    counts = ImportCounts()
    conversation = Conversation(project=project, id=id_, messages=given)
    prepared = messages.prepare_conversation(conversation, start=0, chunker=indexer.chunker)
    vectors = _embed(indexer, [prepared], counts)
    result = indexer.catalog.transact(partial(_append, indexer, project, prepared, vectors))
    counts.totals["duplicates"] = len(given) - result.written.messages
    if result.written.messages:
        warning = indexer.indexes.finish_run(result.project_id, put=result.written.chunks)
        counts.warnings += filter(None, [warning])
        _count(counts, [prepared], result)
    else:
        counts.totals["unchanged"] = 1
    return counts.report(project)


def load(
    indexer: Indexer,
    files: Sequence[Path],
    *,
    project: str,
    on_progress: OnProgress | None = None,
) -> RememberReport:
    """Import exports of conversations. An unreadable record is reported, the rest imported."""
    counts = ImportCounts()
    project_id, flushed = None, 0
    for batch in loading.read_batches(
        files, project=project, counts=counts, on_progress=on_progress
    ):
        project_id = _save_batch(indexer, batch, counts) or project_id
        if project_id is not None:
            flushed = indexer.flush_chunks(
                project_id, written=counts.totals["chunks"], flushed=flushed
            )
    if project_id is not None:
        counts.warnings += filter(None, [indexer.indexes.finish_run(project_id)])
    return counts.report(project)


def _save_batch(
    indexer: Indexer, batch: Sequence[Conversation], counts: ImportCounts
) -> int | None:
    """Save conversations as `save` does, and report those that cannot be saved."""
    try:
        return save(indexer, batch, counts)
    except SwitchedError:
        raise
    except (InputError, ConflictError) as error:
        if len(batch) == 1:
            counts.add_bad_record(
                BadRecord(source=batch[0].id, position="the whole conversation", reason=str(error))
            )
            return None
    ids = [_save_batch(indexer, [conversation], counts) for conversation in batch]
    return next(filter(None, ids), None)


def save(indexer: Indexer, given: Sequence[Conversation], counts: ImportCounts) -> int | None:
    """Store conversations of one project in one transaction.

    Return the project's id, or None if nothing has changed.
    """
    vectors: dict[bytes, bytes] = {}
    for _ in range(_TRIES):
        prepared = _prepare_changes(indexer, given)
        unchanged = len(given) - len(prepared)
        if not prepared:
            counts.totals["unchanged"] += unchanged
            return None
        vectors |= _embed(indexer, prepared, counts, known=vectors)
        try:
            result = indexer.catalog.transact(
                partial(_replace, indexer, given[0].project, prepared, vectors)
            )
        except ConversationChangedError:
            continue
        counts.totals["unchanged"] += unchanged
        _count(counts, prepared, result)
        return result.project_id
    raise ConflictError(
        f"other processes kept writing the same conversations for {_TRIES} attempts; save them "
        "again"
    )


def _prepare_changes(indexer: Indexer, given: Sequence[Conversation]) -> list[PreparedConversation]:
    """Prepare the conversations that differ from the stored ones, from their first change on."""
    chunker = indexer.chunker
    prepared: list[PreparedConversation] = []
    with indexer.catalog.read() as connection:
        row = projects.find_project(connection, given[0].project)
        heads = (
            {} if row is None else stored.load_heads(connection, row.id, [one.id for one in given])
        )
        for one in given:
            head = heads.get(one.id)
            if head is None:
                prepared.append(messages.prepare_conversation(one, start=0, chunker=chunker))
            elif head.sha256 != messages.fingerprint_conversation(one, chunker.recipe):
                start = _find_first_change(connection, head, one, chunker.recipe)
                changed = messages.prepare_conversation(one, start=start, chunker=chunker)
                prepared.append(replace(changed, follows=head.sha256))
    return prepared


def _find_first_change(
    connection: Connection, head: stored.Head, conversation: Conversation, recipe: str
) -> int:
    if (head.title, head.recipe) != (messages.build_title(conversation), recipe):
        return 0
    known = stored.load_fingerprints(connection, head.document_id)
    return stored.count_common_prefix(
        known, [fingerprint(message) for message in conversation.messages]
    )


def _embed(
    indexer: Indexer,
    prepared: Sequence[PreparedConversation],
    counts: ImportCounts,
    *,
    known: Mapping[bytes, bytes] | None = None,
) -> dict[bytes, bytes]:
    """Return vectors of the passages that have none yet. `known` ones are left out."""
    texts = messages.collect_passages(prepared)
    missing = {sha: text for sha, text in texts.items() if sha not in (known or {})}
    passages = indexer.create_passage_embedder(size=len(missing))
    vectors = passages.embed_missing(missing)
    counts.warnings += passages.warnings
    counts.totals["embedded"] += passages.saved_count
    return vectors


def _append(
    indexer: Indexer,
    project: str,
    prepared: PreparedConversation,
    vectors: Mapping[bytes, bytes],
    connection: Connection,
) -> SaveResult:
    """Write the messages that are not stored yet."""
    row = projects.ensure_project(connection, project)
    ids, heads = _lock(connection, row.id, [prepared.path])
    head = heads.get(prepared.path)
    new = (
        prepared.messages
        if head is None
        else stored.select_new_messages(connection, head, prepared)
    )
    if not new:
        return SaveResult(row.id, 1, StoredConversations())
    size_bytes = sum(len(one.message.text.encode()) for one in new)
    appended = [replace(prepared, messages=new, size_bytes=size_bytes)]
    return _write(connection, indexer, row, appended, ids, heads, vectors, append=True)


def _replace(
    indexer: Indexer,
    project: str,
    prepared: Sequence[PreparedConversation],
    vectors: Mapping[bytes, bytes],
    connection: Connection,
) -> SaveResult:
    """Write conversations in place of those with the same ids."""
    row = projects.ensure_project(connection, project)
    ids, heads = _lock(connection, row.id, [one.path for one in prepared])
    for one in prepared:
        head = heads.get(one.path)
        if one.start and (head is None or head.sha256 != one.follows):
            raise ConversationChangedError
    return _write(connection, indexer, row, prepared, ids, heads, vectors)


def _lock(
    connection: Connection, project_id: int, paths: Sequence[str]
) -> tuple[dict[str, int], dict[str, stored.Head]]:
    """Lock conversations, created if they are missing.

    Return path -> document id of all, and the heads of those that existed. Heads are read under
    the lock: a head read before it may be outdated.
    """
    ids, created = documents.ensure_documents(connection, project_id, paths)
    return ids, stored.load_heads(connection, project_id, ids.keys() - created)


def _write(
    connection: Connection,
    indexer: Indexer,
    row: projects.ProjectRow,
    prepared: Sequence[PreparedConversation],
    ids: Mapping[str, int],
    heads: Mapping[str, stored.Head],
    vectors: Mapping[bytes, bytes],
    *,
    append: bool = False,
) -> SaveResult:
    changes = Changes(row.id)
    written = store_conversations(
        connection,
        row,
        prepared,
        ids,
        heads,
        vectors,
        changes,
        space_id=indexer.indexes.space_id,
        append=append,
    )
    indexer.indexes.publish(connection, changes)
    return SaveResult(row.id, len(heads), written)


def _count(
    counts: ImportCounts, prepared: Sequence[PreparedConversation], result: SaveResult
) -> None:
    written = result.written
    counts.totals.update(
        updated=result.existing,
        added=len(prepared) - result.existing,
        messages=written.messages,
        chunks=written.chunks,
        embedded=written.embedded,
    )
    for one in prepared:
        masked, exposed = report_secrets("conversation id", [one])
        counts.masked += masked
        ids = (said.message.id for said in one.messages if said.message.id)
        counts.warnings += limit_warnings([*exposed, *warn_about_secrets("message id", ids)])
