"""Voyage's embeddings. The answer has OpenAI's form; the question says whether it is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool.embedders.base import Facts
from unspool.embedders.hosting import server_of
from unspool.embedders.openai import vectors_of
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
    """A hosted model that is told queries from passages."""

    tokenizer_file = ""

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        self._server = server_of(PROVIDER, model, options, url=URL, example="voyage-3.5")
        self._model = model
        self._dimension = options.dimension
        self.facts = Facts(
            name=f"{PROVIDER}:{model}",
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
        """One call."""
        body: dict[str, Any] = {
            "model": self._model,
            "input": list(texts),
            "input_type": "query" if is_query else "document",
            "truncation": False,
        }
        if self._dimension:
            body["output_dimension"] = self._dimension
        return vectors_of(self._server, self._server.post(body), len(texts))
