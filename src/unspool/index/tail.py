"""Tail of an index: chunks that are stored, but not yet indexed.

They are scored from the catalog, so that they are searchable at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np

from unspool.catalog.feed import ChunkPoint, ChunkText, Position
from unspool.index.options import Metric
from unspool.index.ports import Ids, Vectors

_Row = TypeVar("_Row", bound=ChunkText | ChunkPoint)


class Tail(Generic[_Row]):
    """Chunks changed after a position of an index and up to the head of the feed.

    Without a position the index contains nothing that can be searched. `hidden` contains the ids
    of changed and deleted chunks, whose points in the index are outdated.
    """

    def __init__(
        self,
        start: Position | None,
        head: Position,
        rows: Sequence[_Row] = (),
        removed: Sequence[int] = (),
        *,
        missing: int = 0,
    ) -> None:
        self.start = start
        self.head = head
        self.rows = rows
        self.ids: Ids = np.array([row.id for row in rows], dtype=np.int64)
        self.documents: Ids = np.array([row.document_id for row in rows], dtype=np.int64)
        self.hidden: Ids = np.union1d(self.ids, np.array(removed, dtype=np.int64))
        self.missing = missing  # changed chunks that it does not contain


class Tails(Generic[_Row]):
    """Tails of the projects of one index, which threads share."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._tails: dict[int, Tail[_Row]] = {}

    def get(self, project: int) -> Tail[_Row] | None:
        """Return the tail of a project; None without one."""
        return self._tails.get(project)

    def keep(self, project: int, tail: Tail[_Row], read_head: Callable[[], int]) -> None:
        """Keep a tail, unless another thread relies on a newer one, which contains all of it.

        `read_head` returns the latest sequence number of the project. It is lower than that of a
        kept tail after a backup of the catalog was restored.
        """
        with self._guard:
            known = self._tails.get(project)
            if (
                known is None
                or known.head.seq <= tail.head.seq
                or (tail.start is None and known.start is not None)
                or read_head() < known.head.seq
            ):
                self._tails[project] = tail

    def drop(self, project: int, seq: int | None = None) -> None:
        """Drop a tail that the index contains up to a sequence number, but no newer one."""
        with self._guard:
            known = self._tails.get(project)
            if known is not None and (seq is None or known.head.seq <= seq):
                del self._tails[project]


def compute_scores(vectors: Vectors, vector: Vectors, metric: Metric) -> Vectors:
    """Return the score of each row.

    The products are computed row by row. A matrix product would start a second thread, which costs
    ten times its gain on a busy machine. Its last bit may also differ from row to row, although
    equal texts must tie.
    """
    if metric is Metric.L2:
        distances = np.sqrt(np.asarray(np.vecdot(vectors - vector, vectors - vector)))
        scores: Vectors = (1.0 / (1.0 + distances)).astype(np.float32)
    else:  # vectors of the catalog have the length 1
        scores = np.asarray(np.vecdot(vectors, vector))
    return np.round(scores, 6)
