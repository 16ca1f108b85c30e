"""Embedding models of Voyage. The response has OpenAI's form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unspool.calling import ModelServer, bearer_header
from unspool.embedders.base import Facts
from unspool.embedders.hosting import NAMES
from unspool.embedders.openai import parse_vectors
from unspool.embedders.options import EmbedderOptions

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors

PROVIDER = "voyage"
URL = "https://api.voyageai.com/v1/embeddings"
# As published by Voyage in November 2026: 32 000 tokens a text, 1000 texts and at least 120 000
# tokens a call, 1024 numbers.
MAX_TOKENS, MAX_BATCH, BATCH_TOKENS, DIMENSION = 32_000, 128, 100_000, 1024
PRICES = {
    "voyage-3.5": 0.06,
    "voyage-3.5-lite": 0.02,
    "voyage-3-large": 0.18,
    "voyage-code-3": 0.18,
}


class VoyageModel:
    """Hosted model that distinguishes queries from passages."""

    tokenizer_file = ""

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        self._server = ModelServer(
            PROVIDER,
            model,
            options,
            url=URL,
            example="voyage-3.5",
            names=NAMES,
            headers=bearer_header(options.key),
        )
        self._body: dict[str, object] = {"model": model, "truncation": False}
        if options.dimension:
            self._body["output_dimension"] = options.dimension
        self.facts = Facts(
            name=self._server.name,
            dimension=options.dimension or (DIMENSION if model in PRICES else 0),
            max_tokens=options.max_tokens or MAX_TOKENS,
            over_limit=options.over_limit,
            max_batch=MAX_BATCH,
            batch_tokens=BATCH_TOKENS,
            tells_queries=True,
            is_unit=True,
            is_certain=False,
            place=self._server.place,
            price=PRICES.get(model),
        )

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """Embed texts with one call."""
        kind = "query" if is_query else "document"
        answer = self._server.post({**self._body, "input": list(texts), "input_type": kind})
        return parse_vectors(self._server, answer, len(texts))
