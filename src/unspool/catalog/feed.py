"""Change feed of a project: derived indexes read it to catch up.

A transaction collects its changes in a `Changes` and publishes them at its end. That assigns the
project's next sequence number, and it is the only step that excludes other writers.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import sqlalchemy as sa

from unspool.catalog.schema import (
    chunks,
    documents,
    embeddings,
    index_positions,
    projects,
    removals,
    sequences,
)
from unspool.catalog.statements import insert_many, insert_missing
from unspool.errors import NotFoundError

MAX_LAG = 100_000  # changes; an index further behind is filled again

_NEXT_SEQ = (
    sa.update(projects)
    .where(projects.c.id == sa.bindparam("b_id"))
    .values(seq=projects.c.seq + 1, chunk_count=projects.c.chunk_count + sa.bindparam("b_added"))
    .returning(projects.c.seq)
)


class ChunkText(NamedTuple):
    """A chunk as word indexes need it."""

    id: int
    document_id: int
    text_sha: bytes
    kind: str
    path: str
    title: str
    headings: str
    symbol: str
    text: str


class ChunkPoint(NamedTuple):
    """A chunk as vector indexes need it; the vector is None if it is not embedded yet."""

    id: int
    document_id: int
    kind: str
    language: str
    vector: bytes | None


_Row = TypeVar("_Row", bound=ChunkText | ChunkPoint)


@dataclass(slots=True)
class Changes:
    """Changes of a project's chunks in one transaction.

    Rows of new chunks have the stamp. The lists are for indexes in the catalog's own database.
    """

    project_id: int
    stamp: int = field(default_factory=lambda: secrets.randbits(62))
    added: list[ChunkText] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    vectors: dict[bytes, bytes] = field(default_factory=dict)  # by SHA-256 of the text
    # documents were stored, or fields that filters use have changed
    has_documents: bool = False


def publish_changes(connection: sa.Connection, changes: Changes) -> int:
    """Assign the next sequence number to changes, as the last step of their transaction.

    Returns the number; 0 if nothing has changed.
    """
    if not (changes.has_documents or changes.added or changes.removed):
        return 0
    project_id = changes.project_id
    rows = [(project_id, changes.stamp, id_) for id_ in changes.removed]
    insert_many(connection, removals, ("project_id", "stamp", "chunk_id"), rows)
    values = {"b_id": project_id, "b_added": len(changes.added) - len(changes.removed)}
    seq = connection.execute(_NEXT_SEQ, values).scalar()
    if seq is None:
        raise NotFoundError(
            "the project was deleted while it was being written; index it again if that was not "
            "intended"
        )
    connection.execute(
        sa.insert(sequences).values(project_id=project_id, seq=seq, stamp=changes.stamp)
    )
    return int(seq)


class Position(NamedTuple):
    """Position of a derived index in the feed.

    The stamp distinguishes this sequence number from the same one of a restored backup. While an
    index is filled, `filled_to` is the last chunk id that it contains.
    """

    seq: int
    stamp: int
    filled_to: int | None = None


class FeedState(NamedTuple):
    """Last position of a project's feed, and the sequence number that it begins behind."""

    head: Position
    floor: int


def read_state(connection: sa.Connection, project_id: int) -> FeedState:
    """Return the state of a feed; zeros for a project that does not exist or was never written."""
    query = (
        sa.select(projects.c.seq, sequences.c.stamp, projects.c.floor)
        .outerjoin(
            sequences,
            sa.and_(sequences.c.project_id == projects.c.id, sequences.c.seq == projects.c.seq),
        )
        .where(projects.c.id == project_id)
    )
    seq, stamp, floor = connection.execute(query).one_or_none() or (0, 0, 0)
    return FeedState(Position(seq, stamp or 0), floor)


