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
        "static", "who turns text into vectors, as provider[:model]", variable="UNSPOOL_EMBEDDER"
    )
    url: str = option(
        "",
        "address of the server that embeds, such as http://localhost:11434/v1; empty means the "
        "provider's own",
    )
    key: str = option("", "the key for that server", secret=True)
    revision: str = option(
        "", "a word of your own that tells this model from an earlier one of the same name"
    )
    dimension: int = option(
        0, "how many numbers a vector has; 0 means as many as the model gives", low=0, high=16_000
    )
    max_tokens: int = option(
        0,
        "how many tokens of a text the model reads; 0 means what is known of it",
        low=0,
        high=1_000_000,
    )
    over_limit: OverLimit = option(
        OverLimit.CUT,
        "what becomes of a text that is longer: its end is cut off, or it is refused",
        choices=("cut", "refuse"),
    )
    query_prefix: str = option(
        "", "what is put in front of a query; empty means what the model is known to want"
    )
    passage_prefix: str = option(
        "", "what is put in front of a passage; empty means what the model is known to want"
    )
    batch: int = option(0, "texts in one call; 0 means what suits the provider", low=0, high=10_000)
    concurrency: int = option(4, "calls to a server at once", low=1, high=256)
    timeout_s: int = option(
        60, "how long to wait for an answer of that server, in seconds", low=1, high=3_600
    )
    retries: int = option(
        5,
        "how often a call is repeated that failed for want of time, network or quota",
        low=0,
        high=100,
    )
    requests_per_minute: int = option(
        0, "calls that the server allows; 0 means no bound", low=0, high=10_000_000
    )
    tokens_per_minute: int = option(
        0, "tokens that the server allows; 0 means no bound", low=0, high=2_000_000_000
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """Redis server that keeps embeddings for several catalogs."""

    address: str = option(
        "",
        "redis://... keeps embeddings for other catalogs and machines, too; empty means in the "
        "catalog alone",
        variable="UNSPOOL_CACHE",
    )
    lifetime_s: int = option(
        30 * 86_400,
        "how long they are kept there, in seconds",
        low=1,
        high=10 * 365 * 86_400,
        variable="UNSPOOL_CACHE_S",
    )
