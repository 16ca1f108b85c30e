"""An embedder of the user's own: any object that has a name, a dimension, a limit and the two methods. The rest has defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool.embedders.base import Facts
from unspool.embedders.options import EmbedderOptions
from unspool.errors import ServiceError

if TYPE_CHECKING:
    from unspool.embedders.base import Vectors

NEEDED = ("name", "dimension", "max_tokens", "embed_passages", "embed_query")
MAX_BATCH = 64


class OwnModel:
    """The object as a model. It may state its `facts`, or some of them by themselves: `revision`, `alpha`."""

    tokenizer_file = ""

    def __init__(self, embedder: Any, options: EmbedderOptions) -> None:
        self._embedder = embedder
        stated = getattr(embedder, "facts", None)
        self.facts = stated if isinstance(stated, Facts) else _facts(embedder, options)

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """One call."""
        given = self._embedder
        rows = [given.embed_query(text) for text in texts] if is_query else given.embed_passages(list(texts))
        try:
            return np.asarray(rows, dtype=np.float32)
        except (ValueError, TypeError) as error:
            raise ServiceError(f"{self.facts.name} gave vectors that cannot be read, or of different lengths; nothing of it was kept") from error


def is_own(given: object) -> bool:
    """Whether an object embeds as unspool's embedders do. Asked of its class as far as possible: a property may have to embed something."""
    return all(hasattr(type(given), name) or name in getattr(given, "__dict__", ()) for name in NEEDED)


def _facts(embedder: Any, options: EmbedderOptions) -> Facts:
    return Facts(
        name=str(embedder.name)[:200],
        revision=str(getattr(embedder, "revision", "1"))[:100],
        dimension=int(embedder.dimension),
        max_tokens=options.max_tokens or int(embedder.max_tokens),
        over_limit=options.over_limit,
        max_batch=MAX_BATCH,
        tells_queries=True,
        is_certain=False,
        alpha=float(getattr(embedder, "alpha", 0.5)),
    )