def contains_position(
    connection: sa.Connection, project_id: int, position: Position, state: FeedState
) -> bool:
    """Return whether an index at this position only has to read the rest of the feed."""
    if not state.floor <= position.seq <= state.head.seq:
        return False
    if position.seq in (0, state.head.seq):
        return position.stamp == (state.head.stamp if position.seq else 0)
    query = sa.select(sequences.c.stamp).where(
        sequences.c.project_id == project_id, sequences.c.seq == position.seq
    )
    return connection.execute(query).scalar() == position.stamp


def find_position(connection: sa.Connection, project_id: int, seq: int) -> Position:
    """Return a sequence number with its stamp."""
    if seq == 0:
        return Position(0, 0)
    query = sa.select(sequences.c.stamp).where(
        sequences.c.project_id == project_id, sequences.c.seq == seq
    )
    return Position(seq, connection.execute(query).scalar_one())


class Feed(Generic[_Row]):
    """Chunks of a project as rows of one kind: all of them, or those after a position."""

    def __init__(self, row_type: type[_Row], query: sa.Select[Any]) -> None:
        self._row_type = row_type
        self._query = query

    def list_all(
        self, connection: sa.Connection, project_id: int, *, after: int, limit: int
    ) -> list[_Row]:
        """Return a page of all chunks, by id."""
        query = self._query.where(chunks.c.project_id == project_id, chunks.c.id > after)
        rows = connection.execute(query.order_by(chunks.c.id).limit(limit))
        return [self._row_type(*row) for row in rows]

    def list_changes(
        self,
        connection: sa.Connection,
        project_id: int,
        *,
        after: tuple[int, int],
        upto: int,
        limit: int,
    ) -> list[tuple[int, _Row]]:
        """Return the chunks changed after (seq, id) and up to a sequence number, oldest first."""
        seq, id_ = after
        query = (
            self._query.add_columns(sequences.c.seq)
            .join(sequences, _has_stamp(chunks))
            .where(
                sequences.c.project_id == project_id,
                sequences.c.seq <= upto,
                sa.or_(sequences.c.seq > seq, sa.and_(sequences.c.seq == seq, chunks.c.id > id_)),
            )
        )
        rows = connection.execute(query.order_by(sequences.c.seq, chunks.c.id).limit(limit))
        return [(row[-1], self._row_type(*row[:-1])) for row in rows]


def _has_stamp(table: sa.Table) -> sa.ColumnElement[bool]:
    return sa.and_(sequences.c.project_id == table.c.project_id, sequences.c.stamp == table.c.stamp)


TEXTS = Feed(
    ChunkText,
    sa.select(
        chunks.c.id,
        chunks.c.document_id,
        chunks.c.text_sha,
        documents.c.kind,
        documents.c.path,
        documents.c.title,
        chunks.c.headings,
        chunks.c.symbol,
        chunks.c.text,
    ).join(documents, documents.c.id == chunks.c.document_id),
)


def create_point_feed(space_id: int) -> Feed[ChunkPoint]:
    """Return the feed of points in a vector space."""
    return Feed(
        ChunkPoint,
        sa.select(
            chunks.c.id,
            chunks.c.document_id,
            documents.c.kind,
            documents.c.language,
            embeddings.c.vector,
        )
        .join(documents, documents.c.id == chunks.c.document_id)
        .outerjoin(
            embeddings,
            sa.and_(embeddings.c.text_sha == chunks.c.text_sha, embeddings.c.space_id == space_id),
        ),
    )


def list_removals(
    connection: sa.Connection, project_id: int, *, after: int, upto: int
) -> list[int]:
    """Return the ids of chunks deleted after a sequence number and up to another."""
    query = (
        sa.select(removals.c.chunk_id)
        .join(sequences, _has_stamp(removals))
        .where(
            removals.c.project_id == project_id, sequences.c.seq > after, sequences.c.seq <= upto
        )
    )
    return list(connection.execute(query).scalars())


