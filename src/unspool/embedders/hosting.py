"""Settings of hosted embedders for error messages."""

from __future__ import annotations

from unspool.calling import Names

NAMES = Names(
    prefix="UNSPOOL_EMBEDDER",
    model="UNSPOOL_EMBEDDER",
    slower="lower UNSPOOL_EMBEDDER_CONCURRENCY",
    refused="a text it does not take, or a setting such as UNSPOOL_EMBEDDER_DIMENSION",
)
