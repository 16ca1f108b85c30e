"""Vector search without words and ranking: the chunks nearest to a vector or to a chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from unspool.catalog import Catalog
from unspool.catalog import chunks as chunk_rows
from unspool.catalog.projects import ProjectRow
from unspool.catalog.statements import group_by_project
from unspool.domain.documents import Chunk
from unspool.domain.filters import Filter
from unspool.domain.queries import Form, Hit, Origin, Page
from unspool.errors import NotFoundError
from unspool.index.ports import Vectors
from unspool.index.retriever import VectorRetriever
from unspool.search import budget, freshness, pages
from unspool.search.snippets import make_cutter


def find_nearest(
    catalog: Catalog,
    vectors: VectorRetriever,
    projects: Sequence[ProjectRow],
    vector: Vectors,
    *,
    k: int,
    where: Filter | None,
    count_tokens: Callable[[str], int],
) -> list[Hit]:
    """Return the k nearest chunks of all the projects, by their vectors alone."""
    found = [vectors.search(project.id, vector, k=k, where=where) for project in projects]
    nearest = sorted(
        (
            (float(score), int(id_), project.id)
            for project, matches in zip(projects, found, strict=True)
            for id_, score in zip(matches.ids, matches.scores, strict=True)
        ),
        key=lambda one: (-one[0], one[1]),
    )[:k]
    with catalog.read() as connection:
        chunks = chunk_rows.load_chunks(
            connection, group_by_project((project, id_) for _, id_, project in nearest)
        )
    present = [(score, chunks[id_]) for score, id_, _ in nearest if id_ in chunks]
    around = pages.load_exchanges(catalog, [stored for _, stored in present])
    stale = freshness.find_stale([stored.file for _, stored in present])
    return [
        Hit(
            chunk=stored.chunk,
            score=score,
            rank=rank,
            origin=Origin.VECTOR,
            form=Form.WHOLE,
            cut=make_cutter(frozenset()),
            tokens=stored.chunk.token_count
            + count_tokens(budget.format_header(stored.chunk))
            + (count_tokens(exchange.context) if exchange.context else 0),
            stale=is_stale,
            message=exchange.message,
            before=exchange.before,
            after=exchange.after,
        )
        for rank, ((score, stored), exchange, is_stale) in enumerate(
            zip(present, around, stale, strict=True), 1
        )
    ]


def find_related(
    catalog: Catalog,
    vectors: VectorRetriever,
    project: ProjectRow,
    chunk: Chunk,
    *,
    space_id: int,
    limit: int,
    count_tokens: Callable[[str], int],
) -> Page:
    """Return the chunks nearest to a chunk, without that chunk."""
    with catalog.read() as connection:
        stored = chunk_rows.load_vectors(connection, project.id, [chunk.id], space_id).get(chunk.id)
    if stored is None:
        raise NotFoundError(f"{chunk.location} has no vector; index again")
    vector = np.frombuffer(stored, dtype="<f4").astype(np.float32)
    hits = [
        hit
        for hit in find_nearest(
            catalog, vectors, [project], vector, k=limit + 1, where=None, count_tokens=count_tokens
        )
        if hit.chunk.id != chunk.id
    ][:limit]
    hits = [replace(hit, rank=rank) for rank, hit in enumerate(hits, 1)]
    return Page(
        query=chunk.location,
        projects=(project.name,),
        hits=tuple(hits),
        sources=pages.list_sources(hits),
        insights=pages.summarize(hits),
        tokens=sum(hit.tokens for hit in hits),
        alpha=1.0,
    )
