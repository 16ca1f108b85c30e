"""Vector retrieval: a search of an index, planned from its capabilities, with its tail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from unspool.catalog import Catalog
from unspool.catalog import chunks as chunk_rows
from unspool.catalog.feed import ChunkPoint
from unspool.catalog.filters import Selection, SelectionCache
from unspool.domain.filters import Filter, list_fields
from unspool.errors import DimensionError, UnsupportedError
from unspool.index.follower import Follower
from unspool.index.options import Metric
from unspool.index.ports import (
    NO_IDS,
    Candidates,
    Capabilities,
    Ids,
    Points,
    Scorer,
    Vectors,
    VectorSearch,
    Within,
    rank_candidates,
)
from unspool.index.tail import Tail, compute_scores

_Search = Callable[..., Candidates]  # takes k


class VectorRetriever:
    """Search of one vector space. `follower` is None for an index that is always current."""

    def __init__(
        self,
        catalog: Catalog,
        index: VectorSearch,
        follower: Follower[ChunkPoint] | None,
        *,
        space_id: int,
        space: str,
        dimension: int,
        metric: Metric,
    ) -> None:
        if metric not in index.capabilities.metrics:
            known = ", ".join(sorted(index.capabilities.metrics))
            raise UnsupportedError(
                f"this vector index compares by {known}, not by {metric}; change "
                f"UNSPOOL_VECTOR_METRIC"
            )
        self.index = index
        self._catalog = catalog
        self._follower = follower
        self._space_id = space_id
        self._space = space
        self._dimension = dimension
        self.metric = metric
        self._selections = SelectionCache()

    @property
    def capabilities(self) -> Capabilities:
        """Facts about the index."""
        return self.index.capabilities

    def search(
        self,
        project: int,
        vector: Vectors,
        *,
        k: int,
        where: Filter | None = None,
        min_similarity: float | None = None,
        hint: str | None = None,
    ) -> Candidates:
        """Return the k nearest chunks that a filter accepts, whether they are indexed or not."""
        self._check_dimension(vector)
        if hint is not None and not self.capabilities.native_continuation:
            raise UnsupportedError(
                "this vector index has no native continuation; search again with a larger k"
            )
        selection = self._select(project, where)
        if selection is not None and selection.is_empty:
            return Candidates.empty()

        def search(tail: Tail[ChunkPoint] | None) -> Candidates:
            hidden = NO_IDS if tail is None else tail.hidden
            if tail is not None and tail.start is None:
                found = Candidates.empty()
            else:
                found = self._search_index(
                    project, vector, k + len(hidden), where, selection, min_similarity, hint
                )
            if tail is None:
                return found
            return self._merge(found, tail, vector, selection, k)

        found = search(None) if self._follower is None else self._follower.read(project, search)
        if min_similarity is None:
            return found
        kept = int(np.count_nonzero(found.scores >= min_similarity))
        return replace(found, ids=found.ids[:kept], scores=found.scores[:kept])

    def _search_index(
        self,
        project: int,
        vector: Vectors,
        k: int,
        where: Filter | None,
        selection: Selection | None,
        min_similarity: float | None,
        hint: str | None,
    ) -> Candidates:
        """Search the index, with as much of the filter as it can apply itself."""
        facts = self.capabilities
        within = None
        if selection is not None and where is not None:
            if list_fields(where) <= facts.filter_fields:
                within = Within(filter=where, total=selection.total)
            elif len(selection.ids) <= facts.max_ids:
                within = Within(
                    documents=selection.documents, chunks=selection.chunks, total=selection.total
                )
            else:
                search = partial(self.index.search, project, vector, min_similarity=min_similarity)
                return self._search_wider(project, where, k, search)
        found = self.index.search(
            project,
            vector,
            k=min(k, facts.max_k),
            within=within,
            min_similarity=min_similarity,
            hint=hint,
        )
        if not len(found.ids):
            return replace(found, hint=None)  # a hint behind the end would continue forever
        is_cut = len(found.ids) == facts.max_k < k and found.hint is None
        return replace(found, is_truncated=True) if is_cut else found

    def _search_wider(self, project: int, where: Filter, k: int, search: _Search) -> Candidates:
        """Search without the filter, deeper and deeper, until k accepted chunks are found."""
        with self._catalog.read() as connection:
            accepted = self._selections.get(connection, project, where, by_chunk=True)
        depth, limit = k, self.capabilities.max_k
        while True:
            depth = min(4 * depth, limit)
            found = search(k=depth)
            kept = accepted.accepts(found.ids, NO_IDS)
            is_all = len(found.ids) < depth
            if int(kept.sum()) >= min(k, accepted.total) or is_all or depth == limit:
                is_short = int(kept.sum()) < min(k, accepted.total) and not is_all
                ids, scores = found.ids[kept][:k], found.scores[kept][:k]
                return Candidates(ids=ids, scores=scores, is_truncated=is_short)

    def _merge(
        self,
        found: Candidates,
        tail: Tail[ChunkPoint],
        vector: Vectors,
        selection: Selection | None,
        k: int,
    ) -> Candidates:
        """Return the k best of the index's candidates and of the tail's chunks."""
        ids, scores = self._score_tail(tail, vector)
        if selection is not None:
            chosen = selection.accepts(ids, tail.documents)
            ids, scores = ids[chosen], scores[chosen]
        kept = ~np.isin(found.ids, tail.hidden)
        # what a hint continues behind must not be cut off
        limit = k if found.hint is None else None
        merged = rank_candidates(
            np.concatenate([found.ids[kept], ids]),
            np.concatenate([found.scores[kept], scores]),
            limit,
        )
        return replace(merged, hint=found.hint, is_truncated=found.is_truncated)

    def _score_tail(self, tail: Tail[ChunkPoint], vector: Vectors) -> tuple[Ids, Vectors]:
        vectors = Points.from_rows(tail.rows, self._dimension).vectors
        return tail.ids, compute_scores(vectors, vector, self.metric).astype(np.float32)

    def score(self, project: int, vector: Vectors, ids: Ids) -> Vectors:
        """Return the score of each id; NaN for an absent one.

        The catalog's embeddings are the same for every index. An index may be faster.
        """
        self._check_dimension(vector)
        index = self.index
        if not isinstance(index, Scorer):
            return self._score_from_catalog(project, vector, ids)

        def score(tail: Tail[ChunkPoint] | None) -> Vectors:
            scores = index.score(project, vector, ids)
            if tail is not None:
                known, own = self._score_tail(tail, vector)
                scores[np.isin(ids, tail.hidden) | (tail.start is None)] = np.nan
                _, at, tail_at = np.intersect1d(ids, known, return_indices=True)
                scores[at] = own[tail_at]
            return scores

        return score(None) if self._follower is None else self._follower.read(project, score)

    def _score_from_catalog(self, project: int, vector: Vectors, ids: Ids) -> Vectors:
        with self._catalog.read() as connection:
            stored = chunk_rows.load_vectors(connection, project, ids.tolist(), self._space_id)
        scores = np.full(len(ids), np.nan, dtype=np.float32)
        at = [number for number, id_ in enumerate(ids.tolist()) if id_ in stored]
        if at:
            joined = b"".join(stored[id_] for id_ in ids[at].tolist())
            vectors = np.frombuffer(joined, dtype="<f4").reshape(len(at), self._dimension)
            scores[at] = compute_scores(vectors, vector, self.metric)
        return scores

    def _select(self, project: int, where: Filter | None) -> Selection | None:
        """Return the documents or chunks that a filter accepts; None without a filter."""
        if where is None:
            return None
        with self._catalog.read() as connection:
            return self._selections.get(connection, project, where)

    def _check_dimension(self, vector: Vectors) -> None:
        if vector.shape != (self._dimension,):
            raise DimensionError(
                f"the vector has {vector.size} numbers, the vector space {self._dimension}; "
                f"embed with {self._space}"
            )
