"""Options of indexing."""

from __future__ import annotations

from dataclasses import dataclass

from unspool.domain.options import option


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexingOptions:
    """Size of chunks and files, number of processes, and the delay of `watch`."""

    chunk_tokens: int = option(
        320, "preferred size of a chunk in tokens", low=32, high=8192, from_folder=True
    )
    max_file_bytes: int = option(2_000_000, "files larger than this are skipped", low=1, high=2**40)
    jobs: int = option(
        0, "processes that read and chunk while indexing; 0 means one per core", low=0, high=256
    )
    debounce_ms: int = option(
        400,
        "time without changes after which `watch` indexes, in milliseconds",
        low=10,
        high=600_000,
        from_folder=True,
    )
