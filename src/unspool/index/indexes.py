"""Indexes of a catalog: words and vectors of one vector space, kept up to date together."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, feed, projects, spaces
from unspool.catalog.feed import Changes, ChunkPoint
from unspool.catalog.projects import ProjectRow, ProjectVersion
from unspool.domain.reports import OnProgress
from unspool.errors import UnspoolError
from unspool.index import vectors as adapters
from unspool.index.follower import Follower
from unspool.index.options import VectorOptions
from unspool.index.ports import Transactional, Upkeep, VectorSearch, WordIndex
from unspool.index.remote import RemoteIndex
from unspool.index.retriever import VectorRetriever

if TYPE_CHECKING:
    from unspool.catalog.postgres import PostgresCatalog
    from unspool.index.vectors.pgvector import PgvectorIndex

PRUNE_EVERY = 64  # changes between prunings of a feed that no index follows


class Indexes:
    """Word and vector index of one vector space. A catalog alone is enough to rebuild them."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        name: str,
        space_id: int,
        words: WordIndex,
        vectors: VectorRetriever,
        upkeep: Sequence[Upkeep],
    ) -> None:
        self.name = name
        self.space_id = space_id
        self.words = words
        self.vectors = vectors
        self.upkeep = upkeep  # of words and vectors, in this order
        self._catalog = catalog
        self._transactional = [one for one in upkeep if isinstance(one, Transactional)]
        self._is_followed = len(self._transactional) < len(upkeep)

    @property
    def outside(self) -> RemoteIndex | None:
        """The vector index, if it is outside the catalog's database and folder."""
        one = self.upkeep[-1]
        is_outside = isinstance(one, Follower) and isinstance(one.index, RemoteIndex)
        return cast("RemoteIndex", cast("Follower[ChunkPoint]", one).index) if is_outside else None

    @property
    def _inside(self) -> Sequence[Upkeep]:
        return self.upkeep if self.outside is None else self.upkeep[:-1]

    def publish(self, connection: Connection, changes: Changes) -> None:
        """Index changes in their transaction, and publish them for the indexes that follow."""
        for one in self._transactional:
            one.apply_in(connection, changes)
        if self.outside is not None and self._catalog.engine_name == "postgresql":
            feed.mark_outdated(connection, feed.OWN_VECTORS, changes.project_id)
        seq = feed.publish_changes(connection, changes)
        if seq and seq % PRUNE_EVERY == 0 and not self._is_followed:
            feed.prune_feed(connection, changes.project_id)

    def delete_project(self, connection: Connection, project: int) -> None:
        """Delete a project's rows in the transaction that deletes the project."""
        for one in self._transactional:
            one.delete_in(connection, project)

    def complete(self, connection: Connection, project: int) -> None:
        """Index the changes since `fill`, in the transaction that activates the vector space."""
        for one in self._transactional:
            one.complete_in(connection, project)

    def catch_up(
        self,
        project: ProjectRow | ProjectVersion,
        on_progress: OnProgress | None = None,
        *,
        words_only: bool = False,
    ) -> int:
        """Make everything searchable that was committed when the project's row was read.

        Returns the number of chunks that are not searchable yet.
        """
        upkeep = self.upkeep[:1] if words_only else self.upkeep
        return max(one.catch_up(project, on_progress) for one in upkeep)

    def flush(self, project: int) -> None:
        """Index what a long run has stored so far, unless another process is writing."""
        for one in self.upkeep:
            one.flush(project)

    def finish_run(
        self, project: int, *, put: int | None = None, on_progress: OnProgress | None = None
    ) -> str:
        """Index what a run has stored, or what `put` chunks of small writes have added.

        Returns a warning if that failed: everything is stored, so the caller must not repeat it.
        """
        try:
            for one in self.upkeep:
                one.finish_run(project, put=put, on_progress=on_progress)
        except UnspoolError as error:
            return f"everything is stored, but the index could not be completed: {error}"
        return ""

    def fill(self, project: int, on_progress: OnProgress | None = None) -> bool:
        """Index a project while another vector space is searched.

        Returns False if the catalog does not contain all vectors yet.
        """
        filled = [one.fill(project, on_progress) for one in self.upkeep]
        return all(filled)

    def repair(
        self, project: int, *, verify: bool = False, on_progress: OnProgress | None = None
    ) -> None:
        """Index everything that is missing or damaged. With `verify` all that is stored is read."""
        for one in self.upkeep:
            one.repair(project, verify=verify, on_progress=on_progress)

    def count_pending(self, connection: Connection, project: int) -> int:
        """Return the number of chunks that are not indexed yet."""
        return max(one.count_pending(connection, project) for one in self.upkeep)

    def find_damage(self, project: int) -> list[str]:
        """Describe how what is stored beside the catalog differs from what was committed."""
        return [found for one in self._inside for found in one.find_damage(project)]

    def is_filled(self, project: int) -> bool:
        """Return whether every index beside the catalog contains all but the latest changes."""
        return all(one.is_filled(project) for one in self._inside)

    def drop(self, project: int) -> None:
        """Delete what is stored for a deleted project, after its transaction."""
        for one in self.upkeep:
            one.drop(project)

    def clear(self) -> None:
        """Delete the vectors of this space, except for those in the catalog's database."""
        one = self.upkeep[-1]
        if isinstance(one, Follower):
            with self._catalog.read() as connection:
                rows = projects.list_projects(connection)
            for row in rows:
                with one.index.lock(row.id, wait=True):
                    one.index.clear(row.id)
        if self.outside is not None:
            self.outside.vectors.drop()

    def destroy(self, connection: Connection) -> None:
        """Delete what the catalog contains of this space, in the transaction that deletes it."""
        one = self.upkeep[-1]
        if isinstance(one, Follower):
            feed.delete_positions(connection, one.index.name)
        else:
            cast("PgvectorIndex", one).destroy_in(connection)

    def take_warnings(self) -> list[str]:
        """Return the warnings about repairs since the last call."""
        return [warning for one in self.upkeep for warning in one.take_warnings()]

    def close(self) -> None:
        """Release files and connections."""
        for one in self.upkeep:
            one.close()


