"""Models behind OpenAI's embeddings, which Ollama, vLLM, LM Studio, llama.cpp and Azure serve
too.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool.calling import ModelServer, is_about, key_headers
from unspool.embedders.base import Facts, compute_revision
from unspool.embedders.families import find_family
from unspool.embedders.hosting import NAMES
from unspool.embedders.options import EmbedderOptions
from unspool.errors import ConfigError, InputError

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors

PROVIDER = "openai"
URL = "https://api.openai.com/v1"
# limits of an unknown model, those of the smallest in use; UNSPOOL_EMBEDDER_MAX_TOKENS raises them
OTHERS_MAX_TOKENS = 512
OTHERS_MAX_BATCH = 32


@dataclass(frozen=True, slots=True)
class _Known:
    dimension: int
    price: float
    shortens: bool = True  # takes a smaller dimension


# As published by OpenAI in November 2026: 8192 tokens a text, 2048 texts and 300 000 tokens a call.
KNOWN = {
    "text-embedding-3-small": _Known(1536, 0.02),
    "text-embedding-3-large": _Known(3072, 0.13),
    "text-embedding-ada-002": _Known(1536, 0.10, shortens=False),
}
MAX_TOKENS, MAX_BATCH, BATCH_TOKENS = 8191, 256, 200_000


class OpenAIModel:
    """Hosted model. Vectors are requested in base64, a third of the size of decimals, and read
    in either form.
    """

    tokenizer_file = ""

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        self._server = ModelServer(
            PROVIDER,
            model,
            options,
            url=URL,
            path="/embeddings",
            example="text-embedding-3-small",
            names=NAMES,
            headers=key_headers(options.key, options.url),
        )
        known = KNOWN.get(model)
        self._body: dict[str, Any] = {"model": model}
        if known and options.dimension:
            if options.dimension > known.dimension or not known.shortens:
                raise ConfigError(
                    f"UNSPOOL_EMBEDDER_DIMENSION is {options.dimension}, {model} gives "
                    f"{known.dimension}; leave it out"
                )
            if options.dimension < known.dimension:
                self._body["dimensions"] = options.dimension
        # removed when a server reports that it knows no formats
        self._format = {"encoding_format": "base64"}
        family = find_family(model)
        prefixes = family.query, family.passage
        self.facts = Facts(
            name=self._server.name,
            revision=compute_revision(*prefixes) if any(prefixes) else "1",
            dimension=options.dimension or (known.dimension if known else 0),
            max_tokens=options.max_tokens or (MAX_TOKENS if known else OTHERS_MAX_TOKENS),
            over_limit=options.over_limit,
            max_batch=MAX_BATCH if known else OTHERS_MAX_BATCH,
            batch_tokens=BATCH_TOKENS if known else OTHERS_MAX_BATCH * OTHERS_MAX_TOKENS,
            query_prefix=family.query,
            passage_prefix=family.passage,
            is_unit=known is not None,
            is_certain=False,
            place=self._server.place,
            price=known.price if known and not options.url else None,
        )

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """Embed texts with one call, or two if the server knows no formats."""
        body, given = {**self._body, "input": list(texts)}, self._format
        try:
            answer = self._server.post({**body, **given})
        except InputError as error:
            if not given or not is_about(error, "encoding_format"):
                raise
            self._format = {}
            answer = self._server.post(body)
        return parse_vectors(self._server, answer, len(texts))


def parse_vectors(server: ModelServer, answer: Any, wanted: int) -> Vectors:
    """Return the vectors of a response in OpenAI's form, in the order of the texts."""
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
        raise server.wrong("answered without vectors")
    if len(data) != wanted:
        raise server.wrong(f"gave {len(data)} vectors for {wanted} texts")
    places = [one.get("index", place) for place, one in enumerate(data)]
    if sorted(places, key=str) != sorted(range(wanted), key=str):
        raise server.wrong("gave vectors whose indexes do not name each text once")
    rows = [_parse_row(server, data[place].get("embedding")) for place in np.argsort(places)]
    if len({len(row) for row in rows}) > 1:
        raise server.wrong("gave vectors of different lengths")
    return np.stack(rows)


def _parse_row(server: ModelServer, given: Any) -> Vectors:
    try:
        if isinstance(given, str):
            data = base64.b64decode(given, validate=True)
            return np.frombuffer(data, dtype="<f4").astype(np.float32)
        if isinstance(given, list) and given:
            return np.asarray([np.nan if one is None else one for one in given], dtype=np.float32)
    except (binascii.Error, ValueError, TypeError, OverflowError):
        pass
    raise server.wrong("gave a vector that cannot be read")
