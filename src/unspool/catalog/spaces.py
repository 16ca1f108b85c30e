"""Vector spaces: which embedder's vectors are in use, which are being made beside them, and
which are kept to go back to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unspool.catalog import projects
from unspool.catalog.database import IDENTITY
from unspool.catalog.schema import chunks, documents, embeddings, meta, spaces
from unspool.catalog.statements import hold
from unspool.errors import ConflictError, SwitchedError


class Owner(Protocol):
    """What a vector space belongs to: an embedder."""

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> str: ...

    @property
    def dimension(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A vector space.

    `setting` is what its embedder was opened by; empty for an object that no setting names.
    """

    id: int
    embedder: str
    revision: str
    dimension: int
    active: bool
    setting: str

    def __str__(self) -> str:
        return f"{self.embedder} (revision {self.revision}, {self.dimension} dimensions)"

    def belongs_to(self, owner: Owner) -> bool:
        """Whether an embedder makes vectors of this space.

        Its dimension is asked for last: it may have to embed something to know.
        """
        return (self.embedder, self.revision) == (
            owner.name,
            owner.revision,
        ) and self.dimension == owner.dimension


class Passage(NamedTuple):
    """What was embedded for a chunk, in its parts."""

    id: int
    text_sha: bytes
    path: str
    line: int
    kind: str
    title: str
    headings: str  # one per line
    symbol: str
    text: str


class Missing(NamedTuple):
    """How many different texts have no vector in a space, and about how many tokens they have."""

    texts: int
    tokens: int


def all_spaces(connection: Connection) -> list[Space]:
    """Every vector space, oldest first."""
    return [_space(row) for row in connection.execute(_SELECT.order_by(spaces.c.id))]


def active_space(connection: Connection) -> Space | None:
    """The vector space in use, if anything was ever indexed."""
    row = connection.execute(_ACTIVE).first()
    return None if row is None else _space(row)


def active_id(connection: Connection) -> int | None:
    """The same, by its number alone: asked before every search."""
    found = connection.execute(_ACTIVE_ID).scalar()
    return None if found is None else int(found)


def ensure(connection: Connection, owner: Owner, setting: str) -> int:
    """The vector space of an embedder.

    A catalog that was filled by another one is a conflict, never silent nonsense.
    """
    active = active_space(connection)
    if active is None:
        # one at a time makes the first
        connection.execute(sa.select(meta.c.value).where(meta.c.key == IDENTITY).with_for_update())
        active = active_space(connection)
    if active is None:
        switch(connection, prepare(connection, owner, setting).id)
        active = active_space(connection)
        assert active is not None
    if not active.belongs_to(owner):
        raise ConflictError(
            f"this catalog was made with embedder {active}, not {owner.name} (revision "
            f"{owner.revision}, {owner.dimension}); "
            f"{how_to_meet(active, owner)}, or change over with `unspool reembed --embedder "
            f"{setting or 'NAME'}`"
        )
    return active.id


def how_to_meet(space: Space, owner: Owner) -> str:
    """What to change for an embedder to be the one that a space belongs to."""
    if space.embedder != owner.name:
        return (
            f"set UNSPOOL_EMBEDDER={space.setting} to go on with it"
            if space.setting
            else "open it with that one to go on"
        )
    if space.revision == owner.revision:
        return f"set UNSPOOL_EMBEDDER_DIMENSION={space.dimension} to go on with it"
    return (
        "put back what has changed since: the model's files, UNSPOOL_EMBEDDER_REVISION, or a prefix"
    )


def prepare(connection: Connection, owner: Owner, setting: str) -> Space:
    """The vector space of an embedder beside the one in use, made if need be."""
    known = next((space for space in all_spaces(connection) if space.belongs_to(owner)), None)
    if known is None:
        _insert(connection, owner, setting)
        known = next(space for space in all_spaces(connection) if space.belongs_to(owner))
    elif known.setting != setting:
        connection.execute(sa.update(spaces).where(spaces.c.id == known.id).values(setting=setting))
    return known


def check_active(connection: Connection, space_id: int) -> None:
    """Refuse to go on in a space that is not in use any more.

    Who writes calls it in a transaction that holds the embeddings.
    """
    active = active_space(connection)
    if active is not None and active.id != space_id:
        raise SwitchedError(
            f"the catalog has gone over to embedder {active} meanwhile; try again, which follows it"
        )


def switch(connection: Connection, space_id: int) -> None:
    """Put another space in use; in a transaction that has every project and the embeddings to
    itself.
    """
    connection.execute(sa.update(spaces).where(spaces.c.active).values(active=False))
    switched = connection.execute(
        sa.update(spaces).where(spaces.c.id == space_id).values(active=True)
    )
    if switched.rowcount != 1:
        raise ConflictError(
            "the vectors that were made have been dropped by another process; begin again"
        )


def take_all(connection: Connection) -> list[int]:
    """Have every project, and the embeddings, to oneself until the transaction ends; returns the
    projects' ids.
    """
    ids = [row.id for row in sorted(projects.all_projects(connection), key=lambda row: row.id)]
    taken = [id_ for id_ in ids if projects.take(connection, id_)]
    hold(connection, embeddings, alone=True)
    return taken