def open_indexes(
    catalog: Catalog, *, space_id: int, space: str, dimension: int, options: VectorOptions
) -> Indexes:
    """Open the words where the catalog's engine keeps them, and the vectors of the settings."""
    words: WordIndex
    word_upkeep: Upkeep
    if catalog.engine_name == "sqlite":
        from unspool.index.words.embedded import EmbeddedWords

        embedded = EmbeddedWords(catalog)
        words, word_upkeep = embedded, embedded.follower
    else:
        from unspool.index.words.postgres import PostgresWords

        words = word_upkeep = PostgresWords.open(cast("PostgresCatalog", catalog))
    name, index, upkeep = _open_vectors(
        catalog, space_id=space_id, space=space, dimension=dimension, options=options
    )
    retriever = VectorRetriever(
        catalog,
        index,
        upkeep if isinstance(upkeep, Follower) else None,
        space_id=space_id,
        space=space,
        dimension=dimension,
        metric=options.metric,
    )
    return Indexes(
        catalog,
        name=name,
        space_id=space_id,
        words=words,
        vectors=retriever,
        upkeep=(word_upkeep, upkeep),
    )


def _open_vectors(
    catalog: Catalog, *, space_id: int, space: str, dimension: int, options: VectorOptions
) -> tuple[str, VectorSearch, Upkeep]:
    """Return the name of a vector index, the index, and its upkeep."""
    source = feed.create_point_feed(space_id)

    def check(connection: Connection) -> None:
        spaces.check_active(connection, space_id)

    if options.address:
        # a store compares all points of a collection by one metric
        collection = f"unspool_{catalog.identity}_{space_id}_{options.metric}"
        index = adapters.open_vectors(options, collection=collection, dimension=dimension)
        # an address may contain a key, which must not be stored
        place = hashlib.sha256(options.address.encode()).hexdigest()[:16]
        scheme = options.address.partition("://")[0]
        name = f"{scheme}-{place}-{space_id}-{options.metric}"
        remote = RemoteIndex(catalog, index, source, name=name, dimension=dimension)
        return scheme, index, Follower(catalog, source, remote, check=check)
    if catalog.engine_name == "sqlite":
        from unspool.index.vectors.flat import FlatIndex

        flat = FlatIndex(catalog, space_id=space_id, space=space, dimension=dimension)
        return "embedded", flat, Follower(catalog, source, flat, check=check)
    from unspool.index.vectors.pgvector import PgvectorIndex

    own = PgvectorIndex.open(
        cast("PostgresCatalog", catalog), space_id=space_id, dimension=dimension, options=options
    )
    return "postgresql", own, own
