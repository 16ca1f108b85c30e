"""Vector spaces and their embeddings.

One space is active. Others are being filled, or kept to switch back to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from unspool.catalog import projects
from unspool.catalog.database import IDENTITY
from unspool.catalog.schema import chunks, documents, embeddings, meta, spaces
from unspool.catalog.statements import count_rows, insert_missing, lock_table, split_batches
from unspool.errors import ConflictError, SwitchedError

if TYPE_CHECKING:
    from unspool.embedders.base import Embedder

_ALL_IDS = 2**63
_LAST_ID = "last_space"  # row of `meta`
_SELECT = sa.select(
    spaces.c.id,
    spaces.c.embedder,
    spaces.c.revision,
    spaces.c.dimension,
    spaces.c.active,
    spaces.c.setting,
)
_ACTIVE_ID = sa.select(spaces.c.id).where(spaces.c.active)
_INPUTS = sa.select(
    chunks.c.project_id,
    chunks.c.id,
    chunks.c.text_sha,
    documents.c.path,
    chunks.c.first_line,
    documents.c.kind,
    documents.c.title,
    chunks.c.headings,
    chunks.c.symbol,
    chunks.c.text,
).join_from(chunks, documents, documents.c.id == chunks.c.document_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Vectors of one embedder.

    `setting` names the embedder; it is empty for an embedder given as an object.
    """

    id: int
    embedder: str
    revision: str
    dimension: int
    active: bool
    setting: str

    def __str__(self) -> str:
        return f"{self.embedder} (revision {self.revision}, {self.dimension} dimensions)"

    def belongs_to(self, embedder: Embedder) -> bool:
        """Return true if an embedder makes vectors of this space.

        The dimension is compared last: an embedder may have to embed a text to know it.
        """
        names = (embedder.name, embedder.revision)
        return (self.embedder, self.revision) == names and self.dimension == embedder.dimension


class EmbeddingInput(NamedTuple):
    """Text to embed for a chunk, in parts."""

    project_id: int
    id: int
    text_sha: bytes
    path: str
    line: int
    kind: str
    title: str
    headings: str  # one per line
    symbol: str
    text: str


class MissingEmbeddings(NamedTuple):
    """Number of distinct texts without a vector in a space, and their approximate tokens."""

    texts: int
    tokens: int


def list_spaces(connection: sa.Connection) -> list[Space]:
    """Return all vector spaces, oldest first."""
    return [Space(**row._mapping) for row in connection.execute(_SELECT.order_by(spaces.c.id))]


def find_active_space(connection: sa.Connection) -> Space | None:
    """Return the active vector space; None before anything is indexed."""
    return next((space for space in list_spaces(connection) if space.active), None)


def find_active_id(connection: sa.Connection) -> int | None:
    """Return the id of the active vector space. Every search asks for it first."""
    return connection.execute(_ACTIVE_ID).scalar()


def ensure_space(connection: sa.Connection, embedder: Embedder, setting: str) -> int:
    """Return the id of the active space, or create it; refuse the space of another embedder."""
    active = find_active_space(connection)
    if active is None:
        # The lock lets one writer at a time create the first space.
        connection.execute(sa.select(meta.c.value).where(meta.c.key == IDENTITY).with_for_update())
        active = find_active_space(connection)
    if active is None:
        activate_space(connection, prepare_space(connection, embedder, setting).id)
        active = find_active_space(connection)
        assert active is not None
    if not active.belongs_to(embedder):
        raise ConflictError(
            f"this catalog was made with embedder {active}, not {embedder.name} (revision "
            f"{embedder.revision}, {embedder.dimension}); {advise(active, embedder)}, or switch "
            f"with `unspool reembed --embedder {setting or 'NAME'}`"
        )
    return active.id


def advise(space: Space, embedder: Embedder) -> str:
    """Return the change that makes an embedder match a space, for an error message."""
    if space.embedder != embedder.name:
        return (
            f"set UNSPOOL_EMBEDDER={space.setting} to continue with it"
            if space.setting
            else "open it with that one to continue"
        )
    if space.revision == embedder.revision:
        return f"set UNSPOOL_EMBEDDER_DIMENSION={space.dimension} to continue with it"
    return "undo what has changed since: the model's files, UNSPOOL_EMBEDDER_REVISION, or a prefix"


