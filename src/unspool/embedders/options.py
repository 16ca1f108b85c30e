"""Options of embedders and of the cache that they share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from unspool.domain.options import option


class OverLimit(StrEnum):
    """Treatment of a text that is longer than the model reads."""

    WHOLE = "whole"  # it is read to its end all the same: the limit is advice
    CUT = "cut"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderOptions:
    """Name, server and limits of an embedder. 0 and '' leave the provider's own."""

    name: str = option(
        "static", "embedder that computes vectors, as provider[:model]", variable="UNSPOOL_EMBEDDER"
    )
    url: str = option(
        "",
        "address of the embedding server, such as http://localhost:11434/v1; empty means the "
        "provider's own",
    )
    key: str = option("", "API key for that server", secret=True)
    revision: str = option(
        "", "your own label that distinguishes this model from an earlier one of the same name"
    )
    dimension: int = option(
        0, "dimension of the vectors; 0 means the model's own", low=0, high=16_000
    )
    max_tokens: int = option(
        0,
        "most tokens of a text that the model reads; 0 means the model's known limit",
        low=0,
        high=1_000_000,
    )
    over_limit: OverLimit = option(
        OverLimit.CUT,
        "how to treat a longer text: cut its end, or refuse it",
        choices=("cut", "refuse"),
    )
    query_prefix: str = option("", "prefix of every query; empty means the model's known prefix")
    passage_prefix: str = option(
        "", "prefix of every passage; empty means the model's known prefix"
    )
    batch: int = option(0, "texts per call; 0 means the provider's default", low=0, high=10_000)
    concurrency: int = option(4, "concurrent calls to a server", low=1, high=256)
    timeout_s: int = option(
        60, "time limit of a call to that server, in seconds", low=1, high=3_600
    )
    retries: int = option(
        5,
        "retries of a call that failed because of a time-out, the network or a quota",
        low=0,
        high=100,
    )
    requests_per_minute: int = option(
        0, "limit of calls per minute; 0 means no limit", low=0, high=10_000_000
    )
    tokens_per_minute: int = option(
        0, "limit of tokens per minute; 0 means no limit", low=0, high=2_000_000_000
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """Redis server that keeps embeddings for several catalogs."""

    address: str = option(
        "",
        "redis://... shares embeddings with other catalogs and machines; empty means in the "
        "catalog alone",
        variable="UNSPOOL_CACHE",
    )
    lifetime_s: int = option(
        30 * 86_400,
        "lifetime of embeddings in that cache, in seconds",
        low=1,
        high=10 * 365 * 86_400,
        variable="UNSPOOL_CACHE_S",
    )
