"""Resources and steps that all writers share, and the storage of documents given as text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from sqlalchemy.engine import Connection

from unspool.catalog import Catalog, content, documents, projects, spaces
from unspool.catalog.feed import Changes
from unspool.catalog.schema import embeddings
from unspool.catalog.statements import lock_table
from unspool.domain.documents import Document
from unspool.domain.prepared import PreparedConversation, PreparedDocument
from unspool.domain.reports import IndexReport, Masked
from unspool.embedders.base import Embedder
from unspool.embedders.cache import RedisCache
from unspool.index.indexes import Indexes
from unspool.indexing.embedding import PassageEmbedder, SaveVectors, add_vectors
from unspool.indexing.preparing import Chunker, collect_passages, prepare_document
from unspool.sources.reading import mask_value
from unspool.sources.secrets.masking import limit_warnings, warn_about_secrets

# Chunks between commits to the index. Each commit leaves a segment that is merged later.
FLUSH_CHUNKS = 8_000
# With a cheap embedder, embedding so few texts or documents is faster than a lookup of their
# vectors.
SMALL_WRITE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """Resources of a writer: a catalog with its indexes and their embedder."""

    catalog: Catalog
    indexes: Indexes
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
            return spaces.find_known_texts(connection, self.indexes.space_id, shas)

    def save_vectors(self, vectors: Mapping[bytes, bytes]) -> None:
        """Save vectors before the documents that need them."""

        def save(connection: Connection) -> None:
            lock_table(connection, embeddings, exclusive=False)
            # an inactive space may be dropped already
            spaces.check_active(connection, self.indexes.space_id)
            spaces.insert_embeddings(connection, self.indexes.space_id, vectors)

        self.catalog.transact(save)

    def flush_chunks(self, project_id: int, *, written: int, flushed: int) -> int:
        """Let the indexes catch up during a long write.

        `written` and `flushed` count chunks. Returns the new value of `flushed`.
        """
        if written - flushed < FLUSH_CHUNKS:
            return flushed
        self.indexes.flush(project_id)
        return written


def put_documents(indexer: Indexer, given: Sequence[Document]) -> IndexReport:
    """Store documents of one project in one transaction. They are findable afterwards."""
    started = time.monotonic()
    unembedded = [prepare_document(document, indexer.chunker) for document in given]
    passages = indexer.create_passage_embedder(size=len(given))
    vectors = passages.embed_missing(collect_passages(unembedded))
    prepared = [add_vectors(document, vectors) for document in unembedded]
    paths = [document.path for document in given]
    versions = {one.path: one.version for one in given if one.version is not None}

    def write(connection: Connection) -> tuple[int, int, content.StoredDocuments]:
        row = projects.ensure_project(connection, given[0].project)
        ids, new = documents.ensure_documents(connection, row.id, paths)
        documents.check_versions(connection, row.id, versions)
        documents.check_not_conversations(connection, row.id, paths)
        changes = Changes(row.id)
        stored = content.store_documents(
            connection,
            row,
            prepared,
            changes,
            ids=ids,
            new=new,
            space_id=indexer.indexes.space_id,
        )
        indexer.indexes.publish(connection, changes)
        return row.id, len(new), stored

    project_id, added, stored = indexer.catalog.transact(write)
    warning = indexer.indexes.finish_run(project_id, put=stored.chunks)
    masked, exposed = report_secrets("path", prepared)
    return IndexReport(
        project=given[0].project,
        added=added,
        updated=len(given) - added,
        chunks=stored.chunks,
        embedded=stored.embedded + passages.saved_count,
        seconds=round(time.monotonic() - started, 3),
        masked=tuple(masked),
        warnings=(*passages.warnings, *limit_warnings(exposed), *filter(None, [warning])),
    )


def report_secrets(
    noun: str, prepared: Sequence[PreparedDocument | PreparedConversation]
) -> tuple[list[Masked], list[str]]:
    """Return the masked secrets of documents, and warnings about secrets in their addresses."""
    exposed = warn_about_secrets(noun, (one.path for one in prepared))
    masked = [
        replace(one, path=mask_value(one.path)) if exposed else one
        for document in prepared
        for one in document.masked
    ]
    keys = chain.from_iterable(one.metadata for one in prepared)
    return masked, exposed + warn_about_secrets("metadata key", keys)