def prepare_space(connection: sa.Connection, embedder: Embedder, setting: str) -> Space:
    """Return the vector space of an embedder, created inactive if it is missing."""
    known = next((space for space in list_spaces(connection) if space.belongs_to(embedder)), None)
    if known is None:
        _insert_space(connection, embedder, setting)
        known = next(space for space in list_spaces(connection) if space.belongs_to(embedder))
    elif known.setting != setting:
        connection.execute(sa.update(spaces).where(spaces.c.id == known.id).values(setting=setting))
    return known


def check_active(connection: sa.Connection, space_id: int) -> None:
    """Refuse a space that is no longer active.

    Writers call it in a transaction that locks the embeddings.
    """
    active = find_active_space(connection)
    if active is not None and active.id != space_id:
        raise SwitchedError(
            f"the catalog was switched to embedder {active} meanwhile; try again, which uses it"
        )


def activate_space(connection: sa.Connection, space_id: int) -> None:
    """Activate another space, in a transaction that locks all projects and the embeddings."""
    connection.execute(sa.update(spaces).where(spaces.c.active).values(active=False))
    activated = connection.execute(
        sa.update(spaces).where(spaces.c.id == space_id).values(active=True)
    )
    if activated.rowcount != 1:
        raise ConflictError("the new vectors have been deleted by another process; start again")


def lock_all_projects(connection: sa.Connection) -> list[int]:
    """Lock all projects and the embeddings until the transaction ends, and return the ids."""
    ids = sorted(row.id for row in projects.list_projects(connection))
    locked = [id_ for id_ in ids if projects.lock_project(connection, id_)]
    lock_table(connection, embeddings, exclusive=True)
    return locked


def drop_space(connection: sa.Connection, space_id: int) -> int:
    """Delete an inactive space with its vectors, and return their number."""
    deleted = connection.execute(
        sa.delete(embeddings).where(embeddings.c.space_id == space_id)
    ).rowcount
    connection.execute(sa.delete(spaces).where(spaces.c.id == space_id, sa.not_(spaces.c.active)))
    return deleted


def count_embeddings(connection: sa.Connection, space_id: int) -> int:
    """Count the vectors of a space."""
    return count_rows(connection, embeddings.c.space_id == space_id)


def count_missing(connection: sa.Connection, space_id: int | None) -> MissingEmbeddings:
    """Count the texts without a vector in a space; None means a space that does not exist yet."""
    texts = sa.select(sa.func.min(chunks.c.token_count).label("tokens")).group_by(chunks.c.text_sha)
    if space_id is not None:
        texts = texts.where(_lacks_vector(space_id))
    missing = texts.subquery()
    total = sa.func.coalesce(sa.func.sum(missing.c.tokens), 0)
    query = sa.select(sa.func.count(), total).select_from(missing)
    count, tokens = connection.execute(query).one()
    return MissingEmbeddings(int(count), int(tokens))


def count_longer_chunks(connection: sa.Connection, tokens: int) -> int:
    """Count the chunks with more tokens than a limit."""
    return count_rows(connection, chunks.c.token_count > tokens)


def has_missing(connection: sa.Connection, space_id: int, project_id: int | None = None) -> bool:
    """Return true if a chunk, of one project or of any, has no vector in a space."""
    query = sa.select(chunks.c.id).where(_lacks_vector(space_id)).limit(1)
    if project_id is not None:
        query = query.where(chunks.c.project_id == project_id)
    return connection.execute(query).first() is not None


def list_missing(
    connection: sa.Connection, space_id: int, *, after: EmbeddingInput | None = None, limit: int
) -> list[EmbeddingInput]:
    """Return chunks without a vector in a space, by project and id."""
    key = sa.tuple_(chunks.c.project_id, chunks.c.id)
    query = _INPUTS.where(_lacks_vector(space_id))
    if after is not None:
        query = query.where(key > sa.tuple_(after.project_id, after.id))
    rows = connection.execute(query.order_by(chunks.c.project_id, chunks.c.id).limit(limit))
    return [EmbeddingInput._make(row) for row in rows]


