"""What can be set about an embedder, apart from which it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from unspool.embedders.base import OverLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderOptions:
    """Each field is the setting `embedder_<field>`; 0 and '' leave the provider's own."""

    url: str = field(default="", repr=False)  # it may hold a password
    key: str = field(default="", repr=False)
    revision: str = ""
    dimension: int = 0
    max_tokens: int = 0
    over_limit: OverLimit = OverLimit.CUT
    query_prefix: str = ""
    passage_prefix: str = ""
    batch: int = 0
    concurrency: int = 4
    timeout_s: int = 60
    retries: int = 5
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
