"""Ports: the rest of unspool calls an `Embedder`, a provider implements a `Model`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from unspool.embedders.options import OverLimit

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Properties of a model, stated by its provider.

    `name`, `revision` and `dimension` identify the vector space: the same three always give the
    same vector for the same text. Everything that changes vectors is part of the revision, such as
    prefixes and weights.
    """

    name: str
    revision: str = "1"
    dimension: int = 0  # 0: unknown until a text is embedded
    # tokens that it reads of a text, with the prefix, without the tokenizer's special tokens
    max_tokens: int
    over_limit: OverLimit = OverLimit.CUT
    max_batch: int  # texts in a call
    batch_tokens: int = 0  # tokens in a call; 0: no limit
    is_padded: bool = False  # every text of a call costs as much as the longest
    query_prefix: str = ""
    passage_prefix: str = ""
    tells_queries: bool = False  # a call says whether texts are queries, besides any prefix
    is_unit: bool = False  # its vectors have length 1
    is_local: bool = False  # it runs in this process: one call at a time, without retries
    # the name and revision identify the model; otherwise a known vector is compared before use
    is_certain: bool = True
    # the name distinguishes it from other models, so that catalogs may share its vectors
    is_shared: bool = True
    place: str = ""  # address; two servers may use the same name for different models
    alpha: float = 0.5  # best share of semantic search in hybrid search with this model
    price: float | None = None  # US dollars for a million tokens, if known

    @property
    def is_symmetric(self) -> bool:
        """True if a text has the same vector as a query and as a passage."""
        return self.query_prefix == self.passage_prefix and not self.tells_queries


def compute_revision(*parts: str) -> str:
    """Return a short hash of everything that determines a model's vectors."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


class Tokenizer(Protocol):
    """Counter of tokens that never counts fewer than the model."""

    @property
    def special_count(self) -> int:
        """Number of special tokens that the model adds to a text."""

    @property
    def ruler(self) -> Callable[[str], Callable[[int, int], int]] | None:
        """Function of a text that returns a counter for parts of it, if there is a fast one."""

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""

    def cut(self, text: str, limit: int) -> str:
        """Return the beginning of a text, with at most this number of tokens."""


class Model(Protocol):
    """Model of a provider: facts and calls.

    `ModelEmbedder` adds checks, batches and retries.
    """

    @property
    def facts(self) -> Facts:
        """Properties of the model."""

    @property
    def tokenizer_file(self) -> str:
        """Path of its `tokenizer.json`; empty if it has none."""

    def encode(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        """Return a row for each of at most `max_batch` texts, none of them too long."""


@runtime_checkable
class Embedder(Protocol):
    """Function from text to unit vectors. Safe to call from several threads."""

    @property
    def facts(self) -> Facts:
        """Properties of the model."""

    @property
    def name(self) -> str:
        """Name of the model, as `provider:model`."""

    @property
    def revision(self) -> str:
        """Version of the model and of its use."""

    @property
    def dimension(self) -> int:
        """Length of the vectors."""

    @property
    def max_tokens(self) -> int:
        """Most tokens of a text."""

    @property
    def alpha(self) -> float:
        """Best share of semantic search in hybrid search."""

    @property
    def is_cheap(self) -> bool:
        """True if embedding a text is as fast as reading its vector from a database."""

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens by the model's tokenizer, or by the default one."""

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return a row for each text, in order."""

    def embed_query(self, text: str) -> Vectors:
        """Return the vector of a query."""


def is_cut(embedder: Embedder, text: str) -> bool:
    """Return True if an embedder reads only the beginning of a text.

    Short texts are not counted: every token but the first has at least a byte.
    """
    if (
        embedder.facts.over_limit is not OverLimit.CUT
        or len(text.encode("utf-8", "replace")) < embedder.max_tokens
    ):
        return False
    return embedder.count_tokens(text) > embedder.max_tokens
