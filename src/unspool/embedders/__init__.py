"""Embedders by name. Providers are strings here, so that none is imported before it is asked for."""

from __future__ import annotations

import difflib
from functools import lru_cache
from importlib import import_module
from typing import cast

from unspool.embedders.base import Embedder
from unspool.errors import ConfigError

PROVIDERS = {
    "static": "unspool.embedders.static:StaticEmbedder",
}


@lru_cache(maxsize=8)
def open_embedder(name: str) -> Embedder:
    """The embedder called `provider[:model]`; loaded once per process."""
    provider, _, model = name.partition(":")
    if provider not in PROVIDERS:
        near = difflib.get_close_matches(provider, PROVIDERS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"embedder {name!r} is not known; {hint}UNSPOOL_EMBEDDER can be one of: {', '.join(PROVIDERS)}")
    module, _, attribute = PROVIDERS[provider].partition(":")
    return cast(Embedder, getattr(import_module(module), attribute)(model))
