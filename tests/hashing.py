"""Embedders for tests: words hashed into a few dimensions, alike on every machine. They note what
they are asked and can be told to fail.

`Words` is an embedder of one's own, given as an object. `hashing:NAME` is a provider, so that it
can be named in settings, followed by a corpus that is open, and opened in another process; the
fixture `hashing` makes it known.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from unspool.embedders import PROVIDERS, Provider
from unspool.embedders.base import Facts
from unspool.embedders.options import EmbedderOptions
from unspool.index.ports import Vectors

DIMENSION = 16
BATCH = 4  # texts in a call of `hashing:NAME`, so that a small catalog has many
Hook = Callable[[Sequence[str]], None]


def vector(text: str, seed: str, dimension: int = DIMENSION) -> Vectors:
    """The sum of the words' vectors.

    Texts with the same words in another order have the same one.
    """
    return np.sum(
        [_word(word, seed, dimension) for word in ("", *re.findall(r"\w+", text.lower()))], axis=0
    )


@lru_cache(maxsize=100_000)
def _word(word: str, seed: str, dimension: int) -> Vectors:
    digest = hashlib.sha256(f"{seed}\0{word}".encode("utf-8", "replace")).digest()
    return (
        np.random.default_rng(int.from_bytes(digest[:8], "big"))
        .standard_normal(dimension)
        .astype(np.float32)
    )


class Words:
    """An embedder of one's own.

    Texts are refused or fail as `before`, called with each portion, says.
    """

    def __init__(
        self,
        name: str = "words",
        *,
        seed: str = "",
        dimension: int = DIMENSION,
        max_tokens: int = 512,
        before: Hook | None = None,
    ) -> None:
        self.name, self.dimension, self.max_tokens = name, dimension, max_tokens
        self.seed = seed or name
        self.before = before
        self.asked: list[str] = []
        self.calls = 0
        self.queries: list[str] = []

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        if self.before is not None:
            self.before(texts)
        self.calls += 1
        self.asked += texts
        return np.stack([vector(text, self.seed, self.dimension) for text in texts])

    def embed_query(self, text: str) -> Vectors:
        self.queries.append(text)
        return vector(text, self.seed, self.dimension)


class Asked:
    """What the models of this process were asked, and what happens before they answer; both by
    the model's name.
    """

    def __init__(self) -> None:
        self.passages: dict[str, list[str]] = {}
        self.queries: dict[str, list[str]] = {}
        self.before: dict[str, Hook] = {}  # passages
        self.before_query: dict[str, Hook] = {}

    def count(self, model: str) -> int:
        """How many passages a model was asked for."""
        return len(self.passages.get(model, []))

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]


ASKED = Asked()
FACTS: dict[str, dict[str, Any]] = {
    "wide": {"dimension": 24},
    "short": {"max_tokens": 40},
    "dear": {"price": 20.0},
    "free": {"price": 0.0},
}


class HashingModel:
    """`hashing:NAME`.

    Every name is another model; those in `FACTS` differ in more than their vectors.
    """

    tokenizer_file = ""

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        self._model = model
        own: dict[str, Any] = {"dimension": DIMENSION, "max_tokens": 512, **FACTS.get(model, {})}
        self.facts = Facts(
            name=f"hashing:{model}",
            over_limit=options.over_limit,
            max_batch=BATCH,
            is_local=True,
            tells_queries=True,
            **own,
        )

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        hook = (ASKED.before_query if is_query else ASKED.before).get(self._model)
        if hook is not None:
            hook(texts)
        (ASKED.queries if is_query else ASKED.passages).setdefault(self._model, []).extend(texts)
        return np.stack([vector(text, self._model, self.facts.dimension) for text in texts])


PROVIDER = "hashing"


def register() -> None:
    """Make `hashing:NAME` known in this process."""
    PROVIDERS[PROVIDER] = Provider("hashing:HashingModel", "", "", "for tests")


def unregister() -> None:
    PROVIDERS.pop(PROVIDER, None)
