"""Ports of the derived indexes: chunks by vector and chunks by word, one project at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from unspool.domain.filters import Filter
from unspool.domain.queries import Stability

Ids = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Facts about a store. The engine plans from them before it calls."""

    knn: bool = True
    filters: bool = False
    hybrid: bool = False
    metadata_filtering: bool = False
    sparse_vectors: bool = False
    multi_vector: bool = False
    native_continuation: bool = False
    exact: bool = False
    max_k: int = 10_000
    stability: Stability = Stability.BEST_EFFORT


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Chunk ids with their scores, best first, ties by id.

    Higher is better. `hint` is opaque to everyone but its store.
    """

    ids: Ids
    scores: Vectors
    hint: str | None = None
    is_short: bool = False  # the store stopped looking before it had found as many as there are

    @classmethod
    def none(cls) -> Matches:
        return cls(ids=np.zeros(0, dtype=np.int64), scores=np.zeros(0, dtype=np.float32))


def best_matches(ids: Ids, scores: Vectors, k: int | None = None) -> Matches:
    """Order matches by score, ties by id, and keep the k best if there is a k."""
    if k is not None and 0 < k < len(scores):
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        kept = np.flatnonzero(scores >= threshold)
        ids, scores = ids[kept], scores[kept]
    order = np.lexsort((ids, -scores))[:k]
    return Matches(ids=ids[order], scores=scores[order])


def in_order(scores: Mapping[int, float], ids: Ids, *, absent: float) -> Vectors:
    """Scores in the order of the ids, with something in place of those that there are none of."""
    return np.array([scores.get(id_, absent) for id_ in ids.tolist()], dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Chunks as a vector index takes them in: one row each."""

    ids: Ids
    documents: Ids
    vectors: Vectors


@runtime_checkable
class VectorIndex(Protocol):
    """Points by project.

    Safe to call from several threads; every call names its project, so nothing can cross by
    omission.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    def upsert(self, project: int, points: Points) -> None:
        """Insert or replace by id."""

    def delete(self, project: int, ids: Sequence[int]) -> None:
        """Remove by id; what is absent is not an error."""

    def search(
        self,
        project: int,
        vector: Vectors,
        *,
        k: int,
        where: Filter | None = None,
        hint: str | None = None,
    ) -> Matches:
        """The k nearest, fewer if there are fewer."""

    def score(self, project: int, vector: Vectors, ids: Ids) -> Vectors:
        """The score of each id, in order; NaN for what is absent."""

    def count(self, project: int) -> int: ...

    def ids(self, project: int, *, after: int = -1, limit: int = 1000) -> Ids:
        """Ids in ascending order, for repair."""

    def drop(self, project: int) -> None:
        """Remove a project's points altogether."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """How many chunks a project has, and how many of them hold each term."""

    chunks: int
    frequencies: Mapping[str, int]


class WordIndex(Protocol):
    """Scores are BM25 over the terms of `words.analysis`, each times its weight; higher is
    better.
    """

    def search(
        self, project: int, weights: Mapping[str, float], *, k: int, where: Filter | None = None
    ) -> Matches:
        """The k best chunks that hold at least one of the terms."""

    def score(self, project: int, weights: Mapping[str, float], ids: Ids) -> Vectors:
        """The score of each id, in order; 0 for what holds none of the terms."""

    def statistics(self, project: int, terms: Iterable[str]) -> Statistics:
        """What makes the scores of one project comparable with another's."""
