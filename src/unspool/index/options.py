"""How vectors are indexed: what an operator may choose, where a store leaves a choice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Metric(StrEnum):
    """How close two vectors are.

    A score is higher for what is closer: the cosine, 1 / (1 + distance), or the inner product.
    """

    COSINE = "cosine"
    L2 = "l2"
    INNER = "ip"


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOptions:
    """Zero leaves the choice to the store."""

    metric: Metric = Metric.COSINE
    index: str = "hnsw"  # or ivfflat, or exact
    type: str = "auto"  # or vector, or halfvec
    hnsw_m: int = 16
    hnsw_ef_construction: int = 64
    ivfflat_lists: int = 0
    exact_below: int = 0
    max_scan_tuples: int = 20_000
