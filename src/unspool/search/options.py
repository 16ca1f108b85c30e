"""Options of searches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from unspool.domain.options import option


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Size of pages, ranking, continuations and the cache of query vectors."""

    limit: int = option(10, "most hits on a page", low=1, high=1000, from_folder=True)
    max_tokens: int = option(
        0, "token budget of a page; 0 means no budget", low=0, high=10_000_000, from_folder=True
    )
    max_total_tokens: int = option(
        0,
        "token budget of all pages of a search together; 0 means no budget",
        low=0,
        high=2_000_000,
        from_folder=True,
    )
    alpha: float | None = option(
        None,
        "share of meaning, 0 (words only) to 1 (meaning only); unset, the engine chooses",
        low=0,
        high=1,
        from_folder=True,
    )
    window: int = option(
        200,
        "candidates that the first page ranks and freezes for later pages; 0 means no later pages",
        low=0,
        high=10_000,
        from_folder=True,
    )
    fallback: str = option(
        "fail",
        "if meaning cannot be searched, because the vector store or the embedder cannot be "
        "reached: fail, or words: search words alone, with a warning",
        choices=("fail", "words"),
    )
    prefetch: bool = option(
        True,
        "on: rank further hits while a page is read, if too few are left for the next one",
        from_folder=True,
    )
    continuation_s: int = option(
        86_400, "lifetime of a continuation, in seconds", low=1, high=10 * 365 * 86_400
    )
    continuations: str = option(
        "stored",
        "stored: short, the ranking is stored beside the catalog; signed: long, they contain the "
        "ranking",
        choices=("stored", "signed"),
    )
    continuation_key: str = option(
        "",
        "key that signs continuations; empty means the catalog's own key",
        secret=True,
    )
    query_cache_size: int = option(1_000, "query vectors cached in memory", low=0, high=1_000_000)
    query_cache_s: int = option(
        3_600, "lifetime of cached query vectors, in seconds", low=1, high=10 * 365 * 86_400
    )

    def override(self, **values: Any) -> SearchOptions:
        """Return the options with the values that are not None."""
        return replace(self, **{name: value for name, value in values.items() if value is not None})
