"""Ports of the derived indexes: chunks by vector and chunks by term, one project at a time.

An index outside the catalog's database follows the change feed, see follower.py. One inside takes
part in the transactions that change chunks, and is `Transactional`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
from sqlalchemy.engine import Connection

from unspool.catalog.feed import Changes, ChunkPoint, ChunkText, Position
from unspool.catalog.projects import ProjectRow, ProjectVersion
from unspool.domain.filters import Filter, list_fields
from unspool.domain.queries import Stability
from unspool.domain.reports import OnProgress
from unspool.errors import ServiceError, UnsupportedError
from unspool.index.options import Metric

Ids = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]
NO_IDS: Ids = np.zeros(0, dtype=np.int64)


class DamagedError(Exception):
    """An index differs from what was committed. The catalog fills it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """Restriction of a search: a filter, or sorted ids of documents or chunks. One is set."""

    filter: Filter | None = None
    documents: Ids | None = None
    chunks: Ids | None = None
    total: int = 0  # number of chunks that it accepts


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Facts about a vector index. Search is planned from them."""

    metrics: frozenset[Metric] = frozenset({Metric.COSINE})
    max_k: int = 10_000
    filter_fields: frozenset[str] = frozenset()  # of `kind` and `language`
    max_ids: int = 0  # of a list of documents or chunks that a search accepts
    native_continuation: bool = False
    stability: Stability = Stability.BEST_EFFORT

    def check_search(self, k: int, within: Within | None, hint: str | None) -> None:
        """Raise `UnsupportedError` for a search that these facts exclude."""
        if k > self.max_k:
            raise UnsupportedError(f"k is {k}; this vector index returns at most {self.max_k}")
        if hint is not None and not self.native_continuation:
            raise UnsupportedError(
                "this vector index has no native continuation; search again with a larger k"
            )
        if within is None:
            return
        if within.filter is not None:
            unknown = sorted(list_fields(within.filter) - self.filter_fields)
            if unknown:
                raise UnsupportedError(f"this vector index cannot filter by {', '.join(unknown)}")
            return
        ids = within.documents if within.chunks is None else within.chunks
        if ids is None or len(ids) > self.max_ids:
            raise UnsupportedError(f"this vector index accepts a list of {self.max_ids} ids")


class Points(NamedTuple):
    """Vectors to store, with the chunk, document and filter fields of each."""

    ids: Ids
    documents: Ids
    kinds: Sequence[str]
    languages: Sequence[str]
    vectors: Vectors

    @classmethod
    def from_rows(cls, rows: Sequence[ChunkPoint], dimension: int) -> Points:
        """Return rows of the change feed as points."""
        vectors = np.frombuffer(b"".join(row.vector or b"" for row in rows), dtype="<f4")
        return cls(
            ids=np.array([row.id for row in rows], dtype=np.int64),
            documents=np.array([row.document_id for row in rows], dtype=np.int64),
            kinds=[row.kind for row in rows],
            languages=[row.language for row in rows],
            vectors=vectors.reshape(len(rows), dimension),
        )


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
        return cls(ids=NO_IDS, scores=np.zeros(0, dtype=np.float32))


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
class Versioned(Protocol):
    """An index on a server, which `unspool stores` asks for its version."""

    def read_version(self) -> str:
        """Return the name and the version of the server. Nothing is created there."""


class VectorSearch(Protocol):
    """Search by vector in one vector space.

    Methods are safe to call from several threads. Every call names its project, so that no search
    can return chunks of another project. What an index cannot do raises `UnsupportedError`.
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
        within: Within | None = None,
        min_similarity: float | None = None,
        hint: str | None = None,
    ) -> Candidates:
        """Return the k nearest chunks, fewer if there are fewer.

        Chunks that score below `min_similarity` may be left out. A hint continues the search that
        returned it. See `Capabilities.check_search`.
        """


@runtime_checkable
class VectorIndex(VectorSearch, Protocol):
    """Vectors outside the catalog's database, by project. A `Follower` keeps them up to date.

    The number of a project may be negative: there a follower marks its positions.
    """

    def read_epoch(self) -> str:
        """Return a name of the stored points; create the storage if it is missing.

        The name is another one after points were lost: the storage was wiped, restarted empty or
        replaced, or everything was dropped.
        """

    def apply(self, project: int, upserts: Points, deletes: Ids) -> None:
        """Delete points, then store points in place of those with the same ids.

        There are up to `follower.COMMIT_EVERY` of them. A call that failed may be repeated. It
        returns when searches find the points, because the position moves then.
        """

    def count(self, project: int) -> int:
        """Return the number of points of a project."""

    def ids(self, project: int, *, after: int, limit: int) -> Ids:
        """Return the first ids behind one, in ascending order."""

    def drop(self, project: int | None = None) -> None:
        """Delete the points of a project, or everything."""

    def close(self) -> None:
        """Release files and connections."""