def sample_embeddings(
    connection: sa.Connection, space_id: int, count: int
) -> Iterator[tuple[EmbeddingInput, bytes]]:
    """Yield up to `count` chunks from all over the catalog, with their vectors in a space.

    Projects take turns. Ids are distributed evenly, so each sample takes one step in the index.
    """
    owners = [row.id for row in projects.list_projects(connection)]
    query = _INPUTS.add_columns(embeddings.c.vector).join(
        embeddings,
        sa.and_(embeddings.c.text_sha == chunks.c.text_sha, embeddings.c.space_id == space_id),
    )
    seen: set[tuple[int, int]] = set()
    for number in range(count if owners else 0):
        is_next = sa.and_(
            chunks.c.project_id == owners[number % len(owners)],
            chunks.c.id >= number * (_ALL_IDS // count),
        )
        row = connection.execute(query.where(is_next).order_by(chunks.c.id).limit(1)).first()
        if row is not None and (row.project_id, row.id) not in seen:
            seen.add((row.project_id, row.id))
            yield EmbeddingInput._make(row[:-1]), row[-1]


def count_wrong_dimensions(connection: sa.Connection, space_id: int, dimension: int) -> int:
    """Count the vectors of a space that have another dimension."""
    is_wrong = sa.func.length(embeddings.c.vector) != 4 * dimension
    return count_rows(connection, embeddings.c.space_id == space_id, is_wrong)


def insert_embeddings(
    connection: sa.Connection, space_id: int, vectors: Mapping[bytes, bytes]
) -> int:
    """Store the vectors of texts that have none, and return their number."""
    rows = sorted((space_id, sha, vector) for sha, vector in vectors.items())
    return insert_missing(connection, embeddings, ("space_id", "text_sha", "vector"), rows)


def store_embeddings(
    connection: sa.Connection,
    shas: Collection[bytes],
    vectors: Mapping[bytes, bytes],
    space_id: int,
) -> int:
    """Store vectors, check that each of the texts has one, and return the number of new ones."""
    lock_table(connection, embeddings, exclusive=False)
    check_active(connection, space_id)
    count = insert_embeddings(connection, space_id, vectors)
    needed = set(shas) - vectors.keys()
    missing = needed - find_known_texts(connection, space_id, needed)
    if missing:  # they existed when the batch was prepared
        raise ConflictError(
            f"{len(missing)} embeddings were deleted while they were needed; run again"
        )
    return count


def find_known_texts(connection: sa.Connection, space_id: int, shas: Iterable[bytes]) -> set[bytes]:
    """Return those of the texts that have a vector."""
    known: set[bytes] = set()
    for batch in split_batches(shas):
        query = sa.select(embeddings.c.text_sha).where(
            embeddings.c.space_id == space_id, embeddings.c.text_sha.in_(batch)
        )
        known.update(connection.execute(query).scalars())
    return known


def _lacks_vector(space_id: int) -> sa.ColumnElement[bool]:
    return ~sa.exists().where(
        embeddings.c.space_id == space_id, embeddings.c.text_sha == chunks.c.text_sha
    )


def _insert_space(connection: sa.Connection, embedder: Embedder, setting: str) -> None:
    values: dict[str, Any] = {
        "embedder": embedder.name,
        "revision": embedder.revision,
        "dimension": embedder.dimension,
        "active": False,
        "setting": setting,
        "created_at": datetime.now(UTC),
    }
    if connection.dialect.name == "sqlite":
        values["id"] = _allocate_id(connection)
    connection.execute(sa.insert(spaces).values(**values))


def _allocate_id(connection: sa.Connection) -> int:
    """Return an id that no space has had.

    SQLite reuses the id of a dropped space. A process that still uses the old space would mistake
    the new one for its own.
    """
    noted = connection.execute(sa.select(meta.c.value).where(meta.c.key == _LAST_ID)).scalar()
    newest = connection.execute(
        sa.select(sa.func.coalesce(sa.func.max(spaces.c.id), 0))
    ).scalar_one()
    id_ = max(int(noted or 0), int(newest)) + 1
    if noted is None:
        connection.execute(sa.insert(meta).values(key=_LAST_ID, value=str(id_)))
    else:
        connection.execute(sa.update(meta).where(meta.c.key == _LAST_ID).values(value=str(id_)))
    return id_
