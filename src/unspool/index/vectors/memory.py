"""Vectors in the memory of this process: for tests, and as a pattern for other adapters."""

from __future__ import annotations

import secrets
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from unspool.domain.filters import AllOf, AnyOf, Compare, Filter, Not
from unspool.domain.queries import Stability
from unspool.errors import AddressError
from unspool.index import ports
from unspool.index.options import Metric, VectorOptions
from unspool.index.ports import NO_IDS, Candidates, Ids, Points, Vectors, Within
from unspool.index.tail import compute_scores

_opened: dict[str, MemoryIndex] = {}  # in this process, by name and collection


class MemoryIndex:
    """Points of one vector space, as the `VectorIndex` port. Each write replaces a whole array."""

    capabilities = ports.Capabilities(
        metrics=frozenset(Metric),
        filter_fields=frozenset({"kind", "language"}),
        max_ids=10_000,
        stability=Stability.DETERMINISTIC,
    )

    def __init__(self, dimension: int, metric: Metric) -> None:
        self._epoch = secrets.token_hex(8)
        self._empty = Points(NO_IDS, NO_IDS, [], [], np.zeros((0, dimension), dtype=np.float32))
        self._metric = metric
        self._points: dict[int, Points] = {}  # by project
        self._guard = threading.Lock()  # of writers

    @classmethod
    def open(
        cls, address: str, *, collection: str, dimension: int, options: VectorOptions
    ) -> MemoryIndex:
        """Return the index of a collection. `memory://NAME` separates indexes of this process."""
        name = address.removeprefix("memory://")
        if not name.replace("-", "").isalnum() and name:
            raise AddressError(f"the address {address!r} has options; give memory://NAME alone")
        return _opened.setdefault(f"{name}/{collection}", cls(dimension, options.metric))

    def read_epoch(self) -> str:
        """Return a name that is new in every process."""
        return self._epoch

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
        """Compare every point."""
        self.capabilities.check_search(k, within, hint)
        points = self._points.get(project, self._empty)
        scores = compute_scores(points.vectors, vector, self._metric)
        chosen = slice(None) if within is None else _select(points, within)
        return ports.rank_candidates(points.ids[chosen], scores[chosen], k)

    def apply(self, project: int, upserts: Points, deletes: Ids) -> None:
        """Delete points, then store points in place of those with the same ids."""
        with self._guard:
            old = self._points.get(project, self._empty)
            kept = ~np.isin(old.ids, np.concatenate([deletes, upserts.ids]))
            columns: Any = zip(map(np.asarray, old), upserts, strict=True)
            joined: Any = [np.concatenate([before[kept], new]) for before, new in columns]
            self._points[project] = Points(*joined)

    def count(self, project: int) -> int:
        """Return the number of points of a project."""
        return len(self._points.get(project, self._empty).ids)

    def ids(self, project: int, *, after: int, limit: int) -> Ids:
        """Return the first ids behind one, in ascending order."""
        ids = self._points.get(project, self._empty).ids
        return np.sort(ids[ids > after])[:limit]

    def drop(self, project: int | None = None) -> None:
        """Delete the points of a project, or everything."""
        with self._guard:
            if project is None:
                self._points, self._epoch = {}, secrets.token_hex(8)
            else:
                self._points.pop(project, None)

    def close(self) -> None:
        """Do nothing: the points stay until the process ends."""


def _select(points: Points, within: Within) -> npt.NDArray[np.bool_]:
    if within.filter is not None:
        fields = zip(points.kinds, points.languages, strict=True)
        chosen = [_accepts(within.filter, kind=one, language=other) for one, other in fields]
        return np.array(chosen, dtype=np.bool_)
    if within.chunks is not None:
        return np.isin(points.ids, within.chunks)
    return np.isin(points.documents, NO_IDS if within.documents is None else within.documents)


def _accepts(condition: Filter, **fields: str) -> bool:
    match condition:
        case Compare():
            return fields[condition.field] == condition.value
        case Not():
            return not _accepts(condition.inner, **fields)
        case AllOf():
            return all(_accepts(part, **fields) for part in condition.parts)
        case AnyOf():
            return any(_accepts(part, **fields) for part in condition.parts)
