"""Sampled searches of an index, compared with exact ones over the embeddings of the catalog."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from unspool.catalog import Catalog, chunks, feed
from unspool.index.indexes import Indexes
from unspool.index.options import Metric
from unspool.index.ports import Points, Vectors
from unspool.index.tail import compute_scores

SAMPLES = 20  # searches in each project
TOP = 10  # results of each
_PAGE = 4_000  # vectors compared at a time
_TOLERANCE = 1e-4  # of scores; stores compute in single precision


def measure_agreement(
    catalog: Catalog, indexes: Indexes, projects: Sequence[int], space_id: int, dimension: int
) -> float:
    """Return the share of the best chunks of sampled searches that the index finds."""
    found: list[float] = []
    for project in projects:
        queries = _sample_vectors(catalog, project, space_id, dimension)
        exact = _search_catalog(
            catalog, project, queries, space_id, dimension, indexes.vectors.metric
        )
        for query, best in zip(queries, exact, strict=True):
            scores = indexes.vectors.search(project, query, k=len(best)).scores
            found.append(np.count_nonzero(scores >= best[-1] - _TOLERANCE) / len(best))
    return float(np.mean(found)) if found else 1.0


def _sample_vectors(catalog: Catalog, project: int, space_id: int, dimension: int) -> Vectors:
    """Return vectors of random chunks. Ids are hashes, so the next one to any number is random."""
    chance = random.Random(project)  # noqa: S311 - nothing secret
    points = [chance.randrange(-1, 2**63 - 1) for _ in range(SAMPLES)]
    with catalog.read() as connection:
        ids = {
            id_
            for point in points
            for id_ in chunks.list_ids(connection, project, after=point, limit=1)
        }
        stored = chunks.load_vectors(connection, project, sorted(ids), space_id)
    return np.frombuffer(b"".join(stored.values()), dtype="<f4").reshape(len(stored), dimension)


def _search_catalog(
    catalog: Catalog, project: int, queries: Vectors, space_id: int, dimension: int, metric: Metric
) -> list[Vectors]:
    """Return the best scores of each query over all embeddings of a project."""
    source = feed.create_point_feed(space_id)
    best: list[Vectors] = [np.zeros(0, dtype=np.float32) for _ in queries]
    after = -1
    while len(queries):
        with catalog.read() as connection:
            page = source.list_all(connection, project, after=after, limit=_PAGE)
        if not page:
            break
        after = page[-1].id
        ready = [row for row in page if row.vector is not None]
        vectors = Points.from_rows(ready, dimension).vectors
        for at, query in enumerate(queries):
            scores = compute_scores(vectors, query, metric)
            best[at] = np.sort(np.concatenate([best[at], scores]))[::-1][:TOP]
    return best
