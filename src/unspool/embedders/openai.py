"""OpenAI's embeddings, and those of every server that speaks the same: Ollama, vLLM, LM Studio,
llama.cpp, Azure.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool.calling import Server, check_access, endpoint, is_about, key_headers
from unspool.embedders.base import Facts, revision
from unspool.embedders.families import family_of
from unspool.embedders.hosting import NAMES
from unspool.embedders.options import EmbedderOptions
from unspool.errors import ConfigError, InputError

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors

PROVIDER = "openai"
URL = "https://api.openai.com/v1"
# of a model that is not known: what the smallest in use read; UNSPOOL_EMBEDDER_MAX_TOKENS says more
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
    """Vectors are asked for in base64, a third of the size of decimals, and taken in either
    form.
    """

    tokenizer_file = ""

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        check_access(
            PROVIDER,
            model,
            url=options.url,
            key=options.key,
            example="text-embedding-3-small",
            names=NAMES,
        )
        known = KNOWN.get(model)
        if (
            options.dimension
            and known
            and (options.dimension > known.dimension or not known.shortens)
        ):
            raise ConfigError(
                f"UNSPOOL_EMBEDDER_DIMENSION is {options.dimension}, {model} gives "
                f"{known.dimension}; leave it out"
            )
        family = family_of(model)
        self._model = model
        self._dimensions = (
            options.dimension if known and options.dimension != known.dimension else 0
        )
        self._format = "base64"  # or '', once the server has said that it knows no formats
        self._server = Server(
            endpoint(options.url or URL, "/embeddings", NAMES),
            name=f"{PROVIDER}:{model}",
            key=options.key,
            timeout_s=options.timeout_s,
            headers=key_headers(options.key, options.url),
            names=NAMES,
        )
        self.facts = Facts(
            name=f"{PROVIDER}:{model}",
            revision=revision(family.query, family.passage)
            if family.query or family.passage
            else "1",
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
        """One call. What comes back is put in the order that its indexes say."""
        body: dict[str, Any] = {"model": self._model, "input": list(texts)}
        if self._format:
            body["encoding_format"] = self._format
        if self._dimensions:
            body["dimensions"] = self._dimensions
        try:
            return vectors_of(self._server, self._server.post(body), len(texts))
        except InputError as error:
            if "encoding_format" not in body or not is_about(error, "encoding_format"):
                raise
        self._format = ""
        del body["encoding_format"]
        return vectors_of(self._server, self._server.post(body), len(texts))


def vectors_of(server: Server, answer: Any, wanted: int) -> Vectors:
    """The vectors of an answer in OpenAI's form, in the order of the texts."""
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
        raise server.wrong("answered without vectors")
    if len(data) != wanted:
        raise server.wrong(f"gave {len(data)} vectors for {wanted} texts")
    places = [one.get("index", place) for place, one in enumerate(data)]
    if sorted(places, key=str) != sorted(range(wanted), key=str):
        raise server.wrong("gave vectors whose indexes do not name each text once")
    rows = [_row(server, data[place].get("embedding")) for place in np.argsort(places)]
    if len({len(row) for row in rows}) > 1:
        raise server.wrong("gave vectors of different lengths")
    return np.stack(rows)


def _row(server: Server, given: Any) -> Vectors:
    try:
        if isinstance(given, str):
            return np.frombuffer(base64.b64decode(given, validate=True), dtype="<f4").astype(
                np.float32
            )
        if isinstance(given, list) and given:
            return np.asarray([np.nan if one is None else one for one in given], dtype=np.float32)
    except (binascii.Error, ValueError, TypeError, OverflowError):
        pass
    raise server.wrong("gave a vector that cannot be read")
