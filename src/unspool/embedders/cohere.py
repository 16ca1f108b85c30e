"""Embedding models of Cohere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from unspool.calling import ModelServer, bearer_header
from unspool.embedders.base import Facts
from unspool.embedders.hosting import NAMES
from unspool.embedders.options import EmbedderOptions

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors

PROVIDER = "cohere"
URL = "https://api.cohere.com/v2/embed"
# the first as published by Cohere in November 2026; the second keeps a call short
MAX_BATCH, BATCH_TOKENS = 96, 100_000
MAX_TOKENS = {"embed-v4.0": 128_000}  # the models before it read 512
DIMENSIONS = {
    "embed-v4.0": 1536,
    "embed-english-v3.0": 1024,
    "embed-multilingual-v3.0": 1024,
    "embed-english-light-v3.0": 384,
}
PRICES = {
    "embed-v4.0": 0.12,
    "embed-english-v3.0": 0.10,
    "embed-multilingual-v3.0": 0.10,
    "embed-english-light-v3.0": 0.10,
}


class CohereModel:
    """Hosted model that distinguishes queries from passages."""

    tokenizer_file = ""

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        self._server = ModelServer(
            PROVIDER,
            model,
            options,
            url=URL,
            example="embed-v4.0",
            names=NAMES,
            headers=bearer_header(options.key),
        )
        self._body: dict[str, object] = {
            "model": model,
            "embedding_types": ["float"],
            "truncate": "NONE",
        }
        if options.dimension:
            self._body["output_dimension"] = options.dimension
        self.facts = Facts(
            name=self._server.name,
            dimension=options.dimension or DIMENSIONS.get(model, 0),
            max_tokens=options.max_tokens or MAX_TOKENS.get(model, 512),
            over_limit=options.over_limit,
            max_batch=MAX_BATCH,
            batch_tokens=BATCH_TOKENS,
            tells_queries=True,
            is_certain=False,
            place=self._server.place,
            price=PRICES.get(model),
        )

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """Embed texts with one call."""
        kind = "search_query" if is_query else "search_document"
        answer = self._server.post({**self._body, "texts": list(texts), "input_type": kind})
        try:
            rows: Vectors = np.asarray(answer["embeddings"]["float"], dtype=np.float32)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._server.wrong("answered without vectors") from error
        return rows
