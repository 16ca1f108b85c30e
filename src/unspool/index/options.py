"""Options of vector indexes that an operator may choose."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Metric(StrEnum):
    """Measure of similarity between two vectors.

    A score is the cosine, 1 / (1 + distance), or the inner product, so that closer is higher.
    """

    COSINE = "cosine"
    L2 = "l2"
    INNER = "ip"


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOptions:
    """Options of a vector index; 0 leaves the choice to the store."""

    metric: Metric = Metric.COSINE
    index: str = "hnsw"  # or ivfflat, or exact
    type: str = "auto"  # or vector, or halfvec
    hnsw_m: int = 16
    hnsw_ef_construction: int = 64
    ivfflat_lists: int = 0
    exact_below: int = 0
    max_scan_tuples: int = 20_000
