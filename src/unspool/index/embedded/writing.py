"""Writing of the catalog's changes to a project's folder."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from sqlalchemy.engine import Connection

from unspool.catalog import feed
from unspool.catalog.feed import ChangedChunk, Position
from unspool.domain.reports import OnProgress, Progress
from unspool.index.embedded import flat, segments, tail
from unspool.index.embedded.partition import Half, Partition, Snapshot

PAGE = 4_000  # chunks read from the catalog at a time
COMMIT_EVERY = 40_000  # chunks between commits of a rebuild
LAST_ID = 2**63 - 1  # after every id of a sequence number


def write_changes(
    connection: Connection,
    part: Partition,
    space_id: int,
    on_progress: OnProgress | None,
    *,
    rebuild: Collection[Half] = (),
) -> None:
    """Write every change that the folder does not contain; write the halves in `rebuild` anew."""
    with part.guard:
        part.reload()
        seq, floor = feed.read_counters(connection, part.project)
        now = part.open_for_writing(connection, seq, floor, rebuild)
    start = now.position
    if start == seq:
        return
    task = "catching up" if start else "rebuilding"
    total = feed.count_changes(connection, part.project, after=start) if on_progress else 0
    for chunks, upto, done in _read_batches(connection, part.project, space_id, start, seq):
        position = feed.read_position(connection, part.project, upto)
        now = _commit(connection, part, now, chunks, position)
        if on_progress:
            on_progress(Progress(task=task, done=done, total=total))


def _read_batches(
    connection: Connection, project: int, space_id: int, start: int, seq: int
) -> Iterator[tuple[list[ChangedChunk], int, int]]:
    """Yield changed chunks in batches to commit.

    Each has the sequence number that is complete after it, and the number of chunks so far.
    """
    after, done = (start, LAST_ID), 0
    batch: list[ChangedChunk] = []
    while True:
        page = feed.list_changes(connection, project, space_id=space_id, after=after, limit=PAGE)
        batch += page
        done += len(page)
        if len(page) < PAGE:
            yield batch, seq, done
            return
        after = (page[-1].seq, page[-1].id)
        if len(batch) >= COMMIT_EVERY:
            yield batch, page[-1].seq - 1, done
            batch = []


def _commit(
    connection: Connection,
    part: Partition,
    now: Snapshot,
    chunks: Sequence[ChangedChunk],
    position: Position,
) -> Snapshot:
    """Write to each half the changes that are new to it. A half may be ahead of the other."""
    words, vectors = now.words, now.vectors
    if new := _select_new(connection, part.project, words.state.position, chunks, position):
        changed, removed, reached = new
        folder = part.folders[Half.WORDS]
        entries = map(tail.analyse_chunk, changed)
        word_state = segments.append(folder, words, entries, removed=removed, position=reached)
        words = segments.open_view(folder, word_state, words)
    if new := _select_new(connection, part.project, vectors.state.position, chunks, position):
        changed, removed, reached = new
        folder = part.folders[Half.VECTORS]
        state = flat.append(
            folder,
            vectors,
            tail.stack_rows(changed, vectors.state.dimension),
            removed=np.array(removed, dtype=np.int64),
            position=reached,
        )
        vectors = flat.open_view(folder, state, vectors)
    with part.guard:
        part.now = Snapshot.from_views(words, vectors)
        return part.now


def _select_new(
    connection: Connection,
    project: int,
    reached: Position,
    chunks: Sequence[ChangedChunk],
    position: Position,
) -> tuple[list[ChangedChunk], list[int], Position] | None:
    """Return the chunks and removed ids after a half's position, and its next position."""
    changed = [chunk for chunk in chunks if chunk.seq > reached.seq]
    removed = feed.list_removals(connection, project, after=reached.seq)
    if not changed and not removed and position.seq <= reached.seq:
        return None
    return changed, removed, max(position, reached)