def count_changes(connection: sa.Connection, project_id: int, *, after: int) -> int:
    """Count the chunks changed after a sequence number."""
    query = (
        sa.select(sa.func.count())
        .select_from(chunks)
        .join(sequences, _has_stamp(chunks))
        .where(sequences.c.project_id == project_id, sequences.c.seq > after)
    )
    return int(connection.execute(query).scalar_one())


def prune_feed(connection: sa.Connection, project_id: int) -> None:
    """Delete the changes that every index contains; without an index that follows, all.

    An index that nobody uses any more does not keep them for ever.
    """
    slowest = sa.select(sa.func.min(index_positions.c.seq)).where(
        index_positions.c.project_id == project_id
    )
    reached = connection.execute(slowest).scalar()
    head = read_state(connection, project_id).head.seq
    # the position of a folder may be in the future of a restored backup
    upto = head if reached is None else min(max(reached, head - MAX_LAG), head)
    done = sa.and_(sequences.c.project_id == project_id, sequences.c.seq <= upto)
    stamps = sa.select(sequences.c.stamp).where(done)
    deleted = connection.execute(
        sa.delete(removals).where(removals.c.project_id == project_id, removals.c.stamp.in_(stamps))
    ).rowcount
    # the last one stays: it proves the position of an index
    deleted += connection.execute(sa.delete(sequences).where(done, sequences.c.seq < upto)).rowcount
    if deleted:
        connection.execute(
            sa.update(projects).where(projects.c.id == project_id).values(floor=upto)
        )


def load_position(
    connection: sa.Connection, index: str, project_id: int
) -> tuple[Position, str] | None:
    """Return the position and epoch of an index in a project; None if it has none."""
    query = sa.select(
        index_positions.c.seq,
        index_positions.c.stamp,
        index_positions.c.filled_to,
        index_positions.c.epoch,
    ).where(index_positions.c.index == index, index_positions.c.project_id == project_id)
    row = connection.execute(query).one_or_none()
    return None if row is None else (Position(*row[:3]), row[3])


def list_deleted_projects(connection: sa.Connection, index: str) -> list[int]:
    """Return the projects that an index has a position in, although they do not exist any more."""
    query = sa.select(index_positions.c.project_id).where(
        index_positions.c.index == index,
        ~sa.exists().where(projects.c.id == index_positions.c.project_id),
    )
    return list(connection.execute(query).scalars())


def save_position(
    connection: sa.Connection, index: str, project_id: int, position: Position, epoch: str
) -> None:
    """Store the position and epoch of an index in a project."""
    delete_positions(connection, index, [project_id])
    connection.execute(
        sa.insert(index_positions).values(
            index=index, project_id=project_id, epoch=epoch, **position._asdict()
        )
    )


def move_position(
    connection: sa.Connection, index: str, project_id: int, position: Position
) -> bool:
    """Replace a position and keep its epoch; return False if there is none."""
    statement = (
        sa.update(index_positions)
        .where(index_positions.c.index == index, index_positions.c.project_id == project_id)
        .values(**position._asdict())
    )
    return connection.execute(statement).rowcount > 0


def delete_positions(
    connection: sa.Connection, index: str, project_ids: Sequence[int] | None = None
) -> None:
    """Delete the positions of an index in some projects, or in all."""
    statement = sa.delete(index_positions).where(index_positions.c.index == index)
    if project_ids is not None:
        statement = statement.where(index_positions.c.project_id.in_(project_ids))
    connection.execute(statement)


OWN_VECTORS = "pgvector"  # name of the vectors in a PostgreSQL catalog
# Mark of an index that takes part in transactions, but did not in some. It never delays pruning.
_OUTDATED = Position(2**62, 0)


def mark_outdated(connection: sa.Connection, index: str, project_id: int) -> None:
    """Note that an index in the database lacks changes of a project.

    A second mark changes nothing, so that writers do not wait for each other.
    """
    insert_missing(
        connection,
        index_positions,
        ["index", "project_id", "seq", "stamp", "epoch"],
        [(index, project_id, _OUTDATED.seq, _OUTDATED.stamp, "")],
    )
