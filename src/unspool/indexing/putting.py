"""Storage of documents given as text."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy.engine import Connection

from unspool.catalog import documents, projects
from unspool.domain.documents import Document
from unspool.domain.reports import IndexReport
from unspool.indexing.embedding import add_vectors
from unspool.indexing.indexer import Indexer
from unspool.indexing.pipeline import IndexCounts
from unspool.indexing.preparing import collect_passages, prepare_document


def put_documents(indexer: Indexer, given: Sequence[Document]) -> IndexReport:
    """Store documents of one project in one transaction. They are findable afterwards."""
    started = time.monotonic()
    unembedded = [prepare_document(document, indexer.chunker) for document in given]
    passages = indexer.create_passage_embedder(size=len(given))
    vectors = passages.embed_missing(collect_passages(unembedded))
    prepared = [add_vectors(document, vectors) for document in unembedded]
    paths = [document.path for document in given]
    versions = {one.path: one.version for one in given if one.version is not None}

    def write(connection: Connection) -> tuple[int, int, documents.Stored]:
        row = projects.ensure(connection, given[0].project)
        documents.check_versions(connection, row.id, versions)
        documents.check_free(connection, row.id, paths)
        ids, new = documents.ensure_documents(connection, row.id, paths)
        stored = documents.store(
            connection,
            row,
            prepared,
            held=ids,
            new=new,
            space_id=indexer.store.space_id,
            feeds=indexer.store.catches_up,
        )
        indexer.apply_changes(connection, row.id, stored.changes)
        return row.id, len(new), stored

    project_id, added, stored = indexer.catalog.transact(write)
    indexer.store.settle(project_id, put=stored.chunks)
    counts = IndexCounts(
        added=added,
        updated=len(given) - added,
        chunks=stored.chunks,
        embedded=stored.embedded + passages.saved_count,
    )
    counts.count_secrets(prepared)
    return counts.build_report(given[0].project, passages.warnings, started)