@runtime_checkable
class Scorer(Protocol):
    """A vector index that scores ids faster than the catalog's embeddings are read."""

    def score(self, project: int, vector: Vectors, ids: Ids) -> Vectors:
        """Return the score of each id, in order; NaN for an absent one."""


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


@runtime_checkable
class Transactional(Protocol):
    """An index in the catalog's own database, which changes in the same transaction."""

    def apply_in(self, connection: Connection, changes: Changes) -> None:
        """Index changes in the transaction that stores them."""

    def delete_in(self, connection: Connection, project: int) -> None:
        """Delete a project's rows in the transaction that deletes the project."""

    def complete_in(self, connection: Connection, project: int) -> None:
        """Index the changes since `Upkeep.fill`, in the transaction that activates the space."""


_Written = TypeVar("_Written", bound=ChunkText | ChunkPoint, contravariant=True)


class FollowedIndex(Protocol[_Written]):
    """An index as its follower writes it."""

    # errors after which a search reads the catalog in place of the index
    failures: tuple[type[ServiceError], ...]

    @property
    def name(self) -> str:
        """Name of the index in the catalog's table of positions."""

    def lock(self, project: int, *, wait: bool) -> AbstractContextManager[bool]:
        """Acquire the right to write a project's part.

        Yields False if another thread or process has it and `wait` is false.
        """

    def get_position(self, project: int) -> Position | None:
        """Return the position of the last commit of any process; None if nothing is usable."""

    def is_damaged(self, project: int) -> bool:
        """Return whether what is stored is known to differ from what the position says."""

    def get_generation(self, project: int) -> str | None:
        """Return a name of the data that the last usable position describes; None without one."""

    def is_unchanged(self, project: int, generation: str | None) -> bool:
        """Return whether the index still contains these data, and has since they were named."""

    def write(
        self, project: int, rows: Sequence[_Written], removed: Sequence[int], position: Position
    ) -> None:
        """Delete and store chunks, then move the position."""

    def clear(self, project: int) -> None:
        """Delete everything that is stored for a project."""

    def drop(self, project: int) -> None:
        """Delete everything of a deleted project, and its position."""

    def find_damage(self, project: int) -> list[str]:
        """Describe how what is stored differs from what was committed."""

    def mend(self, project: int) -> None:
        """Compare all that is stored with what was committed, and replace what differs."""

    def record_position(self, project: int) -> None:
        """Store the position in the catalog, if the index stores it elsewhere."""

    def take_warnings(self) -> list[str]:
        """Return the warnings about damage since the last call."""

    def close(self) -> None:
        """Release files and connections."""


class Upkeep(Protocol):
    """Maintenance of one index: a `Follower` does it, or a transactional index itself."""

    def catch_up(
        self, project: ProjectRow | ProjectVersion, on_progress: OnProgress | None = None
    ) -> int:
        """Make everything searchable that was committed when the project's row was read.

        Returns the number of chunks that are not searchable yet.
        """

    def flush(self, project: int) -> None:
        """Index what a long run has stored so far, unless another process is writing."""

    def finish_run(
        self, project: int, *, put: int | None = None, on_progress: OnProgress | None = None
    ) -> None:
        """Index what a run has stored, or what `put` chunks of small writes have added."""

    def fill(self, project: int, on_progress: OnProgress | None = None) -> bool:
        """Index a project while another vector space is searched.

        Returns False if the catalog does not contain all vectors yet.
        """

    def repair(
        self, project: int, *, verify: bool = False, on_progress: OnProgress | None = None
    ) -> None:
        """Index everything that is missing or damaged. With `verify` all that is stored is read."""

    def count_pending(self, connection: Connection, project: int) -> int:
        """Return the number of chunks that are not indexed yet."""

    def find_damage(self, project: int) -> list[str]:
        """Describe how what is stored differs from what was committed."""

    def is_filled(self, project: int) -> bool:
        """Return whether the index contains the project, except for its latest changes."""

    def drop(self, project: int) -> None:
        """Delete what is stored for a deleted project, after its transaction."""

    def take_warnings(self) -> list[str]:
        """Return the warnings about repairs since the last call."""

    def close(self) -> None:
        """Release files and connections."""
