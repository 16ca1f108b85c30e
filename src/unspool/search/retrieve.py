"""Retrieval: candidates of both retrievers, project by project, and how far each has been read."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from unspool.catalog import Catalog
from unspool.catalog import chunks as chunk_rows
from unspool.catalog.projects import ProjectVersion
from unspool.catalog.statements import IdsByProject
from unspool.index.bm25 import compute_idf
from unspool.index.ports import Candidates, Ids, Vectors, WordIndex
from unspool.index.retriever import VectorRetriever
from unspool.search.request import SearchRequest
from unspool.search.windows import NO_IDS, Unranked, WindowTail

MAX_CACHED = 50_000  # candidates in memory; about 20 MB
Weights = Mapping[str, float]  # of terms


class CandidateCache:
    """Facts that ranking needs about chunks, cached while the projects do not change."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._state: tuple[tuple[int, int], ...] = ()
        self._cached: dict[int, chunk_rows.Candidate] = {}

    def get(
        self, catalog: Catalog, projects: Sequence[ProjectVersion], ids: IdsByProject
    ) -> dict[int, chunk_rows.Candidate]:
        """Return the chunks that exist, by id.

        Ids are unique within a project. That two of one search collide across projects is as
        unlikely as a random fault of the memory.
        """
        state = _describe_state(projects)
        with self._guard:
            if state != self._state or len(self._cached) > MAX_CACHED:
                self._state, self._cached = state, {}
            cached = self._cached
        missing = {
            project: [id_ for id_ in own if id_ not in cached] for project, own in ids.items()
        }
        if any(missing.values()):
            with catalog.read() as connection:
                cached.update(chunk_rows.load_candidates(connection, missing))
        return {id_: cached[id_] for own in ids.values() for id_ in own if id_ in cached}

    def clear(self) -> None:
        """Remove everything."""
        with self._guard:
            self._state, self._cached = (), {}

    def add(
        self, projects: Sequence[ProjectVersion], candidates: Mapping[int, chunk_rows.Candidate]
    ) -> None:
        """Add candidates that were read in another way."""
        with self._guard:
            if self._state == _describe_state(projects):
                self._cached.update(candidates)


def _describe_state(projects: Sequence[ProjectVersion]) -> tuple[tuple[int, int], ...]:
    return tuple((project.id, project.seq) for project in projects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrievers:
    """Sources that a search reads: the catalog and both indexes."""

    catalog: Catalog
    vectors: VectorRetriever
    words: WordIndex
    cache: CandidateCache
    executor: Executor  # for several projects at once


class Retrieved(NamedTuple):
    """Candidates of one project from each retriever; None from one that was not asked."""

    project: int
    by_vector: Candidates | None
    by_words: Candidates | None

    @property
    def vector_ids(self) -> Ids:
        """Ids from the vector index."""
        return NO_IDS if self.by_vector is None else self.by_vector.ids

    @property
    def word_ids(self) -> Ids:
        """Ids from the word index."""
        return NO_IDS if self.by_words is None else self.by_words.ids

    @property
    def hint(self) -> str | None:
        """Native continuation of the vector index."""
        return None if self.by_vector is None else self.by_vector.hint


def retrieve(
    retrievers: Retrievers,
    request: SearchRequest,
    vector: Vectors | None,
    weights: Mapping[int, Weights],
    depth: int,
    *,
    seen: Ids = NO_IDS,
    previous: WindowTail | None = None,
    hints: Mapping[int, str] | None = None,
) -> tuple[WindowTail, dict[int, Retrieved]]:
    """Ask both retrievers for `depth` candidates of every project.

    A project with a hint is continued by the vector index itself, behind the depth of `previous`.
    `seen` chunks are left out of the tail.
    """
    hints, plan = hints or {}, request.plan

    def ask(project: int) -> Retrieved:
        by_vector = by_words = None
        if plan.uses_vectors and vector is not None:
            # With a hint the vector index returns only the candidates that follow it.
            k = depth - previous.depth if previous is not None and project in hints else depth
            by_vector = retrievers.vectors.search(
                project, vector, k=k, where=request.filter, hint=hints.get(project)
            )
        if plan.uses_words:
            by_words = retrievers.words.search(
                project, weights[project], k=depth, where=request.filter
            )
        return Retrieved(project, by_vector, by_words)

    ids = [project.id for project in request.projects]
    found = list(map(ask, ids) if len(ids) < 2 else retrievers.executor.map(ask, ids))
    tail = WindowTail(
        depth=depth,
        is_exhausted=_is_exhausted(found, depth, hints),
        scale=() if previous is None else previous.scale,
        majority="" if previous is None else previous.majority,
        unranked=tuple(
            Unranked(one.project, exclude(one.vector_ids, seen), exclude(one.word_ids, seen))
            for one in found
        ),
        hints={one.project: one.hint for one in found if one.hint is not None},
        is_hinted=bool(hints),
        versions=request.versions,
        is_truncated=any(one.by_vector is not None and one.by_vector.is_truncated for one in found),
    )
    return tail, {one.project: one for one in found}


def retrieve_more(
    retrievers: Retrievers,
    request: SearchRequest,
    vector: Vectors | None,
    weights: Mapping[int, Weights],
    tail: WindowTail,
    seen: Ids,
) -> WindowTail | None:
    """Return a tail with unranked candidates; None if there are no more.

    Unranked candidates come first, unless the projects have changed since. Then the vector index
    continues natively if it can, and is otherwise searched deeper.
    """
    if dict(tail.versions) != request.versions:
        tail, _ = retrieve(
            retrievers, request, vector, weights, tail.depth, seen=seen, previous=tail
        )
    capabilities = retrievers.vectors.capabilities
    while not tail.has_unranked:
        if tail.is_exhausted:
            return None
        tail, _ = retrieve(
            retrievers,
            request,
            vector,
            weights,
            tail.depth * 2,
            seen=seen,
            previous=tail,
            hints=tail.hints if capabilities.native_continuation else None,
        )
    return tail


def weigh_projects(words: WordIndex, request: SearchRequest) -> dict[int, Weights]:
    """Return the weights of the terms in each project.

    A word is weighed by its rarity, which each project counts for itself. In a project that is all
    about sessions the word 'session' weighs nothing, so its best chunks would rank below a passing
    mention in another. Rarity over all projects together makes their scores comparable.
    """
    weights = request.plan.weights
    if len(request.projects) < 2 or not request.plan.uses_words:
        return {project.id: weights for project in request.projects}
    own = {project.id: words.get_statistics(project.id, weights) for project in request.projects}
    total = sum(one.chunks for one in own.values())
    overall = {
        term: compute_idf(sum(one.frequencies[term] for one in own.values()), total)
        for term in weights
    }
    return {
        id_: {
            term: weight * overall[term] / compute_idf(one.frequencies[term], one.chunks)
            for term, weight in weights.items()
        }
        for id_, one in own.items()
    }


def exclude(ids: Ids, others: Ids) -> Ids:
    """Return ids in their order, without the others."""
    return ids[~np.isin(ids, others)] if len(ids) and len(others) else ids


def _is_exhausted(found: Sequence[Retrieved], depth: int, hints: Mapping[int, str]) -> bool:
    """Return True if no retriever has more. One with a hint has more as long as it returns one."""
    return not any(
        one.hint is not None
        or len(one.word_ids) >= depth
        or (len(one.vector_ids) >= depth and one.project not in hints)
        for one in found
    )
