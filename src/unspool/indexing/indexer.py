"""Resources and steps that all writers share, and the storage of documents given as text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, content, documents, projects, spaces
from unspool.catalog.schema import embeddings
from unspool.catalog.statements import lock_table
from unspool.domain.documents import Document
from unspool.domain.prepared import PreparedConversation, PreparedDocument
from unspool.domain.reports import IndexReport, Masked
from unspool.embedders.base import Embedder
from unspool.embedders.cache import RedisCache
from unspool.index.stores import IndexStore
from unspool.indexing.embedding import PassageEmbedder, SaveVectors, add_vectors
from unspool.indexing.preparing import Chunker, collect_passages, prepare_document
from unspool.sources.secrets.masking import limit_warnings, redact_address, warn_about_secrets

# Chunks between commits to the index. Each commit leaves a segment that is merged later.
FLUSH_CHUNKS = 8_000
# With a cheap embedder, embedding so few texts or documents is faster than a lookup of their
# vectors.
SMALL_WRITE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """Resources of a writer: a catalog with the store and the embedder that belong to it."""

    catalog: Catalog
    store: IndexStore
    embedder: Embedder
    opened_as: str  # setting that opens the same embedder in another process; empty without one
    cache: RedisCache | None
    prove: Callable[[], None] | None
    chunk_tokens: int
    max_file_bytes: int
    jobs: int

    @property
    def chunker(self) -> Chunker:
        """Chunker for the embedder."""
        return Chunker(counter=self.embedder, chunk_tokens=self.chunk_tokens)

    def create_passage_embedder(
        self, *, size: int | None = None, save: SaveVectors | None = None
    ) -> PassageEmbedder:
        """Return the embedder of one run, or of one write of so many texts or documents.

        A cheap embedder needs no cache and no early save.
        """
        if self.embedder.is_cheap:
            is_small = size is not None and size <= SMALL_WRITE
            return PassageEmbedder(
                embedder=self.embedder, look_up=None if is_small else self.look_up
            )
        return PassageEmbedder(
            embedder=self.embedder,
            look_up=self.look_up,
            cache=self.cache,
            save=save or self.save_vectors,
            prove=self.prove,
        )

    def look_up(self, shas: Iterable[bytes]) -> set[bytes]:
        """Return the fingerprints of passages that have a vector."""
        with self.catalog.read() as connection:
            return spaces.find_known_texts(connection, self.store.space_id, shas)

    def save_vectors(self, vectors: Mapping[bytes, bytes]) -> None:
        """Save vectors before the documents that need them."""

        def save(connection: Connection) -> None:
            lock_table(connection, embeddings, exclusive=False)
            # an inactive space may be dropped already
            spaces.check_active(connection, self.store.space_id)
            spaces.insert_embeddings(connection, self.store.space_id, vectors)

        self.catalog.transact(save)

    def apply_changes(
        self, connection: Connection, project_id: int, changes: content.Changes
    ) -> None:
        """Update the store within the transaction of a short write."""
        self.store.apply_changes(connection, project_id, changes)
        self.prune_removals(connection, project_id)

    def prune_removals(self, connection: Connection, project_id: int) -> None:
        """Delete the removals that a store has read from the change feed."""
        if self.store.catches_up:
            position = self.store.get_position(project_id)
            projects.prune_removals(connection, project_id, upto=position)

    def flush_chunks(self, project_id: int, *, written: int, flushed: int) -> int:
        """Let the store catch up during a long write.

        `written` and `flushed` count chunks. Returns the new value of `flushed`.
        """
        if written - flushed < FLUSH_CHUNKS:
            return flushed
        self.store.flush(project_id)
        return written


def put_documents(indexer: Indexer, given: Sequence[Document]) -> IndexReport:
    """IndexStore documents of one project in one transaction. They are findable afterwards."""
    started = time.monotonic()
    unembedded = [prepare_document(document, indexer.chunker) for document in given]
    passages = indexer.create_passage_embedder(size=len(given))
    vectors = passages.embed_missing(collect_passages(unembedded))
    prepared = [add_vectors(document, vectors) for document in unembedded]
    paths = [document.path for document in given]
    versions = {one.path: one.version for one in given if one.version is not None}

    def write(connection: Connection) -> tuple[int, int, content.StoredDocuments]:
        row = projects.ensure_project(connection, given[0].project)
        documents.check_versions(connection, row.id, versions)
        documents.check_not_conversations(connection, row.id, paths)
        ids, new = documents.ensure_documents(connection, row.id, paths)
        stored = content.store_documents(
            connection,
            row,
            prepared,
            claimed=ids,
            new=new,
            space_id=indexer.store.space_id,
            log_changes=indexer.store.catches_up,
        )
        indexer.apply_changes(connection, row.id, stored.changes)
        return row.id, len(new), stored

    project_id, added, stored = indexer.catalog.transact(write)
    indexer.store.finish_run(project_id, put=stored.chunks)
    masked, exposed = report_secrets("path", prepared)
    return IndexReport(
        project=given[0].project,
        added=added,
        updated=len(given) - added,
        chunks=stored.chunks,
        embedded=stored.embedded + passages.saved_count,
        seconds=round(time.monotonic() - started, 3),
        masked=tuple(masked),
        warnings=(*passages.warnings, *limit_warnings(exposed)),
    )


def report_secrets(
    noun: str, prepared: Sequence[PreparedDocument | PreparedConversation]
) -> tuple[list[Masked], list[str]]:
    """Return the masked secrets of documents, and warnings about secrets in their addresses."""
    exposed = warn_about_secrets(noun, (one.path for one in prepared))
    masked = [
        replace(one, path=redact_address(one.path)) if exposed else one
        for document in prepared
        for one in document.masked
    ]
    keys = chain.from_iterable(one.metadata for one in prepared)
    return masked, exposed + warn_about_secrets("metadata key", keys)
