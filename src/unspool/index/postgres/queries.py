"""Vector search by SQL: exact, or by an index of pgvector."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from sqlalchemy.engine import Connection

from unspool.catalog import driver
from unspool.catalog.filters import Selection
from unspool.index.options import Metric, VectorOptions
from unspool.index.ports import Candidates, Ids, Vectors, align_scores, rank_candidates
from unspool.index.postgres.tables import OPERATOR, VectorTable, choose_lists

# Candidates that an HNSW index keeps for each hit: four find 97 % of 200 hits, fewer than the
# minimum miss one of ten.
EF_PER_HIT, MIN_EF, MAX_EF = 4, 800, 1_000


@dataclass(frozen=True, slots=True)
class VectorQueries:
    """Queries of a vector table."""

    table: VectorTable
    options: VectorOptions

    def search_exact(
        self,
        connection: Connection,
        project: int,
        vector: Vectors,
        k: int,
        selection: Selection | None,
    ) -> Candidates:
        """Return the k nearest of all vectors of a project."""
        # adding 0 prevents the use of an index
        order = f"({self._distance}) + 0, chunk_id"
        return self._search(connection, project, vector, k, selection, order)

    def search_index(
        self,
        connection: Connection,
        project: int,
        vector: Vectors,
        k: int,
        selection: Selection | None,
        *,
        chunks: int,
    ) -> Candidates:
        """Return the k nearest that the index finds in a project of so many chunks."""
        tuning = self._tune(k, chunks)
        calls = ", ".join(f"set_config('{name}', %({name})s, true)" for name in tuning)
        values = {name: str(value) for name, value in tuning.items()}
        driver.execute(connection, f"SELECT {calls}", values)
        return self._search(connection, project, vector, k, selection, self._distance)

    def _search(
        self,
        connection: Connection,
        project: int,
        vector: Vectors,
        k: int,
        selection: Selection | None,
        order: str,
    ) -> Candidates:
        condition, values = build_condition(selection)
        # the project is a literal: the planner uses a partial index only for a known project
        statement = (
            f"SELECT chunk_id, {self._distance} FROM {self.table.name} WHERE project_id = "
            f"{project:d}{condition} ORDER BY {order} LIMIT %(k)s"
        )
        values |= {"vector": self.table.encode(vector), "k": k}
        return self._fetch(connection, statement, values)

    def score(self, connection: Connection, project: int, vector: Vectors, ids: Ids) -> Vectors:
        """Return the score of each id; NaN for an absent one."""
        statement = (
            f"SELECT chunk_id, {self._distance} FROM {self.table.name} "
            "WHERE project_id = %(project)s AND chunk_id = ANY(%(ids)s)"
        )
        values = {"project": project, "vector": self.table.encode(vector), "ids": ids.tolist()}
        found = self._fetch(connection, statement, values)
        scores = dict(zip(found.ids.tolist(), found.scores.tolist(), strict=True))
        return align_scores(scores, ids, absent=np.nan)

    @property
    def _distance(self) -> str:
        return f"vector {OPERATOR[self.options.metric]} %(vector)b"

    def _tune(self, k: int, chunks: int) -> dict[str, object]:
        """Return settings that let an index find k chunks, even if a filter rejects many.

        They also make the planner use the index.
        """
        tuning: dict[str, object] = {"enable_sort": "off", "plan_cache_mode": "force_custom_plan"}
        if self.options.index == "hnsw":
            limit = self.options.max_scan_tuples
            return tuning | {
                "hnsw.ef_search": min(max(EF_PER_HIT * k, MIN_EF), MAX_EF),
                "hnsw.iterative_scan": "relaxed_order",
                "hnsw.max_scan_tuples": max(limit, 4 * k if limit >= 20_000 else 0),
            }
        lists = choose_lists(self.options, chunks)
        return tuning | {
            "ivfflat.probes": max(10, 2 * math.isqrt(lists)),
            "ivfflat.iterative_scan": "relaxed_order",
        }

    def _fetch(
        self, connection: Connection, statement: str, values: Mapping[str, object]
    ) -> Candidates:
        rows = driver.fetch_rows(connection, statement, values)
        ids = np.array([row[0] for row in rows], dtype=np.int64)
        distances = np.array([row[1] for row in rows], dtype=np.float64)
        if self.options.metric is Metric.COSINE:
            scores = 1.0 - distances
        elif self.options.metric is Metric.L2:
            scores = 1.0 / (1.0 + distances)
        else:
            scores = -distances  # pgvector returns the negative inner product
        return rank_candidates(ids, scores.astype(np.float32))


def build_condition(selection: Selection | None) -> tuple[str, dict[str, object]]:
    """Return a selection as SQL, with its values."""
    if selection is None:
        return "", {}
    column, ids = "chunk_id", selection.chunks
    if ids is None:
        column, ids = "document_id", selection.documents
    assert ids is not None
    return f" AND {column} = ANY(%(selected)b::int8[])", {"selected": ids.tolist()}
