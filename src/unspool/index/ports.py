"""Ports of the derived indexes: chunks by vector and chunks by term, one project at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    """Facts about a vector index. Search is planned from them."""

    native_continuation: bool = False
    exact: bool = False
    max_k: int = 10_000
    stability: Stability = Stability.BEST_EFFORT


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Chunk ids with their scores, best first, ties by id. A higher score is better."""

    ids: Ids
    scores: Vectors
    # a native continuation; only the index that returned it can read it
    hint: str | None = None
    # the index stopped before it had found k, although more exist
    is_truncated: bool = False

    @classmethod
    def empty(cls) -> Candidates:
        """Return no candidates."""
        return cls(ids=np.zeros(0, dtype=np.int64), scores=np.zeros(0, dtype=np.float32))


def rank_candidates(ids: Ids, scores: Vectors, k: int | None = None) -> Candidates:
    """Order candidates by score, ties by id, and keep the k best if k is given."""
    if k is not None and 0 < k < len(scores):
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        kept = np.flatnonzero(scores >= threshold)
        ids, scores = ids[kept], scores[kept]
    order = np.lexsort((ids, -scores))[:k]
    return Candidates(ids=ids[order], scores=scores[order])


def align_scores(scores: Mapping[int, float], ids: Ids, *, absent: float) -> Vectors:
    """Return the scores in the order of the ids; `absent` for an id without a score."""
    return np.array([scores.get(id_, absent) for id_ in ids.tolist()], dtype=np.float32)


@runtime_checkable
class VectorIndex(Protocol):
    """Vectors by project.

    Methods are safe to call from several threads. Every call names its project, so that no search
    can return chunks of another project.
    """

    @property
    def capabilities(self) -> Capabilities:
        """Facts about the index."""

    def search(
        self,
        project: int,
        vector: Vectors,
        *,
        k: int,
        where: Filter | None = None,
        hint: str | None = None,
    ) -> Candidates:
        """Return the k nearest chunks, fewer if there are fewer."""

    def score(self, project: int, vector: Vectors, ids: Ids) -> Vectors:
        """Return the score of each id, in order; NaN for an absent one."""

    def drop(self, project: int) -> None:
        """Delete everything that is stored for a project."""

    def close(self) -> None:
        """Release files and connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Number of chunks of a project, and of those that contain each term."""

    chunks: int
    frequencies: Mapping[str, int]


class WordIndex(Protocol):
    """Chunks by term. A score is the BM25 sum over the terms, each times its weight."""

    def search(
        self, project: int, weights: Mapping[str, float], *, k: int, where: Filter | None = None
    ) -> Candidates:
        """Return the k best chunks that contain at least one of the terms."""

    def score(self, project: int, weights: Mapping[str, float], ids: Ids) -> Vectors:
        """Return the score of each id, in order; 0 for a chunk that contains none of the terms."""

    def get_statistics(self, project: int, terms: Iterable[str]) -> Statistics:
        """Return the counts that make scores of several projects comparable."""
