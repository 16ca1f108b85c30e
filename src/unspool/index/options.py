"""Options of the vector index."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from unspool.domain.options import option


class Metric(StrEnum):
    """Similarity of two vectors.

    A score is higher for what is closer: the cosine, 1 / (1 + distance), or the inner product.
    """

    COSINE = "cosine"
    L2 = "l2"
    INNER = "ip"


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOptions:
    """Metric, type and index of vectors. Zero leaves the choice to the store."""

    address: str = option(
        "",
        "address of the vector store, see `unspool stores`; empty: in the catalog's database",
        variable="UNSPOOL_VECTORS",
    )
    key: str = option(
        "", "API key for the vector store", secret=True, variable="UNSPOOL_VECTORS_KEY"
    )
    timeout_s: int = option(
        30,
        "seconds that a call to the vector store may take",
        low=1,
        high=600,
        variable="UNSPOOL_VECTORS_TIMEOUT_S",
    )
    retries: int = option(
        2,
        "repetitions of a call to the vector store that may succeed later",
        low=0,
        high=20,
        variable="UNSPOOL_VECTORS_RETRIES",
    )
    metric: Metric = option(
        Metric.COSINE, "metric that compares vectors", variable="UNSPOOL_VECTOR_METRIC"
    )
    index: str = option(
        "hnsw",
        "vector index on a server; exact: no index, every vector is compared",
        choices=("hnsw", "ivfflat", "exact"),
        variable="UNSPOOL_VECTOR_INDEX",
    )
    type: str = option(
        "auto",
        "type of vectors on a server; auto: halfvec above 2000 dimensions",
        choices=("auto", "vector", "halfvec"),
        variable="UNSPOOL_VECTOR_TYPE",
    )
    hnsw_m: int = option(16, "links per vector of an HNSW index", low=2, high=100)
    hnsw_ef_construction: int = option(
        64, "candidates per vector while an HNSW index is built", low=4, high=1_000
    )
    ivfflat_lists: int = option(
        0, "lists of an IVFFlat index; 0 means chosen by the number of vectors", low=0, high=32_768
    )
    exact_below: int = option(
        0,
        "up to this many vectors, every vector is compared; 0 means the measured default",
        low=0,
        high=10_000_000,
    )
    max_scan_tuples: int = option(
        20_000, "most vectors that a filtered index search visits", low=1, high=2_000_000_000
    )
