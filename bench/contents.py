"""Everything a catalog and what is derived from it hold, in a form that can be compared."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import sqlalchemy as sa

from unspool.catalog import schema
from unspool.corpus import Corpus
from unspool.index.vectors.flat import FlatIndex
from unspool.index.words.embedded import EmbeddedWords
from unspool.settings import Settings


def contents(database: str, project: str) -> dict[str, Any]:
    """Documents, chunks and vectors as fingerprints, and what is wrong with the derived index."""
    with Corpus(Settings.of(database=database)) as corpus:
        corpus.refresh()
        documents = sorted(
            (d.path, d.sha256, d.chunk_count, d.status.value, d.language)
            for d in corpus.documents(project=project)
        )
        row = corpus._access.resolve_one(project, "measure")
        with corpus._resources.catalog.read() as connection:
            chunks = _chunks(connection, row.id)
            embeddings = connection.execute(
                sa.select(sa.func.count()).select_from(schema.embeddings)
            ).scalar_one()
        ids = sorted(chunk[0] for chunk in chunks)
        return {
            "documents": _fingerprint(documents),
            "document_count": len(documents),
            "chunks": _fingerprint(chunks),
            "chunk_count": len(chunks),
            "embedding_count": embeddings,
            "unindexed": [document[0] for document in documents if document[3] != "indexed"],
            "vectors_differ": _difference(ids, _vector_ids(corpus, row.id)),
            "words_differ": _difference(ids, _word_ids(corpus, row.id)),
        }


def _chunks(connection: sa.Connection, project: int) -> list[tuple[Any, ...]]:
    """Every chunk with its vector, without what two runs may do differently: row ids, sequence
    numbers, times.
    """
    c, d, e = schema.chunks.c, schema.documents.c, schema.embeddings.c
    query = (
        sa.select(
            c.id,
            d.path,
            c.position,
            c.start_offset,
            c.end_offset,
            c.first_line,
            c.last_line,
            c.symbol,
            c.token_count,
            c.text,
            e.vector,
        )
        .join(schema.documents, d.id == c.document_id)
        .outerjoin(schema.embeddings, e.text_sha == c.text_sha)
        .where(c.project_id == project)
        .order_by(d.path, c.position)
    )
    return [tuple(row) for row in connection.execute(query)]


def _vector_ids(corpus: Corpus, project: int) -> list[int]:
    index = corpus._resources.session.indexes.vectors.index
    assert isinstance(index, FlatIndex)
    view = index.get_part(project).view
    return view.chunk_ids[... if view.alive is None else view.alive].tolist()


def _word_ids(corpus: Corpus, project: int) -> list[int]:
    words = corpus._resources.session.indexes.words
    assert isinstance(words, EmbeddedWords)
    return [
        id_
        for part in words.files.get_part(project).view.segments
        for id_ in part.segment.ids.all()[part.live_mask].tolist()
    ]


def _difference(wanted: list[int], found: list[int]) -> list[int]:
    """How many are missing, how many should not be there, how many are there twice."""
    there = Counter(found)
    return [
        len(set(wanted) - there.keys()),
        len(there.keys() - set(wanted)),
        there.total() - len(there),
    ]


def _fingerprint(rows: list[tuple[Any, ...]]) -> str:
    return hashlib.sha256(repr(rows).encode("utf-8", "surrogatepass")).hexdigest()