def drop(connection: Connection, space_id: int) -> int:
    """Forget a space that is not in use, with its vectors; returns how many went."""
    gone = connection.execute(
        sa.delete(embeddings).where(embeddings.c.space_id == space_id)
    ).rowcount
    connection.execute(sa.delete(spaces).where(spaces.c.id == space_id, sa.not_(spaces.c.active)))
    return gone


def embedding_count(connection: Connection, space_id: int) -> int:
    """How many vectors are kept in a space."""
    return int(
        connection.execute(
            sa.select(sa.func.count()).where(embeddings.c.space_id == space_id)
        ).scalar_one()
    )


def missing(connection: Connection, space_id: int | None) -> Missing:
    """What has no vector in a space; everything, for a space that does not exist yet."""
    texts = sa.select(sa.func.min(chunks.c.token_count).label("tokens")).group_by(chunks.c.text_sha)
    if space_id is not None:
        texts = texts.where(_has_none(space_id))
    found = texts.subquery()
    row = connection.execute(
        sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(found.c.tokens), 0)).select_from(
            found
        )
    ).one()
    return Missing(int(row[0]), int(row[1]))


def longest_over(connection: Connection, tokens: int) -> int:
    """How many chunks have more tokens than so many."""
    return int(
        connection.execute(
            sa.select(sa.func.count()).select_from(chunks).where(chunks.c.token_count > tokens)
        ).scalar_one()
    )


def lacks_any(connection: Connection, space_id: int, project_id: int | None = None) -> bool:
    """Whether a chunk, of one project or of any, has no vector in a space."""
    query = sa.select(chunks.c.id).where(_has_none(space_id)).limit(1)
    if project_id is not None:
        query = query.where(chunks.c.project_id == project_id)
    return connection.execute(query).first() is not None


def without_vector(
    connection: Connection, space_id: int, *, after: int, limit: int
) -> list[Passage]:
    """Chunks without a vector in a space, by id."""
    query = (
        _PASSAGES.where(chunks.c.id > after, _has_none(space_id)).order_by(chunks.c.id).limit(limit)
    )
    return [Passage(*row) for row in connection.execute(query)]


def samples(connection: Connection, space_id: int, count: int) -> Iterator[tuple[Passage, bytes]]:
    """Up to so many chunks from all over the catalog, with their vectors in a space.

    Ids are spread evenly, so looking for one is one step.
    """
    query = _PASSAGES.add_columns(embeddings.c.vector).join(
        embeddings,
        sa.and_(embeddings.c.text_sha == chunks.c.text_sha, embeddings.c.space_id == space_id),
    )
    seen: set[int] = set()
    for number in range(count):
        row = connection.execute(
            query.where(chunks.c.id >= number * (_ALL_IDS // count)).order_by(chunks.c.id).limit(1)
        ).first()
        if row is not None and row.id not in seen:
            seen.add(row.id)
            yield Passage(*row[:-1]), row[-1]


def odd_vectors(connection: Connection, space_id: int, dimension: int) -> int:
    """How many vectors of a space do not have its dimension."""
    wrong = sa.func.length(embeddings.c.vector) != 4 * dimension
    return int(
        connection.execute(
            sa.select(sa.func.count()).where(embeddings.c.space_id == space_id, wrong)
        ).scalar_one()
    )


def _has_none(space_id: int) -> sa.ColumnElement[bool]:
    return ~sa.exists().where(
        embeddings.c.space_id == space_id, embeddings.c.text_sha == chunks.c.text_sha
    )


def _insert(connection: Connection, owner: Owner, setting: str) -> None:
    values: dict[str, Any] = {
        "embedder": owner.name,
        "revision": owner.revision,
        "dimension": owner.dimension,
        "active": False,
        "setting": setting,
    }
    if connection.dialect.name == "sqlite":
        values["id"] = _unused_id(connection)
    connection.execute(sa.insert(spaces).values(**values, created_at=datetime.now(UTC)))


def _unused_id(connection: Connection) -> int:
    """One that no space has had.

    SQLite gives the number of a dropped space to the next one, which who is still open would take
    for his own.
    """
    noted = connection.execute(sa.select(meta.c.value).where(meta.c.key == _LAST_ID)).scalar()
    newest = connection.execute(
        sa.select(sa.func.coalesce(sa.func.max(spaces.c.id), 0))
    ).scalar_one()
    found = max(int(noted or 0), int(newest)) + 1
    if noted is None:
        connection.execute(sa.insert(meta).values(key=_LAST_ID, value=str(found)))
    else:
        connection.execute(sa.update(meta).where(meta.c.key == _LAST_ID).values(value=str(found)))
    return found


def _space(row: Any) -> Space:
    return Space(
        id=row.id,
        embedder=row.embedder,
        revision=row.revision,
        dimension=row.dimension,
        active=row.active,
        setting=row.setting,
    )


_ALL_IDS = 2**63
_LAST_ID = "last_space"
_SELECT = sa.select(
    spaces.c.id,
    spaces.c.embedder,
    spaces.c.revision,
    spaces.c.dimension,
    spaces.c.active,
    spaces.c.setting,
)
_ACTIVE = _SELECT.where(spaces.c.active)
_ACTIVE_ID = sa.select(spaces.c.id).where(spaces.c.active)
_PASSAGES = sa.select(
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
